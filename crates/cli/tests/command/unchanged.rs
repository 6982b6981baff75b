//! Existing files are not transferred: by the same command repeated, and after it was killed in the
//! middle of a tree.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use crate::stage::*;

/// Bytes that a push sends before it knows that files exist: 1 MiB, and one batch of small files.
const BEFORE_ANSWER: u64 = 3 << 19;
const FILES: u64 = 400;
const FILE: u64 = 10_000;
const LARGE: u64 = 3_000_000;
/// Time limit for a server to remove temporary files: far more than it takes.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(120);

fn tree(stage: &Stage, at: &str) {
    std::fs::create_dir_all(stage.path(at).join("d")).unwrap();
    for n in 0..FILES {
        stage.noise(&format!("{at}/d/f{n}"), FILE as usize);
    }
    stage.noise(&format!("{at}/large"), LARGE as usize);
}

/// Returns the transferred bytes of file data.
fn carried(report: &Value) -> u64 {
    let streams = report["streams"].as_array().unwrap().iter();
    streams
        .map(|stream| stream["bytes"].as_u64().unwrap())
        .sum()
}

fn number(report: &Value, field: &str) -> u64 {
    report[field]
        .as_u64()
        .unwrap_or_else(|| panic!("{field} of {report}"))
}

fn files_beneath(dir: &Path) -> u64 {
    let Ok(list) = std::fs::read_dir(dir) else {
        return 0;
    };
    let hidden = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with('.');
    list.map(|entry| entry.unwrap())
        .filter(|entry| !hidden(&entry.file_name()))
        .count() as u64
}

#[test]
fn a_tree_copied_twice_moves_its_data_once() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    tree(&stage, "here/t");
    tree(&stage, "root/t");
    let there = format!("lh://{}", server.address);
    let (to, from) = (format!("{there}/in/"), format!("{there}/t"));
    // A push begins before it knows; a pull, and a copy within one machine, know.
    for (paths, bound) in [
        (["here/t", &*to], BEFORE_ANSWER),
        ([&*from, "here/back/"], 0),
        (["here/t", "here/copy/"], 0),
    ] {
        let whole = FILES * FILE + LARGE;
        let (first, code, reported) = stage
            .start_cp(&server, &[&["-r"][..], &paths].concat())
            .report();
        assert_eq!(code, Some(0), "{reported}");
        // On a slow machine, a second stream repeats blocks that were long in flight on the first.
        assert_eq!(number(&first, "unchanged_files"), 0);
        assert!(carried(&first) >= whole, "{paths:?}: {first}");
        let command = [&["-r", "--streams", "1"][..], &paths].concat();
        let (again, code, reported) = stage.start_cp(&server, &command).report();
        assert_eq!(code, Some(0), "{reported}");
        assert!(carried(&again) <= bound, "{paths:?}: {again}");
        let unchanged = number(&again, "unchanged_bytes");
        assert!(
            unchanged + carried(&again) >= whole && unchanged <= whole,
            "{again}"
        );
        assert_eq!(
            (number(&again, "files"), number(&again, "bytes")),
            (FILES + 1, whole)
        );
        assert!(number(&again, "unchanged_files") <= FILES + 1);
        // With --checksum nothing is transferred either, and both hashes are those of the content.
        let compared = ["-r", "--checksum", "--overwrite"];
        let (compared, code, reported) = stage
            .start_cp(&server, &[&compared[..], &paths].concat())
            .report();
        assert_eq!(code, Some(0), "{reported}");
        assert_eq!(
            (carried(&compared), number(&compared, "unchanged_bytes")),
            (0, whole),
            "{paths:?}: {compared}"
        );
        assert_eq!(
            compared["verification"]["root"],
            first["verification"]["root"]
        );
    }
    let output = stage.cp(&server, &["-r", &from, "here/back/"]);
    assert!(
        errors(&output).contains("401 files, 6.676 MiB (401, 6.676 MiB, were there already)"),
        "{}",
        errors(&output)
    );
}

#[test]
fn changed_files_are_sent_and_checksum_finds_hidden_changes() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    std::fs::create_dir(stage.path("root/t")).unwrap();
    for name in ["touched", "grown", "replaced", "hidden", "left"] {
        stage.noise(&format!("root/t/{name}"), 5000);
    }
    let from = format!("lh://{}/t", server.address);
    let copy = |more: &[&str]| {
        let arguments = [&["-r", "--overwrite"][..], more, &[&*from, "here/"]].concat();
        let mut copy = stage.start_cp(&server, &arguments);
        copy.until(|event| event["event"] == "report");
        assert_eq!(copy.child.wait().unwrap().code(), Some(0));
        let done = copy.events.iter().filter(|event| event["event"] == "done");
        let travelled = done.filter(|event| event["same"] == false && event["bytes"].is_u64());
        let name = |event: &Value| {
            event["path"]
                .as_str()
                .unwrap()
                .rsplit('/')
                .next()
                .unwrap()
                .to_owned()
        };
        let mut names: Vec<String> = travelled.map(name).collect();
        names.sort();
        names
    };
    assert_eq!(copy(&[]).len(), 5);
    let at = |name: &str| stage.path("root/t").join(name);
    let time_of = |name: &str| std::fs::metadata(at(name)).unwrap().modified().unwrap();
    let set_time = |name: &str, time: SystemTime| {
        let file = std::fs::File::options().write(true).open(at(name)).unwrap();
        file.set_modified(time).unwrap();
    };
    let (grown, hidden) = (time_of("grown"), time_of("hidden"));
    set_time("touched", time_of("touched") + Duration::from_nanos(1000));
    stage.noise("root/t/grown", 5001);
    set_time("grown", grown);
    std::fs::write(at("replaced"), vec![7; 5000]).unwrap();
    set_time("replaced", hidden + Duration::from_secs(3));
    std::fs::write(at("hidden"), vec![8; 5000]).unwrap();
    set_time("hidden", hidden);
    assert_eq!(copy(&[]), ["grown", "replaced", "touched"]);
    assert_ne!(
        std::fs::read(stage.path("here/t/hidden")).unwrap(),
        vec![8; 5000]
    );
    assert_eq!(copy(&["--checksum"]), ["hidden"]);
    assert_eq!(
        std::fs::read(stage.path("here/t/hidden")).unwrap(),
        vec![8; 5000]
    );
    assert_eq!(copy(&[]), [""; 0]);
}

