//! One tree, three agents, one PostgreSQL: the tree is split over the agents, which are killed, and
//! arrives whole.
//!
//! `LONGHAUL_TEST_PARTS` and `LONGHAUL_TEST_SPLIT_KILLS` make it larger.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::agent::Agent;
use crate::agents::{AGENTS, as_agents, come, jobs_and, number, start};
use crate::postgres::Postgres;
use crate::stage::*;

const FILES: usize = 300;
/// Rate of a depot on the route, so that parts are killed in their middle.
const RATE: &str = "60 Mbit/s";

/// Makes files of many sizes in nested directories, some with several names; links; directories
/// that are empty, closed, or older than their content.
fn tree(stage: &Stage) {
    let dirs = ["", "a", "a/b", "a/b/c", "d", "d/e", "closed"];
    for dir in dirs.iter().chain(&["empty", "d/empty/within", "links"]) {
        std::fs::create_dir_all(stage.path("here/tree").join(dir)).unwrap();
    }
    let at = |path: String| stage.path("here/tree").join(path);
    for n in 0..FILES {
        let (dir, len) = (dirs[n % dirs.len()], [10, 3000, 70_000, 400_000][n % 4] + n);
        let file = format!("{dir}/f{n}");
        stage.noise(&format!("here/tree/{}", file.trim_start_matches('/')), len);
        let mode = if n % 5 == 0 { 0o640 } else { 0o755 };
        std::fs::set_permissions(
            at(file.trim_start_matches('/').into()),
            PermissionsExt::from_mode(mode),
        )
        .unwrap();
    }
    for n in 0..10 {
        std::fs::hard_link(at(format!("f{}", n * 7)), at(format!("links/h{n}"))).unwrap();
        std::fs::hard_link(at(format!("f{}", n * 7)), at(format!("a/b/h{n}"))).unwrap();
        std::os::unix::fs::symlink(format!("../h{n}"), at(format!("links/s{n}"))).unwrap();
    }
    std::fs::set_permissions(at("closed".into()), PermissionsExt::from_mode(0o555)).unwrap();
    let mut below = vec![stage.path("here/tree")];
    while let Some(dir) = below.pop() {
        let entries = std::fs::read_dir(&dir)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        below.extend(entries.filter(|path| path.is_dir() && !path.is_symlink()));
        let dir = std::fs::File::open(&dir).unwrap();
        let then = std::time::UNIX_EPOCH
            + std::time::Duration::new(1_000_000_000 + below.len() as u64, 123);
        dir.set_modified(then).unwrap();
    }
}

