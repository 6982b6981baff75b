//! How the system's own `ssh` is run: with the user's settings, agents and jump hosts, and with
//! little of our own.

use std::ffi::OsString;
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::process::Command;

use crate::Error;
use crate::bootstrap::AUTHENTICATED;

/// Longest time for `ssh -G` and `ssh -O check`, which reach no network.
const SETTINGS_TIME_LIMIT: Duration = Duration::from_secs(5);

/// `ssh` and the options it gets before the host.
#[derive(Debug, Clone)]
pub struct Ssh {
    /// The program.
    pub program: OsString,
    /// Options as ssh(1) takes them: `-p`, `2222`, `-J`, `jump.example`.
    pub options: Vec<OsString>,
}

/// What ssh's settings say of a host.
pub(crate) struct Settings {
    /// The name or address (`HostName`).
    pub host_name: String,
    /// If true, the connection may be one that others share (`ControlPath`).
    pub may_share: bool,
}

impl Default for Ssh {
    fn default() -> Self {
        Self {
            program: "ssh".into(),
            options: Vec::new(),
        }
    }
}

impl Ssh {
    /// Runs `script`, for a POSIX shell and without single quotes in it, at `host`.
    pub(crate) fn command(&self, host: &str, script: &str) -> Command {
        let mut command = Command::new(&self.program);
        // What scp sets, so that what the user configured for interactive logins does not get in
        // the way.
        command.args(["-x", "-T", "-oClearAllForwardings=yes"]);
        command.args(["-oRemoteCommand=none", "-oRequestTTY=no"]);
        // In place of the user's own, which scp suppresses as well: it runs once the login stands,
        // and what it prints comes out where the far side's words do. An ssh without it says
        // nothing, and the login is timed from its first output on.
        command.arg("-oPermitLocalCommand=yes");
        command.arg(format!("-oLocalCommand=echo {AUTHENTICATED}"));
        // Nothing goes over this connection while the data goes directly: firewalls forget it after
        // minutes of silence.
        command.arg("-oServerAliveInterval=60");
        command.args(&self.options);
        // Whatever shell the login has, it knows `exec` and single quotes.
        command
            .arg("--")
            .arg(host)
            .arg(format!("exec sh -c '{script}'"));
        command.kill_on_drop(true);
        command
    }

    /// Reads what ssh's settings say of `host`; the host as typed where ssh does not say.
    pub(crate) async fn settings(&self, host: &str) -> Settings {
        let reported = match self.ask(&["-G"], host).await {
            Some(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
            None => String::new(),
        };
        let value = |name| reported.lines().find_map(|line| line.strip_prefix(name));
        let bare = host.rsplit_once('@').map_or(host, |(_, bare)| bare);
        Settings {
            host_name: value("hostname ").unwrap_or(bare).trim().to_owned(),
            may_share: value("controlpath ").is_some_and(|path| path.trim() != "none"),
        }
    }

    /// Returns whether a connection to `host` stands that others share, so that no login is made.
    pub(crate) async fn has_shared_connection(&self, host: &str) -> bool {
        let checked = self.ask(&["-O", "check"], host).await;
        checked.is_some_and(|output| output.status.success())
    }

    /// Runs ssh for what it knows without connecting.
    async fn ask(&self, what: &[&str], host: &str) -> Option<Output> {
        let mut command = Command::new(&self.program);
        command.args(what).args(&self.options).arg("--").arg(host);
        command
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let asked = tokio::time::timeout(SETTINGS_TIME_LIMIT, command.output()).await;
        asked.ok()?.ok()
    }

    pub(crate) fn failed(&self, source: std::io::Error) -> Error {
        Error::NoSsh {
            program: self.program.to_string_lossy().into_owned(),
            source,
        }
    }
}
