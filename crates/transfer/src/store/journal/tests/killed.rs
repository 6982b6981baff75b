//! A process that is repeatedly killed while it writes ends with the right file.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use super::{BLOCK_LOG2, Random, TICK, block_of, content, identity, is_hole, is_true, subtree_of};
use crate::store::confine::Dir;
use crate::store::journal::{DirStorage, FlushResult, Journal, JournalAction};

const SIZE: usize = 1500 * super::BLOCK + 3;
/// Maximum number of kills.
const KILLS: usize = 50;
/// Number of blocks that the process may write after the one at which it is killed, so that it dies
/// in the middle of some operation.
const BLOCKS_AHEAD: usize = 20;
/// Environment variable that tells the process where to write.
const DIR_VARIABLE: &str = "LONGHAUL_TEST_JOURNAL_DIR";
/// Prefix of each line for the test.
const MARK: &str = "journal:";

#[test]
#[ignore = "is run by the test that kills it"]
fn writes_until_it_is_killed() {
    let Some(dir) = std::env::var_os(DIR_VARIABLE) else {
        return;
    };
    // Output is not buffered: what was reported has happened.
    let report = |word: &str, bytes: u64| {
        let line = format!("{MARK} {word} {bytes}\n");
        let _ = rustix::io::write(std::io::stdout(), line.as_bytes());
    };
    let storage = DirStorage(Arc::new(Dir::open(Path::new(&dir)).unwrap()));
    let (journal, resume) = Journal::open_or_create(
        storage,
        OsStr::new("target"),
        &identity(),
        BLOCK_LOG2,
        SIZE as u64,
    )
    .unwrap();
    let content = content(SIZE, 7);
    for subtree in &resume.subtrees {
        assert!(is_true(&content, subtree));
    }
    let mut recorded = resume.bytes();
    report("resumed", recorded);
    let ranges = resume.ranges();
    let is_in = |n: usize| {
        ranges
            .iter()
            .any(|range| range.contains(&((n as u64) << BLOCK_LOG2)))
    };
    let mut left: Vec<usize> = (0..SIZE.div_ceil(super::BLOCK))
        .filter(|&n| !is_in(n))
        .collect();
    Random(recorded).shuffle(&mut left);
    let (mut now, mut written) = (Duration::ZERO, recorded);
    let (mut has_bound, mut allowed) = (true, [0]);
    for n in left {
        has_bound = has_bound && std::io::stdin().read(&mut allowed).unwrap() > 0;
        let block = block_of(&content, n);
        if !is_hole(n) {
            journal.write_at(block, (n as u64) << BLOCK_LOG2).unwrap();
        }
        now += TICK;
        let is_time = journal.written(now, subtree_of(&content, n));
        written += block.len() as u64;
        report("wrote", n as u64);
        if is_time && journal.note(now) {
            report("recorded", written);
        }
        if journal.poll(now) == JournalAction::Flush {
            let asked = journal.at_risk(now).bytes;
            assert_eq!(journal.flush(|| now), Ok(FlushResult::Recorded));
            recorded += asked;
            report("recorded", recorded);
        }
    }
    report("finishing", recorded);
    // A process that was killed at the end of this may have left the whole file.
    journal.finish(true).unwrap();
    report("finished", recorded);
}

fn start(dir: &Path) -> Child {
    let test = format!(
        "{}::writes_until_it_is_killed",
        module_path!().split_once("::").unwrap().1
    );
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &test, "--ignored", "--nocapture"])
        .env(DIR_VARIABLE, dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn process_killed_at_random_moments_resumes() {
    let tmp = tempfile::tempdir().unwrap();
    let mut random = Random(u64::from(std::process::id()));
    let (mut kills, mut recorded, mut wrote) = (0, 0, 0);
    loop {
        let mut child = start(tmp.path());
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // Some processes are killed as soon as they begin, and some after a hundred blocks.
        let mut left = random.below(100);
        // Each byte permits one block. All are permitted when the input ends.
        let mut allowed = child.stdin.take().unwrap();
        if kills < KILLS {
            allowed.write_all(&vec![b'.'; left + BLOCKS_AHEAD]).unwrap();
        } else {
            left = usize::MAX;
        }
        let allowed = (kills < KILLS).then_some(allowed);
        let mut is_finished = false;
        for line in lines {
            let line = line.unwrap_or_default();
            let mut words = line
                .strip_prefix(MARK)
                .unwrap_or_default()
                .split_whitespace();
            let (word, bytes) = (
                words.next(),
                words.next().and_then(|word| word.parse().ok()),
            );
            match (word, bytes) {
                (Some("resumed"), Some(bytes)) => {
                    // The process may have been killed before it could report its last record.
                    assert!(bytes >= recorded, "{bytes} of {recorded} bytes are left");
                    recorded = bytes;
                }
                (Some("recorded"), Some(bytes)) => recorded = recorded.max(bytes),
                (Some("wrote"), _) => wrote += 1,
                // A process that is killed now may have removed the journal already.
                (Some("finishing"), _) => recorded = 0,
                (Some("finished"), _) => is_finished = true,
                _ => {}
            }
            if left == 0 {
                child.kill().unwrap();
            }
            left = left.saturating_sub(1);
        }
        drop(allowed);
        let status = child.wait().unwrap();
        if is_finished {
            break;
        }
        assert!(status.code().is_none(), "it failed: {status}");
        kills += 1;
    }
    let blocks = SIZE.div_ceil(super::BLOCK);
    writeln!(
        std::io::stderr(),
        "{kills} kills, {} blocks written twice",
        wrote - blocks
    )
    .unwrap();
    assert!(kills >= 10, "it was killed {kills} times only");
    assert_eq!(
        std::fs::read(tmp.path().join("target")).unwrap(),
        content(SIZE, 7)
    );
    assert!(
        !super::real::names_in(tmp.path())
            .iter()
            .any(|name| name.ends_with(".journal"))
    );
}