#[test]
fn a_killed_tree_copy_resumes() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    // A depot limits the rate, so that the copy lasts long enough.
    let depot = stage.depot("d", Some("20 Mbit/s"));
    for push in [true, false] {
        let (source, target) = match push {
            true => ("here/t", "root/in/t"),
            false => ("root/t", "here/in/t"),
        };
        tree(&stage, source);
        let (there, into) = (
            format!("lh://{}/t", server.address),
            format!("lh://{}/in/", server.address),
        );
        let paths = if push {
            [source, &*into]
        } else {
            [&*there, "here/in/"]
        };
        // With one stream, no other repeats blocks that were long in flight.
        let arguments = [
            &["-r", "--streams", "1", "--route", &*depot.address][..],
            &paths,
        ]
        .concat();
        let mut copy = stage.start_cp(&server, &arguments);
        // The large file may be among them.
        copy.until(|event| {
            event["event"] == "progress" && event["files"].as_u64() > Some(FILES / 2 + 1)
        });
        copy.child.kill().unwrap();
        copy.child.wait().unwrap();
        let there = files_beneath(&stage.path(target).join("d"));
        assert!(there > FILES / 2);
        let (report, code, reported) = stage.start_cp(&server, &arguments).report();
        assert_eq!(code, Some(0), "{reported}");
        let whole = FILES * FILE + LARGE;
        let bound = whole - there * FILE + if push { BEFORE_ANSWER } else { 0 };
        assert!(
            carried(&report) <= bound,
            "{} over {bound}: {report}",
            carried(&report)
        );
        assert_eq!(
            (number(&report, "bytes"), number(&report, "files")),
            (whole, FILES + 1)
        );
        for n in [0, FILES / 2, FILES - 1] {
            let name = format!("d/f{n}");
            let read = |tree: &str| std::fs::read(stage.path(tree).join(&name)).unwrap();
            assert!(read(source) == read(target), "{name}");
        }
        // A killed pull leaves the temporary files of small files, as nobody else removes them. A
        // server removes those of a push when it notices the end of its client.
        let deadline = Instant::now() + REMOVAL_TIMEOUT;
        while push && !no_temps(&stage.path("root")) {
            assert!(Instant::now() < deadline, "temporary files are left");
            std::thread::yield_now();
        }
    }
}

#[test]
fn hard_links_are_kept_if_requested() {
    use std::os::unix::fs::MetadataExt;
    let stage = Stage::new();
    let server = stage.serve(&[]);
    for at in ["here/t", "root/t"] {
        std::fs::create_dir_all(stage.path(at).join("d")).unwrap();
        stage.noise(&format!("{at}/large"), LARGE as usize);
        for name in ["d/again", "more"] {
            std::fs::hard_link(stage.path(at).join("large"), stage.path(at).join(name)).unwrap();
        }
    }
    let there = format!("lh://{}", server.address);
    let (to, from) = (format!("{there}/in/"), format!("{there}/t"));
    for (paths, at) in [
        (["here/t", &*to], "root/in/t"),
        ([&*from, "here/back/"], "here/back/t"),
        (["here/t", "here/copy/"], "here/copy/t"),
    ] {
        // With several streams, one would repeat blocks that were long in flight on another.
        let command = [&["-r", "-H", "--streams", "1"][..], &paths].concat();
        let (report, code, reported) = stage.start_cp(&server, &command).report();
        assert_eq!(code, Some(0), "{reported}");
        assert_eq!(carried(&report), LARGE, "{paths:?}");
        assert_eq!(
            (
                number(&report, "linked_files"),
                number(&report, "linked_bytes")
            ),
            (2, 2 * LARGE)
        );
        assert_eq!(
            (number(&report, "files"), number(&report, "bytes")),
            (3, 3 * LARGE)
        );
        let first = std::fs::metadata(stage.path(at).join("large")).unwrap();
        assert_eq!(first.nlink(), 3, "{paths:?}");
        for name in ["d/again", "more"] {
            let other = std::fs::metadata(stage.path(at).join(name)).unwrap();
            assert_eq!(other.ino(), first.ino(), "{paths:?}");
        }
    }
}
