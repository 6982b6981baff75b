//! A file whose blocks arrive far out of order: only memory bounds it.

use super::*;

/// More runs than an older receiver allowed for one file.
const RUNS: u64 = 70_000;
const SIZE: u64 = 2 * RUNS * BLOCK;

/// Delivers and writes every other block, up to `count` of them. Stops early when the file fails.
fn write_alternate_blocks(
    ledger: &mut Ledger<Numbers>,
    count: u64,
    mut before_each: impl FnMut(&mut Ledger<Numbers>),
) -> Option<FailureKind> {
    let mut out = Vec::new();
    ledger.announce(announced(0, SIZE), &[], &mut out).unwrap();
    ledger.give_place(0, Ok(0), &mut out);
    for n in 0..count {
        before_each(ledger);
        let (offset, mut out) = (2 * n * BLOCK, Vec::new());
        let (block, asker) = (block_of(0, offset, SIZE), (0, Question::Block(0, offset)));
        assert!(ledger.block(&block, asker, &mut out));
        ledger.block_hashed(block, BlockHash::from_bytes([1; 32]), (0, offset), &mut out);
        assert!(matches!(out[..], [Action::Write(_)]));
        out.clear();
        ledger.block_written(0, offset, 0, Ok(()), &mut out);
        let failure = out.iter().find_map(|action| match action {
            Action::Report(report) => report.outcome.clone().err(),
            _ => None,
        });
        if let Some(failure) = failure {
            return Some(failure.kind);
        }
    }
    None
}

#[test]
fn lh_copy_30_scattered_blocks_do_not_fail_a_file() {
    let mut ledger = ledger();
    let failure = write_alternate_blocks(&mut ledger, RUNS, |_| {});
    assert_eq!(failure, None);
    // Each run counts against the key that scatters its blocks.
    assert!(ledger.bytes() > RUNS * 100);
}

#[test]
fn lh_copy_30_memory_share_bounds_scattered_blocks() {
    const ROOM: u64 = 1 << 20;
    let mut ledger = ledger();
    let refusal = Exhausted::Share(Resource::Bookkeeping);
    let give_room = |ledger: &mut Ledger<Numbers>| {
        let refusal = (ledger.bytes() + EVENT_BYTES > ROOM).then_some(refusal);
        ledger.give_room(ROOM, refusal);
        assert!(ledger.bytes() <= ROOM, "it takes more than its share");
    };
    let failure = write_alternate_blocks(&mut ledger, RUNS, give_room);
    assert_eq!(failure, Some(FailureKind::Limit));
    let left = ledger.bytes() - ledger.outcomes.bytes();
    assert_eq!(left, BEGUN_WITH, "what it took is given back");
}
