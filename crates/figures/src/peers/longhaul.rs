//! `longhaul cp` with `longhaul serve`, timed and checked like the other programs.

use super::place::{PeerNode, Serving};
use super::{Abilities, Item, Need, Peer, Program};
use crate::copy::{SERVER_PORT, in_node, serve_with};
use crate::tools::Tools;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The short name.
pub const NAME: &str = "longhaul";

/// `longhaul cp` of this project's own build. It is not installed, so [`super::all`] lacks it.
pub struct Longhaul<'a> {
    /// The program and its keys.
    pub tools: &'a Tools,
    /// Number of streams that is set. `None` lets `longhaul` choose.
    pub streams: Option<u32>,
    /// If true, the content of files is plaintext.
    pub is_clear: bool,
    /// More options of the client.
    pub options: &'static [&'static str],
}

impl Longhaul<'_> {
    /// Begins the client's command. Its home is a copy in the server's folder of settings, as for
    /// all peers, so an earlier run's knowledge of the server does not help this one.
    fn command(&self, place: &PeerNode, serving: &Serving) -> Result<Command> {
        let home = empty_home(serving)?;
        copy_files(&self.tools.identities.client_home, &home)?;
        let mut command = in_node(self.tools, place.lab, place.node, &home)?;
        command.args([
            "cp",
            "-r",
            "--json",
            "--host-key",
            &self.tools.identities.server_key,
        ]);
        if let Some(streams) = self.streams {
            command.args(["--streams", &streams.to_string()]);
        }
        if self.is_clear {
            command.arg("--no-encrypt");
        }
        command.args(self.options);
        Ok(command)
    }
}

/// A client's home with nothing in it.
///
/// # Errors
/// It cannot be made.
pub fn empty_home(serving: &Serving) -> Result<PathBuf> {
    let home = serving.setting("client-home");
    fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
    Ok(home)
}

/// Copies the regular files of a folder, which has no folders in it.
///
/// # Errors
/// A file cannot be read or written.
pub fn copy_files(from: &Path, to: &Path) -> Result<()> {
    let copy = || -> std::io::Result<()> {
        for entry in fs::read_dir(from)? {
            let path = entry?.path();
            if let (true, Some(name)) = (path.is_file(), path.file_name()) {
                fs::copy(&path, to.join(name))?;
            }
        }
        Ok(())
    };
    copy().with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
}

/// Parses the streams of a copy from the report that `--json` prints last.
///
/// # Errors
/// The report is missing, or does not confirm that everything was verified.
pub fn streams_of(printed: &str) -> Result<u32> {
    let last = printed.lines().rfind(|line| !line.trim().is_empty());
    let last = last.context("longhaul cp printed no report")?;
    let report: serde_json::Value = serde_json::from_str(last)
        .with_context(|| format!("longhaul cp's closing report does not parse: {last}"))?;
    if report["verification"]["verified"] != true {
        bail!("longhaul cp verified nothing: {last}");
    }
    let streams = report["streams"].as_array();
    Ok(streams
        .context("longhaul cp's closing report names no streams")?
        .len() as u32)
}

impl Program for Longhaul<'_> {
    fn name(&self) -> &'static str {
        NAME
    }
    fn title(&self) -> &'static str {
        "longhaul cp"
    }
    fn options(&self) -> &'static str {
        "none, or --streams N, or --no-encrypt with serve --allow-no-encrypt"
    }
    fn needs(&self) -> Vec<Need> {
        Vec::new()
    }
}

impl Peer for Longhaul<'_> {
    fn abilities(&self) -> Abilities {
        Abilities {
            send: false,
            trees: true,
            // They are this value's own, so that none can be told.
            streams: false,
            forward: false,
            socks: false,
        }
    }

    fn serve(&self, place: &PeerNode, root: &Path) -> Result<Serving> {
        let options: &[&str] = match self.is_clear {
            true => &["--allow-no-encrypt"],
            false => &[],
        };
        let server = serve_with(
            self.tools,
            place.lab,
            place.node,
            root,
            &["--read"],
            options,
        )?;
        place.serving(server, place.settings()?, SERVER_PORT)
    }

    fn fetch(
        &self,
        place: &PeerNode,
        from: &Serving,
        item: &Item,
        to: &Path,
        _streams: u32,
    ) -> Result<Command> {
        let mut command = self.command(place, from)?;
        command
            .arg(format!("lh://{}/{}", from.endpoint.address, item.name))
            .arg(to);
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_those_of_a_verified_copys_last_line() {
        let report = |verified| {
            format!(
                "{{\"event\":\"progress\"}}\n\
                 {{\"streams\":[{{}},{{}}],\"verification\":{{\"verified\":{verified}}}}}\n\n"
            )
        };
        assert_eq!(streams_of(&report(true)).unwrap(), 2);
        assert!(streams_of(&report(false)).is_err());
        assert!(streams_of("").is_err());
    }
}
