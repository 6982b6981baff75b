//! `drs run`: the program with the preload library before it.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};

use anyhow::{Context, Result};
use clap::ValueEnum;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::{Run, library, program, summary};

/// Runs the program. Gives its exit code, or 128 and the number of the signal that ended it.
///
/// # Errors
/// The library is not found, the program cannot be helped ([`program::Unfit`]) or not be started, or the log cannot be written.
pub fn run(arguments: Run) -> Result<u8> {
    let mut words = arguments.program.iter();
    let name = words.next().context("name a program to run")?;
    let path = program::find(name)?;
    let library = library::find()?;
    let kept = arguments.log.as_deref().map(writable).transpose()?;

    let mut command = Command::new(&path);
    command
        .arg0(name)
        .args(words)
        .env("LD_PRELOAD", before(&library))
        .env("DRS_MODE", mode_word(arguments.mode));
    if !arguments.summary {
        match &kept {
            Some(log) => command.env("DRS_LOG", log),
            None => command.env_remove("DRS_LOG"),
        };
        return Err(not_started(&path, command.exec()).into());
    }

    // A log of its own: the summary is of this run alone.
    let log = tempfile::Builder::new()
        .prefix("drs-log-")
        .tempfile()
        .context("cannot make a file for the summary: see TMPDIR")?;
    command.env("DRS_LOG", log.path());
    let signals = Signals::new([SIGINT, SIGQUIT, SIGTERM, SIGHUP]).context("cannot handle signals")?;
    let child = command.spawn().map_err(|error| not_started(&path, error))?;
    let status = wait(child, signals)?;
    let lines = std::fs::read(log.path()).with_context(|| format!("cannot read {}", log.path().display()))?;
    if let Some(kept) = kept {
        append(&kept, &lines)?;
    }
    eprint!("{}", summary::Summary::of(&lines));
    Ok(exit_code(status))
}

fn mode_word(mode: crate::Mode) -> String {
    mode.to_possible_value()
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default()
}

/// The library in front of what is to be loaded already.
fn before(library: &Path) -> OsString {
    let mut all = library.as_os_str().to_owned();
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    all
}

/// The log as a full path, since the program may change its folder; made now, so that a mistake is told now.
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

fn not_started(path: &Path, error: std::io::Error) -> program::Unfit {
    program::Unfit::NotExecutable(path.into(), error)
}

/// Waits for the program. What a terminal sends reaches it without our help; what is sent to this process alone is passed on.
fn wait(mut child: Child, mut signals: Signals) -> Result<ExitStatus> {
    let handle = signals.handle();
    let number = i32::try_from(child.id())
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    let status = std::thread::scope(|scope| {
        scope.spawn(|| {
            for signal in signals.forever() {
                let passed_on = match signal {
                    SIGTERM => rustix::process::Signal::TERM,
                    SIGHUP => rustix::process::Signal::HUP,
                    _ => continue,
                };
                if let Some(number) = number {
                    let _ = rustix::process::kill_process(number, passed_on);
                }
            }
        });
        let status = child.wait();
        handle.close();
        status
    });
    status.context("cannot wait for the program")
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(i32::from(crate::FAILED));
    u8::try_from(code).unwrap_or(crate::FAILED)
}
