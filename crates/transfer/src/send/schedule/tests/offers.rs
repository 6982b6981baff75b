//! Files that are offered before they are sent.

use super::*;

fn offering(presence: Presence, compare: Compare, sizes: &[u64]) -> Schedule {
    let mut schedule = with_files(sizes);
    schedule.expect(presence, compare);
    schedule
}

#[test]
fn lh_copy_39_little_is_sent_before_the_report() {
    let presence = Presence::Unknown;
    let mut schedule = offering(presence, Compare::SizeAndTime, &[10, 3 << 20, 200_000, 10]);
    assert_eq!(take(&mut schedule, 1, secs(0)), ["entry 0"]);
    assert_eq!(take(&mut schedule, 1, secs(0)), ["offer and open 1"]);
    assert!(schedule.opened(1, 3 << 20, 18, false));
    for offset in [1, 2, 3].map(|n| n << 18) {
        assert_eq!(
            take(&mut schedule, 1, secs(0)),
            [format!("block 1 {offset}")]
        );
    }
    assert!(
        take(&mut schedule, 2, secs(0)).is_empty(),
        "a megabyte is on its way"
    );
    // Returned work is no more than was sent.
    schedule.remove_stream(1);
    assert_eq!(take(&mut schedule, 2, secs(0)), ["entry 0"]);
    for offset in [0, 1, 2, 3].map(|n| n << 18) {
        assert_eq!(
            take(&mut schedule, 2, secs(0)),
            [format!("block 1 {offset}")]
        );
    }
    assert!(take(&mut schedule, 2, secs(0)).is_empty());
    schedule.actions();
    schedule.reported_presence(true, secs(0));
    assert_eq!(schedule.actions().wake, Wake::All);
    // No answer is awaited any more, so sending continues.
    assert_eq!(take(&mut schedule, 2, secs(0)), ["block 1 1048576"]);
    schedule.answered(1, Ok(Written::Unchanged), secs(1));
    assert_eq!(schedule.bytes_done(), 3 << 20);
    assert_eq!(
        take(&mut schedule, 2, secs(1)),
        ["offer 2", "offer 3", "end of 4"]
    );
    schedule.reported_presence(false, secs(0));
    schedule.check();
}

#[test]
fn lh_copy_41_wanted_files_are_sent_first() {
    let presence = Presence::Something;
    let mut schedule = offering(presence, Compare::SizeAndTime, &[10, LARGE, 20, 30]);
    let offers = ["offer 0", "offer 1", "offer 2", "offer 3", "end of 4"];
    assert_eq!(take(&mut schedule, 1, secs(0)), offers);
    assert!(
        take(&mut schedule, 1, secs(0)).is_empty(),
        "the answers are waited for"
    );
    schedule.answered(0, Ok(Written::Unchanged), secs(1));
    let result = schedule.actions().result.unwrap();
    assert_eq!(
        (result.outcome, result.content),
        (Ok(Written::Unchanged), Some((10, None)))
    );
    schedule.wanted(1, secs(1));
    schedule.wanted(2, secs(1));
    schedule.wanted(2, secs(1));
    assert_eq!(take(&mut schedule, 2, secs(1)), ["entry 2"]);
    assert_eq!(take(&mut schedule, 2, secs(1)), ["open 1"]);
    // Unanswered questions are asked again.
    schedule.remove_stream(1);
    assert_eq!(take(&mut schedule, 2, secs(1)), ["offer 3", "end of 4"]);
    assert_eq!(schedule.bytes_done(), 10);
    // An answer about something that was never offered.
    let mut plain = with_files(&[1]);
    assert_eq!(take(&mut plain, 1, secs(0)), ["entry 0", "end of 1"]);
    plain.wanted(0, secs(0));
    plain.answered(0, Ok(Written::Unchanged), secs(0));
    assert!(plain.actions().result.is_none());
    plain.check();
}

#[test]
fn lh_copy_40_offer_is_read_once_and_repeated_unchanged() {
    let presence = Presence::Unknown;
    let mut schedule = offering(presence, Compare::Content, &[10, LARGE]);
    assert!(
        take(&mut schedule, 1, secs(0)).is_empty(),
        "it is not known whether that pays"
    );
    schedule.reported_presence(true, secs(0));
    assert_eq!(take(&mut schedule, 1, secs(0)), ["read 0", "read 1"]);
    schedule.answered(0, Ok(Written::Unchanged), secs(0));
    assert!(
        schedule.actions().result.is_none(),
        "nothing was said of it"
    );
    assert_eq!(schedule.offer_read(0, 11, [1; 32]), Some((11, [1; 32])));
    assert_eq!(schedule.offer_read(0, 12, [2; 32]), Some((11, [1; 32])));
    schedule.remove_stream(1);
    assert_eq!(take(&mut schedule, 2, secs(0)), ["offer 0 of 11", "read 1"]);
    assert_eq!(take(&mut schedule, 2, secs(0)), ["end of 2"]);
    schedule.answered(0, Ok(Written::Unchanged), secs(1));
    let result = schedule.actions().result.unwrap();
    assert_eq!(result.content, Some((11, Some([1; 32]))));
    assert_eq!(schedule.offer_read(0, 12, [2; 32]), None);
    schedule.wanted(1, secs(1));
    assert_eq!(
        take(&mut schedule, 1, secs(1)),
        [""; 0],
        "a stream that is gone"
    );
    assert_eq!(take(&mut schedule, 2, secs(1)), ["open 1"]);
}

#[test]
fn file_offered_with_data_waits_if_it_may_exist() {
    let begun = || {
        let mut schedule = offering(Presence::Unknown, Compare::SizeAndTime, &[3 << 20, 10]);
        assert_eq!(take(&mut schedule, 1, secs(0)), ["offer and open 0"]);
        assert!(schedule.opened(0, 3 << 20, 18, false));
        schedule
    };
    let mut wanted = begun();
    wanted.reported_presence(true, secs(0));
    assert_eq!(take(&mut wanted, 1, secs(0)), ["offer 1", "end of 2"]);
    assert!(take(&mut wanted, 1, secs(0)).is_empty());
    wanted.actions();
    wanted.wanted(0, secs(1));
    assert_eq!(wanted.actions().wake, Wake::All);
    assert_eq!(take(&mut wanted, 1, secs(1)), ["block 0 262144"]);
    let mut nothing = begun();
    nothing.reported_presence(false, secs(0));
    assert_eq!(take(&mut nothing, 1, secs(0)), ["block 0 262144"]);
    let mut lost = begun();
    lost.reported_presence(true, secs(0));
    lost.remove_stream(1);
    assert_eq!(take(&mut lost, 2, secs(0)), ["block 0 0"]);
    assert_eq!(take(&mut lost, 2, secs(0)), ["block 0 262144"]);
}

#[test]
fn missing_answer_is_not_awaited_forever() {
    let mut schedule = offering(Presence::Unknown, Compare::SizeAndTime, &[3 << 20]);
    assert_eq!(take(&mut schedule, 1, secs(0)), ["offer and open 0"]);
    assert!(schedule.opened(0, 3 << 20, 18, false));
    schedule.reported_presence(true, secs(0));
    assert_eq!(take(&mut schedule, 2, secs(1)), ["end of 1"]);
    assert_eq!(take(&mut schedule, 2, secs(2))[0], "block 0 262144");
}
