//! Tests of the planner in virtual time, with random behaviour of copy, network and controller.

use std::time::Duration;

use proptest::prelude::*;

use super::bounds::JOIN_DELAY_MS;
use super::*;
use crate::promise::{LEAVE_BEFORE_END_MS, PromisedPiece, used_until};

const BEGUN: UnixMillis = 1_800_000_000_000;
const HOUR_MS: UnixMillis = 3_600_000;
const TICK_MS: UnixMillis = 1_000;
const MBIT: f64 = 1e6;

fn rates(p50: f64) -> Option<Rates> {
    Some(Rates {
        p10: p50 * 0.8,
        p50,
        p90: p50 * 1.25,
    })
}

fn look(left: u64, forecast: Option<Rates>) -> PlannerEvent {
    PlannerEvent::Look(ProgressSample {
        left,
        is_all: true,
        forecast,
        measured: None,
    })
}

fn auto(deadline: UnixMillis) -> Planner {
    Planner::new(BEGUN, Some(deadline), ReservationMode::Auto)
}

/// Returns the grant for a request: one path, at one rate from now to the end.
fn granted(now: UnixMillis, ask: BandwidthRequest) -> Vec<PromisedPiece> {
    let (bps, end) = match ask {
        BandwidthRequest::Volume { bytes, by } => (
            bytes as f64 * BITS / ((by - now) as f64 / 1000.0).max(0.001),
            by,
        ),
        BandwidthRequest::Rate { bps, until } => (bps, until),
    };
    vec![PromisedPiece {
        start: now,
        end,
        paths: vec![(PathId(1), bps)],
    }]
}

const BITS: f64 = 8.0;
/// 100 Mbit/s for an hour, in bytes.
const HOUR_BYTES: u64 = 45_000_000_000;

#[test]
fn nothing_is_reserved_if_best_effort_suffices() {
    let mut planner = auto(BEGUN + HOUR_MS);
    assert_eq!(
        planner.handle_event(BEGUN, look(HOUR_BYTES / 2, rates(100.0 * MBIT))),
        []
    );
    assert_eq!(planner.reason(), PlanReason::BestEffort);
    assert!(planner.is_settled());
}

#[test]
fn shortfall_is_held_committed_and_returned() {
    let mut planner = auto(BEGUN + HOUR_MS);
    let actions = planner.handle_event(BEGUN, look(2 * HOUR_BYTES, rates(100.0 * MBIT)));
    let [PlannerAction::Reserve(ask @ BandwidthRequest::Volume { bytes, by })] = actions[..] else {
        panic!("{actions:?}")
    };
    let aim = BEGUN + HOUR_MS * 95 / 100;
    assert_eq!(by, aim + LEAVE_BEFORE_END_MS);
    let pieces = granted(BEGUN, ask);
    // The total with headroom, less the p10 volume of 57 minutes, scaled up for the time before the
    // path joins and after it is left.
    let expected = 2.0 * HOUR_BYTES as f64 * HEADROOM - 0.8 * 0.95 * HOUR_BYTES as f64;
    let promise = Promise {
        pieces: pieces.clone(),
    };
    let goes = promise.usable_bytes(BEGUN + JOIN_DELAY_MS, aim, &BTreeSet::new());
    assert!((goes - expected).abs() < 1e6, "{bytes} {goes} {expected}");
    assert_eq!(
        planner.handle_event(BEGUN + 1, PlannerEvent::Held(pieces)),
        [PlannerAction::Commit]
    );
    assert_eq!(planner.handle_event(BEGUN + 2, PlannerEvent::Committed), []);
    assert_eq!(planner.reason(), PlanReason::Reserved);
    assert_eq!(
        planner.handle_event(BEGUN + 60_000, PlannerEvent::Over),
        [PlannerAction::Release]
    );
    assert_eq!(
        planner.handle_event(BEGUN + 60_001, PlannerEvent::Returned),
        []
    );
    assert!(planner.is_settled());
    let account = planner.account();
    assert!(account.returned < account.reserved && account.returned > 0.9 * account.reserved);
}

