//! Copies in virtual time over routes that do what they promise, fail, stall, or are slow. The
//! tests compare each with the direct route alone.

use super::*;

/// Interval of the supervisor's observations while bytes move.
const OBSERVE_INTERVAL: Duration = Duration::from_millis(25);

/// A simulated route.
#[derive(Clone)]
struct SimulatedRoute {
    /// Time that a stream takes to open, or `None` if it never opens.
    opens_after: Option<Duration>,
    /// Rate of one stream in bytes per second, by the time since the copy began.
    each: fn(Duration) -> f64,
    /// Maximum rate of all its streams together, in bytes per second.
    all: f64,
    /// True if attempts fail immediately and permanently.
    refuses: bool,
}

const RTT: Duration = Duration::from_millis(100);

impl SimulatedRoute {
    fn new(each: fn(Duration) -> f64) -> Self {
        Self {
            opens_after: Some(2 * RTT),
            each,
            all: f64::INFINITY,
            refuses: false,
        }
    }
}

fn plan(beside: &[usize], reserved: &[usize]) -> RoutePlan {
    RoutePlan {
        beside: beside.to_vec(),
        reserved: reserved.to_vec(),
        ..RoutePlan::default()
    }
}

struct Stream {
    route: usize,
    begun: Duration,
}

/// Result of a simulated copy.
struct SimulationResult {
    took: Duration,
    judged: Vec<(usize, RouteStanding)>,
    /// Maximum number of streams that were open or opening at once.
    most_streams: usize,
}

/// Simulates a copy of `bytes` bytes by `streams` streams. Streams take work from one queue, so the
/// copy ends when the sum is reached. What a given-up stream had in flight counts as lost.
fn copy(roads: &[SimulatedRoute], streams: usize, bytes: f64) -> SimulationResult {
    let mut steering = RouteSteering::default();
    let beside: Vec<usize> = (1..roads.len()).collect();
    steering.set_used(&plan(&beside, &[]));
    let mut open: Vec<Stream> = Vec::new();
    let mut moved = vec![0.0; roads.len()];
    let (mut tried, mut opened) = (vec![false; roads.len()], vec![false; roads.len()]);
    let mut judged = Vec::new();
    let mut most_streams = 0;
    let (mut now, mut left) = (Duration::ZERO, bytes);
    while left > 0.0 {
        assert!(now < Duration::from_secs(10_000), "it never ends");
        let is_open = |stream: &Stream, now: Duration| {
            roads[stream.route]
                .opens_after
                .is_some_and(|after| now >= stream.begun + after)
        };
        let looks: Vec<RouteObservation> = (0..roads.len())
            .map(|route| {
                let on = open.iter().filter(|stream| stream.route == route);
                let open_now = on.filter(|stream| is_open(stream, now)).count();
                opened[route] |= open_now > 0;
                RouteObservation {
                    tried: tried[route],
                    opened: opened[route],
                    open: open_now,
                    moved: moved[route] as u64,
                    busy: true,
                    gone: tried[route] && roads[route].refuses,
                }
            })
            .collect();
        for verdict in steering.observe(now, RTT, &looks) {
            if verdict.standing == RouteStanding::Stalled {
                open.retain(|stream| stream.route != verdict.route);
            }
            judged.push((verdict.route, verdict.standing));
        }
        for route in 0..roads.len() {
            while open.iter().filter(|stream| stream.route == route).count()
                > steering.max_streams(route, streams)
            {
                let last = open
                    .iter()
                    .rposition(|stream| stream.route == route)
                    .unwrap();
                open.remove(last);
            }
        }
        while open.len() > steering.total_streams(streams) {
            let on = |route: usize| open.iter().filter(|stream| stream.route == route).count();
            let most = (0..roads.len()).max_by_key(|route| on(*route)).unwrap();
            let last = open
                .iter()
                .rposition(|stream| stream.route == most)
                .unwrap();
            open.remove(last);
        }
        while open.len() < steering.total_streams(streams) {
            let on = |route: usize| open.iter().filter(|stream| stream.route == route).count();
            let routes = steering
                .used_routes()
                .filter(|route| on(*route) < steering.max_streams(*route, streams));
            let Some(route) = routes.min_by_key(|route| on(*route)) else {
                break;
            };
            tried[route] = true;
            if roads[route].refuses {
                break;
            }
            open.push(Stream { route, begun: now });
        }
        most_streams = most_streams.max(open.len());
        now += OBSERVE_INTERVAL;
        for (route, road) in roads.iter().enumerate() {
            let on = open
                .iter()
                .filter(|stream| stream.route == route && is_open(stream, now));
            let rate = (on.count() as f64 * (road.each)(now)).min(road.all);
            moved[route] += rate * OBSERVE_INTERVAL.as_secs_f64();
            left -= rate * OBSERVE_INTERVAL.as_secs_f64();
        }
    }
    SimulationResult {
        took: now,
        judged,
        most_streams,
    }
}

