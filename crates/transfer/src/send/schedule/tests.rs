//! Individual rules of the schedule.

use super::*;
use crate::error::{Failure, FailureKind};
use crate::tree_hash::{BlockHash, BlockHasher, Subtree};
use crate::wire::{Compare, Written};

mod links;
mod offers;

const ROOM: usize = MAX_BATCH_ENTRIES;
const LARGE: u64 = 1 << 20;

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Returns a schedule with two streams and files of these sizes.
fn with_files(sizes: &[u64]) -> Schedule {
    let mut schedule = Schedule::default();
    schedule.add_stream(1);
    schedule.add_stream(2);
    for (n, size) in sizes.iter().enumerate() {
        let path = RelPath::from_bytes(format!("f{n}").as_bytes()).unwrap();
        schedule.found(0, path, Meta::default(), Found::File { size: *size });
    }
    schedule.walk_ended(true);
    schedule
}

/// Takes work, and returns it in words. Empty without work.
fn take(schedule: &mut Schedule, stream: StreamId, now: Duration) -> Vec<String> {
    let next = schedule.next(stream, now, ROOM);
    schedule.check();
    let Next::Send(work) = next else {
        return Vec::new();
    };
    let word = |work: &Work| match work {
        Work::Entry(entry) => format!("entry {}", entry.head.id),
        Work::Offer { file, content } => match content {
            None => format!("offer {}", file.head.id),
            Some((size, _)) => format!("offer {} of {size}", file.head.id),
        },
        Work::Link(file) => format!("link {}", file.head.id),
        Work::ReadOffer(file) => format!("read {}", file.head.id),
        Work::Open {
            file,
            offered: false,
        } => format!("open {}", file.head.id),
        Work::Open {
            file,
            offered: true,
        } => format!("offer and open {}", file.head.id),
        Work::Block { file, offset } => format!("block {} {offset}", file.head.id),
        Work::Complete { file, .. } => format!("complete {}", file.head.id),
        Work::FileEnd { file, .. } => format!("end {}", file.head.id),
        Work::Failed(entry, failure) => format!("failed {} {:?}", entry.head.id, failure.kind),
        Work::End { entries, .. } => format!("end of {entries}"),
    };
    work.iter().map(word).collect()
}

fn block_hash(offset: u64, size: u64) -> BlockHash {
    let mut hasher = BlockHasher::new(offset, 1 << 18, size);
    hasher.update(b"x");
    hasher.finish()
}

#[test]
fn small_entries_are_batched_and_opened_files_go_alone() {
    let mut schedule = with_files(&[1, 2, 60_000, 60_000, 60_000, 3, LARGE, 4]);
    assert_eq!(
        take(&mut schedule, 1, secs(0)),
        ["entry 0", "entry 1", "entry 2"],
        "full by bytes"
    );
    assert_eq!(take(&mut schedule, 1, secs(0)), ["entry 3"]);
    assert_eq!(take(&mut schedule, 1, secs(0)), ["entry 4"]);
    assert_eq!(take(&mut schedule, 1, secs(0)), ["entry 5"]);
    assert_eq!(take(&mut schedule, 1, secs(0)), ["open 6"]);
    // Other streams do not wait for a file that is being opened.
    assert_eq!(take(&mut schedule, 2, secs(0)), ["entry 7", "end of 8"]);
    assert!(schedule.opened(6, LARGE, 18, false));
    assert_eq!(take(&mut schedule, 2, secs(0)), ["block 6 262144"]);
    assert_eq!(take(&mut schedule, 1, secs(0)), ["block 6 524288"]);
    assert_eq!(take(&mut schedule, 2, secs(0)), ["block 6 786432"]);
    assert!(take(&mut schedule, 1, secs(0)).is_empty());
}

