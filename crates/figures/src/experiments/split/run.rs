//! One job, over a number of agents.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use super::Observation;
use super::database::Database;
use crate::children::{Server, succeed_within};
use crate::copy::{Source, by_client, serve, served};
use crate::dataset;
use crate::experiment::Here;
use crate::tools::Tools;

/// Nodes that are slow compared with their common server.
pub const LAB: &str = include_str!("../../../labs/split.toml");
const FILES: u64 = 96;
const FILE_BYTES: u64 = 4 << 20;
/// Size of the whole tree.
pub const BYTES: u64 = FILES * FILE_BYTES;
/// Parts of a split job: four for each node.
pub const PARTS: usize = 12;

/// Maximum time of a command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);

/// Returns the tree that is copied.
///
/// # Errors
/// It cannot be written.
pub fn tree(tools: &Tools) -> Result<Source> {
    let root = tools.scratch.path().join("split");
    for number in 0..FILES {
        let file = root.join(format!("tree/{}/{number}.bin", number % 8));
        dataset::sized_file(&file, FILE_BYTES, number)?;
    }
    let name = "tree".to_owned();
    Ok(Source { root, name })
}

/// Runs the job.
///
/// # Errors
/// A program cannot be started, or the job does not finish.
pub fn run(here: &Here<'_, Source>, agents: usize, split: bool) -> Result<Observation> {
    let _server = serve(here.tools, here.lab, "server", &here.setup.root)?;
    let database = Database::start()?;
    let url = database.url();
    let nodes: Vec<String> = (1..=agents).map(|number| format!("node{number}")).collect();
    let running: Result<Vec<Server>> = nodes.iter().map(|node| agent(here, node, &url)).collect();
    let running = running?;
    let arrived = here.folder.join("arrived");
    std::fs::create_dir(&arrived).with_context(|| format!("cannot make {}", arrived.display()))?;
    let from = served(here.lab, "server", &here.setup.name)?;
    let mut submit = by_client(here, "node1", "node1")?;
    submit.args(["submit", "--json", "-r", "--host-key"]);
    submit.arg(&here.tools.identities.server_key);
    if split {
        submit.args(["--split", &PARTS.to_string()]);
    }
    submit.arg(from).arg(format!("{}/", arrived.display()));
    let started = Instant::now();
    let job: Value =
        serde_json::from_str(&succeed_within(submit, "longhaul submit", COMMAND_TIMEOUT)?)?;
    let id = job["id"].to_string();
    let mut follow = by_client(here, "node1", "node1")?;
    follow.args(["job", &id, "--follow"]);
    succeed_within(follow, "longhaul job", COMMAND_TIMEOUT)?;
    let seconds = started.elapsed().as_secs_f64();
    let mut jobs = by_client(here, "node1", "node1")?;
    jobs.args(["jobs", "--parts", "--json"]);
    let listed = succeed_within(jobs, "longhaul jobs", COMMAND_TIMEOUT)?;
    drop(running);
    let listed = listed
        .lines()
        .map(|line| Ok(serde_json::from_str::<Value>(line)?["agent"].to_string()));
    let worked: Result<BTreeSet<String>> = listed.collect();
    let (source, arrived) = (
        here.setup.root.join(&here.setup.name),
        arrived.join(&here.setup.name),
    );
    Ok(Observation {
        seconds,
        worked: worked?.len(),
        wrong_files: wrong_files(&source, &arrived)?,
    })
}

fn agent(here: &Here<'_, Source>, node: &str, url: &str) -> Result<Server> {
    let mut agent = by_client(here, node, node)?;
    agent
        .env("LONGHAUL_STORE", url)
        .args(["agent", "--name", node]);
    Server::start(agent, "longhaul agent", "is ready")
}

/// Counts the files of `source` that `arrived` lacks or has with another content.
fn wrong_files(source: &Path, arrived: &Path) -> Result<u64> {
    let mut wrong = 0;
    for dir in
        std::fs::read_dir(source).with_context(|| format!("cannot read {}", source.display()))?
    {
        let dir = dir?;
        for file in std::fs::read_dir(dir.path())? {
            let file = file?;
            let there = arrived.join(dir.file_name()).join(file.file_name());
            let is_same = std::fs::read(there)
                .is_ok_and(|there| std::fs::read(file.path()).is_ok_and(|here| here == there));
            wrong += u64::from(!is_same);
        }
    }
    Ok(wrong)
}
