//! A measurement fits its rate to the path.

use crate::path::LongPath;
use wanbed::Overrides;

/// Maximum measurements with a fitted rate.
const MAX_MEASUREMENTS: usize = 10;

/// Without control, slow start overflows a queue that holds a seventh of the window, and loses the
/// excess. A rate fitted to the path does not; a machine that pauses for a moment may still cost a
/// few segments.
#[test]
fn slow_start_is_stopped_before_it_loses() {
    let narrow = Overrides::default()
        .set("links.*.rate", "\"50 Mbit/s\"")
        .set("links.*.queue", "\"1 bdp of 40 ms\"")
        .set("nodes.*.congestion", "\"reno\"");
    let Some(path) = LongPath::with(&narrow) else {
        return;
    };
    let lost = |arguments: &[&str]| {
        let json = path.measure(arguments);
        json["end"]["sum_sent"]["retransmits"].as_u64().unwrap()
    };
    let left_alone = lost(&["--time", "5", "--observe"]);
    // A busy machine can only make it lose more, so it is measured again meanwhile.
    let mut fitted = u64::MAX;
    for _ in 0..MAX_MEASUREMENTS {
        fitted = fitted.min(lost(&["--time", "5"]));
        if fitted < left_alone / 4 {
            break;
        }
    }
    assert!(
        left_alone > 100,
        "{left_alone}: nothing to be stopped on this path"
    );
    assert!(
        fitted < left_alone / 4,
        "{fitted} lost, and {left_alone} without fitting"
    );
}
