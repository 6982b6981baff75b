//! An HTTP server of files that supports range requests: `rclone serve http`, for rclone and lftp.

use super::Need;
use super::place::{PeerNode, SERVED, Serving};
use anyhow::Result;
use std::path::Path;
use tempfile::TempDir;

/// Port of the server in its node.
const PORT: u16 = 8081;

/// Server and client.
pub const RCLONE: Need = Need {
    program: "rclone",
    package: "rclone",
};

/// Serves [`SERVED`] for reading.
///
/// # Errors
/// rclone is missing, or the server does not start.
pub fn serve(place: &PeerNode, root: &Path) -> Result<Serving> {
    serve_with(place, place.settings()?, root, PORT, &[])
}

/// Serves like [`serve`] at another port, with its own settings and options.
///
/// # Errors
/// As [`serve`].
pub fn serve_with(
    place: &PeerNode,
    settings: TempDir,
    root: &Path,
    port: u16,
    options: &[&str],
) -> Result<Serving> {
    let address = format!("{}:{port}", place.address()?);
    let arguments = [
        "serve",
        "http",
        SERVED,
        "--read-only",
        "--config=",
        "--addr",
    ];
    let arguments = [&arguments[..], &[&address], options].concat();
    place.serve(&RCLONE, &arguments, settings, root, port)
}

/// The address of a served file or folder.
pub fn url(serving: &Serving, name: &str) -> String {
    format!("http://{}/{name}", serving.endpoint.address)
}
