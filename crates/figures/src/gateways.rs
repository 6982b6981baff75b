//! A route for programs without knowledge of it: depots, an off-ramp, a table of routes, and
//! `longhaul run`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use wanbed::Lab;

use crate::children::Server;
use crate::copy::{DEPOT_PORT, in_node, start_depot};
use crate::tools::Tools;

/// Port of the off-ramp in its node. It is that of acceptors, which the depots' policy permits.
pub const OFFRAMP_PORT: u16 = 7511;

/// Node whose programs use the route, and node of their servers.
const CLIENT: &str = "client";
const SERVER: &str = "server";

/// Route from the client to the server, in a lab.
pub struct Gateways<'a> {
    /// Programs and keys.
    pub tools: &'a Tools,
    /// The network.
    pub lab: &'a Lab,
    /// Folder of policies, tables and the client's state.
    pub folder: &'a Path,
    /// Nodes with depots, in order from the client.
    pub depots: &'a [&'a str],
    /// Node with the off-ramp, which connects to the server at any port.
    pub offramp: &'a str,
}

impl Gateways<'_> {
    /// Starts depots and off-ramp.
    ///
    /// # Errors
    /// One does not start.
    pub fn start(&self) -> Result<Vec<Server>> {
        let keys = &self.tools.identities;
        let policy = self.folder.join("offramp.toml");
        let text = format!(
            "[[allow]]\nprincipals = [\"{}\"]\nservers = [\"{}\"]\nports = [\"any\"]\n",
            keys.client_key,
            self.lab.address(SERVER)?
        );
        std::fs::write(&policy, text).context("cannot write the off-ramp's policy")?;
        let mut servers = Vec::new();
        for depot in self.depots {
            servers.push(start_depot(self.tools, self.lab, depot)?);
        }
        let mut offramp = in_node(self.tools, self.lab, self.offramp, &keys.server_home)?;
        let listen = format!("0.0.0.0:{OFFRAMP_PORT}");
        offramp
            .args(["offramp", "--listen", &listen, "--policy"])
            .arg(&policy);
        servers.push(Server::start(offramp, "longhaul offramp", "listening")?);
        Ok(servers)
    }

    /// Writes the table of routes that sends every connection to the server over this route. Its
    /// rule includes the lines `more`.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn routes(&self, more: &str) -> Result<PathBuf> {
        let hop = |depot: &&str| Ok(format!("{}:{DEPOT_PORT}", self.lab.address(depot)?));
        let via = self
            .depots
            .iter()
            .map(hop)
            .collect::<Result<Vec<_>>>()?
            .join(",");
        let table = format!(
            "[[route]]\nto = [\"{}\"]\nvia = \"{via}\"\nofframp = \"{}@{}:{OFFRAMP_PORT}\"\n\
             always = true\n{more}",
            self.lab.address(SERVER)?,
            self.tools.identities.server_key,
            self.lab.address(self.offramp)?
        );
        let file = self.folder.join("routes.toml");
        std::fs::write(&file, table).context("cannot write the table of routes")?;
        Ok(file)
    }

    /// Returns the command `longhaul` at the client, with a memory of this run alone.
    ///
    /// # Errors
    /// The lab is gone.
    pub fn longhaul(&self) -> Result<Command> {
        let mut command = in_node(
            self.tools,
            self.lab,
            CLIENT,
            &self.tools.identities.client_home,
        )?;
        command.env("LONGHAUL_STATE", self.folder.join("state"));
        Ok(command)
    }

    /// Returns the command `longhaul run` at the client, without the program.
    ///
    /// # Errors
    /// As [`Gateways::longhaul`].
    pub fn run(&self, routes: &Path, options: &[&str]) -> Result<Command> {
        let mut command = self.longhaul()?;
        command
            .args(["run", "--routes"])
            .arg(routes)
            .args(options)
            .arg("--");
        Ok(command)
    }
}
