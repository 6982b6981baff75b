//! Three agents share one PostgreSQL. Agents and the database are killed, and every job is done
//! exactly once.
//!
//! `LONGHAUL_TEST_JOBS`, `LONGHAUL_TEST_KILLS` and `LONGHAUL_TEST_CRASHES` make it larger: 300, 100
//! and 5 take a few minutes.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use crate::agent::Agent;
use crate::postgres::Postgres;
use crate::stage::*;

pub const AGENTS: usize = 3;
const FILE_BYTES: usize = 2_000_000;
/// Rate of a depot on the route, so that jobs are killed in their middle.
const RATE: &str = "100 Mbit/s";

pub fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Returns the command with the keys of `me`, for agent number `which`.
pub fn as_agents(stage: &Stage, which: usize) -> Command {
    let mut command = stage.longhaul("me");
    command.env("LONGHAUL_STATE", stage.path(&format!("a{which}")));
    command
}

/// Starts agent number `which`, one of three with the same store.
pub fn start(stage: &Stage, url: &str, which: usize) -> Agent {
    let mut command = as_agents(stage, which);
    command.env("LONGHAUL_STORE", url);
    let name = format!("a{which}");
    Agent::start_by(
        command,
        &[
            "--max-jobs",
            "3",
            "--max-jobs-per-place",
            "9",
            "--name",
            &name,
        ],
    )
}

/// Returns all jobs as agent `which` lists them, or `None` while it cannot.
fn jobs(stage: &Stage, which: usize) -> Option<Vec<Value>> {
    jobs_and(stage, which, &[])
}

/// Returns all jobs, listed with more options.
pub fn jobs_and(stage: &Stage, which: usize, more: &[&str]) -> Option<Vec<Value>> {
    let output = as_agents(stage, which)
        .args(["jobs", "-n", "1000", "--json"])
        .args(more)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let all = text.lines().map(|line| serde_json::from_str(line).unwrap());
    output.status.success().then(|| all.collect())
}

/// Returns the number of started jobs plus the number of ended ones.
pub fn come(jobs: &[Value]) -> u64 {
    let attempts = jobs.iter().map(|job| job["attempts"].as_u64().unwrap());
    let ended = jobs.iter().filter(|job| job["ended"].is_string()).count() as u64;
    attempts.sum::<u64>() + ended
}

#[test]
fn agents_are_killed_and_every_job_is_done_once() {
    let (all, kills, crashes) = (
        number("LONGHAUL_TEST_JOBS", 30),
        number("LONGHAUL_TEST_KILLS", 9),
        number("LONGHAUL_TEST_CRASHES", 2),
    );
    let stage = Stage::new();
    let data = stage.noise("here/file", FILE_BYTES);
    let depot = stage.depot("d", Some(RATE));
    let server = stage.serve(&[]);
    let mut database = Postgres::start();
    database.create_database("jobs");
    let url = database.url_of("jobs");
    let mut agents: Vec<Agent> = (0..AGENTS)
        .map(|which| start(&stage, &url, which))
        .collect();
    let ended = stage.path("ended");
    let hook = format!("echo $LONGHAUL_JOB >> {}", ended.display());
    for job in 0..all {
        let to = format!("lh://{}/{job}", server.address);
        let submitted = as_agents(&stage, 0)
            .args([
                "submit",
                "--route",
                &depot.address,
                "--host-key",
                &server.key,
                "here/file",
                &to,
            ])
            .args(["--on-end", "sh", "--on-end", "-c", "--on-end", &hook])
            .output()
            .unwrap();
        assert!(submitted.status.success(), "{}", errors(&submitted));
    }
    // After each progress, any agent is killed at any moment.
    let (mut before, mut while_running) = (0, 0);
    for kill in 0..kills {
        let which = (kill * 7 + kill / 3) % AGENTS;
        let asked = (which + 1) % AGENTS;
        loop {
            let Some(jobs) = jobs(&stage, asked) else {
                continue;
            };
            let now = come(&jobs);
            let left = jobs.iter().any(|job| !job["ended"].is_string());
            if now > before || !left {
                before = now;
                while_running += u32::from(left);
                break;
            }
        }
        agents.remove(which).kill();
        if crashes > 0 && kill % kills.div_ceil(crashes) == 0 {
            database.crash_and_restart();
        }
        agents.insert(which, start(&stage, &url, which));
    }
    loop {
        let Some(jobs) = jobs(&stage, 0) else {
            continue;
        };
        assert_eq!(jobs.len(), all);
        if jobs.iter().all(|job| job["ended"].is_string()) {
            for job in &jobs {
                assert_eq!(job["state"], "done", "{job}");
            }
            break;
        }
    }
    println!(
        "{kills} kills, {while_running} of them while jobs were left; {before} attempts and ends"
    );
    for job in 0..all {
        assert!(
            std::fs::read(stage.path(&format!("root/{job}"))).unwrap() == data,
            "{job}"
        );
    }
    assert!(no_temps(&stage.path("root")));
    // The program for the end runs at most once per job. It does not run if its agent or the
    // database is killed at that moment, and the last ones may still run.
    let times = || {
        let mut times: BTreeMap<String, u32> = BTreeMap::new();
        for job in std::fs::read_to_string(&ended).unwrap_or_default().lines() {
            *times.entry(job.to_owned()).or_default() += 1;
        }
        times
    };
    until("the programs for the ends have run", || {
        times().len() + kills + crashes >= all
    });
    drop(agents);
    let times = times();
    assert!(times.values().all(|&times| times == 1), "{times:?}");
}