#[test]
fn hold_of_a_finished_copy_is_aborted() {
    let mut planner = auto(BEGUN + HOUR_MS);
    let actions = planner.handle_event(BEGUN, look(2 * HOUR_BYTES, rates(100.0 * MBIT)));
    let [PlannerAction::Reserve(ask)] = actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(planner.handle_event(BEGUN + 1, PlannerEvent::Over), []);
    assert!(!planner.is_settled());
    assert_eq!(
        planner.handle_event(BEGUN + 2, PlannerEvent::Held(granted(BEGUN, ask))),
        [PlannerAction::Abort]
    );
    assert_eq!(planner.handle_event(BEGUN + 3, PlannerEvent::Returned), []);
    assert!(planner.is_settled());
}

#[test]
fn refusal_is_reported_with_counter_offers() {
    let mut planner = auto(BEGUN + HOUR_MS);
    planner.handle_event(BEGUN, look(2 * HOUR_BYTES, rates(100.0 * MBIT)));
    let refusal = RefusalOffers {
        volume: Some(HOUR_BYTES / 10),
        later: Some(BEGUN + 2 * HOUR_MS),
    };
    let actions = planner.handle_event(BEGUN + 1, PlannerEvent::Refused(refusal));
    let [PlannerAction::Warn(outlook)] = actions[..] else {
        panic!("{actions:?}")
    };
    assert!(outlook.is_missed);
    assert_eq!(outlook.instead, refusal);
    assert_eq!(outlook.expected_end, Some(BEGUN + 1 + 2 * HOUR_MS));
    assert_eq!(planner.reason(), PlanReason::InsufficientBandwidth);
}

#[test]
fn smaller_volume_is_accepted_if_it_suffices() {
    let mut planner = auto(BEGUN + HOUR_MS);
    planner.handle_event(BEGUN, look(HOUR_BYTES, rates(100.0 * MBIT)));
    let refusal = RefusalOffers {
        volume: Some(HOUR_BYTES / 4),
        later: None,
    };
    let actions = planner.handle_event(BEGUN + 1, PlannerEvent::Refused(refusal));
    let [PlannerAction::Reserve(BandwidthRequest::Volume { bytes, .. })] = actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(bytes, HOUR_BYTES / 4);
}

#[test]
fn failed_path_changes_spare_bandwidth_is_returned() {
    let mut planner = auto(BEGUN + HOUR_MS);
    let actions = planner.handle_event(BEGUN, look(2 * HOUR_BYTES, rates(100.0 * MBIT)));
    let [PlannerAction::Reserve(ask)] = actions[..] else {
        panic!("{actions:?}")
    };
    planner.handle_event(BEGUN, PlannerEvent::Held(granted(BEGUN, ask)));
    planner.handle_event(BEGUN, PlannerEvent::Committed);
    planner.handle_event(
        BEGUN + 60_000,
        PlannerEvent::Path {
            path: PathId(1),
            works: false,
        },
    );
    let mut changed = None;
    for second in 60..90 {
        let now = BEGUN + second * 1000;
        for action in planner.handle_event(
            now,
            look(2 * HOUR_BYTES - HOUR_BYTES / 60, rates(100.0 * MBIT)),
        ) {
            changed = changed.or(Some((second, action)));
        }
    }
    let Some((second, PlannerAction::Change(ask))) = changed else {
        panic!("{changed:?}")
    };
    assert!((65..75).contains(&second), "{second}");
    let now = BEGUN + 90_000;
    planner.handle_event(now, PlannerEvent::Held(granted(now, ask)));
    planner.handle_event(now, PlannerEvent::Committed);
    // The forecast turns out far better: all is returned, once that has lasted.
    let mut returned = None;
    for second in 90..200 {
        let now = BEGUN + second * 1000;
        for action in planner.handle_event(now, look(HOUR_BYTES, rates(1000.0 * MBIT))) {
            returned = returned.or(Some((second, action)));
        }
    }
    assert_eq!(returned, Some((120, PlannerAction::Release)));
}

#[test]
fn lost_reservation_is_requested_again() {
    let mut planner = auto(BEGUN + HOUR_MS);
    let two_hours = || look(2 * HOUR_BYTES, rates(100.0 * MBIT));
    let actions = planner.handle_event(BEGUN, two_hours());
    let [PlannerAction::Reserve(ask)] = actions[..] else {
        panic!("{actions:?}")
    };
    planner.handle_event(BEGUN, PlannerEvent::Held(granted(BEGUN, ask)));
    planner.handle_event(BEGUN, PlannerEvent::Committed);
    assert_eq!(planner.handle_event(BEGUN + 1000, PlannerEvent::Lost), []);
    assert!(planner.is_settled() && planner.account().reserved < 2.0 * HOUR_BYTES as f64 / 100.0);
    assert_eq!(
        planner.handle_event(BEGUN + 2000, two_hours()),
        [],
        "not before the pause is over"
    );
    assert!(matches!(
        planner.handle_event(BEGUN + 5000, two_hours())[..],
        [PlannerAction::Reserve(_)]
    ));
}

