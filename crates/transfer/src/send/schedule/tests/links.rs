//! Names of one file (LH-COPY-45).

use super::*;

/// Returns a schedule with one stream that keeps links. The receiver understands them or not.
fn keeping(understood: bool) -> Schedule {
    let mut schedule = Schedule::default();
    schedule.add_stream(1);
    schedule.keep_links();
    if understood {
        schedule.links_understood();
    }
    schedule
}

/// Adds one of the `names` of a file of `size` bytes.
fn find(schedule: &mut Schedule, inode: u64, names: u64, size: u64) {
    let number = schedule.totals().entries;
    let path = RelPath::from_bytes(format!("f{number}").as_bytes()).unwrap();
    let inode = Inode {
        device: 1,
        number: inode,
    };
    schedule.found_linked(0, path, Meta::default(), size, (inode, names));
    schedule.check();
}

fn answer(schedule: &mut Schedule, id: u64, outcome: Result<Written, Failure>) {
    schedule.answered(id, outcome, secs(0));
    schedule.check();
}

/// Sends, reads and writes a small file.
fn write(schedule: &mut Schedule, id: u64, size: u64) {
    assert_eq!(take(schedule, 1, secs(0)), [format!("entry {id}")]);
    assert_eq!(
        schedule.whole_read(1, id, size, [id as u8; 32], secs(0)),
        Say::File
    );
    answer(schedule, id, Ok(Written::New));
}

#[test]
fn links_wait_until_the_first_name_is_in_place() {
    let mut schedule = keeping(true);
    for _ in 0..3 {
        find(&mut schedule, 7, 4, 9);
    }
    assert_eq!(take(&mut schedule, 1, secs(0)), ["entry 0"]);
    assert_eq!(schedule.whole_read(1, 0, 9, [1; 32], secs(0)), Say::File);
    assert!(take(&mut schedule, 1, secs(0)).is_empty());
    answer(&mut schedule, 0, Ok(Written::Same));
    assert_eq!(take(&mut schedule, 1, secs(0)), ["link 1", "link 2"]);
    // A name that is found later need not wait.
    find(&mut schedule, 7, 4, 9);
    assert_eq!(take(&mut schedule, 1, secs(0)), ["link 3"]);
    for id in 1..=3 {
        answer(&mut schedule, id, Ok(Written::Linked));
    }
    assert_eq!(schedule.bytes_done(), 4 * 9);
    // All of its names were found, so it is forgotten. The next file with that number is another
    // one.
    assert_eq!(schedule.memory(), Memory::default());
    find(&mut schedule, 7, 2, 9);
    write(&mut schedule, 4, 9);
}

#[test]
fn next_name_replaces_a_failed_first_one() {
    let mut schedule = keeping(true);
    for _ in 0..3 {
        find(&mut schedule, 7, 3, 9);
    }
    assert_eq!(take(&mut schedule, 1, secs(0)), ["entry 0"]);
    let failure = Failure::new(FailureKind::Vanished);
    schedule.failed(1, 0, &failure, secs(0));
    answer(&mut schedule, 0, Err(failure));
    write(&mut schedule, 1, 9);
    assert_eq!(take(&mut schedule, 1, secs(0)), ["link 2"]);
}

#[test]
fn wanted_link_is_sent_as_a_file_unless_answered_earlier() {
    let mut schedule = keeping(true);
    find(&mut schedule, 7, 3, 9);
    find(&mut schedule, 7, 3, LARGE);
    find(&mut schedule, 7, 3, 9);
    write(&mut schedule, 0, 9);
    assert_eq!(take(&mut schedule, 1, secs(0)), ["link 1", "link 2"]);
    schedule.wanted(1, secs(0));
    schedule.wanted(2, secs(0));
    schedule.check();
    assert_eq!(take(&mut schedule, 1, secs(0)), ["entry 2"]);
    // The request was made on a stream that was lost, and succeeded there.
    answer(&mut schedule, 2, Ok(Written::Linked));
    assert_eq!(take(&mut schedule, 1, secs(0)), ["open 1"]);
}

#[test]
fn receiver_without_hard_links_gets_files() {
    let mut schedule = keeping(false);
    for _ in 0..2 {
        find(&mut schedule, 7, 4, 9);
        find(&mut schedule, 8, 4, 9);
    }
    assert_eq!(take(&mut schedule, 1, secs(0)), ["entry 0", "entry 1"]);
    for id in 0..2 {
        assert_eq!(schedule.whole_read(1, id, 9, [1; 32], secs(0)), Say::File);
    }
    answer(&mut schedule, 0, Ok(Written::New));
    assert_eq!(take(&mut schedule, 1, secs(0)), ["entry 2"]);
    // The answer about the other name also decides about its own names.
    answer(&mut schedule, 1, Err(Failure::new(FailureKind::DiskFull)));
    find(&mut schedule, 7, 4, 9);
    assert_eq!(take(&mut schedule, 1, secs(0)), ["entry 3", "entry 4"]);
}

#[test]
fn link_memory_is_bounded_and_excess_names_are_files() {
    let mut schedule = keeping(true);
    let mut inode = 0;
    let full = loop {
        let before = schedule.links.bytes();
        find_unchecked(&mut schedule, inode);
        if schedule.links.bytes() == before {
            break before;
        }
        inode += 1;
    };
    assert!(full <= 16 << 20, "{full}");
    // A second name of a remembered file waits. Otherwise it is a file of its own.
    let waiting = schedule.links.waiting();
    find_unchecked(&mut schedule, 0);
    find_unchecked(&mut schedule, inode);
    assert_eq!(schedule.links.waiting(), waiting + 1);
}

fn find_unchecked(schedule: &mut Schedule, number: u64) {
    let path = RelPath::from_bytes(&[b'x'; 200]).unwrap();
    let inode = Inode { device: 1, number };
    schedule.found_linked(0, path, Meta::default(), 1, (inode, 9));
}
