#![allow(clippy::unwrap_used, clippy::panic)]

use drs::{TcpInfo, TcpState};
use proptest::prelude::*;

use super::*;

const TO: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const RTT: Duration = Duration::from_millis(50);

/// Returns a spread over paths of these rates in Mbit/s, with `ports` ports each.
fn spread(shares: &str, rates: &[u64], ports: u16) -> SpreadState {
    let mut state = SpreadState::new(shares.parse().unwrap());
    state.set_paths(vec![reserved(12, "192.0.2.0/24", rates, ports)]);
    state
}

fn reserved(reservation: u64, to: &str, rates: &[u64], ports: u16) -> ReservedPaths {
    let first = |place: usize| 20_000 + u16::try_from(place).unwrap() * 100;
    let paths = rates.iter().enumerate().map(|(place, mbps)| ReservedPath {
        ports: first(place)..=first(place) + ports - 1,
        rate_bps: mbps * 1_000_000,
    });
    ReservedPaths {
        reservation,
        from: None,
        to: to.parse().unwrap(),
        paths: paths.collect(),
    }
}

fn socket(port: u16, state: TcpState, acked: u64, received: u64) -> TcpSocket {
    let info = TcpInfo {
        rtt: RTT,
        bytes_acked: Some(acked),
        bytes_received: Some(received),
        bytes_not_sent: Some(1_000),
        delivery_rate_app_limited: Some(false),
        ..TcpInfo::default()
    };
    TcpSocket {
        local_port: port,
        peer: TO,
        state,
        info: (state != TcpState::TimeWait).then_some(info),
    }
}

/// Assigns connections that are open from then on, and returns the number of each path.
fn assign(
    state: &mut SpreadState,
    sockets: &mut Vec<TcpSocket>,
    count: usize,
    now: Duration,
) -> Vec<usize> {
    let assigned = (0..count).map(|_| {
        let assigned = state.assign(TO, Some(sockets.as_slice()), now);
        let assigned = assigned.unwrap().unwrap();
        sockets.push(socket(assigned.source.port(), TcpState::SynSent, 0, 0));
        assigned.number
    });
    assigned.collect()
}

#[test]
fn connections_leave_from_ports_of_their_path() {
    let mut state = spread("rate", &[400, 100], 64);
    let assigned = state.assign(TO, Some(&[]), RTT).unwrap().unwrap();
    assert_eq!(assigned.source, "0.0.0.0:20000".parse().unwrap());
    assert_eq!(
        assigned.to_string(),
        "path 1 of reservation 12, from port 20000"
    );
    assert_eq!(
        state.assign("192.0.3.1".parse().unwrap(), Some(&[]), RTT),
        None
    );
    assert_eq!(state.port_range(), Some(20_000..=20_163));
    let mut sockets = Vec::new();
    let paths = assign(&mut state, &mut sockets, 9, RTT);
    let of_first = paths.iter().filter(|path| **path == 1).count();
    assert_eq!(of_first, 7, "with the first, 8 of 10");
}

#[test]
fn connections_in_one_moment_are_counted_by_their_leases() {
    let mut state = spread("even", &[400, 100], 64);
    let paths: Vec<usize> = (0..4)
        .map(|_| state.assign(TO, Some(&[]), RTT).unwrap().unwrap().number)
        .collect();
    assert_eq!(paths, [1, 2, 1, 2]);
    // Their programs did not connect.
    let later = RTT + LEASE_TIME;
    let next = state.assign(TO, Some(&[]), later).unwrap().unwrap();
    assert_eq!((next.number, next.source.port()), (1, 20_002));
}

#[test]
fn control_connection_does_not_count() {
    let mut state = spread("70:30", &[400, 100], 64);
    let mut sockets = Vec::new();
    assert_eq!(assign(&mut state, &mut sockets, 1, Duration::ZERO), [1]);
    sockets[0] = socket(20_000, TcpState::Established, 400, 900);
    let now = RTT * (IDLE_RTTS + 1);
    let paths = assign(&mut state, &mut sockets, 10, now);
    assert_eq!(paths.iter().filter(|path| **path == 1).count(), 7);
    // A bulk connection of the same age does.
    sockets[0] = socket(20_000, TcpState::Established, 1 << 20, 0);
    assert_eq!(
        state.connections(&state.reserved[0].paths[0], Some(&sockets), now),
        8
    );
}