#[test]
fn unlikely_deadline_warns_beyond_p90_is_missed() {
    for (bytes, said) in [
        (HOUR_BYTES * 9 / 10, None),
        (HOUR_BYTES * 11 / 10, Some(false)),
        (HOUR_BYTES * 13 / 10, Some(true)),
    ] {
        let mut planner = Planner::new(BEGUN, Some(BEGUN + HOUR_MS), ReservationMode::Never);
        let actions = planner.handle_event(BEGUN, look(bytes, rates(100.0 * MBIT)));
        let found = match actions[..] {
            [] => None,
            [PlannerAction::Warn(outlook)] => Some(outlook.is_missed),
            _ => panic!("{actions:?}"),
        };
        assert_eq!(found, said, "{bytes}");
    }
}

#[test]
fn second_warning_when_the_deadline_is_missed() {
    let mut planner = Planner::new(BEGUN, Some(BEGUN + HOUR_MS), ReservationMode::Never);
    let mut said = Vec::new();
    // As the forecast falls, the deadline first becomes unlikely, then impossible.
    for (second, mbit) in [100.0, 60.0, 100.0, 60.0, 60.0, 60.0, 60.0, 60.0, 60.0]
        .into_iter()
        .enumerate()
    {
        let now = BEGUN + second as UnixMillis * 5 * TICK_MS;
        for action in planner.handle_event(now, look(HOUR_BYTES * 11 / 10, rates(mbit * MBIT))) {
            let PlannerAction::Warn(outlook) = action else {
                panic!("{action:?}")
            };
            said.push((second, outlook.is_missed));
        }
    }
    assert!(matches!(said[..], [(0, false), (1.., true)]), "{said:?}");
}

#[test]
fn mode_never_requests_nothing_but_reports() {
    let mut planner = Planner::new(BEGUN, Some(BEGUN + HOUR_MS), ReservationMode::Never);
    let actions = planner.handle_event(BEGUN, look(2 * HOUR_BYTES, rates(100.0 * MBIT)));
    assert!(
        matches!(actions[..], [PlannerAction::Warn(outlook)] if outlook.is_missed),
        "{actions:?}"
    );
    assert_eq!(
        planner.handle_event(BEGUN + 1000, look(2 * HOUR_BYTES, rates(100.0 * MBIT))),
        []
    );
}

#[test]
fn forbidding_controller_is_asked_once() {
    let mut planner = auto(BEGUN + HOUR_MS);
    let two_hours = || look(2 * HOUR_BYTES, rates(100.0 * MBIT));
    assert!(matches!(
        planner.handle_event(BEGUN, two_hours())[..],
        [PlannerAction::Reserve(_)]
    ));
    assert_eq!(
        planner.handle_event(BEGUN + 1, PlannerEvent::Failed { is_passing: false }),
        []
    );
    let mut actions = Vec::new();
    for second in 1..1000 {
        actions.extend(planner.handle_event(BEGUN + second * 1000, two_hours()));
    }
    assert!(
        matches!(actions[..], [PlannerAction::Warn(_)]),
        "{actions:?}"
    );
    assert_eq!(planner.reason(), PlanReason::Unable);
}

#[test]
fn fixed_rate_is_reserved_and_extended() {
    let bps = 100.0 * MBIT;
    let mut planner = Planner::new(BEGUN, None, ReservationMode::Rate(bps));
    let actions = planner.handle_event(BEGUN, look(HOUR_BYTES, None));
    let [PlannerAction::Reserve(ask @ BandwidthRequest::Rate { until, .. })] = actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(until, BEGUN + HOUR_MS * 105 / 100);
    assert_eq!(
        planner.handle_event(BEGUN, PlannerEvent::Held(granted(BEGUN, ask))),
        [PlannerAction::Commit]
    );
    planner.handle_event(BEGUN, PlannerEvent::Committed);
    assert_eq!(
        planner.handle_event(BEGUN + HOUR_MS / 2, look(HOUR_BYTES / 2, None)),
        []
    );
    let late = until - EXTEND_BEFORE_MS;
    let actions = planner.handle_event(late, look(1, None));
    assert!(
        matches!(
            actions[..],
            [PlannerAction::Change(BandwidthRequest::Rate { until, .. })]
                if until == late + MIN_RATE_WINDOW_MS
        ),
        "{actions:?}"
    );
}

