//! xrdcp with an XRootD server, without authentication.

use super::place::{PeerNode, Serving, write};
use super::{Abilities, Item, Need, Peer, Program};
use anyhow::Result;
use std::path::Path;
use std::process::Command;

const SERVER: Need = Need {
    program: "xrootd",
    package: "xrootd-server",
};
const CLIENT: Need = Need {
    program: "xrdcp",
    package: "xrootd-client",
};

/// Port of the server in its node.
const PORT: u16 = 1094;
/// Maximum of `-S`, by xrdcp(1).
const STREAMS_AT_MOST: u32 = 15;

/// Minimum number of simultaneous files of a folder.
const PARALLEL_FILES_AT_LEAST: u32 = 4;

/// xrdcp(1): `-S`, data connections beside the one that then only controls (without it, that one
/// carries the data); folders with `--parallel`, files at a time.
pub struct Xrootd;

impl Xrootd {
    fn command(place: &PeerNode, serving: &Serving, item: &Item, streams: u32) -> Result<Command> {
        let mut command = place.client(&CLIENT, serving)?;
        command.args(["-f", "-s"]);
        if streams > 1 {
            command.args(["-S", &streams.min(STREAMS_AT_MOST).to_string()]);
        }
        if item.tree {
            let files = streams.max(PARALLEL_FILES_AT_LEAST);
            command.args(["-r", "--parallel", &files.to_string()]);
        }
        Ok(command)
    }
}

fn url(serving: &Serving, name: &str) -> String {
    // The server's root is the parent of the served folder. A client that copies a folder asks for
    // information on it, which the server does not give for its root.
    format!("root://{}//served/{name}", serving.endpoint.address)
}

impl Program for Xrootd {
    fn name(&self) -> &'static str {
        "xrdcp"
    }
    fn title(&self) -> &'static str {
        "xrdcp (XRootD)"
    }
    fn options(&self) -> &'static str {
        "-S N (15 at most), folders with --parallel N (4 or more)"
    }
    fn needs(&self) -> &'static [Need] {
        &[SERVER, CLIENT]
    }
}

impl Peer for Xrootd {
    fn abilities(&self) -> Abilities {
        Abilities {
            send: true,
            trees: true,
            streams: true,
            forward: false,
            socks: false,
        }
    }

    fn serve(&self, place: &PeerNode, root: &Path) -> Result<Serving> {
        let settings = place.settings()?;
        let file = settings.path().join("xrootd.cfg");
        write(
            &file,
            &format!(
                "all.export /\noss.localroot /run\nxrd.port {PORT}\nall.adminpath /run/admin\n\
                 all.pidpath /run/admin\n"
            ),
        )?;
        place.serve(
            &SERVER,
            &["-c", &file.to_string_lossy()],
            settings,
            root,
            PORT,
        )
    }

    fn fetch(
        &self,
        place: &PeerNode,
        from: &Serving,
        item: &Item,
        to: &Path,
        streams: u32,
    ) -> Result<Command> {
        let mut command = Self::command(place, from, item, streams)?;
        command
            .arg(url(from, &item.name))
            .arg(format!("{}/", to.display()));
        Ok(command)
    }

    fn send(
        &self,
        place: &PeerNode,
        to: &Serving,
        root: &Path,
        item: &Item,
        streams: u32,
    ) -> Result<Command> {
        let mut command = Self::command(place, to, item, streams)?;
        command.arg(root.join(&item.name)).arg(url(to, ""));
        Ok(command)
    }
}
