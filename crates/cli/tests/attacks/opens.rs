//! Invalid OPENs, and floods of valid ones by one listed key.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use longhaul_hop::unix_ms;
use longhaul_hostile::status::ReceivedStatus;
use longhaul_hostile::{Flood, opens};
use longhaul_proto::{Endpoint, Open, StatusCode};

use crate::world::*;

const ANSWER: Duration = Duration::from_secs(60);
/// OPENs of a flood: more than the ids that a depot remembers. It is also bounded in time.
const FLOOD: u64 = 66_000;
const FLOOD_PER_SECOND: u32 = 100_000;
const FLOOD_TIME: Duration = Duration::from_secs(15);

fn ask(world: &World, target: &str, bytes: &[u8]) -> ReceivedStatus {
    let asked = opens::ask(target.parse().unwrap(), None, bytes, ANSWER);
    world.attackers.block_on(asked).unwrap()
}

fn ask_open(world: &World, target: &str, open: &Open) -> StatusCode {
    ask(world, target, &opens::bytes(open).unwrap()).code
}

/// A destination that the depot's policy permits, where connections are counted.
fn place() -> (TcpListener, Endpoint) {
    let listener = TcpListener::bind(ANY).unwrap();
    listener.set_nonblocking(true).unwrap();
    let endpoint = listener.local_addr().unwrap().into();
    (listener, endpoint)
}

fn nobody_came(listener: &TcpListener) -> bool {
    matches!(listener.accept(), Err(error) if error.kind() == ErrorKind::WouldBlock)
}

/// A destination that no policy here permits: a documentation network (RFC 5737).
fn elsewhere() -> Endpoint {
    SocketAddr::from(([192, 0, 2, 1], 7511)).into()
}

#[test]
fn forged_altered_and_misrouted_opens_are_refused() {
    let world = World::new();
    let depot = world.open_depot();
    let server = world.serve(&["--read", &world.stage.key("me")]);
    let address = depot.address.parse().unwrap();
    let (listener, destination) = place();
    let me = world.identity("me");
    let good = || opens::to_depot(me.signing_key(), address, destination.clone()).unwrap();
    let case =
        |open: &Open, code: StatusCode| assert_eq!(ask_open(&world, &depot.address, open), code);

    case(
        &opens::forged(me.public(), address, destination.clone()).unwrap(),
        StatusCode::BadSignature,
    );
    let stranger = world.identity("stranger");
    case(
        &opens::to_depot(stranger.signing_key(), address, destination.clone()).unwrap(),
        StatusCode::Unauthorised,
    );
    let mut bent = good();
    bent.destination.port ^= 1;
    case(&bent, StatusCode::BadSignature);
    let mut longer = good();
    longer.route = longhaul_proto::Route::direct();
    case(&longer, StatusCode::Misrouted);
    let mut bytes = opens::bytes(&good()).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    assert_eq!(
        ask(&world, &depot.address, &bytes).code,
        StatusCode::BadOpen
    );
    case(
        &opens::signed(
            me.signing_key(),
            address,
            destination.clone(),
            unix_ms() - 130_000,
        )
        .unwrap(),
        StatusCode::Expired,
    );
    let to_serve = opens::to_acceptor(me.signing_key(), server.address.parse().unwrap()).unwrap();
    case(&to_serve, StatusCode::Misrouted);
    assert_eq!(
        ask_open(&world, &server.address, &good()),
        StatusCode::Misrouted
    );
    assert!(nobody_came(&listener));
}

#[test]
fn a_replayed_open_is_refused() {
    let world = World::new();
    let depot = world.open_depot();
    let (listener, destination) = place();
    let me = world.identity("me");
    let open = opens::to_depot(
        me.signing_key(),
        depot.address.parse().unwrap(),
        destination,
    )
    .unwrap();
    assert_eq!(ask_open(&world, &depot.address, &open), StatusCode::Ok);
    assert!(!nobody_came(&listener));
    assert_eq!(ask_open(&world, &depot.address, &open), StatusCode::Replay);
    assert!(nobody_came(&listener));
}

