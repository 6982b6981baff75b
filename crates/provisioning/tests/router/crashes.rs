//! A router that dies after any number of changes: its successor repairs everything.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use longhaul_provisioning::ask::DriverRequest;
use longhaul_provisioning::circuit::{CircuitPart, CircuitSpec};
use longhaul_provisioning::driver::list;
use longhaul_provisioning::linux::LinuxRouter;
use wanbed::Lab;

use crate::bed::{
    LINK, ask, circuit, config, lab, name, part, reconcile, router, some_in_router, state, streams,
};

/// Circuits of a router before and during its death.
struct Case {
    before: Vec<CircuitSpec>,
    requests: Vec<DriverRequest>,
    /// Circuits that its successor wants.
    after: Vec<CircuitSpec>,
}

/// Lets the router die after each number of changes. Checks that its successor sets up what is
/// wanted, and leaves nothing when nothing is.
async fn dies_everywhere(lab: &Arc<Lab>, case: &Case, loses_record: bool) {
    let clean = state(lab);
    for most in 0.. {
        let folder = tempfile::tempdir().unwrap();
        reconcile(&router(lab, folder.path()), case.before.clone()).await;
        let (start, count) = some_in_router(lab, most);
        {
            let dying = LinuxRouter::open(config(), folder.path(), start).unwrap();
            for request in &case.requests {
                ask(&dying, request.clone()).await;
            }
        }
        if loses_record {
            std::fs::remove_file(folder.path().join("parts.json")).ok();
        }
        is_put_right(lab, folder.path(), &case.after).await;
        reconcile(&router(lab, folder.path()), vec![]).await;
        assert_eq!(state(lab), clean, "after {most} changes");
        if count.load(Ordering::SeqCst) <= most {
            assert!(most > 4, "it was done at once");
            return;
        }
    }
}

async fn is_put_right(lab: &Arc<Lab>, record: &Path, wanted: &[CircuitSpec]) {
    let after = router(lab, record);
    reconcile(&after, wanted.to_vec()).await;
    let there = list(&after, name("us")).await.unwrap();
    assert_eq!(there.len(), wanted.len(), "{there:?}");
    for circuit in wanted {
        let found = there
            .iter()
            .find(|found| found.id.belongs_to(&circuit.id))
            .unwrap();
        let rate = found.part.as_ref().unwrap().rate;
        assert!(
            found.whole && rate == circuit.pieces[0].routes[0].rate,
            "{found:?}"
        );
    }
}

fn parts(lab: &Lab) -> [CircuitPart; 2] {
    [
        part("one", "near", LINK / 4, streams(lab, 21_000, 21_009)),
        part("other", "near", LINK / 5, streams(lab, 22_000, 22_009)),
    ]
}

fn set_up(part: &CircuitPart) -> DriverRequest {
    DriverRequest::SetUp { part: part.clone() }
}

fn tear_down(part: &CircuitPart) -> DriverRequest {
    DriverRequest::TearDown {
        owner: part.owner.clone(),
        id: part.id.clone(),
    }
}

#[tokio::test]
async fn dying_while_it_sets_up_is_repaired() {
    let Some(lab) = lab() else { return };
    let [one, other] = parts(&lab);
    let case = Case {
        before: vec![circuit(&one)],
        requests: vec![set_up(&other)],
        after: vec![circuit(&one), circuit(&other)],
    };
    dies_everywhere(&lab, &case, false).await;
}

#[tokio::test]
async fn dying_while_it_sets_up_the_first_is_repaired() {
    let Some(lab) = lab() else { return };
    let [one, other] = parts(&lab);
    let case = Case {
        before: vec![],
        requests: vec![set_up(&one)],
        after: vec![circuit(&other)],
    };
    dies_everywhere(&lab, &case, true).await;
}

#[tokio::test]
async fn dying_while_it_tears_down_is_repaired() {
    let Some(lab) = lab() else { return };
    let [one, other] = parts(&lab);
    let case = Case {
        before: vec![circuit(&one), circuit(&other)],
        requests: vec![tear_down(&one), tear_down(&other)],
        after: vec![],
    };
    dies_everywhere(&lab, &case, false).await;
    dies_everywhere(&lab, &case, true).await;
}

#[tokio::test]
async fn dying_while_it_changes_is_repaired() {
    let Some(lab) = lab() else { return };
    let [one, _] = parts(&lab);
    let slower = CircuitPart {
        rate: LINK / 10,
        ..one.clone()
    };
    // The id of a part that now leaves by another link: a caller that sends this has mixed
    // something up.
    let elsewhere = CircuitPart {
        link: name("far"),
        ..one.clone()
    };
    let case = Case {
        before: vec![circuit(&one)],
        requests: vec![set_up(&slower), set_up(&elsewhere)],
        after: vec![circuit(&slower)],
    };
    dies_everywhere(&lab, &case, false).await;
}
