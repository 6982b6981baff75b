//! Reservations whose links fail or shrink.

use longhaul_map::{LiveDirection, LiveLink, LiveNetwork};
use quantities::Rate;

use super::set_up::managed;
use super::*;
use crate::circuits::plan::{self, CircuitError};

const WINDOW: Window = Window::new(0, HOUR);

/// Returns the map with the states of some links.
fn live(links: &[(&str, bool, f64)]) -> Map {
    let links = links.iter().map(|(name, up, capacity)| {
        let direction = LiveDirection {
            capacity: Rate::new(*capacity),
            reservable: None,
        };
        let link = LiveLink {
            up: *up,
            since_ms: 0,
            forward: direction,
            backward: direction,
        };
        ((*name).to_owned(), link)
    });
    let network = LiveNetwork {
        links: links.collect(),
        problems: Vec::new(),
    };
    network.attach(&map(10e9))
}

impl Kept {
    fn take(&mut self, map: &Map) {
        assert!(self.desk.take_map(map, &mut self.journal).unwrap());
    }

    /// Plans all impaired reservations again. Returns the numbers of those that moved.
    fn reroute(&mut self, now: MomentMs) -> Vec<u64> {
        let ids = self.desk.impaired_reservations(now);
        let command = ReservationCommand::Reroute(ids);
        let moved = self.act(&operator(), &command, now).unwrap();
        moved.iter().map(|one| one.id).collect()
    }

    fn reserve_rate(&mut self, rate_bps: u64) {
        let request = request(rate(rate_bps), HOUR);
        self.reserve(&operator(), &request, &[WINDOW], 0).unwrap();
    }
}

#[test]
fn reservation_moves_off_a_failed_link_and_stays() {
    let mut kept = Kept::new(&map(10e9));
    kept.reserve_rate(1_000_000_000);
    assert_eq!(kept.reroute(1), [0_u64; 0], "nothing is impaired");
    kept.take(&live(&[("n-e", false, 10e9)]));
    assert_eq!(kept.reroute(1_000), [1]);
    let moved = kept.show(1, 1_000);
    assert!(moved.impaired.is_empty());
    // What was carried before stays in the books.
    assert_eq!(names(&moved), [["w-n", "n-e"], ["w-s", "s-e"]]);
    assert_eq!(moved.pieces[0].end_ms, 1_000);
    // New answers avoid the link.
    kept.reserve_rate(1_000_000_000);
    assert_eq!(names(&kept.show(2, 1_000)), [["w-s", "s-e"]]);
    // It is back, and nothing moves.
    kept.take(&live(&[("n-e", true, 10e9)]));
    assert!(kept.reroute(2_000).is_empty());
    assert_eq!(kept.show(1, 2_000), moved);
    kept.replayed();
}

#[test]
fn reservations_without_another_path_keep_their_promise() {
    let mut kept = Kept::new(&map(10e9));
    for rate_bps in [1_500_000_000, 1_500_000_000, 500_000_000] {
        kept.reserve_rate(rate_bps);
    }
    kept.take(&live(&[("n-e", false, 10e9)]));
    // The south carries 2 Gbit/s: the oldest first, and what fits beside it.
    assert_eq!(kept.reroute(1), [1, 3]);
    assert_eq!(kept.desk.impaired_reservations(1), [ReservationId(2)]);
    assert_eq!(kept.show(2, 1).impaired[0].link, "n-e");
    assert_eq!(kept.show(2, 1).state.life, LifeState::Created);
    // Once there is room, it moves too.
    let cancel = ReservationCommand::Cancel {
        id: ReservationId(1),
        series: false,
    };
    kept.act(&operator(), &cancel, 2).unwrap();
    assert_eq!(kept.reroute(3), [2]);
    assert!(kept.show(2, 3).impaired.is_empty());
    kept.replayed();
}

#[test]
fn newest_reservations_leave_a_link_that_shrank() {
    let mut kept = Kept::new(&map(10e9));
    for _ in 0..3 {
        kept.reserve_rate(1_000_000_000);
    }
    // Half of 4 Gbit/s may be reserved: two stay.
    kept.take(&live(&[("w-n", true, 4e9)]));
    assert_eq!(kept.desk.impaired_reservations(1).len(), 3);
    assert_eq!(kept.reroute(1), [3]);
    assert!(kept.desk.impaired_reservations(1).is_empty());
    kept.replayed();
}

#[test]
fn held_and_ended_reservations_do_not_move() {
    let mut kept = Kept::new(&map(10e9));
    let mut held = request(rate(1_000_000), HOUR);
    held.hold = true;
    kept.reserve(&operator(), &held, &[WINDOW], 0).unwrap();
    kept.reserve_rate(1_000_000);
    let cancel = ReservationCommand::Cancel {
        id: ReservationId(2),
        series: false,
    };
    kept.act(&operator(), &cancel, 1).unwrap();
    kept.take(&live(&[("n-e", false, 10e9)]));
    assert!(kept.desk.impaired_reservations(1).is_empty());
    // Unknown, held and ended ones, as the book may have changed meanwhile.
    let all = ReservationCommand::Reroute([0, 1, 2].map(ReservationId).to_vec());
    assert!(kept.act(&operator(), &all, 1).unwrap().is_empty());
    kept.replayed();
}

#[test]
fn rest_of_a_volume_moves() {
    let mut kept = Kept::new(&map(10e9));
    // 900 GB at 5 Gbit/s take 24 min.
    let volume = Wish::Volume {
        bytes: 900_000_000_000,
        at_most_bps: None,
        pace: longhaul_control_api::reservations::Pace::Early,
    };
    kept.reserve(
        &operator(),
        &request(volume, 4 * HOUR),
        &[Window::new(0, 4 * HOUR)],
        0,
    )
    .unwrap();
    let before = kept.show(1, 0);
    let carried = |pieces: &[longhaul_control_api::reservations::Piece], until: u64| -> u64 {
        let pieces = pieces.iter().map(|piece| {
            let length = piece.end_ms.min(until).saturating_sub(piece.start_ms);
            let rates = piece.paths.iter().map(|path| path.rate_bps);
            rates.sum::<u64>() / 8 * length / 1_000
        });
        pieces.sum()
    };
    let now = HOUR / 10;
    kept.take(&live(&[("n-e", false, 10e9)]));
    assert_eq!(kept.reroute(now), [1]);
    let after = kept.show(1, now);
    assert!(after.impaired.is_empty());
    let now = u64::try_from(now).unwrap();
    assert_eq!(carried(&after.pieces, now), carried(&before.pieces, now));
    let all = carried(&after.pieces, u64::MAX);
    assert!((900_000_000_000..901_000_000_000).contains(&all), "{all}");
    kept.replayed();
}

#[test]
fn failed_path_has_no_circuit_until_its_link_is_back() {
    let (mut kept, command) = managed();
    kept.act(&operator(), &command, 0).unwrap();
    let circuit = |kept: &Kept| {
        let (detail, reservation) = kept.desk.reservation(ReservationId(1)).unwrap();
        plan::circuit(&kept.desk, ReservationId(1), detail, reservation)
    };
    let whole = circuit(&kept).unwrap();
    // No other path works either.
    kept.take(&live(&[("n-e", false, 10e9), ("s-e", false, 4e9)]));
    assert!(kept.reroute(1).is_empty());
    assert_eq!(circuit(&kept), Err(CircuitError::Down("n-e".to_owned())));
    kept.take(&live(&[("n-e", true, 10e9), ("s-e", false, 4e9)]));
    assert_eq!(circuit(&kept), Ok(whole));
    kept.replayed();
}
