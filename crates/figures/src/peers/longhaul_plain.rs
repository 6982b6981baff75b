//! `longhaul cp` with a server that has no `longhaul`: OpenSSH's SFTP, or an object store.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use minijinja::{Value, context};

use super::longhaul::empty_home;
use super::place::{PeerNode, SERVED, Serving, USER};
use super::table::server;
use super::{Abilities, Item, Need, Peer, Program, need};
use crate::copy::in_node;
use crate::tools::Tools;

/// Kind of server that is not `longhaul`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlainServer {
    /// OpenSSH, with its own SFTP server.
    Sshd,
    /// An S3 object store.
    S3,
}

impl PlainServer {
    /// Returns its name in `peers.toml`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sshd => "sshd",
            Self::S3 => "s3",
        }
    }
}

/// `longhaul cp` of this project's own build with a plain server. It is not installed, so
/// [`super::all`] lacks it.
pub struct LonghaulPlain<'a> {
    /// The program.
    pub tools: &'a Tools,
    /// The server.
    pub server: PlainServer,
}

impl LonghaulPlain<'_> {
    /// Returns the client's command without source and target, and the server's folder as it is
    /// written there.
    fn command(&self, place: &PeerNode, serving: &Serving) -> Result<(Command, String)> {
        server(self.server.name())?.client(place, serving, Value::default())?;
        let mut command = in_node(self.tools, place.lab, place.node, &empty_home(serving)?)?;
        command
            .env("HOME", serving.folder())
            .args(["cp", "-r", "--json"]);
        let root = match self.server {
            PlainServer::Sshd => {
                command.arg("-F").arg(serving.setting("ssh_config"));
                format!("{USER}:{SERVED}")
            }
            PlainServer::S3 => {
                command
                    .env(
                        "AWS_ENDPOINT_URL",
                        format!("http://{}", serving.endpoint.address),
                    )
                    .env("AWS_ACCESS_KEY_ID", "peer")
                    .env("AWS_SECRET_ACCESS_KEY", "peerpeer");
                "s3://served".to_owned()
            }
        };
        Ok((command, root))
    }
}

impl Program for LonghaulPlain<'_> {
    fn name(&self) -> &'static str {
        match self.server {
            PlainServer::Sshd => "longhaul-sftp",
            PlainServer::S3 => "longhaul-s3",
        }
    }

    fn title(&self) -> &'static str {
        "longhaul cp"
    }

    fn options(&self) -> &'static str {
        "none"
    }

    fn needs(&self) -> Vec<Need> {
        let server = server(self.server.name()).map_or_else(|_| Vec::new(), |one| one.needs());
        server.into_iter().chain(need("ssh")).collect()
    }
}

impl Peer for LonghaulPlain<'_> {
    fn abilities(&self) -> Abilities {
        Abilities {
            send: true,
            trees: true,
            streams: false,
            forward: false,
            socks: false,
        }
    }

    fn serve(&self, place: &PeerNode, root: &Path) -> Result<Serving> {
        server(self.server.name())?.serve(place, root, context!())
    }

    fn fetch(
        &self,
        place: &PeerNode,
        from: &Serving,
        item: &Item,
        to: &Path,
        _streams: u32,
    ) -> Result<Command> {
        let (mut command, root) = self.command(place, from)?;
        command
            .arg(format!("{root}/{}", item.name))
            .arg(to.join(&item.name));
        Ok(command)
    }

    fn send(
        &self,
        place: &PeerNode,
        to: &Serving,
        root: &Path,
        item: &Item,
        _streams: u32,
    ) -> Result<Command> {
        let (mut command, served) = self.command(place, to)?;
        command
            .arg(root.join(&item.name))
            .arg(format!("{served}/{}", item.name));
        Ok(command)
    }
}
