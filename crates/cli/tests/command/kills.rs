//! A folder of small, medium and large files whose copy is killed at every state, at either end or
//! both. The same command, repeated until it is done, leaves every file as it was sent.
//! `longhaul-figures figures kills --seeds 5` does the same hundreds of times, and measures.

use std::path::Path;
use std::time::Instant;

use serde_json::Value;

use crate::stage::*;

/// The process to kill.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Side {
    Client,
    Server,
    Both,
}

/// The event of the copy at which it is killed.
#[derive(Clone, Copy, Debug)]
enum Sign {
    Opened,
    FileDone,
    /// This many thousandths of all bytes have arrived.
    Bytes(u64),
    GoingOn,
}

use Side::{Both, Client, Server};

/// The kills in order, one per command.
const KILLS: [(Side, Sign); 7] = [
    (Client, Sign::Opened),
    (Server, Sign::FileDone),
    (Both, Sign::Bytes(300)),
    (Client, Sign::GoingOn),
    (Server, Sign::Bytes(500)),
    (Both, Sign::GoingOn),
    (Client, Sign::Bytes(900)),
];
const SMALL_FILES: usize = 100;
const MIDDLE_FILES: usize = 3;
const LARGE_BYTES: usize = 10_000_000;
/// Rate of a depot on the route, so that a copy lasts long enough: the last tenth takes 0.36 s, and
/// progress is reported every 0.25 s.
const RATE: &str = "30 Mbit/s";
/// Number of commands after which the copy counts as endless.
const MAX_COMMANDS: usize = 3 * KILLS.len();

impl Sign {
    fn is(self, event: &Value, all: u64) -> bool {
        let kind = event["event"].as_str();
        match self {
            Self::Opened => kind == Some("stream_opened"),
            Self::FileDone => kind == Some("done") && event["blake3"].is_string(),
            Self::Bytes(thousandths) => {
                kind == Some("progress")
                    && event["bytes"].as_u64() >= Some(all / 1000 * thousandths)
            }
            Self::GoingOn => kind == Some("resumed"),
        }
    }
}

/// Makes the files beneath `folder`, and returns names and contents.
fn mix(stage: &Stage, folder: &str) -> Vec<(String, Vec<u8>)> {
    for sub in ["a", "b", "c"] {
        std::fs::create_dir_all(stage.path(folder).join(sub)).unwrap();
    }
    let small = (0..SMALL_FILES).map(|n| (format!("a/{n}"), 4000 + n));
    let middle = (0..MIDDLE_FILES).map(|n| (format!("c/{n}"), 1_000_000 + n));
    let all = small
        .chain([("b/large".to_owned(), LARGE_BYTES)])
        .chain(middle);
    all.map(|(name, len)| {
        let data = stage.noise(&format!("{folder}/{name}"), len);
        (name, data)
    })
    .collect()
}

fn killed_at_every_state(push: bool) {
    let stage = Stage::new();
    let files = mix(&stage, if push { "here/mix" } else { "root/mix" });
    let all = files.iter().map(|(_, data)| data.len() as u64).sum();
    let depot = stage.depot("d", Some(RATE));
    let mut server = stage.serve_at_own_address();
    let address = server.address.clone();
    let there = format!("lh://{address}/");
    let paths = if push {
        ["here/mix".to_owned(), there]
    } else {
        [format!("{there}mix"), "here/".to_owned()]
    };
    let arguments = ["-r", "--route", &depot.address, &paths[0], &paths[1]];
    let arrived = stage.path(if push { "root/mix" } else { "here/mix" });
    let mut kills = KILLS.into_iter().peekable();
    for _ in 0..MAX_COMMANDS {
        let mut copy = stage.start_patient_cp(&server, &arguments);
        let Some(&(side, sign)) = kills.peek() else {
            let (report, code, reported) = copy.report();
            assert_eq!(code, Some(0), "{report} {reported}");
            break;
        };
        copy.until(|event| event["event"] == "report" || sign.is(event, all));
        if copy.events.iter().any(|event| event["event"] == "report") {
            // It was past that state, or had nothing to resume, and completed. Start again to reach
            // it.
            copy.child.wait().unwrap();
            check(&arrived, &files);
            // The end of a killed copy may still write there.
            until("the folder is removed", || {
                let _ = std::fs::remove_dir_all(&arrived);
                !arrived.exists()
            });
            kills.next_if(|(_, sign)| matches!(sign, Sign::GoingOn));
            continue;
        }
        kills.next();
        if side != Server {
            copy.child.kill().unwrap();
            copy.child.wait().unwrap();
        }
        if side != Client {
            server.kill();
            server = stage.serve_at(&address);
        }
        if side == Server {
            let began = Instant::now();
            let (report, code, reported) = copy.report();
            // A pull resumes by itself; a push ends at once.
            assert!(matches!(code, Some(0 | 5)), "{report} {reported}");
            assert!(
                code == Some(0) || began.elapsed() < MAX_END,
                "{:?}",
                began.elapsed()
            );
        }
    }
    assert!(
        kills.peek().is_none(),
        "it comes to no end: {:?} is not reached",
        kills.peek()
    );
    check(&arrived, &files);
}

/// Asserts that all files are complete and that no journal of a data file remains. A data file may
/// remain from a program killed before its first record. So may a journal from one killed just
/// after its file was committed.
fn check(arrived: &Path, files: &[(String, Vec<u8>)]) {
    for (name, data) in files {
        assert!(
            std::fs::read(arrived.join(name)).unwrap() == *data,
            "{name}"
        );
    }
    for sub in ["a", "b", "c"] {
        let names: Vec<String> = std::fs::read_dir(arrived.join(sub))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        for stem in names
            .iter()
            .filter_map(|name| name.strip_suffix(".journal"))
        {
            let is_of_it = |name: &&String| name.starts_with(stem) && name.ends_with(".part");
            assert_eq!(names.iter().find(is_of_it), None, "{names:?}");
        }
    }
}

#[test]
fn a_push_killed_at_every_state_arrives_as_it_was_sent() {
    killed_at_every_state(true);
}

#[test]
fn a_pull_killed_at_every_state_arrives_as_it_was_sent() {
    killed_at_every_state(false);
}
