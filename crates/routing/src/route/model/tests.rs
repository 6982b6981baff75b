use std::time::Duration;

use proptest::prelude::*;
use quantities::path::CongestionControl;
use quantities::{Probability, Rate};

use super::*;

const HOP: HopConnection = HopConnection {
    rtt: 0.1,
    rate: 1e9,
    loss: 0.0,
    window: f64::INFINITY,
    control: CongestionModel::Reno,
};

fn close(found: f64, wanted: f64, part: f64) {
    assert!(
        (found / wanted - 1.0).abs() < part,
        "{found} is not {wanted}"
    );
}

#[test]
fn slow_start_doubles_from_ten_segments_and_ends_in_a_burst() {
    // 10 and 20 segments in two round trips, and one more, which leaves at the rate of the hop.
    let course = HOP.course(31.0 * SEGMENT_BYTES, MEDIAN_FIRST_LOSS);
    close(course.seconds, 0.2 + SEGMENT_BYTES * 8.0 / 1e9, 1e-9);
    close(course.slow_start, course.seconds, 1e-12);
}

#[test]
fn a_clean_hop_reaches_its_rate_or_a_window_per_round_trip() {
    let gigabyte = HOP.course(1e9, MEDIAN_FIRST_LOSS);
    // Ten doublings fill the window; they send 10,230 segments.
    close(
        gigabyte.seconds,
        1.0 + (1e9 - 10_230.0 * SEGMENT_BYTES) * 8.0 / 1e9,
        1e-9,
    );
    let small = HopConnection {
        window: 65_536.0,
        ..HOP
    };
    close(small.without_loss(), 65_536.0 * 8.0 / 0.1, 1e-12);
    close(
        small.course(1e9, MEDIAN_FIRST_LOSS).seconds,
        1e9 / 655_360.0,
        1e-3,
    );
}

/// The long run agrees with the formulas elsewhere in the workspace.
#[test]
fn the_long_run_agrees_with_mathis_and_rfc_9438() {
    for (control, formula) in [
        (CongestionModel::Reno, CongestionControl::Reno),
        (CongestionModel::Cubic, CongestionControl::Cubic),
    ] {
        for (rtt, loss) in [(0.01, 1e-4), (0.1, 1e-4), (0.1, 1e-5), (0.2, 1e-3)] {
            let hop = HopConnection {
                rtt,
                loss,
                control,
                rate: 1e12,
                ..HOP
            };
            let path = quantities::path::Hop {
                loss: Probability::new(loss).unwrap(),
                control: formula,
                ..quantities::path::Hop::new(Duration::from_secs_f64(rtt), Rate::new(1e12).unwrap())
            };
            close(hop.under_loss(), path.loss_limited_rate(), 1e-9);
            let bytes = 1e5 * SEGMENT_BYTES / loss;
            let seconds = hop.course(bytes, MEDIAN_FIRST_LOSS).seconds;
            // Evenly spaced losses carry a little more than RFC 9438's average for CUBIC.
            close(bytes * 8.0 / seconds, hop.under_loss(), 0.1);
        }
    }
}

#[test]
fn the_window_shrinks_by_one_loss_at_a_time() {
    // The full window is 8632 segments, and the average under this loss 387. The first losses come
    // at far more than that.
    let hop = HopConnection { loss: 1e-5, ..HOP };
    let bytes = 300_000.0 * SEGMENT_BYTES;
    let course = hop.course(bytes, MEDIAN_FIRST_LOSS);
    let long_run = bytes * 8.0 / hop.under_loss();
    assert!(
        course.seconds < long_run / 2.0,
        "{} {long_run}",
        course.seconds
    );
    assert!(course.after_loss > 0.5 * course.seconds);
    close(course.losses, 300_000.0 * 1e-5 - MEDIAN_FIRST_LOSS, 0.01);
}

#[test]
fn bbr_keeps_its_rate_up_to_some_per_cent_of_loss() {
    let hop = HopConnection {
        control: CongestionModel::Bbr,
        loss: 0.01,
        ..HOP
    };
    close(
        hop.course(1e9, MEDIAN_FIRST_LOSS).seconds,
        1.0 + 8.0 * 0.99 / 0.99,
        0.03,
    );
    let worse = HopConnection { loss: 0.2, ..hop };
    assert!(worse.course(1e9, MEDIAN_FIRST_LOSS).seconds > 100.0);
}

fn hops() -> impl Strategy<Value = HopConnection> {
    let controls = prop_oneof![
        Just(CongestionModel::Reno),
        Just(CongestionModel::Cubic),
        Just(CongestionModel::Bbr)
    ];
    (
        1e-4..1.0f64,
        1e4..1e11f64,
        prop_oneof![Just(0.0), 1e-8..0.3f64],
        1e4..1e9f64,
        controls,
    )
        .prop_map(|(rtt, rate, loss, window, control)| HopConnection {
            rtt,
            rate,
            loss,
            window,
            control,
        })
}

proptest! {
    #[test]
    fn nothing_is_faster_than_the_links_and_all_is_finite(
        hop in hops(),
        bytes in 0.0..1e12f64,
        first in 0.1..3.0f64,
    ) {
        let course = hop.course(bytes, first);
        prop_assert!(course.seconds.is_finite());
        prop_assert!(course.seconds >= bytes * 8.0 / hop.rate * (1.0 - 1e-6));
        prop_assert!(course.slow_start + course.after_loss <= course.seconds * (1.0 + 1e-9));
    }

    #[test]
    fn more_bytes_take_longer(hop in hops(), bytes in 1.0..1e10f64, factor in 1.0..10.0f64) {
        let (less, more) = (
            hop.course(bytes, MEDIAN_FIRST_LOSS).seconds,
            hop.course(bytes * factor, MEDIAN_FIRST_LOSS).seconds
        );
        // Newton's method stops within a thousandth.
        prop_assert!(more >= less * 0.99, "{less} {more}");
    }

    #[test]
    fn no_figures_panic(rtt: f64, rate: f64, loss: f64, window: f64, bytes in 0.0..f64::MAX) {
        let _ = HopConnection { rtt, rate, loss, window, control: CongestionModel::Cubic }
            .course(bytes, MEDIAN_FIRST_LOSS);
    }
}

proptest! {
    #[test]
    fn most_loss_at_a_rate_still_allows_that_rate(
        rate in 1e5_f64..1e10,
        rtt in 1e-3_f64..0.5,
    ) {
        let loss = max_loss_at(rate, rtt);
        prop_assert!(loss > 0.0 && loss <= 1.0);
        let hop =
            HopConnection {
                rtt,
                rate: f64::INFINITY,
                loss,
                window: f64::INFINITY,
                control: CongestionModel::Cubic,
            };
        // With that loss CUBIC has exactly that rate; if all packets are lost, no less than it has.
        prop_assert!(
            loss == 1.0 || (hop.under_loss() / rate - 1.0).abs() < 1e-6,
            "{loss} {}",
            hop.under_loss()
        );
        prop_assert!(max_loss_at(2.0 * rate, rtt) <= loss);
    }
}
