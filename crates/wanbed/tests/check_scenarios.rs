//! `wanbed check` over every scenario of the repository, plain and with every kind of noise, as the
//! user who runs the test and as an unprivileged user. Rates are reduced so that any machine can
//! offer them. This takes minutes, on an otherwise idle machine:
//!
//! ```text
//! cargo test -p wanbed --test check_scenarios -- --ignored --test-threads=1
//! ```
// a test may fail by panicking, also outside its #[test] function
#![allow(clippy::unwrap_used, clippy::panic)]

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

const PROGRAM: &str = env!("CARGO_BIN_EXE_wanbed");
/// "nobody" almost everywhere; any user without privileges will do.
const NOBODY: u32 = 65_534;
/// Number of parallel checks: they sleep most of the time at these rates.
const PARALLEL_CHECKS: usize = 4;
const REDUCED: [&str; 1] = ["links.*.rate=20 Mbit/s"];
/// Noise on one link of each scenario: what varies the delay, and what fills the queue. Each makes
/// the other hard to measure.
const NOISY_LINE: [&str; 2] = [
    "jitter=1 ms",
    "reorder={ probability = \"0.5%\", by = \"3 ms\" }",
];
const NOISY_QUEUE: [&str; 4] = [
    "forward.aqm=codel",
    "forward.ecn=true",
    "backward.cross={ rate = \"10 Mbit/s\", on = \"20 ms\", off = \"60 ms\" }",
    "backward.jitter=none",
];

/// One run of `wanbed check`.
struct Job {
    scenario: PathBuf,
    settings: Vec<String>,
    link: Option<String>,
}

fn scenarios(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut all: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
        })
        .collect();
    all.sort();
    assert!(all.len() >= 8, "the papers' scenarios are there: {all:?}");
    all
}

fn first_link(scenario: &Path) -> String {
    let network = wanbed::Scenario::read(scenario)
        .unwrap()
        .resolve(&wanbed::Overrides::default())
        .unwrap();
    network.links[0].spec.name.clone()
}

fn plain(directory: &Path) -> Vec<Job> {
    let job = |scenario| Job {
        scenario,
        settings: REDUCED.map(str::to_owned).to_vec(),
        link: None,
    };
    scenarios(directory).into_iter().map(job).collect()
}

fn noisy(directory: &Path) -> Vec<Job> {
    let job = |scenario: PathBuf| {
        let link = first_link(&scenario);
        let of_link = |setting: &&str| format!("links.{link}.{setting}");
        let with = |noise: &[&str]| Job {
            scenario: scenario.clone(),
            settings: REDUCED
                .iter()
                .map(|setting| (*setting).to_owned())
                .chain(noise.iter().map(of_link))
                .collect(),
            link: Some(link.clone()),
        };
        [with(&NOISY_LINE), with(&NOISY_QUEUE)]
    };
    scenarios(directory).into_iter().flat_map(job).collect()
}

/// Runs the jobs. Returns the failures, or `None` if this user cannot have labs.
fn run(program: &Path, user: Option<u32>, jobs: Vec<Job>) -> Option<Vec<String>> {
    let (jobs, failed) = (Mutex::new(jobs), Mutex::new(Vec::new()));
    let next = || jobs.lock().unwrap().pop();
    let work = || {
        while let Some(job) = next() {
            let mut check = Command::new(program);
            check.arg("check").arg(&job.scenario).current_dir("/");
            check.env_remove("XDG_RUNTIME_DIR").env_remove("WANBED_LAB");
            for setting in &job.settings {
                check.args(["--set", setting]);
            }
            check.args(job.link.iter().flat_map(|link| ["--link", link]));
            if let Some(user) = user {
                check.uid(user).gid(user);
            }
            let output = check.output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let wrong = String::from_utf8_lossy(&output.stderr).into_owned();
            println!(
                "{} {}\n{said}{wrong}",
                job.scenario.display(),
                job.settings.join(" ")
            );
            if !output.status.success() {
                failed
                    .lock()
                    .unwrap()
                    .push(format!("{}: {said}{wrong}", job.scenario.display()));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL_CHECKS {
            scope.spawn(work);
        }
    });
    let failed = failed.into_inner().unwrap();
    if failed
        .iter()
        .any(|said| said.contains("may not make network namespaces"))
    {
        eprintln!("skipped: {}", failed[0]);
        return None;
    }
    Some(failed)
}

fn as_is(jobs: fn(&Path) -> Vec<Job>) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    if let Some(failed) = run(Path::new(PROGRAM), None, jobs(&directory)) {
        assert!(failed.is_empty(), "{}", failed.join("\n"));
    }
}

/// If run by root, becomes an unprivileged user, with copies of files that this user may not be
/// able to read.
fn as_ordinary_user(jobs: fn(&Path) -> Vec<Job>) {
    if !rustix::process::geteuid().is_root() {
        return as_is(jobs);
    }
    let open_to_all =
        |path: &Path| std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    open_to_all(directory.path());
    let program = directory.path().join("wanbed");
    std::fs::copy(PROGRAM, &program).unwrap();
    open_to_all(&program);
    for entry in
        std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")).unwrap()
    {
        let from = entry.unwrap().path();
        let to = directory.path().join(from.file_name().unwrap());
        std::fs::copy(&from, &to).unwrap();
        open_to_all(&to);
    }
    if let Some(failed) = run(&program, Some(NOBODY), jobs(directory.path())) {
        assert!(failed.is_empty(), "{}", failed.join("\n"));
    }
}

#[test]
#[ignore = "takes a minute of a quiet machine"]
fn every_scenario_is_as_asked() {
    as_is(plain);
}

#[test]
#[ignore = "takes minutes of a quiet machine"]
fn every_scenario_is_as_asked_with_noise() {
    as_is(noisy);
}

#[test]
#[ignore = "takes a minute of a quiet machine"]
fn every_scenario_is_as_asked_for_an_ordinary_user() {
    as_ordinary_user(plain);
}

#[test]
#[ignore = "takes minutes of a quiet machine"]
fn every_scenario_is_as_asked_with_noise_for_an_ordinary_user() {
    as_ordinary_user(noisy);
}
