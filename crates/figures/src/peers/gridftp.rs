//! globus-url-copy with a GridFTP server (GFD.20), anonymous and unencrypted.

use super::place::{PeerNode, SERVED, Serving};
use super::{Abilities, Item, Need, Peer, Program};
use anyhow::Result;
use std::path::Path;
use std::process::Command;

const SERVER: Need = Need {
    program: "globus-gridftp-server",
    package: "globus-gridftp-server-progs",
};
/// The client.
pub const CLIENT: Need = Need {
    program: "globus-url-copy",
    package: "globus-gass-copy-progs",
};

/// Port of the server in its node; data connections have ports of their own.
const PORT: u16 = 2811;

/// Minimum number of simultaneous files of a folder.
const CONCURRENT_FILES_AT_LEAST: u32 = 4;
/// Maximum number of data connections of each file of a folder.
const STREAMS_OF_CONCURRENT_FILES_AT_MOST: u32 = 4;

/// globus-url-copy: `-fast` ("recommended when using GridFTP servers": extended block mode, data
/// channels used again) and `-p`, parallel data connections; folders with `-cc`, files at a time.
/// All by globus-url-copy(1). Pipelining (`-pp`) is left out: by the same page only transfers
/// between two servers gain from it. Buffers are left to the kernel's tuning.
pub struct GridFtp;

impl GridFtp {
    fn command(place: &PeerNode, serving: &Serving, item: &Item, streams: u32) -> Result<Command> {
        let mut command = place.client(&CLIENT, serving)?;
        command
            // The sender connects in extended block mode, so the client names its own address.
            .env("GLOBUS_HOSTNAME", place.address()?.to_string())
            .arg("-fast");
        if item.tree {
            let (files, each) = (
                streams.max(CONCURRENT_FILES_AT_LEAST),
                streams.min(STREAMS_OF_CONCURRENT_FILES_AT_MOST),
            );
            command.args([
                "-p",
                &each.to_string(),
                "-r",
                "-cd",
                "-cc",
                &files.to_string(),
            ]);
        } else {
            command.args(["-p", &streams.to_string()]);
        }
        Ok(command)
    }
}

/// An address of a file, or of a folder, which ends with a slash.
fn url(start: &str, item: &Item) -> String {
    format!("{start}/{}{}", item.name, if item.tree { "/" } else { "" })
}

fn served(serving: &Serving, item: &Item) -> String {
    url(&format!("ftp://{}{SERVED}", serving.endpoint.address), item)
}

fn local(folder: &Path, item: &Item) -> String {
    url(&format!("file://{}", folder.display()), item)
}

impl Program for GridFtp {
    fn name(&self) -> &'static str {
        "gridftp"
    }
    fn title(&self) -> &'static str {
        "globus-url-copy (GridFTP)"
    }
    fn options(&self) -> &'static str {
        "-fast -p N, folders with -cc N (4 or more) -p N (4 at most)"
    }
    fn needs(&self) -> &'static [Need] {
        &[SERVER, CLIENT]
    }
}

impl Peer for GridFtp {
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
        let port = PORT.to_string();
        let arguments = ["-p", &port, "-aa", "-no-detach", "-disable-usage-stats"];
        place.serve(&SERVER, &arguments, place.settings()?, root, PORT)
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
        command.arg(served(from, item)).arg(local(to, item));
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
        command.arg(local(root, item)).arg(served(to, item));
        Ok(command)
    }
}