#[test]
fn blocks_are_batched_while_much_is_left() {
    const BLOCKS: u64 = 400;
    let size = BLOCKS << 18;
    let mut schedule = with_files(&[size]);
    schedule.remove_stream(2);
    assert_eq!(take(&mut schedule, 1, secs(0)), ["open 0"]);
    assert!(schedule.opened(0, size, 18, false));
    let (mut batches, mut acknowledged) = (Vec::new(), 0);
    loop {
        let next = take(&mut schedule, 1, secs(1));
        if next == ["end of 1"] {
            break;
        }
        batches.push(next.len());
        for _ in &next {
            answer_block(&mut schedule, acknowledged, size, secs(1));
            acknowledged += 1 << 18;
        }
    }
    assert_eq!(batches.iter().sum::<usize>() as u64, BLOCKS - 1);
    assert_eq!(batches[..4], [1, 1, 2, 4], "as slow start grows");
    let mut last = batches.iter().rev().take(28);
    assert!(last.all(|blocks| *blocks == 1), "{batches:?}");
}

/// Reads and acknowledges a block.
fn answer_block(schedule: &mut Schedule, offset: u64, size: u64, now: Duration) {
    schedule.block_read(0, offset, block_hash(offset, size));
    schedule.acknowledged(0, offset, now);
    schedule.check();
}

#[test]
fn slow_stream_takes_none_of_the_last_blocks() {
    let size = 12 << 18;
    let mut schedule = with_files(&[size]);
    assert_eq!(take(&mut schedule, 1, secs(0)), ["open 0"]);
    assert!(schedule.opened(0, size, 18, false));
    let block = |n: u64| [format!("block 0 {}", n << 18)];
    assert_eq!(take(&mut schedule, 2, secs(0)), block(1));
    for n in 2..6 {
        assert_eq!(take(&mut schedule, 1, secs(0)), block(n));
    }
    assert_eq!(take(&mut schedule, 2, secs(0)), block(6));
    // One stream delivers four blocks in the time of the other's one.
    for n in [0, 2, 3, 4, 1] {
        answer_block(&mut schedule, n << 18, size, secs(1));
    }
    assert_eq!(take(&mut schedule, 1, secs(1)), block(7));
    assert_eq!(
        take(&mut schedule, 2, secs(1)),
        block(8),
        "there is enough for both"
    );
    assert_eq!(take(&mut schedule, 1, secs(1)), block(9));
    let Next::Wait { until } = schedule.next(2, secs(1), ROOM) else {
        panic!("the other one delivers the rest before this could")
    };
    assert_eq!(until, secs(1) + SHARE_PAUSE);
    assert_eq!(take(&mut schedule, 1, secs(1)), block(10));
    // This changes when that stream falls silent.
    answer_block(&mut schedule, 6 << 18, size, secs(9));
    assert_eq!(take(&mut schedule, 2, secs(9)), block(11));
}

#[test]
fn streams_do_not_wait_for_one_that_does_not_ask() {
    let size = 4 << 18;
    let mut schedule = with_files(&[size]);
    assert_eq!(take(&mut schedule, 1, secs(0)), ["open 0"]);
    assert!(schedule.opened(0, size, 18, false));
    assert_eq!(
        take(&mut schedule, 1, secs(0)),
        [format!("block 0 {}", 1 << 18)]
    );
    answer_block(&mut schedule, 0, size, secs(1));
    assert_eq!(
        take(&mut schedule, 1, secs(1)),
        [format!("block 0 {}", 2 << 18)]
    );
    // Stream 2 carries nothing and would finish sooner, but does not ask for work.
    assert_eq!(
        take(&mut schedule, 1, secs(1)),
        [format!("block 0 {}", 3 << 18)]
    );
}

#[test]
fn memory_limits_the_blocks_handed_out() {
    let mut schedule = with_files(&[1, 1]);
    let Next::Wait { until } = schedule.next(1, secs(5), 0) else {
        panic!("no room")
    };
    assert_eq!(until, secs(5) + MAX_ANSWER_WAIT);
    assert!(matches!(schedule.next(1, secs(5), 1), Next::Send(work) if work.len() == 1));
}

