//! `longhaul run --isolate`: a program in a network namespace of its own.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result};
use longhaul_netns::{Bridge, ConnectionWishes, IsolateError};
use longhaul_preload::launch::{self, UnsuitableProgram};
use longhaul_preload::settings;
use longhaul_ramp_protocol::SOCKET_VARIABLE;

use super::{OwnOnramp, RunCommand, seconds};

/// Socket path given to the program: it cannot reach an on-ramp's listeners from its namespace, and
/// needs none.
const NO_SOCKET: &str = "/dev/null";

/// The program gains privileges, which has no effect in a user's namespace.
#[derive(Debug, thiserror::Error)]
#[error(
    "{program} is {how}, which has no effect where this user makes the namespace: run it as the \
     user that it would become"
)]
struct PrivilegedProgram {
    program: String,
    how: &'static str,
}

/// Starts the program, and carries its connections until it has ended.
pub(super) fn start(run: &RunCommand, name: &OsStr) -> Result<u8> {
    let path = launch::locate(name)?;
    if longhaul_netns::needs_user_namespace()
        && let Some(how) = launch::privilege_reason(&path)
    {
        let program = path.display().to_string();
        return Err(PrivilegedProgram { program, how }.into());
    }
    let mut command = Command::new(&path);
    command.arg0(name).args(run.program.iter().skip(1));
    command.env(SOCKET_VARIABLE, NO_SOCKET);
    command.env_remove(settings::ROUTES_VARIABLE);
    // The on-ramp starts before the program, so that no connection misses it.
    let (own, ramp) = match run.onramp_to_use() {
        Some(socket) => (None, socket),
        None => {
            let own = OwnOnramp::start(run)?;
            let socket = own.socket.clone();
            (Some(own), socket)
        }
    };
    let wishes = ConnectionWishes {
        ramp,
        closed: run.closed,
        purpose: run.purpose.clone(),
        size: run.size.map(|size| size.0),
        rate: run.rate.map(|rate| rate.bits_per_second().round() as u64),
        duration: run.duration.map(seconds),
    };
    let signals = launch::SignalForwarder::begin().context("cannot handle signals")?;
    let (child, network) = longhaul_netns::start(command).map_err(|error| match error {
        IsolateError::NotStarted(error) => {
            UnsuitableProgram::NotExecutable(path.clone(), error).into()
        }
        error => anyhow::Error::from(error),
    })?;
    // Connections use this process's descriptors; the program has its own limit.
    crate::raise_descriptor_limit();
    let bridge =
        Bridge::start(network, wishes).context("cannot carry the program's connections")?;
    let status = signals.wait(child).context("cannot wait for the program")?;
    bridge.finish();
    if let Some(own) = own {
        own.end();
    }
    Ok(launch::exit_code(status))
}
