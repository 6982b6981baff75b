use proptest::prelude::*;

use super::*;

fn hop(rate: f64, rtt_ms: u64) -> Hop {
    Hop {
        control: CongestionControl::Reno,
        ..Hop::new(Duration::from_millis(rtt_ms), Rate::new(rate).unwrap())
    }
}

fn loss(p: f64) -> Probability {
    Probability::new(p).unwrap()
}

fn close(found: f64, wanted: f64, part: f64) {
    assert!(
        (found / wanted - 1.0).abs() < part,
        "{found} is not {wanted}"
    );
}

#[test]
fn average_windows_are_as_rfc_9438_tabulates_them() {
    // Section 5.1, tables 1 and 2, with C = 0.4: loss, and the average windows of Reno and of CUBIC
    // over 100 ms and 10 ms.
    for (p, reno, cubic_100_ms, cubic_10_ms) in [
        (1e-2, 12.0, 12.0, 12.0),
        (1e-3, 38.0, 38.0, 38.0),
        (1e-4, 120.0, 187.0, 120.0),
        (1e-5, 379.0, 1054.0, 379.0),
        (1e-6, 1200.0, 5926.0, 1200.0),
        (1e-7, 3795.0, 33325.0, 5926.0),
        (1e-8, 12000.0, 187_400.0, 33325.0),
    ] {
        for (rtt_ms, cubic) in [(100, cubic_100_ms), (10, cubic_10_ms)] {
            let rtt = Duration::from_millis(rtt_ms);
            // The tables use 1.2, where the square root of 1.5 is 1.2247.
            close(
                CongestionControl::Reno.average_window(loss(p), rtt),
                reno,
                0.03,
            );
            close(
                CongestionControl::Cubic.average_window(loss(p), rtt),
                cubic,
                0.03,
            );
        }
    }
}

#[test]
fn a_reno_flow_carries_what_mathis_says() {
    // MSS / RTT * sqrt(3/2) / sqrt(p): 1448 bytes, 106 ms, 8e-4.
    let mut path = hop(155e6, 106);
    path.loss = loss(8e-4);
    let steady = path.steady_rate();
    assert_eq!(steady.bound, RateBound::Loss);
    close(
        steady.rate.bits_per_second(),
        1448.0 * 8.0 / 0.106 * 1.5f64.sqrt() / 8e-4f64.sqrt(),
        1e-12,
    );
    close(steady.rate.bits_per_second(), 4.73e6, 2e-3);
}

#[test]
fn hop_carries_one_window_per_round_trip() {
    let mut path = hop(20e6, 120);
    path.window = Some(ByteCount(65_536));
    assert_eq!(path.steady_rate().bound, RateBound::Window);
    close(
        path.steady_rate().rate.bits_per_second(),
        65_536.0 * 8.0 / 0.12,
        1e-12,
    );
    path.window = Some(ByteCount(300_000));
    assert_eq!(
        path.steady_rate(),
        SteadyRate {
            rate: path.rate,
            bound: RateBound::Rate
        }
    );
    close(path.bandwidth_delay_product(), 300_000.0, 1e-12);
}

#[test]
fn recovery_is_half_a_window_of_round_trips_or_k() {
    // The slides of the Land Speed Record of 2003: 2.4 Gbit/s over 180 ms in segments of 8948
    // bytes, C * R^2 / (2 * MSS).
    let mut path = hop(2.4e9, 180);
    path.mss = 8948;
    close(path.recovery().as_secs_f64(), 543.1, 1e-3);
    // K = cbrt(W * 0.3 / 0.4), RFC 9438, section 4.2.
    path.control = CongestionControl::Cubic;
    close(
        path.recovery().as_secs_f64(),
        (path.full_window() * 0.75).cbrt(),
        1e-9,
    );
    // Over 2 ms, the Reno-friendly region recovers sooner than K, which would be 2.4 s.
    let short = Hop {
        rtt: Duration::from_millis(2),
        rate: Rate::new(100e6).unwrap(),
        ..path
    };
    assert!(
        short.recovery() < Duration::from_millis(100),
        "{:?}",
        short.recovery()
    );
}