#[test]
fn full_stream_is_woken_when_there_is_room() {
    let mut schedule = with_files(&vec![1; MAX_IN_FLIGHT_PER_STREAM + 10]);
    schedule.remove_stream(2);
    let mut taken = 0;
    while let Next::Send(work) = schedule.next(1, secs(0), ROOM) {
        taken += work.len();
    }
    assert_eq!(taken, MAX_IN_FLIGHT_PER_STREAM);
    schedule.actions();
    assert_eq!(schedule.whole_read(1, 7, 1, [0; 32], secs(0)), Say::File);
    schedule.answered(7, Ok(Written::New), secs(1));
    assert_eq!(schedule.actions().wake, Wake::All);
    assert!(matches!(schedule.next(1, secs(1), ROOM), Next::Send(work) if work.len() == 1));
    schedule.check();
}

#[test]
fn work_of_a_lost_stream_is_taken_first_and_in_order() {
    let mut schedule = with_files(&[LARGE, 1, 2, 3]);
    assert_eq!(take(&mut schedule, 1, secs(0)), ["open 0"]);
    assert_eq!(
        take(&mut schedule, 1, secs(0)),
        ["entry 1", "entry 2", "entry 3", "end of 4"]
    );
    assert!(schedule.opened(0, LARGE, 18, false));
    assert_eq!(take(&mut schedule, 1, secs(0)), ["block 0 262144"]);
    schedule.remove_stream(1);
    assert_eq!(take(&mut schedule, 2, secs(0)), ["block 0 0"]);
    assert_eq!(take(&mut schedule, 2, secs(0)), ["block 0 262144"]);
    let rest = ["entry 1", "entry 2", "entry 3", "end of 4"];
    assert_eq!(take(&mut schedule, 2, secs(0)), rest);
    assert_eq!(take(&mut schedule, 2, secs(0)), ["block 0 524288"]);
    assert!(matches!(schedule.next(1, secs(0), ROOM), Next::Over));
}

#[test]
fn returned_work_is_not_resent_after_a_late_answer() {
    let mut schedule = with_files(&[LARGE, 1]);
    assert_eq!(take(&mut schedule, 1, secs(0)), ["open 0"]);
    assert_eq!(take(&mut schedule, 1, secs(0)), ["entry 1", "end of 2"]);
    assert!(schedule.opened(0, LARGE, 18, false));
    schedule.block_read(0, 0, block_hash(0, LARGE));
    assert_eq!(schedule.whole_read(1, 1, 1, [0; 32], secs(0)), Say::File);
    schedule.remove_stream(1);
    schedule.acknowledged(0, 0, secs(1));
    schedule.answered(1, Ok(Written::New), secs(1));
    assert_eq!(schedule.bytes_done(), (1 << 18) + 1);
    assert_eq!(take(&mut schedule, 2, secs(1)), ["end of 2"]);
    assert_eq!(take(&mut schedule, 2, secs(1)), ["block 0 262144"]);
}

#[test]
fn file_of_a_lost_opener_is_opened_by_the_next_stream() {
    let mut schedule = with_files(&[LARGE]);
    assert_eq!(take(&mut schedule, 1, secs(0)), ["open 0"]);
    schedule.remove_stream(1);
    assert_eq!(take(&mut schedule, 2, secs(0)), ["open 0"]);
    assert!(schedule.opened(0, LARGE, 18, false));
    assert!(
        !schedule.opened(0, 2 * LARGE, 18, false),
        "the first one counts"
    );
    schedule.check();
}

