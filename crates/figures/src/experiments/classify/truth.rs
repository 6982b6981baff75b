//! Flows whose limit is known by construction, and their steady parts. Nothing here looks at a
//! verdict.

use drs::Limit;
use quantities::path::CongestionControl;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::ops::Range;
use std::time::Duration;

/// Limits that are constructed.
pub const CLASSES: [Limit; 8] = [
    Limit::SendingApplication,
    Limit::ReceivingApplication,
    Limit::SendBuffer,
    Limit::ReceiveWindow,
    Limit::Pacing,
    Limit::Growing,
    Limit::Loss,
    Limit::Path,
];

/// Payload of a segment on a path of 1500 bytes, with timestamps.
const MSS: f64 = 1448.0;
/// Linux's initial window, in segments.
const FIRST_WINDOW: f64 = 10.0;
/// Time after which a flow is steady, but at least ten round trips.
const STEADY_AFTER: Duration = Duration::from_secs(3);
const STEADY_AFTER_ROUNDS: u32 = 10;
/// Minimum of a node's largest window; below it the node would have no window scaling.
const SMALLEST_CEILING: f64 = 80_000.0;
/// Number of losses, at the wire's rate, before a flow limited by losses counts as steady.
const FIRST_LOSSES: f64 = 8.0;
/// Duration of flows, in seconds.
pub const SECONDS: f64 = 6.0;

/// One flow to make.
#[derive(Debug, Clone)]
pub struct Case {
    /// Limit of the flow.
    pub class: Limit,
    /// The sender's congestion control.
    pub congestion: &'static str,
    /// The path's round trip without queue.
    pub rtt: Duration,
    /// The bottleneck's rate, in bit/s.
    pub rate: f64,
    /// Changes to the scenario file.
    pub set: Vec<(String, String)>,
    /// Arguments of the sending end.
    pub sender: Vec<String>,
    /// Arguments of the receiving end.
    pub receiver: Vec<String>,
    /// Duration in seconds.
    pub seconds: f64,
    /// Steady part: intervals within it are judged.
    pub steady: Range<Duration>,
}

/// Returns the congestion controls under which a limit is constructed: losses do not limit BBR.
pub fn congestions(class: Limit) -> &'static [&'static str] {
    match class {
        Limit::Loss => &["reno", "cubic"],
        _ => &["reno", "cubic", "bbr"],
    }
}