/// Random inputs for one second of a copy.
#[derive(Debug, Clone, Copy)]
struct Second {
    /// Best-effort rate, in Mbit/s.
    best_effort: f64,
    /// Answer of the controller: grants, grants half, refuses, is silent, forbids.
    answer: u8,
    /// Event of the path: it fails, or recovers.
    path: u8,
    /// Bytes that the directory walk finds.
    found: u64,
}

fn second() -> impl Strategy<Value = Second> {
    (1.0..500.0_f64, 0..20_u8, 0..20_u8, 0..10_000_000_u64).prop_map(
        |(best_effort, answer, path, found)| Second {
            best_effort,
            answer,
            path,
            found,
        },
    )
}

/// Returns true if there was at most one report that the deadline may be missed, followed by at
/// most one that it cannot be met.
fn is_said_once(warned: &[bool]) -> bool {
    matches!(warned, [] | [_] | [false, true])
}

/// Result of a run.
#[derive(Debug, Default)]
struct Run {
    asked: Vec<UnixMillis>,
    /// Reports; true if the deadline cannot be met.
    warned: Vec<bool>,
    /// Duration in milliseconds; `None` if the run was given up.
    took: Option<UnixMillis>,
}

/// Simulated controller and network. Requests are answered within the second, in order. An answer
/// without a request fails the test.
struct World {
    planner: Planner,
    pending: Vec<PlannerAction>,
    held: Option<Vec<PromisedPiece>>,
    in_force: Option<Promise>,
    /// Time since when the promise is in force.
    since: UnixMillis,
    works: bool,
    run: Run,
    /// Capacity of the link that best effort shares with reservations, in Mbit/s; `None` if they
    /// use different links.
    shared: Option<f64>,
}

impl World {
    fn new(deadline: Option<UnixMillis>, mode: ReservationMode) -> Self {
        Self {
            planner: Planner::new(BEGUN, deadline, mode),
            pending: Vec::new(),
            held: None,
            in_force: None,
            since: BEGUN,
            works: true,
            run: Run::default(),
            shared: None,
        }
    }

    fn report(&mut self, now: UnixMillis, event: PlannerEvent) {
        let actions = self.planner.handle_event(now, event);
        self.pending.extend(actions);
    }

    fn answer(&mut self, now: UnixMillis, answer: u8) {
        while let Some(action) = self.pending.pop() {
            let event = match action {
                PlannerAction::Warn(outlook) => {
                    self.run.warned.push(outlook.is_missed);
                    continue;
                }
                PlannerAction::Reserve(ask) | PlannerAction::Change(ask) => {
                    assert!(self.held.is_none(), "one request at a time");
                    assert_eq!(
                        matches!(action, PlannerAction::Change(_)),
                        self.in_force.is_some(),
                        "what is changed is there"
                    );
                    self.run.asked.push(now);
                    match answer {
                        0..10 => {
                            let pieces = granted(now, ask);
                            self.held = Some(pieces.clone());
                            PlannerEvent::Held(pieces)
                        }
                        10..15 => PlannerEvent::Refused(RefusalOffers {
                            volume: Some(u64::from(answer) * 100_000_000),
                            later: Some(now + HOUR_MS),
                        }),
                        15..19 => PlannerEvent::Failed { is_passing: true },
                        _ => PlannerEvent::Failed { is_passing: false },
                    }
                }
                PlannerAction::Commit => {
                    let pieces = self.held.take().expect("what is committed is held");
                    match answer % 5 {
                        4 => PlannerEvent::Failed { is_passing: true },
                        _ => {
                            self.in_force = Some(Promise { pieces });
                            self.since = now;
                            PlannerEvent::Committed
                        }
                    }
                }
                PlannerAction::Abort => {
                    self.held = None;
                    PlannerEvent::Returned
                }
                PlannerAction::Release => {
                    assert!(
                        self.in_force.take().is_some(),
                        "what is returned is promised"
                    );
                    PlannerEvent::Returned
                }
            };
            self.report(now, event);
        }
    }