#[test]
fn refused_opens_are_not_remembered() {
    let world = World::new();
    let depot = world.open_depot();
    let me = world.identity("me");
    let open = opens::to_depot(
        me.signing_key(),
        depot.address.parse().unwrap(),
        elsewhere(),
    )
    .unwrap();
    for _ in 0..2 {
        assert_eq!(ask_open(&world, &depot.address, &open), StatusCode::Refused);
    }
}

#[test]
fn an_open_signed_far_ahead_of_the_clock_is_refused() {
    let world = World::new();
    let depot = world.open_depot();
    let (listener, destination) = place();
    let me = world.identity("me");
    let ahead = unix_ms() + 100_000;
    let address = depot.address.parse().unwrap();
    let open = opens::signed(me.signing_key(), address, destination, ahead).unwrap();
    assert_eq!(ask_open(&world, &depot.address, &open), StatusCode::Expired);
    assert!(nobody_came(&listener));
}

#[test]
fn the_number_of_depots_passed_is_checked_before_the_dial() {
    let world = World::new();
    let depot = world.open_depot();
    let (listener, destination) = place();
    let me = world.identity("me");
    let open = opens::to_depot(
        me.signing_key(),
        depot.address.parse().unwrap(),
        destination,
    )
    .unwrap();
    let open = opens::with_all_depots_passed(open).unwrap();
    assert_eq!(
        ask_open(&world, &depot.address, &open),
        StatusCode::HopLimit
    );
    assert!(nobody_came(&listener), "the depot dialled for it");
}

/// A listed key requests `destination` as fast as it can; then an honest key is served.
fn flood_with(destination: Endpoint, limit: Duration) {
    let world = World::new();
    let key = world.stage.key("me");
    let server = world.serve(&["--read", &key, "--write", &key]);
    let depot = world.open_depot();
    let address: SocketAddr = depot.address.parse().unwrap();
    let attacker = world.identity("attacker");
    let _on = world.attackers.enter();
    let left = AtomicU64::new(FLOOD);
    let mut flood = Flood::start(address, &addresses(8), 96, FLOOD_PER_SECOND, move || {
        left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1))
            .ok()?;
        let open = opens::to_depot(attacker.signing_key(), address, destination.clone());
        open.and_then(|open| opens::bytes(&open)).ok()
    });
    world.attackers.block_on(flood.finish(limit));
    world.assert_honest_copy(&server, &depot.address);
    let (answers, without_answer) = flood.tally();
    println!("{answers:?}, {without_answer} without an answer");
    assert!(!answers.is_empty());
}

#[test]
fn floods_of_refused_opens_do_not_block_a_depot() {
    flood_with(elsewhere(), FLOOD_TIME);
}

#[test]
fn floods_of_allowed_opens_do_not_block_a_depot() {
    // The listener is gone.
    let (listener, destination) = place();
    drop(listener);
    flood_with(destination, FLOOD_TIME / 4);
}

#[test]
fn floods_of_forged_signatures_do_not_block_a_depot() {
    let world = World::new();
    let key = world.stage.key("me");
    let server = world.serve(&["--read", &key, "--write", &key]);
    let depot = world.open_depot();
    let address: SocketAddr = depot.address.parse().unwrap();
    let (own, victim) = (world.identity("stranger"), world.identity("me").public());
    let destination: Endpoint = server.address.parse::<SocketAddr>().unwrap().into();
    let _on = world.attackers.enter();
    let flood = Flood::start(address, &addresses(4), 96, FLOOD_PER_SECOND, move || {
        let open = opens::forged_by(own.signing_key(), victim, address, destination.clone());
        open.and_then(|open| opens::bytes(&open)).ok()
    });
    world.assert_honest_copy(&server, &depot.address);
    assert_eq!(flood.answered(StatusCode::Ok), 0);
}
