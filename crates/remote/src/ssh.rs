//! How the system's own `ssh` is run: with the user's settings, agents and jump hosts, and with little of our own.

use std::ffi::OsString;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::Error;

/// How long `ssh -G`, which reads files and prints, may take.
const SETTINGS_TIME_LIMIT: Duration = Duration::from_secs(5);

/// `ssh` and the options it gets before the host.
#[derive(Debug, Clone)]
pub struct Ssh {
    /// The program.
    pub program: OsString,
    /// Options as ssh(1) takes them: `-p`, `2222`, `-J`, `jump.example`.
    pub options: Vec<OsString>,
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
        // What scp sets, so that what the user configured for interactive logins does not get in the way.
        command.args(["-x", "-T", "-oPermitLocalCommand=no", "-oClearAllForwardings=yes"]);
        command.args(["-oRemoteCommand=none", "-oRequestTTY=no"]);
        // Nothing goes over this connection while the data goes directly: firewalls forget it after minutes of silence.
        command.arg("-oServerAliveInterval=60");
        command.args(&self.options);
        // Whatever shell the login has, it knows `exec` and single quotes.
        command.arg("--").arg(host).arg(format!("exec sh -c '{script}'"));
        command.kill_on_drop(true);
        command
    }

    /// What `host` is to ssh: the name or address that its settings give (`HostName`). The host as typed where ssh does not say.
    pub(crate) async fn host_name(&self, host: &str) -> String {
        let bare = host.rsplit_once('@').map_or(host, |(_, bare)| bare);
        let mut command = Command::new(&self.program);
        command.arg("-G").args(&self.options).arg("--").arg(host);
        command
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let reported = match tokio::time::timeout(SETTINGS_TIME_LIMIT, command.output()).await {
            Ok(Ok(output)) => String::from_utf8_lossy(&output.stdout).into_owned(),
            _ => String::new(),
        };
        let name = reported.lines().find_map(|line| line.strip_prefix("hostname "));
        name.unwrap_or(bare).trim().to_owned()
    }

    pub(crate) fn failed(&self, source: std::io::Error) -> Error {
        Error::NoSsh {
            program: self.program.to_string_lossy().into_owned(),
            source,
        }
    }
}