/// Returns the flow of this class, congestion control and seed.
pub fn case(class: Limit, congestion: &'static str, seed: u64) -> Case {
    let place = CLASSES
        .iter()
        .position(|known| *known == class)
        .unwrap_or(0);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_mul(1000) + place as u64);
    let mut between = |low: f64, high: f64| low + (high - low) * random.random::<f64>();
    let growing = class == Limit::Growing;
    let rtt = if growing {
        between(0.2, 0.4)
    } else {
        between(0.02, 0.1)
    };
    let rate = 1e6
        * if growing {
            between(60.0, 100.0)
        } else {
            between(20.0, 100.0)
        };
    let bytes_per_second = rate / 8.0;
    let bdp = bytes_per_second * rtt;
    let queue = between(0.5, 1.5);
    let (mut sender, mut receiver) = (vec![], vec![]);
    let (mut loss, mut ceiling) = (None, None);
    let argument = |to: &mut Vec<String>, name: &str, value: f64| {
        to.extend([format!("--{name}"), format!("{value:.0}")]);
    };
    match class {
        Limit::SendingApplication => {
            argument(&mut sender, "rate", between(0.2, 0.8) * bytes_per_second);
            argument(&mut sender, "chunk", between(1_000.0, 32_000.0));
        }
        Limit::ReceivingApplication => {
            argument(&mut receiver, "rate", between(0.2, 0.5) * bytes_per_second);
            argument(&mut receiver, "chunk", between(4_000.0, 64_000.0));
            // The window ends between this value and twice this value. So it is more than the bytes
            // read in a round trip, and at most what path and queue hold together. So nothing is
            // lost that could limit the flow instead. The window is full long before the steady
            // part.
            let window = (1.0 + queue) / 2.0 * bdp;
            if seed.is_multiple_of(2) || window < SMALLEST_CEILING {
                argument(&mut receiver, "buffer", window);
            } else {
                ceiling = Some(window);
            }
        }
        // Written one segment at a time: Linux lets one large write overrun the buffer up to the
        // congestion window, and then the buffer is not the limit.
        Limit::SendBuffer => {
            argument(
                &mut sender,
                "buffer",
                (between(0.15, 0.35) * bdp).max(8_000.0),
            );
            argument(&mut sender, "chunk", MSS);
        }
        Limit::ReceiveWindow => argument(
            &mut receiver,
            "buffer",
            (between(0.15, 0.35) * bdp).max(8_000.0),
        ),
        Limit::Pacing => argument(&mut sender, "pace", between(0.2, 0.8) * bytes_per_second),
        Limit::Loss => {
            let window = (between(0.1, 0.3) * bdp / MSS).max(10.0);
            // Some losses come before the steady part; otherwise slow start would still show in it.
            let at_least = FIRST_LOSSES / (STEADY_AFTER.as_secs_f64() * bytes_per_second / MSS);
            loss = Some(loss_for(window, rtt, congestion).max(at_least));
        }
        _ => {}
    }
    let rtt = Duration::from_secs_f64(rtt);
    let (seconds, steady) = if growing {
        // The window doubles every round trip from the first window on. Up to half of what fills
        // the path, nothing limits it.
        let rounds = (0.5 * bdp / (FIRST_WINDOW * MSS)).log2();
        let until = rtt.mul_f64(rounds);
        ((until + rtt).as_secs_f64(), 2 * rtt..until)
    } else {
        let from = STEADY_AFTER.max(STEADY_AFTER_ROUNDS * rtt);
        (SECONDS, from..Duration::from_secs_f64(SECONDS))
    };
    let mut set = vec![
        (
            "links.wan.delay".into(),
            format!("{} us", rtt.as_micros() / 2),
        ),
        ("links.wan.rate".into(), format!("{:.3} Mbit/s", rate / 1e6)),
        ("links.wan.queue".into(), format!("{queue:.2} bdp")),
    ];
    set.extend(ceiling.map(|bytes: f64| {
        let kilobytes = (bytes / 1024.0).ceil();
        ("nodes.receiver.buffers".into(), format!("{kilobytes} KB"))
    }));
    set.extend(loss.map(|loss| ("links.wan.forward.loss".into(), format!("{loss:e}"))));
    Case {
        class,
        congestion,
        rtt,
        rate,
        set,
        sender,
        receiver,
        seconds,
        steady,
    }
}

/// Returns the loss rate that holds a flow to about `window` segments, over a round trip of `rtt`
/// seconds.
fn loss_for(window: f64, rtt: f64, congestion: &str) -> f64 {
    let control = if congestion == "cubic" {
        CongestionControl::Cubic
    } else {
        CongestionControl::Reno
    };
    control
        .loss_at_window(window, Duration::from_secs_f64(rtt))
        .value()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_the_same_each_time_and_seeds_differ() {
        for class in CLASSES {
            let name = |seed| format!("{:?}", case(class, "reno", seed));
            assert_eq!(name(3), name(3));
            assert_ne!(name(3), name(4));
        }
    }

    #[test]
    fn every_case_has_enough_time_for_a_verdict() {
        for class in CLASSES {
            for seed in 1..=50 {
                let case = case(class, "cubic", seed);
                assert!(
                    case.steady.end - case.steady.start >= 2 * case.rtt,
                    "{case:?}"
                );
                assert!(case.steady.end.as_secs_f64() <= case.seconds);
            }
        }
    }

    #[test]
    fn loss_allows_the_requested_window() {
        assert!((loss_for(1.5e4f64.sqrt(), 0.05, "reno") - 1e-4).abs() < 1e-12);
        assert!(loss_for(500.0, 0.1, "cubic") > loss_for(500.0, 0.1, "reno"));
    }
}
