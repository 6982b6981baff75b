//! Runs the system's own `ssh`, with the user's settings, agents and jump hosts, and with few
//! options of its own.

use std::ffi::OsString;
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::process::Command;

use crate::Error;
use crate::bootstrap::AUTHENTICATED;

/// Time limit of `ssh -G` and `ssh -O check`, which do not use the network.
const SETTINGS_TIMEOUT: Duration = Duration::from_secs(5);

/// The `ssh` command, and its options before the host.
#[derive(Debug, Clone)]
pub struct Ssh {
    /// The program.
    pub program: OsString,
    /// Options as ssh(1) takes them: `-p`, `2222`, `-J`, `jump.example`.
    pub options: Vec<OsString>,
}

/// Settings of ssh for a host.
pub(crate) struct HostSettings {
    /// Name or address (`HostName`).
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
    /// Returns the command that runs `script` at `host`. The script is for a POSIX shell and has no
    /// single quotes.
    pub(crate) fn command(&self, host: &str, script: &str) -> Command {
        let mut command = Command::new(&self.program);
        // The options of scp, so that settings for interactive logins do not interfere.
        command.args(["-x", "-T", "-oClearAllForwardings=yes"]);
        command.args(["-oRemoteCommand=none", "-oRequestTTY=no"]);
        // Replaces the user's own LocalCommand, which scp suppresses as well. It runs once the
        // login is established, and prints to the same output as the far side. An ssh without it
        // prints nothing, and the login is timed from its first output on.
        command.arg("-oPermitLocalCommand=yes");
        command.arg(format!("-oLocalCommand=echo {AUTHENTICATED}"));
        // This connection is idle while the data goes directly, and firewalls forget it after
        // minutes of silence.
        command.arg("-oServerAliveInterval=60");
        command.args(&self.options);
        // Every login shell knows `exec` and single quotes.
        command
            .arg("--")
            .arg(host)
            .arg(format!("exec sh -c '{script}'"));
        command.kill_on_drop(true);
        command
    }

    /// Returns the command that starts a subsystem at `host`, such as `sftp`. `options` are in the
    /// form of ssh_config(5), and take precedence over the user's own.
    #[must_use]
    pub fn subsystem(&self, host: &str, name: &str, options: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["-x", "-T", "-oClearAllForwardings=yes"]);
        command.args(["-oRemoteCommand=none", "-oRequestTTY=no"]);
        command.arg("-oPermitLocalCommand=no");
        command.args(options.iter().map(|option| format!("-o{option}")));
        // The data goes through this connection, so its end must be noticed.
        command.args(["-oServerAliveInterval=15", "-oServerAliveCountMax=3"]);
        command.args(&self.options);
        command.args(["-s", "--", host, name]);
        command.kill_on_drop(true);
        command
    }

    /// Reads ssh's settings for `host`; uses the host as typed if ssh gives none.
    pub(crate) async fn settings(&self, host: &str) -> HostSettings {
        let reported = match self.ask(&["-G"], host).await {
            Some(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
            None => String::new(),
        };
        let value = |name| reported.lines().find_map(|line| line.strip_prefix(name));
        let bare = host.rsplit_once('@').map_or(host, |(_, bare)| bare);
        HostSettings {
            host_name: value("hostname ").unwrap_or(bare).trim().to_owned(),
            may_share: value("controlpath ").is_some_and(|path| path.trim() != "none"),
        }
    }

    /// Returns true if a shared connection to `host` is open, so that no login is made.
    pub(crate) async fn has_shared_connection(&self, host: &str) -> bool {
        let checked = self.ask(&["-O", "check"], host).await;
        checked.is_some_and(|output| output.status.success())
    }

    /// Runs ssh for information that needs no connection.
    async fn ask(&self, what: &[&str], host: &str) -> Option<Output> {
        let mut command = Command::new(&self.program);
        command.args(what).args(&self.options).arg("--").arg(host);
        command
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let asked = tokio::time::timeout(SETTINGS_TIMEOUT, command.output()).await;
        asked.ok()?.ok()
    }

    /// Returns the error for a command that could not be started.
    #[must_use]
    pub fn failed(&self, source: std::io::Error) -> Error {
        Error::NoSsh {
            program: self.program.to_string_lossy().into_owned(),
            source,
        }
    }
}
