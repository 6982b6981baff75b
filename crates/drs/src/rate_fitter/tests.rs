//! Tests on loopback sockets, whose round trip is too short to be fitted: limits are set and
//! lifted, and the thread starts and ends.

use std::net::{TcpListener, TcpStream, UdpSocket};

use super::*;

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (sender, listener.accept().unwrap().0)
}

fn limit(socket: &TcpStream) -> Option<u64> {
    TcpInfo::read(socket).unwrap().max_pacing_rate
}

/// Waits until the thread has done something. Returns false after a timeout.
fn until(mut is_so: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(120) {
        if is_so() {
            return true;
        }
        thread::yield_now();
    }
    false
}

#[test]
fn a_ceiling_is_set_and_lifted_with_the_guard() {
    let fitter = RateFitter::new();
    let (sender, _receiver) = pair();
    let guard = fitter.add(&sender, Some(1_000_000)).unwrap();
    assert!(until(|| limit(&sender) == Some(1_000_000)));
    guard.set_ceiling(Some(2_000_000));
    assert_eq!(limit(&sender), Some(2_000_000));
    assert_eq!(guard.state().unwrap(), FitState::Searching);
    assert_eq!(guard.fitted_rate(), None);
    drop(guard);
    assert_eq!(limit(&sender), None, "nothing stays behind");
}

#[test]
fn a_limit_that_was_there_stays_and_comes_back() {
    let fitter = RateFitter::new();
    let (sender, _receiver) = pair();
    set_max_pacing_rate(&sender, Some(500_000)).unwrap();
    let guard = fitter.add(&sender, Some(1_000_000)).unwrap();
    guard.set_ceiling(None);
    assert!(until(|| limit(&sender) == Some(500_000)));
    drop(guard);
    assert_eq!(limit(&sender), Some(500_000));
}

#[test]
fn one_thread_watches_all_flows_and_ends_after_the_last() {
    let fitter = RateFitter::new();
    let is_watched = || fitter.0.flows.lock().is_watched;
    for _ in 0..2 {
        let pairs: Vec<_> = (0..20).map(|_| pair()).collect();
        let guards: Vec<_> = pairs
            .iter()
            .map(|(sender, _)| fitter.add(sender, Some(1_000_000)).unwrap())
            .collect();
        assert!(is_watched());
        assert!(until(|| pairs
            .iter()
            .all(|(sender, _)| limit(sender) == Some(1_000_000))));
        drop(guards);
        assert!(pairs.iter().all(|(sender, _)| limit(sender).is_none()));
        assert!(until(|| !is_watched()), "it ends, and starts again");
    }
}

#[test]
fn guard_keeps_no_connection_open() {
    let fitter = RateFitter::new();
    let (sender, receiver) = pair();
    let guard = fitter.add(&sender, None).unwrap();
    drop(sender);
    drop(guard);
    assert_eq!(io::Read::read(&mut &receiver, &mut [0; 1]).unwrap(), 0);
}

#[test]
fn unconnected_sockets_are_an_error() {
    let fitter = RateFitter::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    assert!(matches!(
        fitter.add(&listener, None),
        Err(RateFitError::Socket(_))
    ));
    let (one, other) = (
        UdpSocket::bind("127.0.0.1:0").unwrap(),
        UdpSocket::bind("127.0.0.1:0").unwrap(),
    );
    one.connect(other.local_addr().unwrap()).unwrap();
    assert!(matches!(
        fitter.add(&one, None),
        Err(RateFitError::TcpInfo(_))
    ));
    assert!(!fitter.0.flows.lock().is_watched);
}

#[test]
fn many_flows_are_looked_at_less_often() {
    let flows = FittedFlows::default();
    let sweep = Duration::from_millis(2);
    assert_eq!(flows.pause(sweep), Duration::from_secs(1));
    let mut flows = FittedFlows::default();
    let (sender, _receiver) = pair();
    let info = TcpInfo::read(&sender).unwrap();
    flows.list.push(FittedFlow {
        number: 0,
        socket: sender.try_clone().unwrap().into(),
        destination: IpAddr::from([127, 0, 0, 1]),
        began: Instant::now(),
        earlier_retransmits: info.retransmits,
        earlier_limit: None,
        fit: RateFit::new(None),
        failed: None,
        sample: None,
    });
    assert_eq!(
        flows.pause(Duration::from_micros(3)),
        Duration::from_micros(300)
    );
    assert_eq!(flows.pause(sweep), Duration::from_millis(38));
}
