use super::*;
use crate::route::map::{Node, RelayLimits};
use crate::route::testing::{exact, map};

const FROM: NodeId = NodeId(0);
const DEPOT: NodeId = NodeId(1);
const TO: NodeId = NodeId(2);

fn transfer(bytes: u64, streams: u16) -> Transfer {
    Transfer { bytes, streams }
}

fn line(first: HopForecast, second: HopForecast, direct: HopForecast) -> RouteMap {
    map(
        vec![Node::END, Node::DEPOT, Node::END],
        &[(0, 1, first), (1, 2, second), (0, 2, direct)],
    )
}

fn via() -> RouteDepots {
    RouteDepots::new(&[DEPOT]).unwrap()
}

#[test]
fn a_byte_takes_three_round_trips_of_the_whole_chain() {
    let map = line(
        exact(60.0, 0.0, 150.0),
        exact(60.0, 0.0, 150.0),
        exact(120.0, 0.0, 150.0),
    );
    for route in [RouteDepots::DIRECT, via()] {
        let expected = map
            .expected(FROM, &route, TO, &transfer(1, 1), 0.0)
            .unwrap();
        assert!((expected.time.p50 - 0.3656).abs() < 1e-3, "{expected:?}");
        assert_eq!(expected.limit.kind, LimitKind::SetUp);
    }
}

#[test]
fn the_dominant_limit_is_named_with_its_hop() {
    let clean = exact(60.0, 0.0, 1000.0);
    let big = transfer(4 << 30, 1);
    let limit = |map: &RouteMap, route: &RouteDepots, transfer: &Transfer| {
        map.expected(FROM, route, TO, transfer, 0.0).unwrap().limit
    };
    let lossy = line(clean, exact(60.0, 1e-3, 1000.0), clean);
    assert_eq!(
        limit(&lossy, &via(), &big),
        DominantLimit {
            kind: LimitKind::Loss,
            hop: (DEPOT, TO)
        }
    );
    let slow = line(exact(60.0, 0.0, 10.0), clean, clean);
    assert_eq!(
        limit(&slow, &via(), &big),
        DominantLimit {
            kind: LimitKind::Rate,
            hop: (FROM, DEPOT)
        }
    );
    assert_eq!(
        limit(&slow, &RouteDepots::DIRECT, &transfer(4 << 20, 1)).kind,
        LimitKind::SlowStart
    );
    let mut small = slow.clone();
    small.set_node(
        TO,
        Node {
            window: Some(65_536),
            ..Node::END
        },
    );
    assert_eq!(
        limit(&small, &RouteDepots::DIRECT, &big).kind,
        LimitKind::Window
    );
    let mut busy = line(clean, clean, clean);
    let relay = RelayLimits {
        rate: 100e6,
        rate_per_stream: f64::INFINITY,
        streams: 3,
    };
    busy.set_node(
        DEPOT,
        Node {
            relay: Some(relay),
            ..Node::DEPOT
        },
    );
    assert_eq!(limit(&busy, &via(), &big).kind, LimitKind::Relay);
    // A quarter of 100 Mbit/s.
    let time = busy.expected(FROM, &via(), TO, &big, 0.0).unwrap().time.p50;
    assert!(
        (time / (f64::from(1u32 << 30) * 4.0 * 8.0 / 25e6) - 1.0).abs() < 0.01,
        "{time}"
    );
    busy.set_node(
        FROM,
        Node {
            host_rate: Some(5e6),
            ..Node::END
        },
    );
    assert_eq!(limit(&busy, &via(), &big).kind, LimitKind::Host);
}

#[test]
fn streams_multiply_a_limit_per_stream() {
    let mut map = line(
        exact(60.0, 0.0, 1000.0),
        exact(60.0, 0.0, 1000.0),
        exact(120.0, 0.0, 1000.0),
    );
    map.set_node(
        FROM,
        Node {
            window: Some(65_536),
            ..Node::END
        },
    );
    let time = |streams| {
        let all = map
            .expected(
                FROM,
                &RouteDepots::DIRECT,
                TO,
                &transfer(1 << 30, streams),
                0.0,
            )
            .unwrap();
        all.time.p50 - all.around
    };
    assert!((time(1) / time(8) - 8.0).abs() < 0.1);
}

