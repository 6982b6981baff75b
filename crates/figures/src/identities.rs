//! Keys for the ends and the depots of a measured copy, and the depots' policy.

use crate::children::output_within;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Nodes that run depots in the measured scenarios.
const DEPOTS: [&str; 8] = ["ornl", "houston", "gw1", "gw2", "depot", "a", "b", "c"];

/// Networks of the addresses of a lab's nodes, as a policy lists them.
const LAB: &str = "\"10.77.0.0/16\", \"fd77::/64\"";

/// Key homes of all parties, and the public data that they exchange.
pub struct Identities {
    /// `LONGHAUL_HOME` of the client.
    pub client_home: PathBuf,
    /// `LONGHAUL_HOME` of the server.
    pub server_home: PathBuf,
    /// The client's public key.
    pub client_key: String,
    /// The server's public key.
    pub server_key: String,
    /// Policy that permits the client and the server, and nobody else.
    pub depot_policy: PathBuf,
    dir: PathBuf,
}

impl Identities {
    /// Makes the keys with `longhaul keys` below `dir`.
    ///
    /// # Errors
    /// A folder cannot be made, or `longhaul keys` fails.
    pub fn create(longhaul: &Path, dir: &Path) -> Result<Self> {
        let home = |name: &str| dir.join(name);
        let client_key = new_key(longhaul, &home("client"))?;
        let server_key = new_key(longhaul, &home("server"))?;
        for depot in DEPOTS {
            new_key(longhaul, &depot_home(dir, depot))?;
        }
        let depot_policy = dir.join("policy.toml");
        fs::write(&depot_policy, policy(&client_key, &server_key))
            .with_context(|| format!("cannot write {}", depot_policy.display()))?;
        Ok(Self {
            client_home: home("client"),
            server_home: home("server"),
            client_key,
            server_key,
            depot_policy,
            dir: dir.into(),
        })
    }

    /// Returns `LONGHAUL_HOME` of the depot on `node`. Each depot has its own key, because a route
    /// that meets one key twice would be a loop.
    pub fn depot_home(&self, node: &str) -> PathBuf {
        depot_home(&self.dir, node)
    }
}

fn depot_home(dir: &Path, node: &str) -> PathBuf {
    dir.join(format!("depot-{node}"))
}

/// Makes a key in `home` and returns its public half.
pub fn new_key(longhaul: &Path, home: &Path) -> Result<String> {
    fs::create_dir_all(home).with_context(|| format!("cannot make {}", home.display()))?;
    let mut command = Command::new(longhaul);
    command.args(["keys", "new"]).env("LONGHAUL_HOME", home);
    let (status, out, err) = output_within(command, "longhaul keys new", Duration::from_secs(20))?;
    match out
        .split_whitespace()
        .find(|word| word.starts_with("lhk1:"))
    {
        Some(key) if status.success() => Ok(key.into()),
        _ => bail!("longhaul keys new printed no key: {out}{err}"),
    }
}

/// Returns a policy: the client may reach the server of any lab through any of its depots, and the
/// server the client.
fn policy(client_key: &str, server_key: &str) -> String {
    format!(
        "[[allow]]\nprincipals = [\"{client_key}\", \"{server_key}\"]\nto = [{LAB}]\n\
         next_hops = [\"direct\", {LAB}]\n"
    )
}
