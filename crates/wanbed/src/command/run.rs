//! `run`: a lab for the duration of one command.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use longhaul_output::message;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use wanbed::{Lab, Scenario, exit_code};

use super::Asked;

/// Time for the command to end after a signal was passed to it.
const SIGNAL_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(super) struct Run {
    /// The scenario file
    scenario: PathBuf,
    #[command(flatten)]
    asked: Asked,
    /// The command and its arguments; it runs on this machine, not in a node, and reaches the nodes
    /// by `wanbed exec NODE`
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

impl Run {
    pub(super) fn act(self) -> anyhow::Result<ExitCode> {
        // From here on a signal does not end this process before the lab is down.
        let signals = signals()?;
        let (program, arguments) = self.command.split_first().context("no command given")?;
        let lab = Lab::up(&Scenario::read(&self.scenario)?, &self.asked.overrides())?;
        let mut command = Command::new(program);
        command.args(arguments).envs(lab.environment());
        if let Ok(this) = std::env::current_exe() {
            // The command finds this `wanbed` even if another one precedes it in PATH.
            command
                .env("WANBED", &this)
                .env("PATH", path_with(this.parent().unwrap_or(&this))?);
        }
        wanbed::end_with_parent(&mut command);
        let ended = match command
            .spawn()
            .with_context(|| format!("cannot run {}", program.display()))
        {
            Ok(child) => wait(child, signals),
            Err(error) => Err(error),
        };
        let report = lab.down();
        let code = ended?;
        if let Some(warning) = report?.warning() {
            message!("wanbed: {warning}");
        }
        Ok(ExitCode::from(code))
    }
}

fn path_with(directory: &std::path::Path) -> anyhow::Result<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    Ok(std::env::join_paths(
        std::env::split_paths(&path).chain([directory.to_owned()]),
    )?)
}

fn signals() -> anyhow::Result<Receiver<i32>> {
    let (sender, receiver) = channel();
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for signal in &mut signals {
                let _ = sender.send(signal);
            }
        })?;
    Ok(receiver)
}

/// Waits for the command, and passes signals on to it: the first one as received, the next one, or
/// a timeout, as SIGKILL.
fn wait(mut child: Child, signals: Receiver<i32>) -> anyhow::Result<u8> {
    let process = Pid::from_child(&child);
    let handle = pidfd_open(process, PidfdFlags::empty()).context("watching the command")?;
    std::thread::Builder::new()
        .name("pass signals on".to_owned())
        .spawn(move || {
            let Ok(first) = signals.recv() else { return };
            let first = Signal::from_named_raw(first).unwrap_or(Signal::TERM);
            let _ = pidfd_send_signal(&handle, first);
            let _ = signals.recv_timeout(SIGNAL_TIMEOUT);
            // one that is gone cannot be hit: the handle knows
            let _ = pidfd_send_signal(&handle, Signal::KILL);
        })?;
    Ok(exit_code(child.wait().context("waiting for the command")?))
}
