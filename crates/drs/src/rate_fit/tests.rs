//! Flows on a modelled path, in virtual time.

mod path;

use path::{CoDel, MSS, Path};
use proptest::prelude::*;

use super::*;

/// Returns each rate as a multiple of the even share.
fn shares(rates: &[f64]) -> Vec<f64> {
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    rates.iter().map(|rate| rate / mean).collect()
}

#[test]
fn left_to_itself_slow_start_overflows_the_queue() {
    let mut path = Path::of_the_record();
    path.flow(None);
    path.run(3.0);
    assert!(path.lost() > 0.0);
}

#[test]
fn the_record_path_is_filled_without_a_loss() {
    let mut path = Path::of_the_record();
    path.fitted(None);
    path.run(20.0);
    let rates = path.run(10.0);
    assert_eq!(path.lost(), 0.0);
    assert!(
        rates[0] > 0.98 * path.capacity,
        "{}",
        rates[0] / path.capacity
    );
}

#[test]
fn paths_of_other_sizes_are_filled_without_a_loss() {
    for (capacity, rtt, queue) in [(20e6, 0.1, 0.2), (120e6, 0.06, 0.3), (120e6, 0.3, 0.1)] {
        let mut path = Path::new(capacity, rtt, queue * capacity * rtt);
        path.fitted(None);
        path.run(50.0);
        let rates = path.run(10.0);
        assert_eq!(path.lost(), 0.0, "{capacity} {rtt} {queue}");
        assert!(rates[0] > 0.97 * capacity, "{capacity} {rtt}: {rates:?}");
    }
}

#[test]
fn a_sender_that_paces_is_not_taken_for_the_path() {
    let mut path = Path::of_the_record();
    path.queue_limit = f64::INFINITY;
    let flow = path.fitted(None);
    path.pace(flow);
    path.run(1.2);
    assert!(path.flows[flow].window < 0.4 * path.capacity * 0.18);
    assert_eq!(path.flows[flow].limit(), None, "its slope is its own");
}

#[test]
fn a_short_path_is_left_alone() {
    let mut path = Path::new(120e6, 0.002, 1e5);
    path.fitted(None);
    path.run(11.0);
    assert_eq!(path.flows[0].limit(), None);
}

#[test]
fn queue_of_others_releases_the_flow() {
    for jitter in [0.0, 0.001] {
        let mut path = Path::of_the_record();
        path.rtt_noise = jitter;
        path.fitted(None);
        path.run(10.0);
        assert!(path.flows[0].fitted_rate().is_some());
        path.foreign = path.queue_limit / 2.0;
        path.run(10.0);
        assert!(
            path.flows[0].fitted_rate().is_none() && path.flows[0].limit().is_none(),
            "{jitter}"
        );
    }
}

#[test]
fn a_path_that_narrows_is_followed() {
    let mut path = Path::of_the_record();
    path.fitted(None);
    path.run(20.0);
    path.capacity /= 2.0;
    path.queue_limit = f64::INFINITY;
    path.run(30.0);
    let share = path.flows[0].fitted_rate().unwrap() / path.capacity;
    assert!((0.9..1.05).contains(&share), "{share}");
}

#[test]
fn flows_that_start_together_share_the_path_without_a_loss() {
    for (count, jitter) in [(2, 0.0), (10, 0.0), (10, 0.001)] {
        let mut path = Path::of_the_record();
        path.rtt_noise = jitter;
        for _ in 0..count {
            path.fitted(None);
        }
        path.run(20.0);
        let rates = path.run(10.0);
        let sum: f64 = rates.iter().sum();
        assert_eq!(path.lost(), 0.0, "{count}");
        assert!(
            sum > 0.95 * path.capacity,
            "{count} {jitter}: {}",
            sum / path.capacity
        );
        assert!(
            shares(&rates)
                .iter()
                .all(|share| (0.8..1.25).contains(share)),
            "{count} {jitter}: {:?}",
            shares(&rates)
        );
    }
}

#[test]
fn a_flow_that_comes_gets_its_share_and_leaves_it_behind() {
    let mut path = Path::of_the_record();
    path.fitted(None);
    path.run(20.0);
    let second = path.fitted(None);
    path.run(10.0);
    let rates = path.run(10.0);
    assert_eq!(path.lost(), 0.0);
    assert!(
        rates.iter().sum::<f64>() > 0.95 * path.capacity,
        "{rates:?}"
    );
    assert!(
        shares(&rates)
            .iter()
            .all(|share| (0.8..1.25).contains(share)),
        "{rates:?}"
    );
    path.flows[second].is_gone = true;
    path.run(5.0);
    let rates = path.run(10.0);
    assert!(rates[0] > 0.95 * path.capacity, "{rates:?}");
    assert_eq!(path.lost(), 0.0);
}

