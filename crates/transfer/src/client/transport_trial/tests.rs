//! Trials in virtual time beside transports that are better, slower, late, blocked or policed.

use proptest::prelude::*;

use super::*;

const RTT: Duration = Duration::from_millis(60);
const OBSERVE_INTERVAL: Duration = Duration::from_millis(25);

/// A simulated transport: its total rate in bytes per second by the time since it opened, or `None`
/// while it is not open, and whether attempts fail permanently.
struct SimulatedTransport {
    opens_at: Option<Duration>,
    rate: fn(Duration) -> f64,
    /// What the path carries in all, in bytes per second: this transport yields to TCP.
    capacity: f64,
    is_gone: bool,
}

/// Outcome of a simulated copy: the changes, and the bytes that each transport moved.
struct Outcome {
    changes: Vec<(Duration, RouteStanding)>,
    trial: TransportTrial,
}

/// Runs a trial for `length`. Each of TCP's 16 streams carries `tcp` bytes per second.
fn run(length: Duration, tcp: fn(Duration) -> f64, other: &SimulatedTransport) -> Outcome {
    let mut trial = TransportTrial::default();
    let mut changes = Vec::new();
    let (mut tcp_bytes, mut other_bytes) = (0.0, 0.0);
    let mut now = Duration::ZERO;
    while now < length {
        let streams = if trial.is_preferred() { 1 } else { 16 };
        let tcp_rate = streams as f64 * tcp(now);
        tcp_bytes += tcp_rate * OBSERVE_INTERVAL.as_secs_f64();
        let open_for = other.opens_at.and_then(|at| now.checked_sub(at));
        let is_open = open_for.is_some() && trial.is_used();
        if let Some(open_for) = open_for.filter(|_| is_open) {
            let rate = (other.rate)(open_for).min(other.capacity - tcp_rate);
            other_bytes += rate * OBSERVE_INTERVAL.as_secs_f64();
        }
        now += OBSERVE_INTERVAL;
        let look = |open: usize, moved: f64, gone: bool| RouteObservation {
            tried: true,
            opened: open > 0,
            open,
            moved: moved as u64,
            busy: true,
            gone,
        };
        let verdict = trial.observe(
            now,
            RTT,
            &look(streams, tcp_bytes, false),
            &look(usize::from(is_open) * 2, other_bytes, other.is_gone),
        );
        changes.extend(verdict.map(|(standing, _)| (now, standing)));
    }
    Outcome { changes, trial }
}

fn standings(outcome: &Outcome) -> Vec<RouteStanding> {
    outcome
        .changes
        .iter()
        .map(|(_, standing)| *standing)
        .collect()
}

/// Returns a rate that doubles with each round trip from 1 MB/s to 100 MB/s.
fn start_up(open_for: Duration) -> f64 {
    let rtts = open_for.as_secs_f64() / RTT.as_secs_f64();
    (1e6 * rtts.exp2()).min(100e6)
}

/// The send buffer takes 32 MB at once.
#[test]
fn buffered_bytes_are_not_mistaken_for_a_rate() {
    let policed = |open_for: Duration| match open_for.as_millis() {
        0..80 => 400e6,
        _ => 2.5e6,
    };
    let outcome = run(SECONDS_30, |_| 1e6, &opening_after(2, policed));
    assert_eq!(standings(&outcome), [RouteStanding::Slower]);
}

fn opening_after(rtts: u32, rate: fn(Duration) -> f64) -> SimulatedTransport {
    SimulatedTransport {
        opens_at: Some(RTT * rtts),
        rate,
        capacity: f64::INFINITY,
        is_gone: false,
    }
}

const SECONDS_30: Duration = Duration::from_secs(30);

#[test]
fn better_transport_is_preferred_as_soon_as_it_carries_more() {
    let outcome = run(SECONDS_30, |_| 1e6, &opening_after(2, start_up));
    assert_eq!(standings(&outcome), [RouteStanding::Better]);
    // It passes 16 MB/s four round trips after it opens, and a span must end.
    let (at, _) = outcome.changes[0];
    assert!(at < RTT * 12, "{at:?}");
    assert!(outcome.trial.is_preferred());
}

