//! `drs run`: starts the program with the preload library.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use clap::ValueEnum;
use longhaul_preload::launch::{self, Unfit};

use crate::{Run, summary};

const STARTER: launch::Starter = launch::Starter {
    name: "drs",
    instead: "run a dynamically linked build, or tune the host",
};

/// Runs the program. Returns its exit code, or 128 plus the number of the signal that ended it.
///
/// # Errors
/// The library is not found, the program cannot be preloaded ([`Unfit`]) or started, or the log
/// cannot be written.
pub fn run(arguments: Run) -> Result<u8> {
    let mut words = arguments.program.iter();
    let name = words.next().context("name a program to run")?;
    let path = launch::find_program(name, STARTER)?;
    let object = launch::find_object("DRS_PRELOAD")?;
    let kept = arguments.log.as_deref().map(writable).transpose()?;

    let mut command = Command::new(&path);
    command
        .arg0(name)
        .args(words)
        .env("LD_PRELOAD", launch::preload(&object))
        .env("DRS_MODE", mode_word(arguments.mode));
    let (name, filters) = launch::inherited_filters();
    command.env(name, filters);
    if !arguments.summary {
        match &kept {
            Some(log) => command.env("DRS_LOG", log),
            None => command.env_remove("DRS_LOG"),
        };
        return Err(not_started(&path, command.exec()).into());
    }

    // A log of its own, so that the summary covers only this run.
    let log = tempfile::Builder::new()
        .prefix("drs-log-")
        .tempfile()
        .context("cannot make a file for the summary: see TMPDIR")?;
    command.env("DRS_LOG", log.path());
    let signals = launch::Passed::begin().context("cannot handle signals")?;
    let child = command.spawn().map_err(|error| not_started(&path, error))?;
    let status = signals.wait(child).context("cannot wait for the program")?;
    let lines = std::fs::read(log.path())
        .with_context(|| format!("cannot read {}", log.path().display()))?;
    if let Some(kept) = kept {
        append(&kept, &lines)?;
    }
    longhaul_output::prompt(&summary::Summary::of(&lines).to_string());
    Ok(launch::exit_code(status))
}

fn mode_word(mode: crate::Mode) -> String {
    mode.to_possible_value()
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default()
}

/// Returns the absolute path of the log, because the program may change its folder. The file is
/// opened now, so that a mistake is reported now.
fn writable(log: &Path) -> Result<PathBuf> {
    append(log, b"")?;
    log.canonicalize()
        .with_context(|| format!("cannot find {}", log.display()))
}

fn append(log: &Path, bytes: &[u8]) -> Result<()> {
    use std::io::Write;
    std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(log)
        .and_then(|mut file| file.write_all(bytes))
        .with_context(|| format!("cannot write the log {}", log.display()))
}

fn not_started(path: &Path, error: std::io::Error) -> Unfit {
    Unfit::NotExecutable(path.into(), error)
}
