//! Memory of the data's route to each host, so that it is tried first next time. Losing it is as
//! harmless as losing the number of streams.

use std::path::PathBuf;

use longhaul_transfer::remembered::{NumberFile, NumberMeaning};

use crate::ways::DataRoute;

/// Routes by their numbers, which start at 1.
const ROUTES: [DataRoute; 3] = [DataRoute::ToHost, DataRoute::FromHost, DataRoute::InsideSsh];

/// Memory of the route to a host.
#[derive(Debug, Clone)]
pub struct RouteMemory {
    /// The file. It is created with its folder when needed.
    pub file: PathBuf,
    /// The host, as typed.
    pub host: String,
}

impl RouteMemory {
    /// Returns the route of the last copy, if it is known and less than a month old.
    pub async fn recall(&self) -> Option<DataRoute> {
        let number = self.numbers().recall(&[&self.host]).await?;
        ROUTES.get(number.checked_sub(1)? as usize).copied()
    }

    /// Remembers the route. Errors are ignored.
    pub async fn remember(&self, way: DataRoute) {
        if let Some(at) = ROUTES.iter().position(|&known| known == way) {
            self.numbers().remember(&[&self.host], at as u32 + 1).await;
        }
    }

    fn numbers(&self) -> NumberFile {
        NumberFile {
            file: self.file.clone(),
            meaning: NumberMeaning {
                kind: "routes",
                max: ROUTES.len() as u32,
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
        let of = |host: &str| RouteMemory {
            file: folder.path().join("ways"),
            host: host.to_owned(),
        };
        assert_eq!(of("a").recall().await, None);
        for way in ROUTES {
            of("a").remember(way).await;
            assert_eq!(of("a").recall().await, Some(way));
        }
        assert_eq!(of("b").recall().await, None);
        std::fs::write(
            folder.path().join("ways"),
            r#"{"kind":"routes","entries":[{"at":9999999999,"number":7,"notes":[],"key":"x"}]}"#,
        )
        .unwrap();
        assert_eq!(of("a").recall().await, None);
    }
}
