//! Memory of the data's route to each host, so that it is tried first next time. Losing it is as
//! harmless as losing the number of streams.

use std::path::PathBuf;

use longhaul_transfer::remembered::{Meaning, NumberFile};

use crate::ways::Way;

/// Routes by their numbers, which start at 1.
const WAYS: [Way; 3] = [Way::ToHost, Way::FromHost, Way::InsideSsh];

/// Memory of the route to a host.
#[derive(Debug, Clone)]
pub struct WayMemory {
    /// The file. It is created with its folder when needed.
    pub file: PathBuf,
    /// The host, as typed.
    pub host: String,
}

impl WayMemory {
    /// Returns the route of the last copy, if it is known and less than a month old.
    pub async fn recall(&self) -> Option<Way> {
        let number = self.numbers().recall(&[&self.host]).await?;
        WAYS.get(number.checked_sub(1)? as usize).copied()
    }

    /// Remembers the route. Errors are ignored.
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
    async fn each_host_has_its_own_remembered_route() {
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
