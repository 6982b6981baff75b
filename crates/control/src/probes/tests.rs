//! Each pair has its turns, and no depot has two at a time.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn no_depot_has_two_measurements_at_a_time(depots in 0_usize..40, first: u32) {
        let mut busy: BTreeMap<u64, BTreeSet<usize>> = BTreeMap::new();
        for place in 0..depots {
            for turn in turns(depots, place, first.into(), 50) {
                prop_assert!(turn.to < depots && turn.to != place);
                let in_slot = busy.entry(turn.slot).or_default();
                prop_assert!(in_slot.insert(place) && in_slot.insert(turn.to), "{turn:?}");
            }
        }
    }

    #[test]
    fn every_pair_has_each_turn_once_per_round(depots in 2_usize..24, first: u16) {
        let seats = (depots + depots % 2) as u64;
        let mut seen: BTreeMap<(usize, usize), u32> = BTreeMap::new();
        for place in 0..depots {
            for turn in turns(depots, place, first.into(), (seats - 1) * TURNS) {
                *seen.entry((place, turn.to)).or_default() += 1;
            }
        }
        prop_assert_eq!(seen.len(), depots * (depots - 1));
        prop_assert!(seen.values().all(|times| *times == 1));
    }

    #[test]
    fn measurements_stay_within_their_share(depots in 2_usize..1000, capacity in 1e3..1e12_f64) {
        let path = KnownPath { rate_bps: Some(capacity), unseen_bytes: None };
        let bytes = bulk_bytes(depots, &path);
        let seats = (depots + depots % 2) as f64;
        let seconds = (seats - 1.0) * TURNS as f64 * SLOT_MS as f64 / 1000.0;
        // Each direction has one bulk turn in that time.
        prop_assert!(bytes as f64 * 8.0 / seconds <= capacity * MAX_SHARE);
        prop_assert!(bytes <= MAX_BYTES);
    }
}

#[test]
fn unknown_and_narrow_links_get_small_measurements() {
    let bytes = UNKNOWN_LINK_BYTES;
    let of = |rate_bps| KnownPath {
        rate_bps,
        unseen_bytes: None,
    };
    assert_eq!(kind(2, &of(None)), ProbeKind::Bulk { bytes });
    assert!(matches!(
        kind(2, &of(Some(1e6))),
        ProbeKind::RoundTrips { .. }
    ));
    assert!(matches!(kind(6, &of(Some(1e8))), ProbeKind::Bulk { .. }));
}

#[test]
fn too_short_train_is_doubled() {
    let after = |unseen_bytes| {
        bulk_bytes(
            6,
            &KnownPath {
                rate_bps: Some(2e7),
                unseen_bytes,
            },
        )
    };
    assert_eq!(after(Some(1 << 20)), 2 << 20);
    assert_eq!(after(Some(1 << 30)), MAX_UNSEEN_BYTES);
    assert!(after(None) < 1 << 20);
}
