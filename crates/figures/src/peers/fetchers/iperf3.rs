//! iperf3, whose server sends the content of a file instead of generated data.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::super::Item;
use super::super::iperf3::{IPERF3, PORT};
use super::super::place::{PeerNode, SERVED, Serving, write};

/// File of the server's settings that holds the length of the served file. The client must request
/// that many bytes.
const LENGTH: &str = "length";

/// Serves the only file of `root`.
pub(super) fn serve(place: &PeerNode, root: &Path) -> Result<Serving> {
    let entry = std::fs::read_dir(root)?
        .next()
        .context("there is no file to serve")??;
    let settings = place.settings()?;
    let length = entry.metadata()?.len();
    write(&settings.path().join(LENGTH), &length.to_string())?;
    let file = format!("{SERVED}/{}", entry.file_name().to_string_lossy());
    let port = PORT.to_string();
    let arguments = ["--server", "--port", &port, "--file", &file];
    place.serve(&IPERF3, &arguments, settings, root, PORT)
}

/// Receives into a file as many bytes as the served file has.
pub(super) fn fetch(place: &PeerNode, from: &Serving, item: &Item, to: &Path) -> Result<Command> {
    let at = from.endpoint.address;
    let length = std::fs::read_to_string(from.setting(LENGTH))?;
    let mut command = place.client(&IPERF3, from)?;
    command
        .args(["--client", &at.ip().to_string()])
        .args(["--port", &at.port().to_string()])
        .args(["--reverse", "--bytes", &length, "--file"])
        .arg(to.join(&item.name));
    Ok(command)
}
