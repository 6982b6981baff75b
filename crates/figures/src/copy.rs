//! One measured copy: a server, depots, `longhaul cp`, and its final report.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use wanbed::Lab;

use crate::children::{Server, output_within};
use crate::dataset;
use crate::experiment::Here;
use crate::setting::{CopyRoute, Setting};
use crate::tools::Tools;

/// Time limit of a copy: ten times the slowest cell of the papers, so that a hang ends.
pub const COPY_TIMEOUT: Duration = Duration::from_secs(900);

/// Port of `longhaul serve` and of the depots inside the lab, whose nodes run nothing else.
pub const SERVER_PORT: u16 = 7511;
pub const DEPOT_PORT: u16 = 7510;

/// A file or a folder below a served root, to be copied.
#[derive(Clone, Debug)]
pub struct Source {
    /// Folder that is served.
    pub root: PathBuf,
    /// File or folder below it.
    pub name: String,
}

impl Source {
    /// Creates a file of exactly `bytes` bytes.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn sized(tools: &Tools, bytes: u64) -> Result<Self> {
        let root = tools.scratch.path().join("sized");
        let name = format!("{bytes}.bin");
        dataset::sized_file(&root.join(&name), bytes, bytes)?;
        Ok(Self { root, name })
    }
}

/// Result of a copy that verified.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Copied {
    /// Bytes of file content that arrived.
    pub bytes: u64,
    /// Files that arrived.
    pub files: u64,
    /// Seconds from the start of the copy to its verified end, including setup.
    pub seconds: f64,
    /// `bytes * 8 / seconds`.
    pub goodput_bps: f64,
    /// Number of streams.
    pub streams: u32,
    /// Segments retransmitted by the senders of the copy's own connections, as far as this end sees
    /// them.
    pub retransmits: u64,
    /// Limit that held for longest, as the copy reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<String>,
}

impl Copied {
    /// Returns the goodput in Mbit/s, the unit of the papers.
    pub fn mbps(&self) -> f64 {
        self.goodput_bps / 1e6
    }

    /// Returns a short description.
    pub fn words(&self) -> String {
        format!("{:.2} Mbit/s, {:.1} s", self.mbps(), self.seconds)
    }
}

/// Copies `source` from the setting's server to its client, with the given number of streams, or
/// with as many as the copy chooses.
///
/// # Errors
/// A program could not be started, or the copy failed or did not verify.
pub fn copy<S>(
    here: &Here<'_, S>,
    setting: &Setting,
    way: CopyRoute,
    source: &Source,
    streams: Option<u32>,
) -> Result<Copied> {
    let (tools, lab) = (here.tools, here.lab);
    let mut servers = vec![serve(tools, lab, setting.server, &source.root)?];
    if way == CopyRoute::Depots {
        for depot in &setting.depots {
            servers.push(start_depot(tools, lab, depot)?);
        }
    }
    let mut cp = first_copy(here, setting.client)?;
    cp.args(["-r", "--json"])
        .args(["--route", &route(lab, setting, way)?])
        .arg(served(lab, setting.server, &source.name)?)
        .arg(here.folder);
    if let Some(streams) = streams {
        cp.args(["--streams", &streams.to_string()]);
    }
    let (status, out, err) = output_within(cp, "longhaul cp", COPY_TIMEOUT)?;
    drop(servers);
    let report = closing_report(&out).with_context(|| format!("exit {status}: {}", err.trim()))?;
    if !status.success() || !report.verification.verified {
        bail!(
            "longhaul cp ended with {status}: {}",
            report.error.as_deref().unwrap_or_else(|| err.trim())
        );
    }
    Ok(Copied {
        bytes: report.bytes,
        files: report.files,
        seconds: report.seconds,
        goodput_bps: report.goodput_bps,
        streams: report.streams.len() as u32,
        retransmits: report
            .streams
            .iter()
            .filter_map(|stream| stream.retransmits)
            .sum(),
        limited_by: report.limited_by,
    })
}

/// Returns the route as an argument of `longhaul cp`.
fn route(lab: &Lab, setting: &Setting, way: CopyRoute) -> Result<String> {
    if way == CopyRoute::Direct {
        return Ok("direct".into());
    }
    let depots = setting.depots.iter();
    let hops: Result<Vec<String>, wanbed::Error> = depots
        .map(|depot| Ok(lab.endpoint(depot, DEPOT_PORT)?.to_string()))
        .collect();
    Ok(hops?.join(","))
}

/// Returns a `longhaul` command in a node, with the keys of `home`.
///
/// # Errors
/// The lab has no such node.
pub fn in_node(tools: &Tools, lab: &Lab, node: &str, home: &Path) -> Result<Command> {
    let mut command = lab.command(node, &tools.longhaul)?;
    command.env("LONGHAUL_HOME", home);
    Ok(command)
}

