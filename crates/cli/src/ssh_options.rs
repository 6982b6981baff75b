//! Options for running ssh for paths of the form `user@host:path`, named as in scp.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use longhaul_remote::{AddressFamily, PortRange, Ssh, Start};

/// Options for copies to and from user@host:path.
#[derive(Args)]
#[command(next_help_heading = "Copies to and from user@host:path (also in ~/.ssh/config)")]
pub struct SshOptions {
    /// Have the host use a copy of this very program: brought over ssh, checked, and kept in
    /// ~/.cache/longhaul there.
    #[arg(long)]
    pub bootstrap: bool,
    /// TCP ports for the data, at the side that accepts the connection [default: any].
    #[arg(long, value_name = "FIRST-LAST")]
    pub port_range: Option<PortRange>,
    /// The ssh program.
    #[arg(short = 'S', long, value_name = "PROGRAM", default_value = "ssh")]
    pub ssh: OsString,
    /// Port of the host's ssh server.
    #[arg(short = 'P', value_name = "PORT")]
    pub port: Option<u16>,
    /// File with the key to log in with.
    #[arg(short = 'i', value_name = "FILE")]
    pub login_key: Option<PathBuf>,
    /// File with ssh's settings.
    #[arg(short = 'F', value_name = "FILE")]
    pub settings: Option<PathBuf>,
    /// Host to jump through when logging in.
    #[arg(short = 'J', value_name = "HOST")]
    pub jump: Option<OsString>,
    /// Any option of ssh_config(5). Repeatable.
    #[arg(short = 'o', value_name = "OPTION")]
    pub option: Vec<OsString>,
    /// Never ask for a password or a passphrase: fail instead.
    #[arg(short = 'B')]
    batch: bool,
    /// Connect to the host by IPv4 alone.
    #[arg(short = '4', conflicts_with = "ipv6")]
    pub ipv4: bool,
    /// Connect to the host by IPv6 alone.
    #[arg(short = '6')]
    pub ipv6: bool,
}

impl SshOptions {
    /// Returns the options for starting far sides.
    pub fn start(&self) -> Start {
        let mut options: Vec<OsString> = Vec::new();
        let mut add = |flag: &str, value: OsString| options.extend([flag.into(), value]);
        if let Some(file) = &self.settings {
            add("-F", file.into());
        }
        if let Some(port) = self.port {
            add("-p", port.to_string().into());
        }
        if let Some(file) = &self.login_key {
            add("-i", file.into());
        }
        if let Some(host) = &self.jump {
            add("-J", host.clone());
        }
        for option in &self.option {
            add("-o", option.clone());
        }
        if self.batch {
            add("-o", "BatchMode=yes".into());
        }
        let family = match (self.ipv4, self.ipv6) {
            (true, _) => Some(AddressFamily::V4),
            (_, true) => Some(AddressFamily::V6),
            _ => None,
        };
        options.extend(family.map(|family| family.flag().into()));
        Start {
            ssh: Ssh {
                program: self.ssh.clone(),
                options,
            },
            family,
            bootstrap: self.bootstrap,
            release: env!("CARGO_PKG_VERSION"),
        }
    }

    /// Returns the first given option that means nothing for `lh://host/path`, and what to use
    /// there.
    pub fn meaningless_for_servers(&self) -> Option<(&'static str, &'static str)> {
        let none = "leave it out";
        let flags = [
            (
                self.port.is_some(),
                "-P",
                "write the server's port as lh://host:PORT/path",
            ),
            (
                self.login_key.is_some(),
                "-i",
                "name a key of longhaul's with --identity",
            ),
            (
                self.jump.is_some(),
                "-J",
                "name depots to pass with --route",
            ),
            (self.settings.is_some(), "-F", none),
            (!self.option.is_empty(), "-o", none),
            (
                self.ipv4 || self.ipv6,
                "-4 or -6",
                "write the server's address as lh://192.0.2.1/path or lh://[2001:db8::1]/path",
            ),
            (self.bootstrap, "--bootstrap", "install longhaul there"),
            (
                self.port_range.is_some(),
                "--port-range",
                "the server's port is the only one",
            ),
        ];
        flags
            .into_iter()
            .find(|(given, ..)| *given)
            .map(|(_, flag, instead)| (flag, instead))
    }
}
