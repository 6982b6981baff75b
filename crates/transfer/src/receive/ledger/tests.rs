//! The ledger in virtual time. Any interleaving of streams, hashing, writing and dying gives the
//! same account.

mod run;
mod scattered;

use proptest::prelude::*;

use super::*;
use crate::account::Resource;
use crate::error::FailureKind;
use crate::late_size::LATE_SIZE;
use crate::store::Comparison;
use crate::tree_hash::{Subtree, TreeHash};
use crate::wire::FileOffer;
use run::{
    BEGUN_WITH, BLOCK, BLOCK_LOG2, Numbers, Planned, Question, Run, block_of, fate, hash_of, head,
    offered, planned, root_of,
};

#[derive(Debug, Clone)]
enum Step {
    Ask { stream: usize, behind: usize },
    Work(usize),
    Die(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0usize..3, 0usize..6).prop_map(|(stream, behind)| Step::Ask { stream, behind }),
        4 => (0usize..20).prop_map(Step::Work),
        1 => (0usize..3).prop_map(Step::Die),
    ]
}

/// Returns the RESULT in an answer.
fn outcome_in(
    (first, second): &(Frame, Option<Frame>),
) -> Option<Result<EntryOutcome, FailureKind>> {
    [Some(first), second.as_ref()]
        .into_iter()
        .flatten()
        .find_map(|frame| match frame {
            Frame::Result { outcome, .. } => Some(outcome.clone().map_err(|failure| failure.kind)),
            _ => None,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Events may arrive in any order, twice, and over streams that die. Each entry is concluded
    /// and reported once, and every question gets the same answer at any time. One thread at a time
    /// writes a file, no file stays open, and memory is released.
    #[test]
    fn any_interleaving_concludes_each_entry_once(
        plan in prop::collection::vec(planned(), 1..7),
        offers in prop::collection::vec(offered(), 7),
        steps in prop::collection::vec(step(), 0..250),
    ) {
        let mut run = Run::new(plan.clone(), &offers);
        for step in steps {
            match step {
                Step::Ask { stream, behind } => run.ask(stream, behind),
                Step::Work(which) => run.work(which),
                Step::Die(stream) => run.die(stream),
            }
        }
        run.settle();
        // Everything is asked once more, late, over another stream.
        for (id, planned) in (0u64..).zip(&plan) {
            match planned {
                Planned::Blocks { .. } => {
                    run.ask_about(2, Question::Block(id, 0));
                    run.ask_about(2, Question::FileEnd(id));
                }
                _ => run.ask_about(2, Question::Entry(id)),
            }
            if run.offers.contains_key(&id) {
                run.ask_about(2, Question::Offer(id));
            }
        }
        prop_assert!(run.asked[2].is_empty() && run.work.is_empty());
        prop_assert_eq!(run.finished, 1);
        prop_assert_eq!(run.reports.len(), plan.len());
        prop_assert!(run.open.is_empty() && run.writing.is_empty());
        prop_assert_eq!(run.ledger.bytes() - run.ledger.outcomes.bytes(), BEGUN_WITH);
        // Apart from answers, there is one action per block or entry.
        let answers: usize = run.answers.values().map(Vec::len).sum();
        prop_assert!(run.actions <= answers + 2 * run.events);
        let mut in_place = 0;
        for (id, report) in &run.reports {
            let reported = report.outcome.clone().map_err(|failure| failure.kind);
            for (question, answers) in &run.answers {
                let about = match question {
                    Question::Entry(of)
                    | Question::FileEnd(of)
                    | Question::Block(of, _)
                    | Question::Offer(of) => of,
                };
                for answer in answers.iter().filter(|_| about == id) {
                    match (question, outcome_in(answer)) {
                        (_, Some(outcome)) => prop_assert_eq!(&outcome, &reported),
                        // A block may have been written before its file failed.
                        (Question::Block(..), None) => {
                            let acknowledged = matches!(answer.0, Frame::Ack { .. });
                            prop_assert!(acknowledged);
                        }
                        (Question::Offer(_), None) => {
                            let wanted = matches!(answer.0, Frame::Want { .. });
                            prop_assert!(wanted);
                        }
                        (_, None) => prop_assert!(false, "no outcome for {question:?}"),
                    }
                }
            }
            in_place += match (&plan[*id as usize], &report.outcome) {
                (Planned::Blocks { .. }, Ok(_)) => plan[*id as usize].size() as i64,
                (Planned::Small(_), Ok(_)) => 10,
                _ => 0,
            };
        }
        prop_assert_eq!(run.counted, in_place);
    }

    /// The manifest depends on the outcomes, not on their order.
    #[test]
    fn same_tree_gives_the_same_manifest(
        fates in prop::collection::vec(fate(), 1..9),
        steps in prop::collection::vec(step(), 0..80),
    ) {
        let plan: Vec<_> = fates.into_iter().map(Planned::Small).collect();
        let mut straight = Run::new(plan.clone(), &[]);
        straight.settle();
        let mut other = Run::new(plan, &[]);
        for step in steps {
            match step {
                Step::Ask { stream, behind } => other.ask(stream, behind),
                Step::Work(which) => other.work(which),
                Step::Die(stream) => other.die(stream),
            }
        }
        other.settle();
        prop_assert_eq!(straight.ledger.conclusion(), other.ledger.conclusion());
    }
}

fn announced(id: u64, size: u64) -> AnnouncedFile {
    AnnouncedFile {
        head: head(id),
        meta: Meta::default(),
        size,
        block_log2: BLOCK_LOG2,
        identity: None,
    }
}

fn ledger() -> CopyLedger<Numbers> {
    CopyLedger::new(RequestedEntries::Anything, 1, BEGUN_WITH)
}

#[test]
fn lh_copy_19_late_failures_are_reported_again_unchanged() {
    let (mut ledger, mut out) = (ledger(), Vec::new());
    for id in 0..5000 {
        let asker = (0, Question::Entry(id));
        assert!(ledger.entry(&head(id), None, asker, &mut out));
        let failure = Failure::with_detail(FailureKind::Exists, "in words");
        ledger.entry_written(
            &head(id),
            ManifestRecord::Symlink { target: b"x" },
            Err(failure),
            &mut out,
        );
    }
    out.clear();
    for id in [0, 1023, 1024, 4999] {
        assert!(!ledger.entry(&head(id), None, (1, Question::Entry(id)), &mut out));
    }
    for action in out {
        let LedgerAction::Answer((1, _), (Frame::Result { outcome, .. }, None)) = action else {
            panic!("something else than an answer");
        };
        assert_eq!(outcome.unwrap_err().kind, FailureKind::Exists);
    }
}

#[test]
fn lh_copy_36_existing_parts_count_and_are_reported() {
    let size = 5 * BLOCK + 7;
    let (mut ledger, mut out) = (ledger(), Vec::new());
    // Blocks 0 and 1 together, and block 4.
    let mut tree = TreeHash::new(size, BLOCK_LOG2);
    for offset in [0, BLOCK, 4 * BLOCK] {
        tree.insert(offset, hash_of(offset, size));
    }
    let journal: Vec<_> = tree.subtrees().collect();
    assert_eq!(journal.len(), 2);
    ledger
        .announce(announced(0, size), &journal, &mut out)
        .unwrap();
    assert!(matches!(out[..], [LedgerAction::Count(bytes)] if bytes == 3 * BLOCK as i64));
    out.clear();
    let asker = |offset| (0, Question::Block(0, offset));
    assert!(
        !ledger.block_arrived(&block_of(0, BLOCK, size), asker(BLOCK), &mut out),
        "it is there"
    );
    let reported = |ledger: &CopyLedger<Numbers>, from| match ledger.have_frame(0, from) {
        Some((
            Frame::Have {
                id: 0,
                more: false,
                subtrees,
            },
            None,
        )) => subtrees
            .iter()
            .map(|one| (one.offset, one.level))
            .collect::<Vec<_>>(),
        _ => panic!("it has some"),
    };
    assert_eq!(reported(&ledger, 0), [(0, 17), (4 * BLOCK, 16)]);
    assert_eq!(reported(&ledger, 1), [(4 * BLOCK, 16)]);
    for offset in [3 * BLOCK, 2 * BLOCK, 5 * BLOCK] {
        out.clear();
        let block = block_of(0, offset, size);
        assert!(ledger.block_arrived(&block, asker(offset), &mut out));
        ledger.assign_permit(0, Ok(0), &mut out);
        ledger.block_hashed(block, hash_of(offset, size), (0, offset), &mut out);
        ledger.block_written(0, offset, 0, Ok(()), &mut out);
    }
    assert_eq!(reported(&ledger, 0), [(0, 18), (4 * BLOCK, 18)]);
    out.clear();
    ledger
        .file_end(0, root_of(size), (0, Question::FileEnd(0)), &mut out)
        .unwrap();
    assert!(matches!(&out[..], [LedgerAction::Commit(placement)] if placement.file == Some(0)));
}

#[test]
fn complete_existing_file_is_committed_at_its_end() {
    let (mut ledger, mut out) = (ledger(), Vec::new());
    let mut tree = TreeHash::new(2 * BLOCK, BLOCK_LOG2);
    for offset in [0, BLOCK] {
        tree.insert(offset, hash_of(offset, 2 * BLOCK));
    }
    let journal: Vec<_> = tree.subtrees().collect();
    ledger
        .announce(announced(0, 2 * BLOCK), &journal, &mut out)
        .unwrap();
    ledger
        .file_end(0, root_of(2 * BLOCK), (0, Question::FileEnd(0)), &mut out)
        .unwrap();
    assert!(matches!(
        out.last(),
        Some(LedgerAction::Commit(FileCommit { file: None, .. }))
    ));
}

/// Sends these blocks of a file of late size, and writes them.
fn late_file(blocks: &[(u64, u64)]) -> (CopyLedger<Numbers>, Vec<LedgerAction<Numbers>>) {
    let (mut ledger, mut out) = (ledger(), Vec::new());
    ledger
        .announce(announced(0, LATE_SIZE), &[], &mut out)
        .unwrap();
    for &(offset, size) in blocks {
        let block = block_of(0, offset, size);
        let asker = (0, Question::Block(0, offset));
        assert!(matches!(
            ledger.classify_block(&block),
            Ok(BlockClass::Wanted {
                size: LATE_SIZE,
                ..
            })
        ));
        assert!(ledger.block_arrived(&block, asker, &mut out));
        ledger.assign_permit(0, Ok(0), &mut out);
        ledger.block_hashed(block, hash_of(offset, size), (0, offset), &mut out);
        ledger.block_written(0, offset, 0, Ok(()), &mut out);
    }
    out.clear();
    (ledger, out)
}

#[test]
fn lh_copy_27_blocks_that_cannot_be_sent_again_are_noted() {
    assert!(!late_file(&[]).0.has_late_blocks());
    let (mut ledger, mut out) = late_file(&[(0, 2 * BLOCK)]);
    assert!(ledger.has_late_blocks());
    // The client may not have heard of the end.
    ledger.late_size(0, 2 * BLOCK, &mut out);
    assert!(ledger.has_late_blocks());
}

#[test]
fn lh_copy_81_late_size_comes_before_or_behind_the_blocks() {
    let size = 2 * BLOCK + 5;
    let blocks = [(2 * BLOCK, size), (0, size), (BLOCK, size)];
    for early in 0..=blocks.len() {
        let (mut ledger, mut out) = late_file(&blocks[..early]);
        let end = (1, Question::FileEnd(0));
        ledger.late_size(0, size, &mut out);
        ledger.file_end(0, root_of(size), end, &mut out).unwrap();
        for &(offset, size) in &blocks[early..] {
            assert!(out.is_empty());
            let block = block_of(0, offset, size);
            assert!(ledger.classify_block(&block).is_ok());
            ledger.block_arrived(&block, (0, Question::Block(0, offset)), &mut out);
            ledger.assign_permit(0, Ok(0), &mut out);
            ledger.block_hashed(block, hash_of(offset, size), (0, offset), &mut out);
            out.clear();
            ledger.block_written(0, offset, 0, Ok(()), &mut out);
            out.retain(|action| matches!(action, LedgerAction::Commit(_)));
        }
        assert!(
            matches!(&out[..], [LedgerAction::Commit(commit)] if commit.size == size),
            "{early}"
        );
    }
}

#[test]
fn lh_copy_81_end_must_fit_a_late_file() {
    let size = 2 * BLOCK + 5;
    let ends = [2 * BLOCK, 2 * BLOCK + 4];
    for end in ends {
        let (mut ledger, mut out) = late_file(&[(0, size), (2 * BLOCK, size)]);
        ledger.late_size(0, end, &mut out);
        let is_wrong = |failure: &Failure| failure.kind == FailureKind::Verification;
        let failed = |action: &LedgerAction<Numbers>| {
            matches!(action, LedgerAction::Report(report)
                if report.outcome.as_ref().is_err_and(is_wrong))
        };
        assert!(out.iter().any(failed), "{end}");
    }
    // Only the last block is short, and there is one.
    let (ledger, _) = late_file(&[(BLOCK, BLOCK + 5)]);
    for (offset, size) in [(BLOCK, BLOCK + 6), (2 * BLOCK, 4 * BLOCK), (0, 5)] {
        let block = block_of(0, offset, size);
        assert!(ledger.classify_block(&block).is_err(), "{offset}");
    }
    assert!(ledger.classify_block(&block_of(0, 0, size)).is_ok());
    let (mut ledger, mut out) = late_file(&[]);
    assert!(ledger.admit_end(0, None).is_err(), "FILE_END");
    assert!(ledger.admit_end(0, Some(BLOCK)).is_err(), "one block");
    assert!(ledger.admit_end(0, Some(BLOCK + 1)).is_ok());
    ledger.late_size(0, size, &mut out);
    assert!(out.is_empty());
    let other = Block {
        id: 0,
        offset: 2 * BLOCK,
        len: 6,
        extents: vec![],
    };
    assert!(ledger.classify_block(&other).is_err(), "LH-COPY-14");
    ledger.late_size(0, size + 1, &mut out);
    assert!(!out.is_empty(), "two sizes");
    ledger.announce(announced(1, BLOCK), &[], &mut out).unwrap();
    assert!(ledger.admit_end(1, Some(BLOCK + 1)).is_err(), "LATE_END");
}

#[test]
fn journal_of_another_file_is_ignored() {
    let (mut ledger, mut out) = (ledger(), Vec::new());
    let beyond = Subtree {
        offset: 4 * BLOCK,
        level: BLOCK_LOG2,
        chaining_value: [1; 32],
    };
    ledger
        .announce(announced(0, 2 * BLOCK), &[beyond], &mut out)
        .unwrap();
    assert!(
        out.is_empty()
            && ledger.block_arrived(
                &block_of(0, 0, 2 * BLOCK),
                (0, Question::Block(0, 0)),
                &mut out
            )
    );
}

#[test]
fn lh_copy_15_two_hashes_of_one_file_fail_it() {
    let (mut ledger, mut out) = (ledger(), Vec::new());
    ledger.announce(announced(0, BLOCK), &[], &mut out).unwrap();
    for hash in [[1; 32], [2; 32]] {
        ledger
            .file_end(0, hash, (0, Question::FileEnd(0)), &mut out)
            .unwrap();
    }
    let failed = |action: &LedgerAction<Numbers>| {
        matches!(action, LedgerAction::Answer(_, (Frame::Result { outcome: Err(failure), .. }, None))
            if failure.kind == FailureKind::Verification)
    };
    assert_eq!(out.iter().filter(|action| failed(action)).count(), 2);
}

#[test]
fn lh_copy_14_block_that_does_not_fit_is_refused() {
    let (mut ledger, mut out) = (ledger(), Vec::new());
    ledger
        .announce(announced(0, BLOCK + 5), &[], &mut out)
        .unwrap();
    let at = |id, offset, len| Block {
        id,
        offset,
        len,
        extents: vec![],
    };
    for block in [
        at(0, 1, 5),
        at(0, 0, 5),
        at(0, BLOCK, 6),
        at(0, 2 * BLOCK, 5),
        at(1, 0, 5),
    ] {
        assert!(
            matches!(ledger.classify_block(&block), Err(Rejection::Protocol(_))),
            "{block:?}"
        );
    }
    assert!(ledger.classify_block(&at(0, BLOCK, 5)).is_ok());
    assert!(
        ledger
            .file_end(1, [0; 32], (0, Question::FileEnd(1)), &mut out)
            .is_err()
    );
    assert!(
        ledger.announce(announced(0, BLOCK), &[], &mut out).is_err(),
        "LH-COPY-13"
    );
}

#[test]
fn lh_copy_17_conflicting_entry_counts_are_refused() {
    let (mut ledger, mut out) = (ledger(), Vec::new());
    assert!(ledger.entry(&head(0), None, (0, Question::Entry(0)), &mut out));
    ledger.entry_written(
        &head(0),
        ManifestRecord::Failed,
        Ok(EntryOutcome::New),
        &mut out,
    );
    assert!(
        ledger.handle_end(0, &mut out).is_err(),
        "fewer than have come"
    );
    ledger.handle_end(2, &mut out).unwrap();
    ledger.handle_end(2, &mut out).unwrap();
    assert!(ledger.handle_end(3, &mut out).is_err());
    assert!(ledger.admit(&head(1), SentKind::File).is_ok());
    assert!(
        ledger.admit(&head(2), SentKind::File).is_err(),
        "more than were announced"
    );
    let mut begun = self::ledger();
    begun.announce(announced(5, BLOCK), &[], &mut out).unwrap();
    assert!(
        begun.handle_end(5, &mut out).is_err(),
        "fewer than were described"
    );
}

#[test]
fn without_memory_no_new_entry_is_accepted() {
    let (mut ledger, mut out) = (ledger(), Vec::new());
    let refusal = ResourceExhausted::All(Resource::Bookkeeping);
    ledger.set_room(BEGUN_WITH, Some(refusal));
    let refused = ledger.announce(announced(0, BLOCK), &[], &mut out);
    assert_eq!(refused, Err(Rejection::Limit(refusal)));
    assert!(!ledger.entry(
        &head(0),
        Some(&Meta::default()),
        (0, Question::Entry(0)),
        &mut out
    ));
    assert!(matches!(
        &out[0],
        LedgerAction::Report(report)
            if report.outcome.as_ref().unwrap_err().kind == FailureKind::Limit
    ));
    // The failure is remembered nevertheless, and the copy ends.
    assert_eq!(
        ledger.admit(&head(1), SentKind::File),
        Err(Rejection::Limit(refusal))
    );
}

#[test]
fn lh_copy_20_block_of_a_failed_file_repeats_the_failure() {
    let (mut ledger, mut out) = (ledger(), Vec::new());
    ledger
        .announce(announced(0, 2 * BLOCK), &[], &mut out)
        .unwrap();
    let block = block_of(0, 0, 2 * BLOCK);
    let asker = |stream| (stream, Question::Block(0, 0));
    assert!(ledger.block_arrived(&block, asker(0), &mut out));
    ledger.assign_permit(0, Ok(0), &mut out);
    ledger.block_hashed(block.clone(), hash_of(0, 2 * BLOCK), (0, 0), &mut out);
    let full = Failure::new(FailureKind::DiskFull);
    ledger.block_written(0, 0, 0, Err(full.clone()), &mut out);
    assert!(!ledger.block_arrived(&block, asker(1), &mut out));
    let answers = out.iter().filter_map(|action| match action {
        LedgerAction::Answer(_, answer) => Some(answer),
        _ => None,
    });
    let both = (Frame::Ack { id: 0, offset: 0 }, Some(result(0, Err(full))));
    assert_eq!(answers.collect::<Vec<_>>(), [&both, &both]);
}

#[test]
fn lh_copy_23_failure_during_a_commit_is_ignored() {
    let (mut ledger, mut out) = (ledger(), Vec::new());
    ledger.announce(announced(0, 0), &[], &mut out).unwrap();
    let end = (0, Question::FileEnd(0));
    ledger.file_end(0, root_of(0), end, &mut out).unwrap();
    assert!(matches!(out[..], [LedgerAction::Commit(_)]));
    out.clear();
    ledger.failed(
        &head(0),
        Failure::new(FailureKind::Changed),
        (1, Question::FileEnd(0)),
        &mut out,
    );
    assert!(out.is_empty(), "it waits for the outcome");
    ledger.file_committed(0, Ok(EntryOutcome::New), &mut out);
    let answers = out.iter().filter_map(|action| match action {
        LedgerAction::Answer(_, (frame, None)) => Some(frame.clone()),
        _ => None,
    });
    assert_eq!(
        answers.collect::<Vec<_>>(),
        vec![result(0, Ok(EntryOutcome::New)); 2]
    );
}

#[test]
fn lh_copy_25_unfinished_directories_are_sent_before_done() {
    let (mut ledger, mut out) = (ledger(), Vec::new());
    for id in 0..2 {
        assert!(ledger.entry(
            &head(id),
            Some(&Meta::default()),
            (0, Question::Entry(id)),
            &mut out
        ));
        ledger.directory_made(&head(id), Meta::default(), Ok(MadeDir::New), true, &mut out);
    }
    ledger.handle_end(2, &mut out).unwrap();
    let Some(LedgerAction::Finish(directories)) = out.pop() else {
        panic!("nothing to finish");
    };
    let order: Vec<u64> = directories
        .iter()
        .map(|directory| directory.head.id)
        .collect();
    assert_eq!(order, [1, 0], "what lies deeper comes first");
    assert!(ledger.closing_frames().is_empty() && ledger.conclusion().is_none());
    ledger.finished(vec![(head(1), Failure::new(FailureKind::Metadata))]);
    let frames = ledger.closing_frames();
    assert!(matches!(
        &frames[..],
        [Frame::Failed { head, .. }, Frame::Done { .. }] if head.id == NO_ENTRY
    ));
}

fn offer(id: u64, hash: Option<Hash>) -> FileOffer {
    FileOffer {
        head: head(id),
        meta: Meta::default(),
        size: BLOCK,
        hash,
    }
}

#[test]
fn lh_copy_41_existing_file_drops_its_arrived_data() {
    let (mut ledger, mut out) = (ledger(), Vec::new());
    let asker = |stream| (stream, Question::Offer(0));
    assert!(ledger.handle_claim(SkipClaim::Offer(&offer(0, None)), asker(0), &mut out));
    assert!(
        !ledger.handle_claim(SkipClaim::Offer(&offer(0, None)), asker(1), &mut out),
        "one compares it"
    );
    // The data followed the offer without waiting.
    ledger.announce(announced(0, BLOCK), &[], &mut out).unwrap();
    let block = block_of(0, 0, BLOCK);
    assert!(ledger.block_arrived(&block, (0, Question::Block(0, 0)), &mut out));
    ledger.assign_permit(0, Ok(7), &mut out);
    out.clear();
    assert!(ledger.handle_end(1, &mut out).is_ok() && out.is_empty());
    ledger.claim_checked(
        SkipClaim::Offer(&offer(0, None)),
        Ok(Comparison::InPlace),
        &mut out,
    );
    let unchanged = result(0, Ok(EntryOutcome::Unchanged));
    let reported = |action: &&LedgerAction<Numbers>| {
        matches!(
            action,
            LedgerAction::Answer(_, (frame, None)) if *frame == unchanged
        )
    };
    assert_eq!(out.iter().filter(reported).count(), 2);
    let dropped = |action: &LedgerAction<Numbers>| {
        matches!(
            action,
            LedgerAction::Discard {
                file: 7,
                keep: false
            }
        )
    };
    assert!(out.iter().any(dropped));
    ledger.discarded(&mut out);
    assert!(matches!(out.last(), Some(LedgerAction::Finish(_))));
    // A copy that did not wait for the answer asks for the rest.
    out.clear();
    ledger
        .file_end(0, root_of(BLOCK), (0, Question::FileEnd(0)), &mut out)
        .unwrap();
    assert!(matches!(&out[..], [LedgerAction::Answer(_, (frame, None))] if *frame == unchanged));
}

#[test]
fn lh_copy_42_record_of_an_unchanged_file_is_what_was_compared() {
    let conclusion = |offer: &FileOffer| {
        let (mut ledger, mut out) = (ledger(), Vec::new());
        assert!(ledger.handle_claim(SkipClaim::Offer(offer), (0, Question::Offer(0)), &mut out));
        ledger.claim_checked(SkipClaim::Offer(offer), Ok(Comparison::InPlace), &mut out);
        ledger.handle_end(1, &mut out).unwrap();
        ledger.finished(vec![]);
        ledger.conclusion().unwrap()
    };
    let written = {
        let (mut ledger, mut out) = (ledger(), Vec::new());
        assert!(ledger.entry(&head(0), None, (0, Question::Entry(0)), &mut out));
        let record = ManifestRecord::File {
            size: BLOCK,
            hash: &[3; 32],
            mtime: (0, 0),
            parts: &[],
        };
        ledger.entry_written(&head(0), record, Ok(EntryOutcome::New), &mut out);
        ledger.handle_end(1, &mut out).unwrap();
        ledger.finished(vec![]);
        ledger.conclusion().unwrap()
    };
    assert_eq!(conclusion(&offer(0, Some([3; 32]))), written);
    assert_ne!(conclusion(&offer(0, Some([4; 32]))), written);
    let mut later = offer(0, None);
    later.meta.mtime.1 = 1;
    assert_ne!(conclusion(&offer(0, None)), conclusion(&later));
    assert_ne!(conclusion(&offer(0, None)), written);
}

#[test]
fn lh_copy_46_link_is_recorded_or_wanted_as_a_file() {
    let link = HardLink {
        head: head(1),
        size: BLOCK,
        first: (0, head(0).path),
    };
    let (mut ledger, mut out) = (ledger(), Vec::new());
    let claim = SkipClaim::Link(&link);
    assert!(ledger.handle_claim(claim, (0, Question::Offer(1)), &mut out));
    ledger.claim_checked(claim, Ok(Comparison::Wanted), &mut out);
    assert!(matches!(
        &out[..],
        [LedgerAction::Answer(_, (Frame::Want { id: 1 }, None))]
    ));
    out.clear();
    // Nothing was recorded. Another stream that asks may get another answer, which then holds for
    // all.
    assert!(ledger.handle_claim(claim, (1, Question::Offer(1)), &mut out));
    ledger.claim_checked(claim, Ok(Comparison::InPlace), &mut out);
    let linked = result(1, Ok(EntryOutcome::Linked));
    assert!(matches!(
        &out[..],
        [
            LedgerAction::Count(_),
            LedgerAction::Report(report),
            LedgerAction::Answer(_, (frame, None)),
        ]
            if *frame == linked && report.content == Some((BLOCK, None))
    ));
    out.clear();
    assert!(!ledger.entry(&head(1), None, (0, Question::Entry(1)), &mut out));
    assert!(matches!(&out[..], [LedgerAction::Answer(_, (frame, None))] if *frame == linked));
}

#[test]
fn lh_copy_45_first_name_of_a_link_must_be_requested() {
    let link = |source, path: &str| HardLink {
        head: head(1),
        size: 1,
        first: (
            source,
            crate::path::RelPath::from_bytes(path.as_bytes()).unwrap(),
        ),
    };
    let ledger = |asked| CopyLedger::<Numbers>::new(asked, 1, 0);
    for asked in [
        RequestedEntries::Anything,
        RequestedEntries::Trees,
        RequestedEntries::Files,
    ] {
        assert!(ledger(asked).admit_link(&link(0, "")).is_ok());
        assert_eq!(
            ledger(asked).admit_link(&link(0, "d/f")).is_ok(),
            asked != RequestedEntries::Files
        );
        assert!(matches!(
            ledger(asked).admit_link(&link(1, "")),
            Err(Rejection::Protocol(_))
        ));
    }
}