/// Returns the address of a path below the root that `longhaul serve` serves in a node.
///
/// # Errors
/// The lab has no such node.
pub fn served(lab: &Lab, node: &str, path: &str) -> Result<String> {
    Ok(format!("lh://{}/{path}", lab.endpoint(node, SERVER_PORT)?))
}

/// Returns a `longhaul` command in a node by the client, which remembers in `state` alone.
///
/// # Errors
/// The lab has no such node.
pub fn by_client<S>(here: &Here<'_, S>, node: &str, state: &str) -> Result<Command> {
    let mut command = in_node(
        here.tools,
        here.lab,
        node,
        &here.tools.identities.client_home,
    )?;
    command.env("LONGHAUL_STATE", here.folder.join(state));
    Ok(command)
}

/// Returns a `longhaul cp` command in a node by the client, who knows the server's key. It is the
/// first one: it knows nothing that an earlier copy has learnt about the path.
///
/// # Errors
/// The lab has no such node.
pub fn first_copy<S>(here: &Here<'_, S>, node: &str) -> Result<Command> {
    let mut command = by_client(here, node, "state")?;
    command.args(["cp", "--host-key", &here.tools.identities.server_key]);
    Ok(command)
}

/// Starts `longhaul serve` in a node; the client may read everything below `root`.
///
/// # Errors
/// It does not start. The error quotes its output.
pub fn serve(tools: &Tools, lab: &Lab, node: &str, root: &Path) -> Result<Server> {
    serve_for(tools, lab, node, root, &["--read"])
}

/// Starts `longhaul serve` with these grants for the client, as `serve` names them.
///
/// # Errors
/// As [`serve`].
pub fn serve_for(
    tools: &Tools,
    lab: &Lab,
    node: &str,
    root: &Path,
    grants: &[&str],
) -> Result<Server> {
    serve_with(tools, lab, node, root, grants, &[])
}

/// Starts `longhaul serve` with these grants and options.
///
/// # Errors
/// As [`serve`].
pub fn serve_with(
    tools: &Tools,
    lab: &Lab,
    node: &str,
    root: &Path,
    grants: &[&str],
    options: &[&str],
) -> Result<Server> {
    let mut command = in_node(tools, lab, node, &tools.identities.server_home)?;
    let listen = any_address(lab, node, SERVER_PORT)?;
    command.args(["serve", "--listen", &listen]);
    for grant in grants {
        command.arg(grant).arg(&tools.identities.client_key);
    }
    command.args(options).arg("--root").arg(root);
    Server::start(command, "longhaul serve", "listening")
}

/// Starts `longhaul depot` in a node; the client may pass.
///
/// # Errors
/// It does not start. The error quotes its output.
pub fn start_depot(tools: &Tools, lab: &Lab, node: &str) -> Result<Server> {
    start_depot_with(tools, lab, node, &[])
}

/// Starts `longhaul depot` with these options.
///
/// # Errors
/// As [`start_depot`].
pub fn start_depot_with(tools: &Tools, lab: &Lab, node: &str, options: &[&str]) -> Result<Server> {
    let mut command = in_node(tools, lab, node, &tools.identities.depot_home(node))?;
    let listen = any_address(lab, node, DEPOT_PORT)?;
    command
        .args(["depot", "--listen", &listen, "--policy"])
        .arg(&tools.identities.depot_policy)
        .args(options);
    Server::start(command, "longhaul depot", "listening")
}

/// Returns the listening address for all of a node's addresses.
fn any_address(lab: &Lab, node: &str, port: u16) -> Result<String> {
    let host = match lab.endpoint(node, port)? {
        SocketAddr::V4(_) => "0.0.0.0",
        SocketAddr::V6(_) => "[::]",
    };
    Ok(format!("{host}:{port}"))
}

/// The last line of `longhaul cp --json`.
#[derive(Deserialize)]
struct Report {
    bytes: u64,
    files: u64,
    seconds: f64,
    goodput_bps: f64,
    verification: Verification,
    error: Option<String>,
    limited_by: Option<String>,
    streams: Vec<StreamReport>,
}

#[derive(Deserialize)]
struct Verification {
    verified: bool,
}

#[derive(Deserialize)]
struct StreamReport {
    retransmits: Option<u64>,
}

fn closing_report(out: &str) -> Result<Report> {
    let last = out
        .lines()
        .rfind(|line| !line.trim().is_empty())
        .context("longhaul cp printed no report")?;
    serde_json::from_str(last)
        .with_context(|| format!("longhaul cp's closing report does not parse: {last}"))
}
