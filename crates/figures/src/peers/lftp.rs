//! lftp, which fetches one file in simultaneous parts.

use super::http::{self, RCLONE};
use super::place::{PeerNode, Serving};
use super::{Abilities, Item, Need, Peer, Program};
use anyhow::Result;
use std::path::Path;
use std::process::Command;

const LFTP: Need = Need {
    program: "lftp",
    package: "lftp",
};

/// Minimum number of simultaneous files of a folder.
const MIRROR_PARALLEL_AT_LEAST: u32 = 4;
/// Maximum number of simultaneous parts of each file of a folder.
const MIRROR_PARTS_AT_MOST: u32 = 4;

/// lftp(1) with an HTTP server: `pget -n` for a file, `mirror --parallel` for a folder, where
/// `--use-pget-n` fetches large files in parts.
pub struct Lftp;

impl Program for Lftp {
    fn name(&self) -> &'static str {
        "lftp"
    }
    fn title(&self) -> &'static str {
        "lftp, http"
    }
    fn options(&self) -> &'static str {
        "pget -n N, folders with mirror --parallel=N (4 or more) --use-pget-n=N (4 at most)"
    }
    fn needs(&self) -> &'static [Need] {
        &[RCLONE, LFTP]
    }
}

impl Peer for Lftp {
    fn abilities(&self) -> Abilities {
        Abilities {
            send: false,
            trees: true,
            streams: true,
            forward: true,
            socks: false,
        }
    }

    fn serve(&self, place: &PeerNode, root: &Path) -> Result<Serving> {
        http::serve(place, root)
    }

    fn fetch(
        &self,
        place: &PeerNode,
        from: &Serving,
        item: &Item,
        to: &Path,
        streams: u32,
    ) -> Result<Command> {
        let (url, target) = (http::url(from, &item.name), to.join(&item.name));
        let copy = if item.tree {
            let parallel = streams.max(MIRROR_PARALLEL_AT_LEAST);
            let parts = streams.min(MIRROR_PARTS_AT_MOST);
            format!(
                "mirror --parallel={parallel} --use-pget-n={parts} \"{url}/\" \"{}\"",
                target.display()
            )
        } else {
            format!("pget -n {streams} \"{url}\" -o \"{}\"", target.display())
        };
        let mut command = place.client(&LFTP, from)?;
        // The default of 1000 retries would hide the loss of a server.
        command.arg("--norc").arg("-c").arg(format!(
            "set cmd:fail-exit yes; set net:max-retries 2; {copy}"
        ));
        Ok(command)
    }
}