#[test]
fn used_ports_are_left_out_until_none_is_free() {
    let mut state = spread("rate", &[400, 100], 2);
    let waiting = [socket(20_000, TcpState::TimeWait, 0, 0)];
    let mut next = || state.assign(TO, Some(&waiting), RTT).unwrap();
    assert_eq!(next().unwrap().source.port(), 20_001);
    // The faster path has no port left.
    assert_eq!(next().unwrap().source.port(), 20_100);
    assert_eq!(next().unwrap().source.port(), 20_101);
    assert_eq!(next(), Err(NoFreePort { reservation: 12 }));
}

#[test]
fn slow_path_gets_fewer_connections_once_it_is_measured() {
    let mut state = spread("rate", &[400, 400], 64);
    let mut sockets = Vec::new();
    assert_eq!(assign(&mut state, &mut sockets, 2, Duration::ZERO), [1, 2]);
    // The second carries an eighth of what is reserved, the first all of it.
    for second in 1..=9 {
        sockets[0] = socket(20_000, TcpState::Established, second * 49_000_000, 0);
        sockets[1] = socket(20_100, TcpState::Established, second * 6_000_000, 0);
        state.observe(&sockets, Duration::from_secs(second));
    }
    sockets.clear();
    let paths = assign(&mut state, &mut sockets, 9, Duration::from_secs(10));
    assert_eq!(
        paths.iter().filter(|path| **path == 2).count(),
        1,
        "{paths:?}"
    );
    let report = state.report(Some(&sockets), Duration::from_secs(10));
    assert_eq!(report[1]["measured_bps"], 48e6);
    assert_eq!(report[1]["connections"], 1);
    assert_eq!(report[0]["first_port"], 20_000);
}

#[test]
fn without_a_view_of_sockets_paths_are_used_in_turn() {
    let mut state = spread("even", &[400, 100], 2);
    let numbers: Vec<usize> = (0..8)
        .map(|_| state.assign(TO, None, RTT).unwrap().unwrap().number)
        .collect();
    assert_eq!(numbers.iter().filter(|number| **number == 1).count(), 4);
}

#[test]
fn replaced_paths_keep_what_is_known_of_their_ports() {
    let mut state = spread("even", &[400, 100], 4);
    state.assign(TO, Some(&[]), RTT).unwrap().unwrap();
    let paths = vec![reserved(12, "192.0.2.7", &[300], 4)];
    state.set_paths(paths);
    let next = state.assign(TO, Some(&[]), RTT).unwrap().unwrap();
    assert_eq!(next.source.port(), 20_001);
    state.set_paths(Vec::new());
    assert_eq!(state.assign(TO, Some(&[]), RTT), None);
    assert_eq!(state.port_range(), None);
    assert!(state.leases.is_empty() && state.given.is_empty());
}

/// An event of the simulation.
#[derive(Debug, Clone)]
enum Event {
    /// A connection opens.
    Open,
    /// The connection at this place ends.
    End(usize),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        3 => Just(Event::Open),
        2 => (0_usize..50).prop_map(Event::End),
    ];
    prop::collection::vec(event, 0..120)
}

proptest! {
    /// However connections open and end, no two have the same port, each new one goes where its
    /// expected rate is highest, and the port is one of its path.
    #[test]
    fn each_new_connection_has_the_best_path_and_its_own_port(
        rates in prop::collection::vec(1_u64..1_000, 1..8), events in events(),
    ) {
        let mut state = spread("rate", &rates, 64);
        let (mut open, mut now) = (Vec::<(usize, TcpSocket)>::new(), Duration::ZERO);
        for event in events {
            now += LEASE_TIME;
            let sockets: Vec<TcpSocket> = open.iter().map(|(_, socket)| socket.clone()).collect();
            let counts = |place| open.iter().filter(|(of, _)| *of == place).count();
            match event {
                Event::End(at) if !open.is_empty() => {
                    open.remove(at % open.len());
                }
                Event::End(_) => {}
                Event::Open => {
                    let assigned = state.assign(TO, Some(&sockets), now).unwrap().unwrap();
                    let (place, port) = (assigned.number - 1, assigned.source.port());
                    prop_assert!(state.reserved[0].paths[place].ports.contains(&port));
                    prop_assert!(sockets.iter().all(|socket| socket.local_port != port));
                    let expected = |place: usize| rates[place] as f64 / (counts(place) + 1) as f64;
                    let best = (0..rates.len()).map(expected).fold(0.0, f64::max);
                    prop_assert!(expected(place) >= best * (1.0 - 1e-9));
                    open.push((place, socket(port, TcpState::Established, 1 << 20, 0)));
                }
            }
        }
    }
}