#[test]
fn a_slow_program_is_not_taken_for_a_full_path() {
    let mut path = Path::of_the_record();
    let flow = path.fitted(None);
    path.flows[flow].source = Some(0.1 * path.capacity);
    path.run(20.0);
    assert!(
        path.flows[flow]
            .limit()
            .is_none_or(|limit| limit > 0.8 * path.capacity)
    );
    path.flows[flow].source = None;
    path.run(10.0);
    let rates = path.run(10.0);
    assert!(rates[0] > 0.9 * path.capacity, "{rates:?}");
}

#[test]
fn a_fitted_flow_keeps_its_rate_while_its_program_is_slow() {
    for (slow, wider) in [(3.0, 1.0), (20.0, 1.0), (20.0, 2.0)] {
        let mut path = Path::of_the_record();
        path.fitted(None);
        path.run(15.0);
        path.flows[0].source = Some(0.2 * path.capacity);
        path.run(slow);
        let limit = path.flows[0].limit().unwrap();
        assert!(limit > 0.95 * path.capacity, "{limit:?}");
        path.capacity *= wider;
        path.flows[0].source = None;
        path.run(if wider > 1.0 { 12.0 } else { 1.0 });
        let rates = path.run(3.0);
        assert!(rates[0] > 0.9 * path.capacity, "{slow} {wider}: {rates:?}");
        // If the rate was far too low, a large step may be more than a queue holds.
        assert!(path.lost() == 0.0 || wider > 1.0, "{slow} {wider}");
    }
}

#[test]
fn sibling_uses_share_of_slow_program_until_reclaimed() {
    let mut path = Path::of_the_record();
    let (slow, _) = (path.fitted(None), path.fitted(None));
    path.run(15.0);
    path.flows[slow].source = Some(0.1 * path.capacity);
    path.run(20.0);
    let rates = path.run(5.0);
    assert!(rates[1] > 0.8 * path.capacity, "{rates:?}");
    path.flows[slow].source = None;
    path.run(20.0);
    let rates = path.run(10.0);
    assert!(rates.iter().sum::<f64>() > 0.9 * path.capacity, "{rates:?}");
    assert!(
        shares(&rates)
            .iter()
            .all(|share| (0.6..1.6).contains(share)),
        "{rates:?}"
    );
}

#[test]
fn beside_a_stock_flow_it_gets_its_share() {
    let mut path = Path::new(120e6, 0.05, 0.5 * 120e6 * 0.05);
    let (fitted, _) = (path.fitted(None), path.flow(None));
    path.run(20.0);
    let rates = path.run(40.0);
    assert!(rates[fitted] > 0.25 * path.capacity, "{rates:?}");
}

#[test]
fn noise_is_not_taken_for_a_queue() {
    for jitter in [0.001, 0.005] {
        for (capacity, rtt) in [(298.3e6, 0.18), (120e6, 0.05)] {
            let mut path = Path::new(capacity, rtt, 0.5 * capacity * rtt);
            path.rtt_noise = jitter;
            path.fitted(None);
            path.run(20.0);
            let rates = path.run(20.0);
            assert!(
                path.flows[0].fitted_rate().is_some(),
                "released: {jitter} {rtt} {rates:?}"
            );
            assert!(
                rates[0] > 0.93 * capacity,
                "{jitter} {rtt}: {}",
                rates[0] / capacity
            );
        }
    }
}

/// Returns the share of the record's path that a Reno flow gets from the fifth second to the
/// thirtieth, and the lost segments.
fn on_the_record_path(seed: u64, noise: impl Fn(&mut Path)) -> (f64, f64) {
    let mut path = Path::of_the_record();
    path.seed(seed);
    noise(&mut path);
    let flow = path.fitted(None);
    path.flows[flow].is_reno = true;
    path.run(5.0);
    let rates = path.run(25.0);
    (rates[0] / path.capacity, path.lost() / MSS)
}

#[test]
fn jitter_in_order_leaves_the_record_path_filled() {
    for (jitter, least) in [(0.001, 0.93), (0.005, 0.6)] {
        let runs = (0..8).map(|seed| on_the_record_path(seed, |path| path.jitter = jitter));
        let runs: Vec<_> = runs.collect();
        let mean = runs.iter().map(|(share, _)| share).sum::<f64>() / runs.len() as f64;
        assert!(mean > least, "{jitter}: {mean} {runs:?}");
    }
}

#[test]
fn a_segment_that_is_overtaken_does_not_end_the_search() {
    for seed in 0..4 {
        let (share, lost) = on_the_record_path(seed, |path| path.reordering = 1e-3);
        assert!(share > 0.95 && lost == 0.0, "{seed}: {share} {lost}");
    }
}

#[test]
fn a_queue_of_its_own_is_short_enough_for_codel() {
    let (share, lost) = on_the_record_path(0, |path| path.codel = Some(CoDel::default()));
    assert!(share > 0.95 && lost < 3.0, "{share} {lost}");
}

#[test]
fn a_program_that_hesitates_does_not_hide_a_queue() {
    let mut path = Path::of_the_record();
    let flow = path.fitted(None);
    path.run(2.0);
    for _ in 0..300 {
        path.run(0.1);
        let now = path.now;
        path.flows[flow].hesitate(now);
    }
    assert_eq!(path.lost(), 0.0);
    let rates = path.run(5.0);
    assert!(rates[0] > 0.95 * path.capacity, "{rates:?}");
}