#[test]
fn slower_transport_is_rejected_after_its_start_up() {
    let other = opening_after(2, |open_for| start_up(open_for).min(10e6));
    let outcome = run(SECONDS_30, |_| 1e6, &other);
    assert_eq!(standings(&outcome), [RouteStanding::Slower]);
    assert!(!outcome.trial.is_used());
}

/// TCP is limited by random losses, and the other transport takes only what it leaves.
#[test]
fn transport_that_yields_is_tried_alone() {
    for capacity in [90e6, 119e6] {
        let other = SimulatedTransport {
            capacity,
            ..opening_after(2, start_up)
        };
        let outcome = run(SECONDS_30, |_| 3.9e6, &other);
        assert_eq!(standings(&outcome), [RouteStanding::Better]);
        let (at, _) = outcome.changes[0];
        assert!(at < Duration::from_secs(3), "{at:?}");
    }
}

/// Streams that are no longer used deliver for a while what they had taken.
#[test]
fn draining_streams_are_not_compared() {
    let (second, each) = (Duration::from_secs(1), 3e6);
    let look = |moved: f64, open| RouteObservation {
        tried: true,
        opened: true,
        open,
        moved: moved as u64,
        busy: true,
        gone: false,
    };
    let mut trial = TransportTrial::default();
    let (mut now, mut tcp, mut other) = (Duration::ZERO, 0.0, 0.0);
    let mut changes = Vec::new();
    while now < 4 * second {
        let is_draining = now < 2 * second;
        let streams = if is_draining { 16.0 } else { 1.0 };
        tcp += streams * each * OBSERVE_INTERVAL.as_secs_f64();
        let rate = if is_draining { 50e6 } else { 100e6 };
        other += rate * OBSERVE_INTERVAL.as_secs_f64();
        now += OBSERVE_INTERVAL;
        let verdict = trial.observe(now, RTT, &look(tcp, 16), &look(other, 2));
        changes.extend(verdict.map(|(standing, _)| standing));
        if trial.is_preferred() && is_draining {
            // The rest of the path is TCP's meanwhile.
            other -= 30e6 * OBSERVE_INTERVAL.as_secs_f64();
        }
    }
    assert_eq!(changes, [RouteStanding::Better]);
}

/// In slow start, TCP fills the path until its first losses. The other transport gets the rest.
#[test]
fn transport_is_tried_again_once_tcp_is_slower() {
    let tcp = |now: Duration| match now.as_secs() {
        0..3 => 6e6,
        _ => 2e6,
    };
    let shared = |open_for: Duration| match open_for.as_secs() {
        0..3 => start_up(open_for).min(20e6),
        _ => start_up(open_for),
    };
    let outcome = run(SECONDS_30, tcp, &opening_after(2, shared));
    assert_eq!(
        standings(&outcome),
        [
            RouteStanding::Slower,
            RouteStanding::Joined,
            RouteStanding::Better
        ]
    );
    let (at, _) = outcome.changes[2];
    assert!(at < Duration::from_secs(6), "{at:?}");
}

#[test]
fn early_retries_are_limited() {
    // TCP slows down without end, and the other transport is always slower.
    let tcp = |now: Duration| 6e6 * 0.9_f64.powf(now.as_secs_f64());
    let slower = |open_for: Duration| 16.0 * 1e6 * 0.9_f64.powf(open_for.as_secs_f64());
    let outcome = run(SECONDS_30, tcp, &opening_after(2, slower));
    let retries = standings(&outcome)
        .iter()
        .filter(|standing| **standing == RouteStanding::Joined)
        .count();
    assert_eq!(retries, MAX_EARLY_RETRIES as usize);
}

#[test]
fn transport_that_never_opens_is_rejected_in_time() {
    let other = SimulatedTransport {
        opens_at: None,
        rate: |_| 0.0,
        capacity: f64::INFINITY,
        is_gone: false,
    };
    let outcome = run(SECONDS_30, |_| 1e6, &other);
    assert_eq!(standings(&outcome), [RouteStanding::Late]);
    assert!(outcome.changes[0].0 <= MAX_OPEN_TIME + 2 * OBSERVE_INTERVAL);
}

