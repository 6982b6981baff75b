//! Conversion of the options for `user@host:path` to a command line of ssh.

use std::ffi::OsString;

use longhaul_copy_api::SshOptions;
use longhaul_remote::{AddressFamily, Ssh, Start};

/// Returns the options for starting far sides.
pub fn start(given: &SshOptions) -> Start {
    let mut options: Vec<OsString> = Vec::new();
    let mut add = |flag: &str, value: OsString| options.extend([flag.into(), value]);
    if let Some(file) = &given.ssh_config {
        add("-F", file.into());
    }
    if let Some(port) = given.ssh_port {
        add("-p", port.to_string().into());
    }
    if let Some(file) = &given.ssh_key {
        add("-i", file.into());
    }
    if let Some(host) = &given.ssh_jump {
        add("-J", host.into());
    }
    for option in &given.ssh_options {
        add("-o", option.clone());
    }
    if given.batch {
        add("-o", "BatchMode=yes".into());
    }
    let family = match (given.ipv4, given.ipv6) {
        (true, _) => Some(AddressFamily::V4),
        (_, true) => Some(AddressFamily::V6),
        _ => None,
    };
    options.extend(family.map(|family| family.flag().into()));
    let program = given.ssh_program.as_ref();
    Start {
        ssh: Ssh {
            program: program.map_or_else(|| "ssh".into(), OsString::from),
            options,
        },
        family,
        bootstrap: given.bootstrap,
        max_silence: None,
        release: env!("CARGO_PKG_VERSION"),
    }
}
