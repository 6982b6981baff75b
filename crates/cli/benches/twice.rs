//! Measures the cost of a second copy of the same tree at the same time: the seconds of one copy
//! alone, and of two at once, in pairs. Each is a push of 60 files of 20 KB to 1.2 MB and 300 small
//! ones over 200 Mbit/s and a round trip of 20 ms.
//!
//! ```sh
//! cargo bench -p longhaul-cli --bench twice -- [--pairs 3]
//! ```
//!
//! Prints one line of JSON for each pair. Fails if in the median the slower of two takes more than
//! [`MAX_RATIO`] times one alone. Needs network namespaces, as labs do.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a benchmark that cannot run says so and stops"
)]

use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;

use wanbed::{Lab, Overrides, Scenario};

#[path = "../tests/common/mod.rs"]
mod common;

use common::{new_key, noise, started};

/// Maximum ratio of the slower of two simultaneous copies to one alone.
const MAX_RATIO: f64 = 3.0;
const LARGE_FILES: usize = 60;
const LARGE_FILE_STEP_BYTES: usize = 20_000;
const SMALL_FILES: usize = 300;
const PATH: &str = r#"
title = "200 Mbit/s"
[nodes.client]
[nodes.server]
[links.path]
ends = ["client", "server"]
delay = "10 ms"
rate = "200 Mbit/s"
queue = "1 bdp of 40 ms"
"#;

/// A server in a lab, and the tree that is copied to it.
struct Bench<'a> {
    lab: &'a Lab,
    folder: &'a Path,
    server_key: String,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    // cargo calls it like this to test rather than to measure.
    if arguments.iter().any(|argument| argument == "--test") {
        return ExitCode::SUCCESS;
    }
    let at = arguments.iter().position(|argument| argument == "--pairs");
    let pairs = at
        .and_then(|at| arguments.get(at + 1))
        .map_or(3, |text| text.parse().unwrap());
    let lab = Lab::up(&Scenario::from_text("twice", PATH), &Overrides::default()).expect("a lab");
    let folder = tempfile::tempdir().unwrap();
    make_tree(&folder.path().join("tree"));
    fs::create_dir(folder.path().join("root")).unwrap();
    let [client_key, server_key] =
        ["client", "server"].map(|name| new_key(&folder.path().join(name)));
    let bench = Bench {
        lab: &lab,
        folder: folder.path(),
        server_key,
    };
    let mut serve = bench.longhaul("server");
    serve.args(["serve", "--listen", "0.0.0.0:7511", "--read", &client_key]);
    serve
        .args(["--write", &client_key, "--root"])
        .arg(folder.path().join("root"));
    let _server = started(serve);
    let mut ratios: Vec<f64> = (0..pairs).map(|_| bench.measure_pair()).collect();
    ratios.sort_by(f64::total_cmp);
    let median = ratios[ratios.len() / 2];
    println!("{{\"median_ratio\":{median:.2},\"most\":{MAX_RATIO}}}");
    match median <= MAX_RATIO {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn make_tree(tree: &Path) {
    fs::create_dir(tree).unwrap();
    let data = noise(LARGE_FILES * LARGE_FILE_STEP_BYTES, 29);
    for n in 1..=LARGE_FILES {
        fs::write(
            tree.join(format!("large{n}")),
            &data[..n * LARGE_FILE_STEP_BYTES],
        )
        .unwrap();
    }
    for n in 0..SMALL_FILES {
        fs::write(tree.join(format!("small{n}")), format!("{n}\n")).unwrap();
    }
}

impl Bench<'_> {
    /// Measures one copy alone and then two at once. Returns the ratio of the slower of these to
    /// the one.
    fn measure_pair(&self) -> f64 {
        let alone = self.copy(1)[0];
        let both = self.copy(2);
        let slower = both.iter().copied().fold(0.0, f64::max);
        let ratio = slower / alone;
        println!("{{\"alone_s\":{alone:.2},\"both_s\":{both:.2?},\"ratio\":{ratio:.2}}}");
        ratio
    }

    /// Makes `count` copies at the same time to new destinations. Returns the seconds of each.
    fn copy(&self, count: usize) -> Vec<f64> {
        let began = Instant::now();
        let copies: Vec<Child> = (0..count).map(|_| self.push()).collect();
        let waiting = copies.into_iter().map(|mut copy| {
            std::thread::spawn(move || {
                let status = copy.wait().unwrap();
                assert!(status.success(), "a copy failed: {status}");
                began.elapsed().as_secs_f64()
            })
        });
        // All are waited for at once.
        let waiting: Vec<_> = waiting.collect();
        let seconds = waiting.into_iter().map(|one| one.join().unwrap()).collect();
        self.compare_and_remove();
        seconds
    }

    fn push(&self) -> Child {
        let mut command = self.longhaul("client");
        let server = self.lab.address("server").unwrap();
        command.args(["cp", "-q", "-r", "--host-key", &self.server_key]);
        command.arg(self.folder.join("tree"));
        command.arg(format!("lh://{server}:7511/")).spawn().unwrap()
    }

    fn compare_and_remove(&self) {
        let copied = self.folder.join("root/tree");
        let mut diff = Command::new("diff");
        let status = diff
            .arg("-r")
            .arg(self.folder.join("tree"))
            .arg(&copied)
            .status();
        assert!(status.unwrap().success(), "what arrived differs");
        fs::remove_dir_all(copied).unwrap();
    }

    fn longhaul(&self, node: &str) -> Command {
        let mut command = self
            .lab
            .command(node, env!("CARGO_BIN_EXE_longhaul"))
            .unwrap();
        command.env("LONGHAUL_HOME", self.folder.join(node));
        command.stdin(Stdio::null());
        command
    }
}
