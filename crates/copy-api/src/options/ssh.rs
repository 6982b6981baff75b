//! Options for running ssh for paths of the form `user@host:path`, named as in scp.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use longhaul_proto::PortRange;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Heading of the options in the help. Each option names it, as a heading of the whole struct would
/// also apply to the options after it.
const HEADING: &str = "Copies to and from user@host:path (also in ~/.ssh/config)";

/// Options for copies to and from user@host:path.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct SshOptions {
    /// Have the host use a copy of this very program: brought over ssh, checked, and kept in
    /// ~/.cache/longhaul there.
    #[arg(help_heading = HEADING, long)]
    pub bootstrap: bool,
    /// TCP ports for the data, at the side that accepts the connection [default: any].
    #[arg(help_heading = HEADING, long, value_name = "FIRST-LAST")]
    #[schema(value_type = Option<String>)]
    pub port_range: Option<PortRange>,
    /// The ssh program [default: ssh].
    #[arg(help_heading = HEADING, short = 'S', long = "ssh", value_name = "PROGRAM")]
    #[schema(value_type = Option<String>)]
    pub ssh_program: Option<PathBuf>,
    /// Port of the host's ssh server.
    #[arg(help_heading = HEADING, short = 'P', value_name = "PORT")]
    pub ssh_port: Option<u16>,
    /// File with the key to log in with.
    #[arg(help_heading = HEADING, short = 'i', value_name = "FILE")]
    #[schema(value_type = Option<String>)]
    pub ssh_key: Option<PathBuf>,
    /// File with ssh's settings.
    #[arg(help_heading = HEADING, short = 'F', value_name = "FILE")]
    #[schema(value_type = Option<String>)]
    pub ssh_config: Option<PathBuf>,
    /// Host to jump through when logging in.
    #[arg(help_heading = HEADING, short = 'J', value_name = "HOST")]
    pub ssh_jump: Option<String>,
    /// Any option of ssh_config(5). Repeatable.
    #[arg(help_heading = HEADING, short = 'o', value_name = "OPTION")]
    #[serde(with = "utf8_list")]
    #[schema(value_type = Vec<String>)]
    pub ssh_options: Vec<OsString>,
    /// Never ask for a password or a passphrase: fail instead.
    // A job never asks.
    #[arg(help_heading = HEADING, short = 'B')]
    #[serde(skip)]
    pub batch: bool,
    /// Connect to the host by IPv4 alone.
    #[arg(help_heading = HEADING, short = '4', conflicts_with = "ipv6")]
    pub ipv4: bool,
    /// Connect to the host by IPv6 alone.
    #[arg(help_heading = HEADING, short = '6')]
    pub ipv6: bool,
}

impl SshOptions {
    /// Returns the first given option that means nothing for `lh://host/path`, and what to use
    /// there.
    #[must_use]
    pub fn meaningless_for_servers(&self) -> Option<(&'static str, &'static str)> {
        let none = "leave it out";
        let flags = [
            (
                self.ssh_port.is_some(),
                "-P",
                "write the server's port as lh://host:PORT/path",
            ),
            (
                self.ssh_key.is_some(),
                "-i",
                "name a key of longhaul's with --identity",
            ),
            (
                self.ssh_jump.is_some(),
                "-J",
                "name depots to pass with --route",
            ),
            (self.ssh_config.is_some(), "-F", none),
            (!self.ssh_options.is_empty(), "-o", none),
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

/// Serialization of arguments as text. One that is not UTF-8 is an error.
mod utf8_list {
    use std::ffi::OsString;
    use std::path::Path;

    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(list: &[OsString], serializer: S) -> Result<S::Ok, S::Error> {
        // A path is serialized as text.
        serializer.collect_seq(list.iter().map(Path::new))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<OsString>, D::Error> {
        let list = Vec::<String>::deserialize(from)?;
        Ok(list.into_iter().map(OsString::from).collect())
    }
}