    fn carries(&self, now: UnixMillis) -> f64 {
        let has_joined = self.works && now >= self.since + JOIN_DELAY_MS;
        let pieces = self
            .in_force
            .iter()
            .filter(|_| has_joined)
            .flat_map(|promise| &promise.pieces);
        let used =
            pieces.filter(|piece| (piece.start..used_until(piece.start, piece.end)).contains(&now));
        used.flat_map(|piece| &piece.paths)
            .map(|(_, bps)| bps)
            .sum()
    }

    /// Returns the best-effort rate, in bit/s, if it would be `alone` Mbit/s without a reservation.
    /// Other traffic leaves the same share of what is not reserved.
    fn best_effort(&self, now: UnixMillis, alone: f64) -> f64 {
        let part = self
            .shared
            .map_or(1.0, |shared| 1.0 - self.carries(now) / (shared * MBIT));
        alone * MBIT * part.max(0.0)
    }
}

fn run(
    deadline: Option<UnixMillis>,
    mode: ReservationMode,
    total: u64,
    forecast: Option<Rates>,
    seconds: &[Second],
) -> (World, Run) {
    run_in(World::new(deadline, mode), total, forecast, seconds)
}

fn run_in(
    mut world: World,
    total: u64,
    forecast: Option<Rates>,
    seconds: &[Second],
) -> (World, Run) {
    let (mut left, mut now) = (total as f64, BEGUN);
    let mut over = Duration::ZERO;
    let mut beside = 0.0;
    for (number, second) in seconds.iter().enumerate() {
        let is_all = number > 5;
        if !is_all {
            left += second.found as f64;
        }
        let carries = world.carries(now);
        if carries != beside {
            (beside, over) = (carries, Duration::ZERO);
        }
        let measured = (!over.is_zero()).then_some(RateMeasurement {
            bps: world.best_effort(now, second.best_effort),
            over,
        });
        let event = PlannerEvent::Look(ProgressSample {
            left: left as u64,
            is_all,
            forecast,
            measured,
        });
        world.report(now, event);
        world.answer(now, second.answer);
        if second.path == 2 && world.in_force.take().is_some() {
            world.report(now, PlannerEvent::Lost);
        }
        if second.path < 2 && world.in_force.is_some() {
            world.works = second.path == 1;
            let event = PlannerEvent::Path {
                path: PathId(1),
                works: world.works,
            };
            world.report(now, event);
        }
        let bps = world.best_effort(now, second.best_effort) + world.carries(now);
        left -= bps / BITS * (TICK_MS as f64 / 1000.0);
        now += TICK_MS;
        over += Duration::from_millis(TICK_MS);
        if left <= 0.0 && is_all {
            world.run.took = Some(now - BEGUN);
            break;
        }
    }
    world.report(now, PlannerEvent::Over);
    world.answer(now, 0);
    assert!(
        world.planner.is_settled(),
        "nothing is left: {:?}",
        world.planner
    );
    assert!(world.held.is_none() && world.in_force.is_none());
    let run = std::mem::take(&mut world.run);
    (world, run)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn requests_are_bounded_and_all_is_returned(
        seconds in prop::collection::vec(second(), 20..600),
        total in 1..40_000_000_000_u64,
        minutes in 1..30_u64,
        forecast in prop::option::of(1.0..1000.0_f64),
    ) {
        let deadline = BEGUN + minutes * 60_000;
        let (world, run) = run(
            Some(deadline),
            ReservationMode::Auto,
            total,
            forecast.and_then(|mbit| rates(mbit * MBIT)),
            &seconds
        );
        prop_assert!(run.asked.len() <= MAX_REQUESTS as usize);
        prop_assert!(is_said_once(&run.warned), "{:?}", run.warned);
        // Only a counter-offer is requested without a pause.
        let pairs = run
            .asked
            .windows(3)
            .filter(|three| three[2] - three[0] < FIRST_PAUSE_MS)
            .count();
        prop_assert_eq!(pairs, 0, "{:?}", run.asked);
        let account = world.planner.account();
        prop_assert!(account.returned <= account.reserved * (1.0 + 1e-9) + 1.0);
    }

    #[test]
    fn sufficient_worst_case_requests_nothing(
        rate in 10.0..500.0_f64, part in 0.01..0.7_f64, minutes in 1..20_u64,
    ) {
        let deadline = BEGUN + minutes * 60_000;
        let total = (rate * MBIT / BITS * (minutes * 60) as f64 * part) as u64;
        let steady = Second { best_effort: rate, answer: 0, path: 5, found: 0 };
        let seconds = vec![steady; (minutes * 60) as usize];
        let rates = rates(rate * MBIT);
        let (_, run) = run(Some(deadline), ReservationMode::Auto, total, rates, &seconds);
        prop_assert!(run.asked.is_empty() && run.warned.is_empty());
        prop_assert!(run.took.is_some_and(|took| took <= minutes * 60_000));
    }

    #[test]
    fn deadline_is_met_if_bandwidth_is_available(
        rate in 1.0..100.0_f64,
        times in 1.5..50.0_f64,
        long in 30..1200_u64,
        is_forecast in any::<bool>(),
    ) {
        let deadline = BEGUN + long * 1000;
        let total = (rate * MBIT / BITS * long as f64 * times) as u64;
        let steady = Second { best_effort: rate, answer: 0, path: 5, found: 0 };
        let seconds = vec![steady; (long + 60) as usize];
        let forecast = if is_forecast { rates(rate * MBIT) } else { None };
        let (world, run) = run(Some(deadline), ReservationMode::Auto, total, forecast, &seconds);
        prop_assert!(run.took.is_some_and(|took| took <= long * 1000), "{:?}", run);
        prop_assert!(run.asked.len() <= 3, "{:?}", run.asked);
        prop_assert!(run.warned.is_empty());
        // Little more was promised than was needed.
        prop_assert!(world.planner.account().reserved <= total as f64 * 1.2);
    }

    #[test]
    fn best_effort_lost_to_reservations_is_reserved(
        part in 0.05..0.5_f64,
        wanted in 0.6..0.85_f64,
        minutes in 3..20_u64,
        is_forecast in any::<bool>(),
    ) {
        let (shared, deadline) = (100.0, BEGUN + minutes * 60_000);
        let alone = shared * part;
        let total = (shared * wanted * MBIT / BITS * (minutes * 60) as f64) as u64;
        let steady = Second { best_effort: alone, answer: 0, path: 5, found: 0 };
        let seconds = vec![steady; (minutes * 60 + 60) as usize];
        let forecast = if is_forecast { rates(alone * MBIT) } else { None };
        let mut world = World::new(Some(deadline), ReservationMode::Auto);
        world.shared = Some(shared);
        let (world, run) = run_in(world, total, forecast, &seconds);
        prop_assert!(run.took.is_some_and(|took| took <= minutes * 60_000), "{:?}", run);
        prop_assert!(run.asked.len() <= 6, "{:?}", run.asked);
        prop_assert!(world.planner.account().reserved <= total as f64 * 1.2);
    }

    #[test]
    fn mode_never_reserves_nothing(
        seconds in prop::collection::vec(second(), 20..200),
        total in 1..40_000_000_000_u64,
    ) {
        let (_, run) = run(Some(BEGUN + 60_000), ReservationMode::Never, total, None, &seconds);
        prop_assert!(run.asked.is_empty() && is_said_once(&run.warned));
    }

    #[test]
    fn clock_steps_and_any_numbers_are_tolerated(
        looks in prop::collection::vec(
            (any::<u64>(), any::<u64>(), any::<f64>(), any::<bool>()),
            1..50
        ),
        deadline in any::<u64>(), rate in any::<f64>(), is_rate in any::<bool>(),
    ) {
        let mode = if is_rate { ReservationMode::Rate(rate) } else { ReservationMode::Auto };
        let mut planner = Planner::new(BEGUN, Some(deadline), mode);
        for (now, left, bps, is_all) in looks {
            let measured = Some(RateMeasurement { bps, over: Duration::from_secs(left % 1000) });
            for action in planner.handle_event(
                now,
                PlannerEvent::Look(ProgressSample { left, is_all, forecast: rates(bps), measured })
            ) {
                if let PlannerAction::Reserve(_) = action {
                    let pieces = vec![
                        PromisedPiece { start: now, end: left, paths: vec![(PathId(1), bps)] }
                    ];
                    planner.handle_event(now, PlannerEvent::Held(pieces));
                    planner.handle_event(now, PlannerEvent::Committed);
                }
            }
        }
        planner.handle_event(0, PlannerEvent::Over);
    }
}