#[test]
fn slow_start_doubles_from_ten_segments() {
    let path = hop(1e9, 100);
    let segments = |count: u64| ByteCount(count * 1448);
    for (bytes, round_trips, sent) in [
        (segments(10), 1, segments(10)),
        (segments(30), 2, segments(30)),
        (segments(50), 3, segments(50)),
        // 8632 segments fill the hop: ten doublings, and the segments sent during them.
        (ByteCount(u64::MAX), 10, segments(10_230)),
    ] {
        let ramp = path.slow_start_phase(bytes);
        assert_eq!(
            (ramp.round_trips, ramp.bytes),
            (round_trips, sent),
            "{bytes}"
        );
    }
    assert_eq!(
        path.slow_start_phase(segments(50)).time,
        Duration::from_millis(250)
    );
    let small = hop(1e6, 1);
    assert_eq!(
        small.slow_start_phase(ByteCount(u64::MAX)),
        SlowStartPhase {
            round_trips: 0,
            time: Duration::ZERO,
            bytes: ByteCount(0)
        }
    );
}

#[test]
fn slow_start_exceeds_average_window_until_first_loss() {
    let mut path = hop(1e9, 100);
    // The average window is 122 segments. A loss in 10,000 segments is not expected before the full
    // window of 8632.
    path.loss = loss(1e-4);
    assert_eq!(path.slow_start_phase(ByteCount(u64::MAX)).round_trips, 10);
    // A loss in 1000: 10 * (2^7 - 1) = 1270 segments are sent before it is noticed, far past the
    // average of 39.
    path.loss = loss(1e-3);
    assert_eq!(path.slow_start_phase(ByteCount(u64::MAX)).round_trips, 7);
}

#[test]
fn transfer_time_is_slow_start_plus_steady_rate() {
    let path = hop(1e9, 100);
    let bytes = 1_000_000_000u64;
    let ramped = 10_230.0 * 1448.0;
    close(
        path.transfer_time(ByteCount(bytes)).as_secs_f64(),
        10.0 * 0.1 + (bytes as f64 - ramped) * 8.0 / 1e9 + 0.05,
        1e-9,
    );
    // A lossy path split by three depots: each hop is faster than the whole.
    let mut lossy = path;
    lossy.loss = loss(1e-4);
    let quarter = Hop {
        rtt: path.rtt / 4,
        ..lossy
    };
    assert!(quarter.transfer_time(ByteCount(bytes)) < lossy.transfer_time(ByteCount(bytes)) / 3);
}

#[test]
fn dead_hop_takes_forever_and_instant_hop_its_rate() {
    let dead = hop(0.0, 100);
    assert_eq!(dead.transfer_time(ByteCount(1)), Duration::MAX);
    assert_eq!(dead.steady_rate().rate, Rate::ZERO);
    let near = hop(8e6, 0);
    assert_eq!(
        near.transfer_time(ByteCount(1_000_000)),
        Duration::from_secs(1)
    );
}

#[test]
fn other_congestion_controls_have_no_formula() {
    assert_eq!("cubic".parse(), Ok(CongestionControl::Cubic));
    let error = "bbr".parse::<CongestionControl>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "\"bbr\" is not supported here: name reno or cubic"
    );
}

prop_compose! {
    fn hops()(
        rate in 1e3..1e12f64, rtt_us in 1..1_000_000u64, lossy: bool, exponent in -9.0..-0.1f64,
        limited: bool, window in 1..1u64 << 34, cubic: bool, mss in 48..65_000u32,
        initial_window in 1..100u32,
    ) -> Hop {
        Hop {
            rtt: Duration::from_micros(rtt_us),
            rate: Rate::new(rate).unwrap(),
            loss: if lossy { loss(10f64.powf(exponent)) } else { Probability::ZERO },
            mss,
            window: limited.then_some(ByteCount(window)),
            control: if cubic { CongestionControl::Cubic } else { CongestionControl::Reno },
            initial_window,
        }
    }
}

/// Returns true if `one` is not longer than `other`, up to rounding.
fn at_most(one: Duration, other: Duration) -> bool {
    one.as_secs_f64() <= other.as_secs_f64() * (1.0 + 1e-9) + 1e-8
}

