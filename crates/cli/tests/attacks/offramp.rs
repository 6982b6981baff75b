//! Attempts to reach servers that no rule permits: on the off-ramp's own host, in another's name,
//! or by replay.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use longhaul_hop::unix_ms;
use longhaul_hostile::{StrangerBehaviour, opens};
use longhaul_proto::{Endpoint, Open, ServiceName as OpenService, StatusCode};
use longhaul_session::{ConnectOptions, ServerTrust, connect};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::stage::Service;
use crate::world::*;

const ANSWER: Duration = Duration::from_secs(60);

fn ask(world: &World, offramp: &Service, open: &Open) -> StatusCode {
    let bytes = opens::bytes(open).unwrap();
    let asked = opens::ask(offramp.address.parse().unwrap(), None, &bytes, ANSWER);
    world.attackers.block_on(asked).unwrap().code
}

/// An ordinary server. Accepting counts the clients.
fn server() -> (TcpListener, Endpoint) {
    let listener = TcpListener::bind(ANY).unwrap();
    listener.set_nonblocking(true).unwrap();
    let endpoint = listener.local_addr().unwrap().into();
    (listener, endpoint)
}

fn nobody_came(listener: &TcpListener) -> bool {
    listener.accept().is_err()
}

/// Opens an honest session of `me` with `server`: one byte in each direction.
fn assert_honest(world: &World, offramp: &Service, listener: &TcpListener, server: &Endpoint) {
    let options = ConnectOptions::through_offramp(
        server.clone(),
        longhaul_proto::Route::direct(),
        offramp.address.parse().unwrap(),
        world.identity("me").into(),
        ServerTrust::Pinned(offramp.key.parse().unwrap()),
    );
    let honest = async {
        let listener = tokio::net::TcpListener::from_std(listener.try_clone().unwrap()).unwrap();
        let (session, accepted) = tokio::join!(connect(&options), listener.accept());
        let (mut session, mut stream) = (session.unwrap(), accepted.unwrap().0);
        session.write_all(b"?").await.unwrap();
        session.flush().await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), b'?');
        stream.write_all(b"!").await.unwrap();
        assert_eq!(session.read_u8().await.unwrap(), b'!');
    };
    world
        .attackers
        .block_on(async { tokio::time::timeout(HONEST, honest).await })
        .expect("an honest session did not come about in time");
}

/// A rule for all addresses and names still permits nothing on this machine or next to it.
#[test]
fn a_catch_all_rule_excludes_internal_addresses() {
    let world = World::new();
    let me = world.identity("me");
    let offramp = world.offramp(&servers(
        &[world.stage.key("me")],
        &["0.0.0.0/0", "::/0", "*"],
    ));
    let address = offramp.address.parse().unwrap();
    let (listener, inside) = server();
    let port = inside.port;
    for host in [
        "127.0.0.1",
        "127.66.0.1",
        "0.0.0.0",
        // Metadata service of clouds, which gives machines their keys.
        "169.254.169.254",
        "[::1]",
        "[::]",
        "[fe80::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:169.254.169.254]",
        "[::127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[2002:7f00:1::1]",
        // A name that always resolves to this machine (RFC 6761).
        "localhost",
        "LOCALHOST",
        "255.255.255.255",
        "224.0.0.1",
    ] {
        let server: Endpoint = format!("{host}:{port}").parse().unwrap();
        let open = opens::to_server(me.signing_key(), address, server).unwrap();
        assert_eq!(ask(&world, &offramp, &open), StatusCode::Refused, "{host}");
    }
    assert!(nobody_came(&listener));
}

#[test]
fn redirected_and_replayed_offramp_opens_are_refused() {
    let world = World::new();
    let (me, attacker) = (world.identity("me"), world.identity("attacker"));
    let offramp = world.offramp(&servers(&[world.stage.key("me")], &["127.0.0.1"]));
    let address: SocketAddr = offramp.address.parse().unwrap();
    let (listener, place) = server();
    let case = |open: &Open, code| assert_eq!(ask(&world, &offramp, open), code);
    let of = |identity: &longhaul_session::Identity| {
        opens::to_server(identity.signing_key(), address, place.clone()).unwrap()
    };
    case(&of(&attacker), StatusCode::Unauthorised);
    let mut forged = of(&attacker);
    forged.principal = me.public();
    case(&forged, StatusCode::BadSignature);
    // A signature for one server is not valid for another.
    let mut bent = opens::to_server(
        me.signing_key(),
        address,
        SocketAddr::from(([127, 0, 0, 1], 9)).into(),
    )
    .unwrap();
    bent.onward = Some(place.clone());
    case(&bent, StatusCode::BadSignature);
    let mut late = of(&me);
    late.sign(me.signing_key(), unix_ms() - 130_000).unwrap();
    case(&late, StatusCode::Expired);
    let mut early = of(&me);
    early.sign(me.signing_key(), unix_ms() + 60_000).unwrap();
    case(&early, StatusCode::Expired);
    let mut copy = of(&me);
    (copy.service, copy.onward) = (OpenService::COPY, None);
    copy.sign(me.signing_key(), unix_ms()).unwrap();
    case(&copy, StatusCode::NoService);
    let depots = opens::to_depot(me.signing_key(), address, place.clone()).unwrap();
    case(&depots, StatusCode::Misrouted);
    assert!(nobody_came(&listener));

    let good = of(&me);
    case(&good, StatusCode::Ok);
    assert!(!nobody_came(&listener));
    case(&good, StatusCode::Replay);
    assert!(nobody_came(&listener));
    world.wait_for_log("offramp", "replay");
    world.wait_for_log("offramp", "bad signature");
}

/// An unsigned request gets the same answer for an open port as for a closed one, so it reveals
/// nothing about internal servers.
#[test]
fn strangers_learn_nothing_about_internal_servers() {
    let world = World::new();
    let attacker = world.identity("attacker");
    let offramp = world.offramp(&servers(&[world.stage.key("me")], &["127.0.0.1"]));
    let address = offramp.address.parse().unwrap();
    let (listener, open_port) = server();
    let (closed, closed_port) = server();
    drop(closed);
    for server in [open_port, closed_port] {
        let open = opens::to_server(attacker.signing_key(), address, server).unwrap();
        assert_eq!(ask(&world, &offramp, &open), StatusCode::Unauthorised);
    }
    assert!(nobody_came(&listener));
}

#[test]
fn floods_do_not_block_the_offramp() {
    let world = World::new();
    let key = world.stage.key("me");
    let offramp = world.offramp(&servers(&[key], &["127.0.0.1"]));
    let (listener, place) = server();
    let crowd = world.strangers(&offramp.address, 1200, 3000, StrangerBehaviour::Idle);
    assert!(crowd.made() > 0, "{} could not be made", crowd.failed());
    assert_honest(&world, &offramp, &listener, &place);
}
