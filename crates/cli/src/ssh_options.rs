//! How ssh is run for paths of the form `user@host:path`, in the flags of scp.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use longhaul_remote::{PortRange, Ssh, Start};

/// Copies to and from user@host:path.
#[derive(Args)]
#[command(next_help_heading = "Copies to and from user@host:path (also in ~/.ssh/config)")]
pub struct SshOptions {
    /// Have the host use a copy of this very program: brought over ssh, checked, and kept in ~/.cache/longhaul there.
    #[arg(long)]
    bootstrap: bool,
    /// TCP ports for the data, at whichever side can be connected to [default: any].
    #[arg(long, value_name = "FIRST-LAST")]
    pub port_range: Option<PortRange>,
    /// The ssh program.
    #[arg(long, value_name = "PROGRAM", default_value = "ssh")]
    ssh: OsString,
    /// Port of the host's ssh server.
    #[arg(short = 'P', value_name = "PORT")]
    port: Option<u16>,
    /// File with the key to log in with.
    #[arg(short = 'i', value_name = "FILE")]
    login_key: Option<PathBuf>,
    /// File with ssh's settings.
    #[arg(short = 'F', value_name = "FILE")]
    settings: Option<PathBuf>,
    /// Host to log in by way of.
    #[arg(short = 'J', value_name = "HOST")]
    jump: Option<OsString>,
    /// Any option of ssh_config(5). Repeatable.
    #[arg(short = 'o', value_name = "OPTION")]
    option: Vec<OsString>,
}

impl SshOptions {
    /// How the far side is started.
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
        Start {
            ssh: Ssh {
                program: self.ssh.clone(),
                options,
            },
            bootstrap: self.bootstrap,
            release: env!("CARGO_PKG_VERSION"),
        }
    }
}