#[test]
fn one_stream_is_left_to_complete_open_files() {
    let mut schedule = with_files(&[LARGE, LARGE, LARGE, LARGE]);
    assert_eq!(take(&mut schedule, 1, secs(0)), ["open 0"]);
    assert!(take(&mut schedule, 2, secs(0)).is_empty());
    schedule.actions();
    schedule.add_stream(3);
    assert_eq!(schedule.actions().wake, Wake::All);
    assert_eq!(take(&mut schedule, 2, secs(0)), ["open 1"]);
    assert!(take(&mut schedule, 3, secs(0)).is_empty());
    assert!(schedule.opened(0, 1 << 18, 18, false));
    assert_eq!(take(&mut schedule, 1, secs(0)), ["open 2"]);
    // The stream that carries a block is lost while all others wait for a permit to open a file.
    assert!(take(&mut schedule, 3, secs(0)).is_empty());
    schedule.remove_stream(1);
    assert_eq!(take(&mut schedule, 3, secs(0)), ["block 0 0"]);
    assert!(take(&mut schedule, 3, secs(0)).is_empty());
    let failure = Failure::new(FailureKind::Vanished);
    schedule.failed(2, 1, &failure, secs(0));
    assert_eq!(schedule.actions().wake, Wake::All);
    assert_eq!(take(&mut schedule, 3, secs(0)), ["open 2"]);
}

#[test]
fn idle_stream_repeats_the_oldest_work_of_others() {
    let mut schedule = with_files(&[1, LARGE]);
    assert_eq!(take(&mut schedule, 1, secs(0)), ["entry 0"]);
    assert_eq!(take(&mut schedule, 1, secs(1)), ["open 1"]);
    assert_eq!(take(&mut schedule, 2, secs(1)), ["end of 2"]);
    let Next::Wait { until } = schedule.next(2, secs(1), ROOM) else {
        panic!("nothing is old enough")
    };
    assert_eq!(until, MAX_ANSWER_WAIT);
    assert_eq!(take(&mut schedule, 2, until), ["entry 0"]);
    assert!(
        take(&mut schedule, 2, secs(60)).is_empty(),
        "a file that is being opened has nothing to repeat"
    );
    assert!(schedule.opened(1, 1 << 18, 18, false));
    assert!(
        take(&mut schedule, 2, secs(60)).is_empty(),
        "it delivers what it carries first"
    );
    schedule.add_stream(3);
    assert_eq!(take(&mut schedule, 3, secs(60)), ["block 1 0"]);
    // A stream does not repeat its own work. Other streams' work is repeated after another wait,
    // which doubles each time.
    assert_eq!(take(&mut schedule, 1, secs(60)), ["end of 2"]);
    assert_eq!(take(&mut schedule, 1, secs(60)), ["entry 0"]);
    assert!(take(&mut schedule, 1, secs(60)).is_empty());
    assert!(take(&mut schedule, 2, secs(63)).is_empty());
    assert_eq!(take(&mut schedule, 2, secs(64)), ["block 1 0"]);
    assert_eq!(take(&mut schedule, 3, secs(64)), ["end of 2"]);
    assert!(take(&mut schedule, 3, secs(65)).is_empty());
    assert_eq!(take(&mut schedule, 3, secs(66)), ["entry 0"]);
    schedule.remove_stream(3);
    assert_eq!(take(&mut schedule, 1, secs(66)), ["entry 0", "end of 2"]);
}

#[test]
fn work_on_a_slow_path_is_sent_once() {
    let mut schedule = with_files(&[16 << 18]);
    assert_eq!(take(&mut schedule, 1, secs(0)), ["open 0"]);
    assert!(schedule.opened(0, 16 << 18, 18, false));
    while [1, 2].map(|stream| take(&mut schedule, stream, secs(0)).len()) != [0, 0] {}
    // The first answers are late because the path is slow. Before them, the answer time is unknown.
    for stream in [1, 2] {
        assert_eq!(take(&mut schedule, stream, secs(10)), [""; 0]);
    }
}