/// Describes everything that a copy keeps: each path with its kind and properties, and the sets of
/// paths that name one file.
fn describe(root: &Path) -> (BTreeMap<String, String>, BTreeSet<Vec<String>>) {
    let (mut all, mut names) = (BTreeMap::new(), BTreeMap::<u64, Vec<String>>::new());
    let mut below = vec![root.to_owned()];
    while let Some(path) = below.pop() {
        let meta = std::fs::symlink_metadata(&path).unwrap();
        let name = path.strip_prefix(root).unwrap().display().to_string();
        let time = format!("{}.{}", meta.mtime(), meta.mtime_nsec());
        let what = if meta.is_dir() {
            below.extend(
                std::fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
            format!("directory {:o} {time}", meta.mode() & 0o7777)
        } else if meta.is_symlink() {
            format!(
                "link {} {time}",
                std::fs::read_link(&path).unwrap().display()
            )
        } else {
            names.entry(meta.ino()).or_default().push(name.clone());
            let hash = blake3::hash(&std::fs::read(&path).unwrap());
            format!("file {:o} {time} {hash}", meta.mode() & 0o7777)
        };
        all.insert(name, what);
    }
    let sorted = names.into_values().map(|mut names| {
        names.sort();
        names
    });
    (all, sorted.collect())
}

fn answer(mut command: Command) -> Value {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

/// Submits a job for all parts of the tree at an agent, and returns its number.
fn submit(stage: &Stage, which: usize, parts: usize, arguments: &[&str]) -> String {
    let mut command = as_agents(stage, which);
    command
        .args([
            "submit",
            "-r",
            "-H",
            "--json",
            "--split",
            &parts.to_string(),
        ])
        .args(arguments);
    answer(command)["id"].to_string()
}

/// Returns a job and its parts as an agent lists them, or `None` while it cannot.
fn listed(stage: &Stage, which: usize, id: &str) -> Option<(Value, Vec<Value>)> {
    let all = jobs_and(stage, which, &["--parts"])?;
    let number = id.parse().ok();
    let is_part = |job: &&Value| job["part"]["job"].as_i64() == number;
    let parts = all.iter().filter(is_part).cloned().collect();
    let whole = all.iter().find(|job| job["id"].as_i64() == number)?;
    Some((whole.clone(), parts))
}

fn wait_for_end(stage: &Stage, which: usize, id: &str) -> (Value, Vec<Value>) {
    loop {
        if let Some((whole, parts)) = listed(stage, which, id)
            && whole["ended"].is_string()
        {
            return (whole, parts);
        }
    }
}

fn report(stage: &Stage, which: usize, id: &Value) -> Value {
    let mut command = as_agents(stage, which);
    command.args(["job", &id.to_string(), "--report"]);
    answer(command)
}

/// Returns the bytes transferred in a job's last attempt.
fn travelled(report: &Value) -> u64 {
    let number = |name: &str| report[name].as_u64().unwrap_or(0);
    number("bytes") - number("unchanged_bytes") - number("linked_bytes") - number("resumed_bytes")
}

#[test]
fn a_tree_split_over_killed_agents_arrives_whole() {
    let (count, kills) = (
        number("LONGHAUL_TEST_PARTS", 8),
        number("LONGHAUL_TEST_SPLIT_KILLS", 6),
    );
    let stage = Stage::new();
    tree(&stage);
    let depot = stage.depot("d", Some(RATE));
    let server = stage.serve(&[]);
    let database = Postgres::start();
    database.create_database("jobs");
    let url = database.url_of("jobs");
    let mut agents: Vec<Agent> = (0..AGENTS)
        .map(|which| start(&stage, &url, which))
        .collect();
    let to = format!("lh://{}/there/", server.address);
    std::fs::create_dir(stage.path("root/there")).unwrap();
    let hook = format!(
        "echo $LONGHAUL_JOB $LONGHAUL_JOB_STATE >> {}",
        stage.path("ended").display()
    );
    let id = submit(
        &stage,
        0,
        count,
        &[
            "--route",
            &depot.address,
            "--host-key",
            &server.key,
            "here/tree",
            &to,
            "--on-end",
            "sh",
            "--on-end",
            "-c",
            "--on-end",
            &hook,
        ],
    );
    // After each progress, any agent is killed at any moment.
    let (mut before, mut in_parts) = (0, 0);
    let mut worked: BTreeSet<String> = BTreeSet::new();
    for kill in 0..kills {
        let which = (kill * 7 + kill / 3) % AGENTS;
        let asked = (which + 1) % AGENTS;
        loop {
            let Some((whole, parts)) = listed(&stage, asked, &id) else {
                continue;
            };
            worked.extend(
                parts
                    .iter()
                    .filter_map(|part| part["agent"].as_str().map(str::to_owned)),
            );
            // An agent runs one part of a job at a time.
            let running = parts.iter().filter(|part| part["state"] == "running");
            let holders: Vec<&Value> = running.map(|part| &part["agent"]).collect();
            let different: BTreeSet<String> = holders.iter().map(ToString::to_string).collect();
            assert_eq!(holders.len(), different.len(), "{holders:?}");
            let now = come(&parts) + come(std::slice::from_ref(&whole));
            let is_over = whole["ended"].is_string();
            if now > before || is_over {
                before = now;
                in_parts += u32::from(whole["state"] == "split");
                break;
            }
        }
        agents.remove(which).kill();
        agents.insert(which, start(&stage, &url, which));
    }
    let (whole, parts) = wait_for_end(&stage, 0, &id);
    assert_eq!(whole["state"], "done", "{whole}");
    println!(
        "{kills} kills, {in_parts} of them while there were parts; {before} attempts and ends"
    );
    assert_eq!(
        describe(&stage.path("root/there/tree")),
        describe(&stage.path("here/tree"))
    );
    assert!(no_temps(&stage.path("root")));
    worked.extend(
        parts
            .iter()
            .filter_map(|part| part["agent"].as_str().map(str::to_owned)),
    );
    assert!(worked.len() > 1, "{worked:?}");
    // According to the reports, each file is in one part. Only data in flight at a kill was sent
    // twice, and nothing after it.
    assert_eq!(
        (parts.len(), &whole["parts"]["done"]),
        (count, &Value::from(count))
    );
    let (mut files, mut attempts) = (0, 0);
    for part in &parts {
        let report = report(&stage, 0, &part["id"]);
        files += report["files"].as_u64().unwrap();
        let tries = part["attempts"].as_u64().unwrap();
        attempts += tries;
        if tries == 1 {
            assert_eq!(
                travelled(&report),
                report["bytes"].as_u64().unwrap() - report["linked_bytes"].as_u64().unwrap_or(0)
            );
        }
    }
    let names = describe(&stage.path("here/tree")).1;
    assert_eq!(files as usize, names.iter().map(Vec::len).sum::<usize>());
    assert!(attempts as usize <= count + kills, "{attempts}");
    let rest = report(&stage, 0, &whole["id"]);
    assert_eq!(
        (travelled(&rest), rest["ok"].as_bool()),
        (0, Some(true)),
        "{rest}"
    );
    // The job ended; its parts do not count.
    let ended = std::fs::read_to_string(stage.path("ended")).unwrap_or_default();
    assert!(
        ended.lines().all(|line| line == format!("{id} done")),
        "{ended}"
    );

    // And back, from the server to the agents' machine.
    std::fs::create_dir(stage.path("here/back")).unwrap();
    let from = format!("lh://{}/there/tree", server.address);
    let id = submit(
        &stage,
        1,
        count,
        &["--host-key", &server.key, &from, "here/back/"],
    );
    let (whole, parts) = wait_for_end(&stage, 1, &id);
    assert_eq!(whole["state"], "done", "{whole}");
    assert_eq!(
        describe(&stage.path("here/back/tree")),
        describe(&stage.path("here/tree"))
    );
    let mut agents_of: BTreeSet<&str> = parts
        .iter()
        .filter_map(|part| part["agent"].as_str())
        .collect();
    assert_eq!(travelled(&report(&stage, 1, &whole["id"])), 0);
    assert!(agents_of.pop_first().is_some());
    // They are removed together.
    let mut forget = as_agents(&stage, 0);
    forget.args(["job", &id, "--forget"]);
    answer(forget);
    assert!(listed(&stage, 0, &id).is_none());
}

#[test]
fn one_agent_runs_the_parts_in_sequence() {
    let stage = Stage::new();
    tree(&stage);
    let depot = stage.depot("d", Some("16 Mbit/s"));
    let server = stage.serve(&[]);
    let agent = Agent::start_by(as_agents(&stage, 0), &[]);
    let to = format!("lh://{}/", server.address);
    let into = [
        "--route",
        &depot.address,
        "--host-key",
        &server.key,
        "here/tree",
        &to,
    ];
    let run = |arguments: &[&str]| {
        let output = as_agents(&stage, 0).args(arguments).output().unwrap();
        (
            String::from_utf8_lossy(&output.stdout).into_owned() + &errors(&output),
            output.status.code(),
        )
    };
    let id = submit(&stage, 0, 3, &into);
    let until = |pleases: &dyn Fn(&Value, &[Value]) -> bool| loop {
        let (whole, parts) = listed(&stage, 0, &id).unwrap();
        if pleases(&whole, &parts) {
            return (whole, parts);
        }
        assert!(!whole["ended"].is_string(), "over without it: {whole}");
    };
    until(&|_, parts| parts.iter().any(|part| part["state"] == "running"));
    let (shown, _) = run(&["jobs"]);
    assert!(
        shown.contains("1 split") && shown.contains("of 3 parts done"),
        "{shown}"
    );
    // For a moment between two parts, none runs.
    until(&|_, _| {
        let (shown, _) = run(&["job", &id]);
        shown.contains("part 3") && shown.contains("1 running")
    });
    let part = (id.parse::<i64>().unwrap() + 1).to_string();
    let (refused, code) = run(&["cancel", &part]);
    assert_eq!(code, Some(1));
    assert!(
        refused.contains(&format!(
            "job {part} is a part of job {id}: ask for that one"
        )),
        "{refused}"
    );
    run(&["pause", &id]);
    let (_, parts) = until(&|whole, _| whole["state"] == "paused");
    assert!(
        parts
            .iter()
            .all(|part| part["state"] == "paused" || part["state"] == "done")
    );
    run(&["resume", &id]);
    let (shown, code) = run(&["job", &id, "--follow"]);
    assert_eq!(code, Some(0), "{shown}");
    assert!(
        shown.contains("2 of 3 parts done") && shown.contains(&format!("job {id}: done")),
        "{shown}"
    );
    assert_eq!(
        describe(&stage.path("root/tree")),
        describe(&stage.path("here/tree"))
    );
    // After a cancellation, nothing of it is left.
    std::fs::create_dir(stage.path("root/again")).unwrap();
    let again = format!("lh://{}/again/", server.address);
    let into_again = [&into[..5], &[again.as_str()]].concat();
    let id = submit(&stage, 0, 3, &into_again);
    run(&["cancel", &id]);
    let (whole, parts) = wait_for_end(&stage, 0, &id);
    assert_eq!(whole["state"], "cancelled", "{whole}");
    assert!(parts.iter().all(|part| part["ended"].is_string()));
    // A job that cannot be split is reported at once.
    let plain = format!("lh://{}/new", server.address);
    let (refused, code) = run(&["submit", "--split", "3", "-r", "here/tree", &plain]);
    assert_eq!(code, Some(2), "{refused}");
    assert!(
        refused.contains("end the destination with a slash"),
        "{refused}"
    );
    let (refused, code) = run(&["cp", "--split", "3", "-r", "here/tree", &to]);
    assert_eq!(code, Some(2), "{refused}");
    drop(agent);
}
