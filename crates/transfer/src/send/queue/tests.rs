//! Tests of the queue's additions to its schedule.

use longhaul_proto::PublicKey;

use super::*;
use crate::account::Accounts;
use crate::error::FailureKind;
use crate::limits::ServerLimits;
use crate::send::source::{Source, SourceFile};
use crate::wire::EntryHead;

/// A source with this number of directories.
struct Directories(u64);

impl Source for Directories {
    fn walk(&self, sink: &dyn WalkSink) -> bool {
        (0..self.0).all(|n| {
            let path = RelPath::from_bytes(n.to_string().as_bytes()).unwrap();
            sink.found(0, path, Meta::default(), FoundEntry::Directory)
        })
    }

    fn open(&self, _: &EntryHead) -> Result<Box<dyn SourceFile>, Failure> {
        Err(Failure::new(FailureKind::NotFound))
    }
}

fn queue(count: u64, bookkeeping: usize) -> (Arc<WorkQueue>, Arc<Account>) {
    let limits = ServerLimits {
        bookkeeping,
        ..ServerLimits::default()
    };
    let account = Accounts::new(&limits).account_of(PublicKey::from_bytes([1; 32]));
    let queue = WorkQueue::new(
        Sources::from_source(Directories(count)),
        false,
        account.clone(),
        Arc::default(),
        Arc::new(()),
        Sources::labels(vec!["s".into()]),
    );
    (queue.unwrap(), account)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn walk_waits_for_memory_and_leaves_enough_for_work() {
    // One key may hold half of it: a tenth of what the entries take.
    let (queue, account) = queue(5000, 400_000);
    queue.add_stream(0);
    let walk = queue.clone();
    let walk = tokio::task::spawn_blocking(move || walk.walk());
    let (mut answered, mut ended) = (0, false);
    while answered < 5000 || !ended {
        let changed = queue.changed();
        assert!(account.held(Resource::Bookkeeping) <= 200_000);
        match queue.take(0) {
            TakeResult::Work(work) => {
                for work in work {
                    match work {
                        StreamWork::Entry(entry) => {
                            queue.answered(entry.head.id, Ok(EntryOutcome::New));
                            answered += 1;
                        }
                        work => ended = matches!(work, StreamWork::End { entries: 5000, .. }),
                    }
                }
            }
            TakeResult::Nothing(wait) => {
                let _ = tokio::time::timeout(wait, changed).await;
            }
            TakeResult::Over => panic!("it is not over"),
        }
    }
    walk.await.unwrap();
    assert_eq!(
        queue.reporter.progress.entries_done.load(Ordering::Relaxed),
        5000
    );
    queue.completed(queue.manifest());
    assert_eq!(queue.conclusion(), Some(true));
    assert!(matches!(queue.take(0), TakeResult::Over));
    assert!(account.held(Resource::Bookkeeping) <= 2 * WORK_RESERVE);
    drop(queue);
    assert_eq!(account.held(Resource::Bookkeeping), 0);
}

#[tokio::test]
async fn closed_queue_stops_its_walk() {
    let (queue, _) = queue(u64::MAX, 400_000);
    queue.add_stream(0);
    let walk = queue.clone();
    let walk = tokio::task::spawn_blocking(move || walk.walk());
    queue.close();
    walk.await.unwrap();
    assert!(matches!(queue.take(0), TakeResult::Over));
    assert!(matches!(
        queue.totals(),
        Frame::Totals {
            complete: false,
            ..
        }
    ));
}

#[tokio::test]
async fn found_entry_wakes_a_waiting_stream() {
    let (queue, _) = queue(1, 400_000);
    queue.add_stream(0);
    let changed = queue.changed();
    let TakeResult::Nothing(wait) = queue.take(0) else {
        panic!("nothing was found")
    };
    assert!(
        wait > Duration::from_secs(1),
        "it is woken, and does not look"
    );
    queue.walk();
    changed.await;
    assert!(matches!(queue.take(0), TakeResult::Work(work) if work.len() == 2));
}