#[test]
fn late_work_is_repeated_by_a_stream_with_known_answer_time() {
    let mut schedule = with_files(&[1, 1]);
    let ms = Duration::from_millis;
    assert!(matches!(schedule.next(1, ms(0), 1), Next::Send(_)));
    assert_eq!(take(&mut schedule, 2, ms(0)), ["entry 1", "end of 2"]);
    assert_eq!(schedule.whole_read(1, 0, 1, [0; 32], ms(0)), Say::File);
    schedule.answered(0, Ok(Written::New), ms(50));
    let Next::Wait { until } = schedule.next(1, ms(60), ROOM) else {
        panic!("not yet")
    };
    assert_eq!(until, MIN_AGE_TO_REPEAT);
    assert_eq!(take(&mut schedule, 1, until), ["entry 1"]);
}

#[test]
fn stream_with_slow_answers_repeats_later() {
    let mut schedule = with_files(&[1, 1]);
    assert!(matches!(schedule.next(1, secs(0), 1), Next::Send(_)));
    assert_eq!(schedule.whole_read(1, 0, 1, [0; 32], secs(0)), Say::File);
    assert_eq!(take(&mut schedule, 2, secs(4)), ["entry 1", "end of 2"]);
    schedule.answered(0, Ok(Written::New), secs(4));
    let Next::Wait { until } = schedule.next(1, secs(10), ROOM) else {
        panic!("not yet")
    };
    assert_eq!(until, secs(4 + 3 * 4));
    assert_eq!(take(&mut schedule, 1, until), ["entry 1"]);
}

#[test]
fn repeated_work_does_not_update_the_answer_time() {
    let mut schedule = with_files(&[1, 1]);
    assert!(matches!(schedule.next(1, secs(0), 1), Next::Send(_)));
    assert!(matches!(schedule.next(1, secs(60), 1), Next::Send(_)));
    assert_eq!(take(&mut schedule, 2, secs(60)), ["end of 2"]);
    assert_eq!(take(&mut schedule, 2, secs(60)), ["entry 0"]);
    assert_eq!(schedule.whole_read(2, 0, 1, [0; 32], secs(60)), Say::File);
    schedule.answered(0, Ok(Written::New), secs(61));
    assert_eq!(take(&mut schedule, 2, secs(62)), ["entry 1"]);
}

#[test]
fn blocks_of_a_failed_file_leave_flight() {
    let mut schedule = with_files(&[LARGE]);
    assert_eq!(take(&mut schedule, 1, secs(0)), ["open 0"]);
    assert!(schedule.opened(0, LARGE, 18, false));
    assert_eq!(take(&mut schedule, 2, secs(0)), ["block 0 262144"]);
    assert_eq!(schedule.block_read(0, 0, block_hash(0, LARGE)), None);
    schedule.acknowledged(0, 0, secs(0));
    assert_eq!(schedule.bytes_done(), 1 << 18);
    // The receiver gives up the file.
    schedule.answered(0, Err(Failure::new(FailureKind::DiskFull)), secs(1));
    schedule.check();
    let actions = schedule.actions();
    assert_eq!(actions.close, Some(0));
    assert!(actions.result.is_some_and(|result| result.outcome.is_err()));
    assert_eq!(
        (schedule.memory(), schedule.bytes_done()),
        (Memory::default(), 0)
    );
    assert_eq!(
        schedule.block_read(0, 1 << 18, block_hash(1 << 18, LARGE)),
        None
    );
    assert_eq!(take(&mut schedule, 1, secs(60)), ["end of 1"]);
}