proptest! {
    #[test]
    fn no_transfer_is_faster_than_the_links(hop in hops(), bytes in 0..1u64 << 50) {
        let time = hop.transfer_time(ByteCount(bytes)).as_secs_f64();
        let least = bytes as f64 * 8.0 / hop.rate.bits_per_second();
        prop_assert!(time >= least * (1.0 - 1e-9), "{time} {least}");
        prop_assert!(hop.steady_rate().rate <= hop.rate);
        let ramp = hop.slow_start_phase(ByteCount(bytes));
        prop_assert!(ramp.bytes <= ByteCount(bytes)
            && at_most(ramp.time, hop.transfer_time(ByteCount(bytes))));
    }

    #[test]
    fn more_bytes_take_longer(hop in hops(), bytes in 0..1u64 << 50, more in 0..1u64 << 50) {
        prop_assert!(at_most(
            hop.transfer_time(ByteCount(bytes)),
            hop.transfer_time(ByteCount(bytes + more))
        ));
    }

    #[test]
    fn a_longer_round_trip_takes_longer(hop in hops(), bytes in 0..1u64 << 40,
        factor in 1.0..10.0f64) {
        let longer = Hop { rtt: hop.rtt.mul_f64(factor), ..hop };
        prop_assert!(longer.steady_rate().rate.bits_per_second() <= hop.steady_rate()
            .rate.bits_per_second() * (1.0 + 1e-9));
        prop_assert!(at_most(
            hop.transfer_time(ByteCount(bytes)),
            longer.transfer_time(ByteCount(bytes))
        ));
    }

    #[test]
    fn more_loss_takes_longer(hop in hops(), bytes in 0..1u64 << 40, factor in 1.0..1000.0f64) {
        let worse = Hop { loss: Probability::nearest(hop.loss.value() * factor), ..hop };
        prop_assert!(worse.steady_rate().rate <= hop.steady_rate().rate);
        prop_assert!(at_most(
            hop.transfer_time(ByteCount(bytes)),
            worse.transfer_time(ByteCount(bytes))
        ));
    }

    #[test]
    fn a_wider_window_and_a_higher_rate_take_no_longer(hop in hops(), bytes in 0..1u64 << 40,
        factor in 1.0..100.0f64) {
        let wider = Hop { window: hop.window.map(
            |window| ByteCount::nearest(window.0 as f64 * factor)), ..hop };
        prop_assert!(at_most(
            wider.transfer_time(ByteCount(bytes)),
            hop.transfer_time(ByteCount(bytes))
        ));
        let faster = Hop { rate: Rate::nearest(hop.rate.bits_per_second() * factor), ..hop };
        prop_assert!(at_most(
            faster.transfer_time(ByteCount(bytes)),
            hop.transfer_time(ByteCount(bytes))
        ));
    }

    #[test]
    fn most_loss_is_where_average_window_fills_the_hop(hop in hops()) {
        prop_assume!(hop.full_window() > 2.0);
        let unlimited = Hop { window: None, ..hop };
        let at = |part: f64| Hop { loss: Probability::nearest(hop.max_harmless_loss().value() * part),
            ..unlimited }.steady_rate().bound;
        prop_assert_eq!(at(0.999), RateBound::Rate);
        prop_assert_eq!(at(1.001), RateBound::Loss);
    }

    #[test]
    fn no_hop_panics(
        rtt in 0..u64::MAX, rate in 0.0..f64::MAX, p in 0.0..=1.0f64, mss: u32, window: Option<u64>,
        cubic: bool,
        initial_window: u32, bytes: u64,
    ) {
        let hop = Hop {
            rtt: Duration::from_nanos(rtt),
            rate: Rate::nearest(rate),
            loss: loss(p),
            mss,
            window: window.map(ByteCount),
            control: if cubic { CongestionControl::Cubic } else { CongestionControl::Reno },
            initial_window,
        };
        let _ = (
            hop.transfer_time(ByteCount(bytes)),
            hop.slow_start_phase(ByteCount(bytes)),
            hop.recovery(),
        );
        prop_assert!(hop.max_harmless_loss().value() <= 1.0
            && hop.steady_rate().rate.bits_per_second().is_finite());
    }
}