/// Simulates ten streams for about 20 s, with 1 MB/s each over the direct route.
fn copy_with_second_route(road: SimulatedRoute) -> (f64, SimulationResult) {
    let direct = SimulatedRoute::new(|_| 1e6);
    let alone = copy(std::slice::from_ref(&direct), 10, 200e6).took;
    let went = copy(&[direct, road], 10, 200e6);
    assert!(went.most_streams <= 20);
    (went.took.as_secs_f64() / alone.as_secs_f64(), went)
}

fn stands(went: &SimulationResult) -> Option<RouteStanding> {
    went.judged
        .iter()
        .rev()
        .find(|(route, _)| *route == 1)
        .map(|(_, standing)| *standing)
}

#[test]
fn better_route_gets_nearly_all_streams() {
    let (ratio, went) = copy_with_second_route(SimulatedRoute::new(|_| 5e6));
    assert_eq!(stands(&went), Some(RouteStanding::Better));
    // 1 + 9 * 5 MB/s instead of 10.
    assert!(ratio < 0.25, "{ratio}");
    // An equal route has as many streams as the direct one, and the total stays the same.
    let (ratio, went) = copy_with_second_route(SimulatedRoute::new(|_| 1e6));
    assert_eq!(stands(&went), Some(RouteStanding::Even));
    assert!((0.85..1.001).contains(&ratio), "{ratio}");
}

#[test]
fn idle_route_costs_nothing() {
    let refuses = SimulatedRoute {
        refuses: true,
        ..SimulatedRoute::new(|_| 0.0)
    };
    let never_opens = SimulatedRoute {
        opens_after: None,
        ..SimulatedRoute::new(|_| 0.0)
    };
    let slow = SimulatedRoute::new(|_| 0.1e6);
    let limited = SimulatedRoute {
        all: 0.2e6,
        ..SimulatedRoute::new(|_| 1e6)
    };
    for (road, standing) in [
        (refuses, RouteStanding::Gone),
        (never_opens, RouteStanding::Late),
        (slow, RouteStanding::Slower),
        (limited, RouteStanding::Slower),
    ] {
        let (ratio, went) = copy_with_second_route(road);
        assert_eq!(stands(&went), Some(standing));
        assert!(ratio < 1.002, "{standing:?}: {ratio}");
    }
}

#[test]
fn stalled_route_is_given_up() {
    let (ratio, went) = copy_with_second_route(SimulatedRoute::new(|_| 0.0));
    assert_eq!(stands(&went), Some(RouteStanding::Stalled));
    assert!(ratio < 1.002, "{ratio}");
    // The route stalls during the copy, when nearly everything went over it.
    let (ratio, went) = copy_with_second_route(SimulatedRoute::new(|at| {
        if at.as_secs() < 3 { 5e6 } else { 0.0 }
    }));
    assert_eq!(stands(&went), Some(RouteStanding::Stalled));
    assert!(ratio < 1.0, "{ratio}");
}

#[test]
fn degraded_route_is_left_and_improved_route_is_used_again() {
    let (_, went) = copy_with_second_route(SimulatedRoute::new(|at| {
        if at.as_secs() < 2 { 4e6 } else { 0.2e6 }
    }));
    assert_eq!(
        stands(&went),
        Some(RouteStanding::Slower),
        "{:?}",
        went.judged
    );
    let (ratio, went) = copy_with_second_route(SimulatedRoute::new(|at| {
        if at.as_secs() < 4 { 0.1e6 } else { 40e6 }
    }));
    assert_eq!(
        stands(&went),
        Some(RouteStanding::Better),
        "{:?}",
        went.judged
    );
    assert!(ratio < 0.6, "{ratio}");
}

