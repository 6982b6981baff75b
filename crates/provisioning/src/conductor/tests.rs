use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use longhaul_circuits::time::Window;

use super::*;
use crate::ask::{DriverRequest, ListedPart};
use crate::circuit::{CircuitHop, CircuitPiece, CircuitRoute, CircuitSpec, PartId};
use crate::driver::DriverFuture;
use crate::reconcile::CircuitStatus;
use crate::streams::StreamSelector;
use crate::testing::name;

/// A driver that answers after a delay, and panics once if told to.
struct Slow {
    time: Duration,
    there: Mutex<BTreeSet<PartId>>,
    panics: AtomicUsize,
}

impl Slow {
    fn new(time: Duration) -> Arc<Self> {
        Arc::new(Self {
            time,
            there: Mutex::default(),
            panics: AtomicUsize::new(0),
        })
    }
}

impl Driver for Slow {
    fn ask<'a>(&'a self, request: &'a DriverRequest) -> DriverFuture<'a, DriverReply> {
        Box::pin(async move {
            tokio::time::sleep(self.time).await;
            if self
                .panics
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                    left.checked_sub(1)
                })
                .is_ok()
            {
                panic!("as it was told to");
            }
            let mut there = self.there.lock();
            match request {
                DriverRequest::SetUp { part } => there.insert(part.id.clone()),
                DriverRequest::TearDown { id, .. } => there.remove(id),
                _ => {
                    let parts = there.iter().map(|id| ListedPart {
                        owner: name("us"),
                        id: id.clone(),
                        part: None,
                        whole: true,
                    });
                    let parts = parts.collect();
                    return Ok(DriverReply::Parts { parts });
                }
            };
            Ok(DriverReply::Done)
        })
    }
}

fn circuit(end: MomentMs) -> CircuitSpec {
    let hop = |node: &str| CircuitHop {
        node: name(node),
        link: name("link"),
    };
    CircuitSpec {
        id: name("c"),
        pieces: vec![CircuitPiece {
            window: Window::new(0, end),
            routes: vec![CircuitRoute {
                hops: vec![hop("a"), hop("b")],
                rate: 5,
                streams: StreamSelector::between([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
            }],
        }],
    }
}

fn conductor(of_a: Arc<dyn Driver>, of_b: Option<Arc<dyn Driver>>) -> Arc<DriverRunner> {
    let nodes = ["a", "b"].map(|node| (name(node), name(node)));
    let mut reconciler = Reconciler::new(name("us"), nodes.into());
    reconciler.set_wanted([circuit(10_000_000)]);
    let mut drivers = Drivers::from([(name("a"), of_a)]);
    drivers.extend(of_b.map(|driver| (name("b"), driver)));
    Arc::new(DriverRunner::new(reconciler, drivers))
}

/// Runs the conductor in paused time until a circuit has such a status.
async fn until(
    conductor: &Arc<DriverRunner>,
    stands: impl Fn(&CircuitStatus) -> bool,
) -> CircuitStatus {
    let (_tell, stop) = watch::channel(false);
    let begun = tokio::time::Instant::now();
    let clock = move || MomentMs::try_from(begun.elapsed().as_millis()).unwrap();
    let run = {
        let conductor = Arc::clone(conductor);
        tokio::spawn(async move { conductor.run(clock, stop).await })
    };
    loop {
        let standing = conductor
            .lock_reconciler()
            .status(&name("c"), clock())
            .unwrap();
        if stands(&standing) || clock() > 1_000_000 {
            run.abort();
            return standing;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn drivers_are_asked_until_done_and_after_changes() {
    let (a, b) = (Slow::new(Duration::from_secs(3)), Slow::new(Duration::ZERO));
    a.panics.store(1, Ordering::SeqCst);
    let conductor = conductor(Arc::clone(&a) as _, Some(Arc::clone(&b) as _));
    let standing = until(&conductor, |standing| {
        *standing == CircuitStatus::Provisioned
    })
    .await;
    assert_eq!(standing, CircuitStatus::Provisioned);
    let there = || [&a, &b].map(|driver| driver.there.lock().len());
    assert_eq!(there(), [1, 1]);

    conductor.update(|reconciler| reconciler.set_wanted([circuit(1)]));
    let standing = until(&conductor, |standing| {
        *standing == CircuitStatus::Over { left: 0 }
    })
    .await;
    assert_eq!(standing, CircuitStatus::Over { left: 0 });
    assert_eq!(there(), [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_missing_or_silent_driver_fails_the_circuit() {
    let good = || Slow::new(Duration::ZERO);
    let never = Slow::new(Duration::MAX);
    for (of_b, why) in [
        (None, "there is no driver b"),
        (Some(never as Arc<dyn Driver>), "no answer within 120 s"),
    ] {
        let conductor = conductor(good(), of_b);
        let standing = until(&conductor, |standing| {
            matches!(standing, CircuitStatus::Failed { .. })
        })
        .await;
        let CircuitStatus::Failed { why: said, .. } = standing else {
            panic!("{standing:?}");
        };
        // A driver that never answers may be abandoned before its time is over.
        let said = said.to_string();
        assert!(
            said.contains(why) || said.contains("it did not answer in time"),
            "{said}"
        );
    }
}
