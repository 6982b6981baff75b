//! Which way worked last time with each host, so that it is tried first: as little worth keeping as
//! the number of streams.

use std::path::PathBuf;

use longhaul_transfer::remembered::{Meaning, NumberFile};

use crate::ways::Way;

/// The ways by their numbers, which are counted from 1.
const WAYS: [Way; 3] = [Way::ToHost, Way::FromHost, Way::InsideSsh];

/// Where the way to a host is kept between copies.
#[derive(Debug, Clone)]
pub struct WayMemory {
    /// The file; it and its folder are made when something is to be remembered.
    pub file: PathBuf,
    /// The host, as it is typed.
    pub host: String,
}

impl WayMemory {
    /// The way that was taken last time, if that is known and not longer ago than a month.
    pub async fn recall(&self) -> Option<Way> {
        let number = self.numbers().recall(&[&self.host]).await?;
        WAYS.get(number.checked_sub(1)? as usize).copied()
    }

    /// Remembers it, if it can be written down.
    pub async fn remember(&self, way: Way) {
        if let Some(at) = WAYS.iter().position(|&known| known == way) {
            self.numbers().remember(&[&self.host], at as u32 + 1).await;
        }
    }

    fn numbers(&self) -> NumberFile {
        NumberFile {
            file: self.file.clone(),
            meaning: Meaning {
                first_line: "longhaul ways 1",
                max: WAYS.len() as u32,
                notes: 0,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_host_has_its_way() {
        let folder = tempfile::tempdir().unwrap();
        let of = |host: &str| WayMemory {
            file: folder.path().join("ways"),
            host: host.to_owned(),
        };
        assert_eq!(of("a").recall().await, None);
        for way in WAYS {
            of("a").remember(way).await;
            assert_eq!(of("a").recall().await, Some(way));
        }
        assert_eq!(of("b").recall().await, None);
        std::fs::write(
            folder.path().join("ways"),
            "longhaul ways 1\n9999999999 7 x\n",
        )
        .unwrap();
        assert_eq!(of("a").recall().await, None);
    }
}
