use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use longhaul_circuits::time::Window;

use super::*;
use crate::ask::{Found, Request};
use crate::circuit::{Circuit, Hop, PartId, Piece, Route};
use crate::driver::Answer;
use crate::reconcile::Standing;
use crate::streams::Streams;
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
    fn ask<'a>(&'a self, request: &'a Request) -> Answer<'a, Reply> {
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
                Request::SetUp { part } => there.insert(part.id.clone()),
                Request::TearDown { id, .. } => there.remove(id),
                _ => {
                    let parts = there.iter().map(|id| Found {
                        owner: name("us"),
                        id: id.clone(),
                        part: None,
                        whole: true,
                    });
                    let parts = parts.collect();
                    return Ok(Reply::Parts { parts });
                }
            };
            Ok(Reply::Done)
        })
    }
}

fn circuit(end: Moment) -> Circuit {
    let hop = |node: &str| Hop {
        node: name(node),
        link: name("link"),
    };
    Circuit {
        id: name("c"),
        pieces: vec![Piece {
            window: Window::new(0, end),
            routes: vec![Route {
                hops: vec![hop("a"), hop("b")],
                rate: 5,
                streams: Streams::between([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
            }],
        }],
    }
}

fn conductor(of_a: Arc<dyn Driver>, of_b: Option<Arc<dyn Driver>>) -> Arc<Conductor> {
    let nodes = ["a", "b"].map(|node| (name(node), name(node)));
    let mut reconciler = Reconciler::new(name("us"), nodes.into());
    reconciler.want([circuit(10_000_000)]);
    let mut drivers = Drivers::from([(name("a"), of_a)]);
    drivers.extend(of_b.map(|driver| (name("b"), driver)));
    Arc::new(Conductor::new(reconciler, drivers))
}

/// Runs the conductor in paused time until a circuit has such a status.
async fn until(conductor: &Arc<Conductor>, stands: impl Fn(&Standing) -> bool) -> Standing {
    let (_tell, stop) = watch::channel(false);
    let begun = tokio::time::Instant::now();
    let clock = move || Moment::try_from(begun.elapsed().as_millis()).unwrap();
    let run = {
        let conductor = Arc::clone(conductor);
        tokio::spawn(async move { conductor.run(clock, stop).await })
    };
    loop {
        let standing = conductor.locked().standing(&name("c"), clock()).unwrap();
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
    let standing = until(&conductor, |standing| *standing == Standing::Provisioned).await;
    assert_eq!(standing, Standing::Provisioned);
    let there = || [&a, &b].map(|driver| driver.there.lock().len());
    assert_eq!(there(), [1, 1]);

    conductor.with(|reconciler| reconciler.want([circuit(1)]));
    let standing = until(&conductor, |standing| {
        *standing == Standing::Over { left: 0 }
    })
    .await;
    assert_eq!(standing, Standing::Over { left: 0 });
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
            matches!(standing, Standing::Failed { .. })
        })
        .await;
        let Standing::Failed { why: said, .. } = standing else {
            panic!("{standing:?}");
        };
        // A driver that never answers may be abandoned before its time is over.
        let said = said.to_string();
        assert!(
            said.contains(why) || said.contains("it has not answered in time"),
            "{said}"
        );
    }
}