#[test]
fn refused_transport_is_never_tried_again() {
    let other = SimulatedTransport {
        opens_at: None,
        rate: |_| 0.0,
        capacity: f64::INFINITY,
        is_gone: true,
    };
    let outcome = run(Duration::from_secs(1000), |_| 1e6, &other);
    assert_eq!(standings(&outcome), [RouteStanding::Gone]);
}

#[test]
fn transport_policed_later_is_rejected_within_the_watch() {
    let policed = |open_for: Duration| match open_for.as_secs() {
        0..5 => start_up(open_for),
        _ => 2e6,
    };
    let outcome = run(SECONDS_30, |_| 1e6, &opening_after(2, policed));
    assert_eq!(
        standings(&outcome),
        [RouteStanding::Better, RouteStanding::Slower]
    );
    let (at, _) = outcome.changes[1];
    assert!(at < Duration::from_secs(5) + 4 * MIN_WATCH_TIME, "{at:?}");
}

#[test]
fn stalled_transport_is_rejected_while_tcp_moves() {
    let stalls = |open_for: Duration| match open_for.as_secs() {
        0..5 => start_up(open_for),
        _ => 0.0,
    };
    let outcome = run(SECONDS_30, |_| 1e6, &opening_after(2, stalls));
    assert_eq!(
        standings(&outcome),
        [RouteStanding::Better, RouteStanding::Stalled]
    );
}

/// A disk that stops slows both down, which says nothing about the transport.
#[test]
fn standstill_of_both_changes_nothing() {
    let stops = |open_for: Duration| match open_for.as_secs() {
        5..15 => 0.0,
        _ => start_up(open_for),
    };
    let tcp = |now: Duration| match now.as_secs() {
        5..16 => 0.0,
        _ => 1e6,
    };
    let outcome = run(SECONDS_30, tcp, &opening_after(2, stops));
    assert_eq!(standings(&outcome), [RouteStanding::Better]);
}

#[test]
fn rejected_transport_is_tried_again_after_growing_pauses() {
    let other = opening_after(2, |open_for| start_up(open_for).min(10e6));
    let outcome = run(Duration::from_secs(400), |_| 1e6, &other);
    let tried: Vec<u64> = outcome
        .changes
        .iter()
        .filter(|(_, standing)| *standing == RouteStanding::Joined)
        .map(|(at, _)| at.as_secs())
        .collect();
    assert_eq!(tried.len(), 2, "{tried:?}");
    assert!(tried[1] - tried[0] >= 120, "{tried:?}");
}

proptest! {
    /// Observations in any order and of any size neither panic nor leave TCP without streams while
    /// the other transport is not open.
    #[test]
    fn any_observations_are_accepted(
        looks in prop::collection::vec(
            (0_u64..5_000, 0_u64..1 << 40, 0_u64..1 << 40, 0_usize..3, any::<bool>(), any::<bool>()),
            1..200,
        ),
    ) {
        let mut trial = TransportTrial::default();
        let mut now = Duration::ZERO;
        let mut was_open = false;
        for (millis, tcp, other, open, busy, gone) in looks {
            now += Duration::from_millis(millis);
            was_open |= open > 0;
            let look = |moved, open| RouteObservation { open, moved, busy, gone, ..Default::default() };
            trial.observe(now, RTT, &look(tcp, 4), &look(other, open));
            prop_assert!(!trial.is_preferred() || was_open);
        }
    }
}

#[test]
fn unseen_losses_are_tried_against_in_copies_that_last() {
    let second = Duration::from_secs(1);
    assert!(!unseen_losses_are_worth_a_trial(second, 10, 1_000_000));
    assert!(unseen_losses_are_worth_a_trial(2 * second, 10, 25));
    assert!(!unseen_losses_are_worth_a_trial(2 * second, 10, 24));
    assert!(unseen_losses_are_worth_a_trial(60 * second, 0, 1));
    assert!(unseen_losses_are_worth_a_trial(
        Duration::MAX,
        u64::MAX,
        u64::MAX
    ));
}