#[test]
fn segments_after_a_hole_count_as_delivered() {
    let info = crate::TcpInfo {
        send_mss: 1000,
        bytes_acked: Some(5000),
        sacked: 3,
        min_rtt: Some(Duration::from_millis(20)),
        bytes_not_sent: Some(0),
        delivery_rate: Some(1),
        delivery_rate_app_limited: Some(false),
        ..crate::TcpInfo::default()
    };
    let sample = FitSample::from_tcp_info(Duration::ZERO, &info, 0);
    assert_eq!(sample.map(|sample| sample.delivered), Some(8000));
}

#[test]
fn codel_has_nothing_to_drop() {
    let mut path = Path::new(120e6, 0.06, 0.5 * 120e6 * 0.06);
    path.codel = Some(CoDel::default());
    path.fitted(None);
    path.run(20.0);
    let before = path.lost();
    let rates = path.run(20.0);
    assert!(rates[0] > 0.95 * path.capacity, "{rates:?}");
    assert!(
        path.lost() - before <= 2.0 * MSS,
        "{}",
        path.lost() - before
    );
}

#[test]
fn a_ceiling_holds_before_and_after_the_path_is_known() {
    let mut path = Path::of_the_record();
    let ceiling = 0.5 * path.capacity;
    path.fitted(Some(ceiling as u64));
    path.run(10.0);
    let rates = path.run(5.0);
    assert!(
        rates[0] <= 1.01 * ceiling && rates[0] > 0.95 * ceiling,
        "{rates:?}"
    );
    assert_eq!(path.flows[0].fitted_rate(), None, "the path carries more");
    assert!(path.flows[0].limit().is_some_and(|limit| limit <= ceiling));
    let fit = path.flows[0].fit.as_mut().unwrap();
    assert_eq!(
        fit.release(),
        None,
        "the ceiling stays, and was all that held the flow"
    );
    assert_eq!(fit.set_ceiling(None), Some(PacingLimit::Unlimited));
}

#[test]
fn releasing_lifts_the_limit() {
    let mut path = Path::of_the_record();
    path.fitted(None);
    path.run(5.0);
    let fit = path.flows[0].fit.as_mut().unwrap();
    assert!(matches!(fit.state(), FitState::Fitted(_)));
    assert_eq!(fit.release(), Some(PacingLimit::Unlimited));
    assert_eq!((fit.state(), fit.release()), (FitState::Released, None));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None,
        ..ProptestConfig::default() })]

    /// Whenever they start, flows of one process fill the path, and each gets between half and
    /// twice its share.
    #[test]
    fn siblings_share_the_path(
        starts in prop::collection::vec(0.0..4.0f64, 2..6),
        mbytes in 20.0..150.0f64,
        rtt in 0.03..0.15f64,
        queue in 0.2..1.0f64,
    ) {
        let capacity = mbytes * 1e6;
        let mut path = Path::new(capacity, rtt, queue * capacity * rtt);
        let mut starts = starts;
        starts.sort_by(f64::total_cmp);
        for start in starts {
            let wait = start - path.now;
            path.run(wait.max(0.0));
            path.fitted(None);
        }
        path.run(20.0);
        let rates = path.run(10.0);
        let sum: f64 = rates.iter().sum();
        prop_assert!(sum > 0.9 * capacity, "{}", sum / capacity);
        prop_assert!(shares(&rates).iter().all(|share| (0.5..2.0).contains(share)), "{:?}",
            shares(&rates));
    }

    /// Samples of any kind neither make it panic nor make it exceed the ceiling.
    #[test]
    fn no_sample_breaks_it(looks in prop::collection::vec(any::<([u32; 8], bool)>(), 1..200),
        ceiling in any::<u32>()) {
        let mut fit = RateFit::new(Some(ceiling.into()));
        let mut at = Duration::ZERO;
        for ([wait, acked, rtt, least, window, unsent, delivery, lost], app_limited) in looks {
            at += Duration::from_micros((wait % 1_000_000).into());
            let sample = FitSample {
                at,
                delivered: acked.into(),
                rtt: Duration::from_micros(rtt.into()),
                rtt_deviation: Duration::from_micros((rtt / 3).into()),
                min_rtt: Duration::from_micros(least.into()),
                mss: u64::from(window % 9000),
                congestion_window: window.into(),
                in_flight: u64::from(window) / 2,
                unsent: unsent.into(),
                delivery_rate: delivery.into(),
                app_limited,
                busy: Some(at / 2),
                receive_window_limited: Some(at / 7),
                send_buffer_limited: None,
                retransmits: lost.into(),
            };
            let siblings = Siblings::gather([(&fit, &sample)]);
            if let Some(limit) = fit.observe(&sample, &siblings) {
                prop_assert!(matches!(limit, PacingLimit::Rate(rate) if rate <= ceiling.into()));
            }
            prop_assert!(fit.sample_period() > Duration::ZERO);
        }
    }
}
