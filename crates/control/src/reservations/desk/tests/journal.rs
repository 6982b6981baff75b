//! Property tests: the journal yields the same reservation store, and a follower has the same
//! knowledge.

use std::sync::Arc;

use longhaul_provisioning::streams::Prefix;
use proptest::prelude::*;

use super::*;
use crate::circuits::following::{ChangedReservations, ReservationTracker};
use crate::reservations::reported;

#[derive(Debug, Clone)]
enum Step {
    Reserve(u8, i64, i64, u64, bool),
    Change(u64, u64, bool),
    Do(u64, u8),
    Map(u8),
    Wait(i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_u8, 0..9_i64, 1..9_i64, 1..6_u64, any::<bool>())
            .prop_map(|(who, ahead, length, amount, hold)|
                Step::Reserve(who, ahead, length, amount, hold)
            ),
        2 => (0..9_u64, 1..6_u64, any::<bool>())
            .prop_map(|(id, amount, hold)| Step::Change(id, amount, hold)),
        4 => (0..9_u64, 0..6_u8).prop_map(|(id, what)| Step::Do(id, what)),
        1 => (0..12_u8).prop_map(Step::Map),
        2 => (0..40_i64).prop_map(Step::Wait),
    ]
}

/// Addresses of ends, some of which contain others.
const ADDRESSES: [Option<&str>; 4] = [
    None,
    Some("10.1.0.0/16"),
    Some("10.1.0.1"),
    Some("10.2.0.1"),
];

/// Asserts that incremental updates equal a complete rebuild.
fn up_to_date(desk: &ReservationStore, following: &mut ReservationTracker) {
    following.update(desk);
    let mut anew = ReservationTracker::default();
    assert_eq!(anew.update(desk), ChangedReservations::All);
    assert_eq!(*following, anew);
    let windows = [Window::new(0, 20 * 60_000), Window::new(40 * 60_000, HOUR)];
    let prefixes = ADDRESSES
        .iter()
        .flatten()
        .map(|text| text.parse::<Prefix>().unwrap());
    for address in prefixes {
        let found = desk
            .beside
            .overlapping_reservations(address, address, &windows);
        let all = desk.reservations().filter(|(id, detail, reservation)| {
            let shares =
                |place: &ReservationEnd| place.address.is_some_and(|known| known.overlaps(address));
            let (start, end) = reported::span(reservation);
            let span = Window::new(start, end);
            let is_in_time = windows.iter().any(|window| window.overlaps(span));
            !desk.over.contains_key(id) && is_in_time && shares(&detail.from) && shares(&detail.to)
        });
        assert_eq!(found, all.map(|(id, ..)| id).collect());
    }
}

proptest! {
    /// With arbitrary commands, callers and times: a refused command changes nothing, the journal
    /// yields the same reservation store, and a follower of changes knows the same as a complete
    /// look.
    #[test]
    fn same_journal_yields_the_same_reservations(
        steps in proptest::collection::vec(step(), 1..40),
    ) {
        let mut kept = Kept::new(&map(10e9));
        kept.desk = kept.desk.with_managed_sites(Arc::new(["west".to_owned()].into()));
        let mut following = ReservationTracker::default();
        let askers = [operator(), reserver("ana"), reserver("ben")];
        let minute = 60_000;
        let mut now = 0;
        for step in steps {
            match step {
                Step::Reserve(who, ahead, length, amount, hold) => {
                    let mut asked = request(rate(amount * 1_000_000_000), 0);
                    (asked.hold, asked.paths) = (hold, 2);
                    let start = now + ahead * minute;
                    let window = Window::new(start, start + length * minute);
                    let windows = [window, window.starting_at(window.end)];
                    let count = if amount % 2 == 0 { 2 } else { 1 };
                    let at = |site: &str, place: usize| ReservationEnd {
                        address: ADDRESSES[place % ADDRESSES.len()]
                            .map(|text| text.parse().unwrap()),
                        ..super::place(site)
                    };
                    let (who, place) = (usize::from(who), usize::try_from(ahead).unwrap());
                    let command = ReservationCommand::Reserve {
                        request: Box::new(asked),
                        from: at("west", place),
                        to: at("east", place / 2 + who),
                        windows: windows[..count].to_vec(),
                        is_end: false,
                        document: None,
                        delegation: None,
                    };
                    drop(kept.act(&askers[who], &command, now));
                }
                Step::Change(id, amount, hold) => {
                    let change = ReservationChange {
                        wish: Some(rate(amount * 1_000_000_000)),
                        hold,
                        ..Default::default()
                    };
                    drop(kept.act(
                        &askers[1],
                        &ReservationCommand::Change { id: ReservationId(id), change },
                        now
                    ));
                }
                Step::Do(id, what) => {
                    let id = ReservationId(id);
                    let command = match what {
                        0 => ReservationCommand::Commit(id),
                        1 => ReservationCommand::Abort(id),
                        2 => ReservationCommand::Provision(id),
                        3 => ReservationCommand::Release(id),
                        other => ReservationCommand::Cancel { id, series: other == 5 },
                    };
                    drop(kept.act(&askers[usize::from(what % 3)], &command, now));
                }
                Step::Map(gigabits) => {
                    kept.desk
                        .take_map(&map(f64::from(gigabits.max(1)) * 1e9), &mut kept.journal)
                        .unwrap();
                }
                Step::Wait(minutes) => {
                    now += minutes * minute;
                    kept.pass(now);
                }
            }
            up_to_date(&kept.desk, &mut following);
        }
        kept.replayed();
        kept.pass(now + 2 * RETENTION_MS as i64);
        kept.pass(now + 4 * RETENTION_MS as i64);
        prop_assert_eq!(kept.desk.next_due(), None, "all is forgotten in the end");
    }
}