#[test]
fn file_that_grew_after_it_was_sent_has_changed() {
    let mut schedule = with_files(&[10]);
    assert_eq!(take(&mut schedule, 1, secs(0)), ["entry 0", "end of 1"]);
    assert_eq!(schedule.whole_read(1, 0, 10, [1; 32], secs(0)), Say::File);
    schedule.remove_stream(1);
    assert_eq!(take(&mut schedule, 2, secs(1)), ["entry 0", "end of 1"]);
    // The receiver may have the earlier version. Two records of one entry would not agree.
    let changed = Failure::new(FailureKind::Changed);
    assert_eq!(schedule.grew(2, 0, secs(1)), Say::Failure(changed));
    schedule.answered(0, Ok(Written::New), secs(2));
    let result = schedule.actions().result.unwrap();
    assert_eq!(
        (result.outcome, result.content),
        (Ok(Written::New), Some((10, Some([1; 32]))))
    );
}

#[test]
fn file_that_grew_is_sent_in_blocks() {
    let mut schedule = with_files(&[10]);
    assert_eq!(take(&mut schedule, 1, secs(0)), ["entry 0", "end of 1"]);
    assert_eq!(schedule.grew(1, 0, secs(0)), Say::Nothing);
    assert_eq!(take(&mut schedule, 2, secs(0)), ["open 0"]);
    // It was read before it grew, and reported after.
    assert_eq!(
        schedule.whole_read(1, 0, 10, [1; 32], secs(0)),
        Say::Nothing
    );
}

#[test]
fn answer_about_unsent_work_is_ignored() {
    let mut schedule = with_files(&[1, LARGE]);
    schedule.answered(0, Ok(Written::New), secs(0));
    schedule.answered(u64::MAX, Err(Failure::new(FailureKind::Io)), secs(0));
    assert_eq!(take(&mut schedule, 1, secs(0)), ["entry 0"]);
    schedule.answered(0, Ok(Written::New), secs(0));
    assert_eq!(take(&mut schedule, 1, secs(0)), ["open 1"]);
    schedule.acknowledged(1, 0, secs(0));
    assert!(schedule.opened(1, LARGE, 18, false));
    schedule.acknowledged(1, 0, secs(0));
    schedule.acknowledged(1, 77, secs(0));
    schedule.answered(1, Ok(Written::Same), secs(0));
    schedule.completed([0; 32]);
    assert!(schedule.actions().result.is_none());
    assert_eq!((schedule.bytes_done(), schedule.agreed()), (0, None));
    schedule.check();
}

#[test]
fn different_manifests_disagree() {
    let mut schedule = with_files(&[1]);
    assert_eq!(take(&mut schedule, 1, secs(0)), ["entry 0", "end of 1"]);
    assert_eq!(schedule.whole_read(1, 0, 1, [0; 32], secs(0)), Say::File);
    schedule.completed([9; 32]);
    assert_eq!(
        schedule.agreed(),
        None,
        "the answer on another stream is waited for"
    );
    schedule.answered(0, Ok(Written::New), secs(1));
    assert_eq!(schedule.agreed(), Some(false));
    assert!(matches!(schedule.next(1, secs(1), ROOM), Next::Over));
}

fn part(offset: u64, level: u32) -> Subtree {
    Subtree {
        offset,
        level,
        chaining_value: [9; 32],
    }
}

