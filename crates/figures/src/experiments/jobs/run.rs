//! One copy, by command or as a job.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use longhaul_hostile::Usage;
use serde_json::Value;

use super::{Cell, Observation};
use crate::children::{Server, succeed_within};
use crate::copy::{Source, by_client, serve, served};
use crate::experiment::Here;

/// A long path that is slow compared with the machine.
pub const LAB: &str = include_str!("../../../labs/jobs.toml");
/// Size of the file.
pub const BYTES: u64 = 512 << 20;
/// Time for which an idle agent is observed, in seconds.
pub const IDLE_SECONDS: f64 = 20.0;

/// Maximum time of a command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs the action of `cell`.
///
/// # Errors
/// A program cannot be started, or the copy does not finish.
pub fn run(here: &Here<'_, Source>, cell: Cell) -> Result<Observation> {
    if cell == Cell::Idle {
        return idle(here);
    }
    let _server = serve(here.tools, here.lab, "server", &here.setup.root)?;
    let arrived = here.folder.join("arrived");
    let from = served(here.lab, "server", &here.setup.name)?;
    let copy = [
        "--host-key".as_ref(),
        here.tools.identities.server_key.as_ref(),
        from.as_ref(),
        arrived.as_os_str(),
    ];
    let seconds = match cell {
        Cell::Command => {
            let mut cp = command(here)?;
            cp.args(["cp", "--quiet"]).args(copy);
            let started = Instant::now();
            succeed_within(cp, "longhaul cp", COMMAND_TIMEOUT)?;
            started.elapsed()
        }
        _ => {
            let agent = agent(here)?;
            let mut submit = command(here)?;
            submit.args(["submit", "--json"]).args(copy);
            let started = Instant::now();
            let job: Value =
                serde_json::from_str(&succeed_within(submit, "longhaul submit", COMMAND_TIMEOUT)?)?;
            let id = job["id"].to_string();
            let _agent = match cell {
                Cell::Killed => {
                    until_half(here, &id)?;
                    drop(agent);
                    self::agent(here)?
                }
                _ => agent,
            };
            let mut follow = command(here)?;
            follow.args(["job", &id, "--follow"]);
            succeed_within(follow, "longhaul job", COMMAND_TIMEOUT)?;
            started.elapsed()
        }
    };
    Ok(Observation {
        seconds: Some(seconds.as_secs_f64()),
        wrong_bytes: Some(wrong_bytes(
            &here.setup.root.join(&here.setup.name),
            &arrived,
        )?),
        ..Observation::default()
    })
}

fn idle(here: &Here<'_, Source>) -> Result<Observation> {
    let agent = agent(here)?;
    let process = agent.process();
    // Let its start-up work finish.
    std::thread::sleep(Duration::from_secs(1));
    let before = voluntary_switches(process)?;
    std::thread::sleep(Duration::from_secs_f64(IDLE_SECONDS));
    let wakeups = voluntary_switches(process)?.saturating_sub(before);
    Ok(Observation {
        resident_mib: Some(Usage::read(process)?.resident as f64 / f64::from(1 << 20)),
        wakeups_per_second: Some(wakeups as f64 / IDLE_SECONDS),
        ..Observation::default()
    })
}

/// Returns the command `longhaul` at the client, with an agent and a memory of this run alone.
fn command(here: &Here<'_, Source>) -> Result<Command> {
    by_client(here, "client", "state")
}

fn agent(here: &Here<'_, Source>) -> Result<Server> {
    let mut agent = command(here)?;
    agent.arg("agent");
    Server::start(agent, "longhaul agent", "is ready")
}

/// Follows a job until half of its bytes have arrived.
fn until_half(here: &Here<'_, Source>, id: &str) -> Result<()> {
    let mut follow = command(here)?;
    follow
        .args(["job", id, "--follow", "--json"])
        .stdout(Stdio::piped());
    let mut child = follow.spawn().context("cannot start longhaul job")?;
    let out = child.stdout.take().context("it has no output")?;
    let is_half = |line: &str| {
        let reported: Value = serde_json::from_str(line).unwrap_or_default();
        reported["progress"]["bytes"]
            .as_u64()
            .is_some_and(|bytes| bytes >= BYTES / 2)
    };
    let found = BufReader::new(out)
        .lines()
        .map_while(Result::ok)
        .any(|line| is_half(&line));
    let _ = child.kill();
    let _ = child.wait();
    match found {
        true => Ok(()),
        false => bail!("the job ended before it was half done"),
    }
}

/// Counts the bytes of `arrived` that are missing or differ from `source`.
fn wrong_bytes(source: &Path, arrived: &Path) -> Result<u64> {
    let read = |path: &Path| {
        std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
    };
    let (source, arrived) = (read(source)?, read(arrived)?);
    let differ = source
        .iter()
        .zip(&arrived)
        .filter(|(one, other)| one != other)
        .count();
    Ok((differ + source.len().abs_diff(arrived.len())) as u64)
}

/// Returns the number of voluntary context switches of all threads of a process, by proc(5).
fn voluntary_switches(process: u32) -> Result<u64> {
    let threads =
        std::fs::read_dir(format!("/proc/{process}/task")).context("the agent has ended")?;
    threads
        .map(|thread| {
            let status = std::fs::read_to_string(thread?.path().join("status"))?;
            let switches = status
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            let switches = switches.and_then(|number| number.trim().parse::<u64>().ok());
            switches.context("the system does not count context switches")
        })
        .sum()
}
