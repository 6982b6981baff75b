//! Changes of links in virtual time.

#![allow(clippy::unwrap_used, clippy::panic)]

use proptest::prelude::*;
use quantities::Rate;

use super::*;

fn link(up: bool, capacity: f64) -> ObservedLink {
    let direction = LiveDirection {
        capacity: Rate::new(capacity),
        reservable: None,
    };
    ObservedLink {
        up,
        forward: direction,
        backward: direction,
    }
}

fn links(all: &[(&str, ObservedLink)]) -> ObservedLinks {
    let all = all.iter();
    ObservedLinks {
        links: all
            .map(|(name, link)| ((*name).to_owned(), *link))
            .collect(),
        problems: Vec::new(),
    }
}

/// Returns a tracker that follows a link that is up, and the time.
fn following() -> (TopologyTracker, u64) {
    let mut tracker = TopologyTracker::default();
    let up = links(&[("wide", link(true, 1e9))]);
    assert!(!tracker.observe(0, &up));
    assert!(tracker.network().links.is_empty());
    assert!(tracker.observe(SETTLE_MS, &up));
    assert!(tracker.is_current() && tracker.is_calm());
    (tracker, SETTLE_MS)
}

fn is_up(tracker: &TopologyTracker) -> bool {
    tracker.network().links["wide"].up
}

#[test]
fn failure_counts_at_once_and_return_after_a_hold() {
    let (mut tracker, now) = following();
    let (up, down) = (
        links(&[("wide", link(true, 1e9))]),
        links(&[("wide", link(false, 1e9))]),
    );
    assert!(tracker.observe(now + 250, &down));
    assert!(!is_up(&tracker));
    assert_eq!(tracker.network().links["wide"].since_ms, now + 250);
    assert!(!tracker.observe(now + 500, &up));
    assert!(!tracker.is_calm());
    assert!(!tracker.observe(now + 499 + MIN_HOLD_MS, &up));
    assert!(tracker.observe(now + 500 + MIN_HOLD_MS, &up));
    assert!(is_up(&tracker));
}

#[test]
fn flapping_link_is_held_down_longer_each_time() {
    let (mut tracker, mut now) = following();
    let (up, down) = (
        links(&[("wide", link(true, 1e9))]),
        links(&[("wide", link(false, 1e9))]),
    );
    let mut holds = Vec::new();
    for _ in 0..10 {
        tracker.observe(now, &down);
        let from = now;
        while !is_up(&tracker) {
            now += 1_000;
            tracker.observe(now, &up);
        }
        holds.push(now - from - 1_000);
    }
    assert_eq!(&holds[..3], &[2_000, 4_000, 8_000]);
    assert_eq!(holds[9], MAX_HOLD_MS);
    // After a calm time, it is a link like others again.
    now += CALM_MS;
    tracker.observe(now, &down);
    tracker.observe(now + 1, &up);
    assert!(tracker.observe(now + 1 + MIN_HOLD_MS, &up));
}

#[test]
fn restarted_router_is_believed_once_it_has_settled() {
    let (mut tracker, now) = following();
    let down = links(&[("wide", link(false, 1e9))]);
    assert!(tracker.fail(now, "gone", true));
    assert!(!tracker.fail(now + 250, "still gone", true));
    assert!(is_up(&tracker) && !tracker.is_current());
    assert!(tracker.network().problems[0].contains("still gone"));
    // The database is incomplete at first.
    assert!(tracker.observe(now + 1_000, &down));
    assert!(is_up(&tracker) && tracker.network().problems.is_empty());
    let up = links(&[("wide", link(true, 1e9))]);
    assert!(!tracker.observe(now + 2_000, &up));
    assert!(!tracker.observe(now + 4_999, &up));
    assert!(is_up(&tracker));
    tracker.observe(now + 5_000, &up);
    assert!(is_up(&tracker) && tracker.is_current());
}

#[test]
fn late_answer_is_no_restart() {
    let (mut tracker, now) = following();
    tracker.fail(now, "late", false);
    assert!(tracker.observe(now + 500, &links(&[("wide", link(false, 1e9))])));
    assert!(!is_up(&tracker));
}

#[test]
fn rates_change_at_most_every_ten_seconds() {
    let (mut tracker, now) = following();
    let capacity = |tracker: &TopologyTracker| tracker.network().links["wide"].forward.capacity;
    assert!(tracker.observe(now + 1, &links(&[("wide", link(true, 5e8))])));
    assert_eq!(capacity(&tracker), Rate::new(5e8));
    let again = links(&[("wide", link(true, 7e8))]);
    assert!(!tracker.observe(now + 2, &again));
    assert!(tracker.observe(now + 1 + RATE_INTERVAL_MS, &again));
    assert_eq!(capacity(&tracker), Rate::new(7e8));
    // Rates that are missing stay as last known.
    let mut missing = again.clone();
    for link in missing.links.values_mut() {
        link.forward = LiveDirection::default();
    }
    assert!(!tracker.observe(now + 1 + 3 * RATE_INTERVAL_MS, &missing));
    // A link that left the map is not followed any more.
    assert!(tracker.observe(now + 2 + 3 * RATE_INTERVAL_MS, &links(&[])));
    assert!(tracker.network().links.is_empty());
}

proptest! {
    #[test]
    fn down_is_never_shown_as_up(
        steps in prop::collection::vec(
            (0..20_000_u64, prop::option::weighted(0.9, any::<bool>())),
            1..200,
        )
    ) {
        let mut tracker = TopologyTracker::default();
        let mut now = 0;
        let mut shown_before = None;
        for (pause, observed) in steps {
            now += pause;
            match observed {
                Some(up) => {
                    let before = tracker.network();
                    let has_changed = tracker.observe(now, &links(&[("wide", link(up, 1e9))]));
                    prop_assert!(has_changed || tracker.network() == before);
                    if tracker.is_current() && !up {
                        prop_assert!(!is_up(&tracker));
                    }
                }
                None => {
                    let before = tracker.network().links;
                    tracker.fail(now, "gone", true);
                    prop_assert_eq!(tracker.network().links, before);
                }
            }
            let shown = tracker.network().links.get("wide").map(|link| (link.up, link.since_ms));
            if let (Some((up, since)), Some((was_up, was_since))) = (shown, shown_before) {
                prop_assert!(up != was_up || since == was_since);
                prop_assert!(since <= now);
            }
            shown_before = shown;
        }
    }
}