#[test]
fn lh_copy_36_parts_at_the_receiver_are_not_sent() {
    let mut schedule = with_files(&[2 * LARGE]);
    assert_eq!(take(&mut schedule, 1, secs(0)), ["open 0"]);
    assert!(schedule.opened(0, 2 * LARGE, 18, false));
    assert_eq!(take(&mut schedule, 2, secs(0)), ["block 0 262144"]);
    // Blocks 0 to 3, of which two are in flight, and block 6.
    assert!(schedule.have(0, &[part(0, 20)], true));
    assert!(schedule.actions().resumed.is_none());
    assert!(schedule.have(0, &[part(6 << 18, 18)], false));
    let resumed = schedule.actions().resumed.unwrap();
    assert_eq!(
        (resumed.bytes, resumed.size),
        (LARGE + (1 << 18), 2 * LARGE)
    );
    schedule.check();
    assert_eq!(schedule.bytes_done(), 3 << 18);
    for offset in [4 << 18, 5 << 18, 7 << 18] {
        assert_eq!(
            take(&mut schedule, 1, secs(0)),
            [format!("block 0 {offset}")]
        );
    }
    assert_eq!(take(&mut schedule, 1, secs(0)), ["end of 1"]);
    // Blocks in flight are answered as usual.
    schedule.acknowledged(0, 0, secs(0));
    schedule.acknowledged(0, 1 << 18, secs(0));
    assert_eq!(schedule.bytes_done(), 5 << 18);
    // The same report arrives on another stream.
    assert!(schedule.have(0, &[part(0, 20)], false));
    assert!(schedule.actions().resumed.is_none());
    assert_eq!(schedule.bytes_done(), 5 << 18);
    schedule.check();
    // The rest is read, and gives the hash together with what was reported.
    assert_eq!(
        schedule.block_read(0, 4 << 18, block_hash(4 << 18, 2 * LARGE)),
        None
    );
    assert_eq!(
        schedule.block_read(0, 5 << 18, block_hash(5 << 18, 2 * LARGE)),
        None
    );
    assert!(
        schedule
            .block_read(0, 7 << 18, block_hash(7 << 18, 2 * LARGE))
            .is_some()
    );
}

#[test]
fn file_complete_at_the_receiver_needs_no_block() {
    let mut schedule = with_files(&[2 * LARGE]);
    assert_eq!(take(&mut schedule, 1, secs(0)), ["open 0"]);
    assert!(schedule.opened(0, 2 * LARGE, 18, false));
    // A block that returned from a lost stream need not be sent again either.
    assert_eq!(take(&mut schedule, 2, secs(0)), ["block 0 262144"]);
    schedule.remove_stream(2);
    assert!(schedule.have(0, &[part(0, 20), part(LARGE, 20)], false));
    schedule.check();
    assert_eq!(schedule.bytes_done(), 7 << 18);
    assert_eq!(take(&mut schedule, 1, secs(0)), ["complete 0", "end of 1"]);
    // The stream is lost before it has sent the hash.
    schedule.remove_stream(1);
    schedule.add_stream(3);
    assert_eq!(take(&mut schedule, 3, secs(0)), ["block 0 0"]);
    assert_eq!(take(&mut schedule, 3, secs(0)), ["complete 0", "end of 1"]);
    assert!(schedule.file_read(3, 0, 2 * LARGE, [5; 32], secs(0)));
    assert!(!schedule.file_read(1, 0, 2 * LARGE, [5; 32], secs(0)));
    schedule.check();
    schedule.answered(0, Ok(Written::New), secs(1));
    schedule.check();
    assert_eq!(schedule.bytes_done(), 2 * LARGE);
    assert!(
        schedule.have(0, &[part(0, 20)], false),
        "too late to matter"
    );
}

#[test]
fn parts_outside_the_file_are_refused() {
    for bad in [
        part(0, 21),
        part(2 * LARGE, 18),
        part(1 << 17, 17),
        part(0, 22),
    ] {
        let mut schedule = with_files(&[2 * LARGE]);
        assert_eq!(take(&mut schedule, 1, secs(0)), ["open 0"]);
        assert!(schedule.have(0, &[bad], false), "nothing is open");
        assert!(schedule.opened(0, 2 * LARGE, 18, false));
        assert!(!schedule.have(0, &[bad], false), "{bad:?}");
        schedule.check();
    }
}

// LH-COPY-32.
#[test]
fn retiring_stream_passes_end_to_another() {
    let mut schedule = with_files(&[LARGE]);
    assert_eq!(take(&mut schedule, 1, secs(0)), ["open 0"]);
    assert_eq!(take(&mut schedule, 2, secs(0)), ["end of 1"]);
    schedule.retire(2);
    assert!(matches!(schedule.next(2, secs(0), ROOM), Next::Over));
    assert_eq!(take(&mut schedule, 1, secs(0)), ["end of 1"]);
}