#[test]
fn time_at_medians_is_at_most_the_median_time() {
    let known = exact(60.0, 1e-4, 500.0);
    let wide = HopForecast {
        rate: around_median(5e8, 0.5, 0.5),
        ..known
    };
    let map = line(wide, wide, known);
    let transfer = transfer(1 << 28, 2);
    for (route, equal) in [(RouteDepots::DIRECT, true), (via(), false)] {
        let least = map.time_at_medians(FROM, &route, TO, &transfer).unwrap();
        let median = map
            .expected(FROM, &route, TO, &transfer, 0.0)
            .unwrap()
            .time
            .p50;
        assert!(
            least <= median * (1.0 + 1e-9) && (least > 0.999 * median) == equal,
            "{least} {median}"
        );
    }
}

#[test]
fn unknown_and_dead_hops_and_ends_make_no_route() {
    let known = exact(10.0, 0.0, 100.0);
    let mut map = line(known, known, known);
    let small = transfer(1, 1);
    assert!(
        map.expected(TO, &RouteDepots::new(&[FROM]).unwrap(), DEPOT, &small, 0.0)
            .is_none()
    );
    assert!(
        map.expected(FROM, &RouteDepots::DIRECT, NodeId(9), &small, 0.0)
            .is_none()
    );
    let hop = map.hop(FROM, TO).unwrap();
    map.mark_dead(hop, 0.0);
    assert!(
        map.expected(FROM, &RouteDepots::DIRECT, TO, &small, 0.0)
            .is_none()
    );
    assert!(map.expected(FROM, &via(), TO, &small, 0.0).is_some());
}

#[test]
fn age_and_few_samples_widen_but_do_not_shift() {
    let known = HopForecast {
        rate: Quantiles {
            p10: 80e6,
            p50: 100e6,
            p90: 110e6,
        },
        ..exact(10.0, 0.0, 100.0)
    };
    let old = widen(&known, 600.0);
    assert!(
        old.rate.p10 < known.rate.p10 && old.rate.p90 > known.rate.p90 && old.rate.p50 == 100e6
    );
    assert_eq!(old.rtt, known.rtt);
    let few = widen(
        &HopForecast {
            samples: 1,
            ..known
        },
        0.0,
    );
    assert!(few.rate.p10 < 0.7 * 100e6, "{few:?}");
    // A clock that is behind does not narrow anything.
    assert_eq!(
        widen(&HopForecast { at: 50.0, ..known }, 0.0).rtt,
        known.rtt
    );
}

/// The published band: if the quantities of every hop are drawn independently, at least eight in
/// ten of the times fall into it.
#[test]
fn the_band_holds_eight_in_ten_draws() {
    use crate::route::combine::quantile_at;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    let spread = |rtt: f64, rate: f64| HopForecast {
        rtt: around_median(rtt, 0.03, 0.1),
        loss: Quantiles::exactly(0.0),
        rate: around_median(rate, 0.3, 0.2),
        at: 0.0,
        samples: 1_000_000,
    };
    let forecasts = [spread(0.04, 200e6), spread(0.06, 220e6)];
    let map = line(forecasts[0], forecasts[1], forecasts[0]);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
    for bytes in [1 << 18, 8 << 20, 256 << 20] {
        let transfer = transfer(bytes, 4);
        let expected = map.expected(FROM, &via(), TO, &transfer, 0.0).unwrap().time;
        let mut inside = 0;
        for _ in 0..500 {
            let mut draw = |forecast: &HopForecast| {
                let mut draw = |q: &Quantiles| quantile_at(q, random.random_range(0.001..0.999));
                exact(draw(&forecast.rtt) * 1e3, 0.0, draw(&forecast.rate) / 1e6)
            };
            let truth = line(draw(&forecasts[0]), draw(&forecasts[1]), forecasts[0]);
            let took = truth
                .expected(FROM, &via(), TO, &transfer, 0.0)
                .unwrap()
                .time
                .p50;
            inside += i32::from(took >= expected.p10 && took <= expected.p90);
        }
        assert!((375..=495).contains(&inside), "{bytes}: {inside} of 500");
    }
}