#[test]
fn shared_fast_route_is_kept_despite_one_fast_direct_stream() {
    // Ten streams share 10 MB/s. Each direct stream has 3 MB/s, but all together have no more than
    // 3 MB/s.
    let direct = SimulatedRoute {
        all: 3e6,
        ..SimulatedRoute::new(|_| 3e6)
    };
    let shared = SimulatedRoute {
        all: 10e6,
        ..SimulatedRoute::new(|_| 10e6)
    };
    let went = copy(&[direct, shared], 10, 500e6);
    let best = 500.0 / 13.0;
    assert!(
        went.took.as_secs_f64() < 1.1 * best,
        "{:?} {:?}",
        went.took,
        went.judged
    );
}

#[test]
fn other_routes_carry_everything_without_a_direct_one() {
    for direct in [
        SimulatedRoute {
            opens_after: None,
            ..SimulatedRoute::new(|_| 0.0)
        },
        SimulatedRoute {
            refuses: true,
            ..SimulatedRoute::new(|_| 0.0)
        },
    ] {
        let went = copy(&[direct, SimulatedRoute::new(|_| 1e6)], 10, 200e6);
        assert!(went.took.as_secs_f64() < 1.2 * 20.0, "{:?}", went.took);
    }
}

#[test]
fn routes_join_and_leave() {
    let mut steering = RouteSteering::default();
    steering.set_used(&plan(&[], &[]));
    assert_eq!(steering.used_routes().collect::<Vec<_>>(), [DIRECT_ROUTE]);
    assert_eq!(
        (
            steering.max_streams(DIRECT_ROUTE, 8),
            steering.max_streams(2, 8)
        ),
        (usize::MAX, 0)
    );
    steering.set_used(&plan(&[2], &[]));
    assert_eq!(
        steering.used_routes().collect::<Vec<_>>(),
        [DIRECT_ROUTE, 2]
    );
    assert_eq!(
        (steering.max_streams(1, 8), steering.max_streams(2, 8)),
        (0, usize::MAX)
    );
    steering.set_used(&plan(&[1], &[]));
    assert_eq!(
        steering.used_routes().collect::<Vec<_>>(),
        [DIRECT_ROUTE, 1]
    );
    assert_eq!(steering.max_streams(2, 8), 0);
}

#[test]
fn reserved_path_has_own_streams_and_does_not_affect_others() {
    let mut steering = RouteSteering::default();
    steering.set_used(&plan(&[], &[1]));
    assert!(steering.is_separate(1) && !steering.is_separate(DIRECT_ROUTE));
    assert_eq!(
        (steering.max_streams(1, 8), steering.total_streams(8)),
        (MAX_RESERVED_STREAMS, 8 + MAX_RESERVED_STREAMS)
    );
    // Each of its streams carries ten times as much. The direct route keeps its streams.
    let look = |moved: u64| RouteObservation {
        tried: true,
        opened: true,
        open: 4,
        moved,
        busy: true,
        gone: false,
    };
    let mut now = Duration::ZERO;
    for step in 1..400 {
        now += OBSERVE_INTERVAL;
        let judged = steering.observe(now, RTT, &[look(step * 10_000), look(step * 100_000)]);
        assert_eq!(judged, []);
    }
    assert_eq!(steering.max_streams(DIRECT_ROUTE, 8), usize::MAX);
    // It moves nothing any more, for longer than a path with a low rate might.
    let mut stalled = None;
    for step in 400..1000 {
        now += OBSERVE_INTERVAL;
        let judged = steering.observe(now, RTT, &[look(step * 10_000), look(40_000_000)]);
        stalled = stalled.or((!judged.is_empty()).then_some((step, judged)));
    }
    let (step, judged) = stalled.unwrap();
    assert_eq!(judged[0].standing, RouteStanding::Stalled);
    assert!(
        OBSERVE_INTERVAL * (step as u32 - 400) >= RESERVED_STALL_TIME - OBSERVE_INTERVAL,
        "{step}"
    );
    assert_eq!(steering.max_streams(1, 8), 1);
}
