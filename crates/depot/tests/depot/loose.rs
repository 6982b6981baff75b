//! Depots that a depot adds before loose hops, by its forwarding table.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use longhaul_depot::{DepotConfig, ForwardingTable, Policy};
use longhaul_proto::{
    Chain, ChainProgress, Endpoint, Open, PublicKey, Route, ServiceName, SigningKey, Status,
    StatusCode, Transport,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::bed::*;

/// Returns a table that names `next_hop` before every loose hop.
fn table(next_hop: &str) -> ForwardingTable {
    let text = format!("[[forward]]\nto = [\"*\"]\nnext_hops = [\"{next_hop}\"]\n");
    ForwardingTable::parse(&text, Path::new("test.toml")).expect(&text)
}

/// Starts a depot that lets `key` connect anywhere on loopback, and adds `next_hop`.
fn adding_depot(key: &SigningKey, next_hop: &str) -> RunningDepot {
    depot_with(loopback_policy(key.public(), ""), |config| {
        adds(config, next_hop);
    })
}

fn adds(config: &mut DepotConfig, next_hop: &str) {
    config.forwarding = table(next_hop);
    with_page(config);
}

/// Writes a hop with its key.
fn keyed(depot: &RunningDepot) -> String {
    format!("{}@{}", depot.key, depot.address)
}

/// Returns a signed OPEN along `route` to `destination`, as the initiator sends it.
fn open_along(key: &SigningKey, route: &str, destination: impl Into<Endpoint>) -> Open {
    let route: Route = route.parse().expect(route);
    let mut open = Open::new(
        session_id(),
        ServiceName::COPY,
        route,
        destination.into(),
        Duration::from_secs(60),
    );
    open.sign(key, now_ms()).expect("sign");
    open.for_first_hop()
}

/// Reads the statuses as an initiator checks them (LH-CHAIN-2, LH-STATUS-8).
async fn read_chain(stream: &mut TcpStream, open: &Open) -> Vec<Status> {
    let mut chain = Chain::new(open, None);
    loop {
        let byte = stream.read_u8().await.expect("a status before the end");
        if let ChainProgress::Established { .. } = chain.feed(&[byte]).expect("a valid chain") {
            return chain.statuses().to_vec();
        }
    }
}

/// Accepts the next session, with a status that is signed if the route names keys (LH-STATUS-7).
async fn accept_signed(listener: &TcpListener) -> (TcpStream, Open) {
    let (mut stream, _) = listener.accept().await.expect("accept");
    let open = read_open(&mut stream).await;
    let status = Status::from_acceptor(StatusCode::Ok, open.position());
    let answer = status.into_answer(&new_key(), Some(&open));
    stream.write_all(&answer).await.expect("answer");
    (stream, open)
}

/// Sets a session up along `open`. Returns the depots passed and the statuses.
async fn passed_along(
    first: &RunningDepot,
    open: &Open,
    listener: &TcpListener,
) -> (Vec<PublicKey>, Vec<Status>) {
    let mut initiator = initiate(first.address, open, b"early ").await;
    let (mut accepted, arrived) = with_timeout(accept_signed(listener)).await;
    arrived.verify().expect("the signature still holds");
    assert_eq!(usize::from(arrived.cursor), open.route.hops().len() + 1);
    let statuses = with_timeout(read_chain(&mut initiator, open)).await;
    let mut early = [0; 6];
    accepted.read_exact(&mut early).await.expect("early data");
    accepted.write_all(b"back").await.expect("write");
    let mut back = [0; 4];
    initiator.read_exact(&mut back).await.expect("payload");
    assert_eq!((&early, &back), (b"early ", b"back"));
    (arrived.passed, statuses)
}

/// LH-ROUTE-3, LH-ROUTE-8, LH-CHAIN-2, LH-STATUS-8.
#[tokio::test]
async fn a_loose_hop_is_reached_through_an_added_depot() {
    let key = new_key();
    let (second, third) = (depot(&key), depot(&key));
    let first = adding_depot(&key, &keyed(&second));
    let (listener, address) = acceptor().await;
    for route in [
        format!("{},~{}", first.address, third.address),
        format!("{},~{}", keyed(&first), keyed(&third)),
        format!("{},~{}", first.address, keyed(&third)),
        format!("{},~{}", keyed(&first), third.address),
    ] {
        let open = open_along(&key, &route, address);
        let (passed, statuses) = passed_along(&first, &open, &listener).await;
        assert_eq!(passed, [first.key, second.key, third.key], "{route}");
        let at: Vec<Option<Endpoint>> = statuses.iter().map(|status| status.at.clone()).collect();
        let tried = [second.address, third.address, address].map(|at| Some(at.into()));
        assert_eq!(at[..3], tried, "each names the endpoint that it dialled");
        // LH-STATUS-11.
        for status in &statuses[..3] {
            let details = status.dialled.as_ref().expect("details of the hop");
            assert_eq!(details.transport, Transport::Tcp);
            assert!(details.round_trip.is_some() && details.congestion.is_some());
        }
    }
    let page = first.metrics.expect("page");
    let dialled = metric(page, "longhaul_depot_added_hops_total{outcome=\"dialled\"}").await;
    assert_eq!(dialled, Some(4.0));
}

/// LH-ROUTE-2.
#[tokio::test]
async fn strict_hops_and_the_destination_are_dialled_directly() {
    let key = new_key();
    let (second, third) = (depot(&key), depot(&key));
    let first = adding_depot(&key, &keyed(&second));
    let (listener, address) = acceptor().await;
    for (route, expected) in [
        (
            format!("{},{}", first.address, third.address),
            vec![first.key, third.key],
        ),
        (format!("~{}", first.address), vec![first.key]),
    ] {
        let open = open_along(&key, &route, address);
        let (passed, _) = passed_along(&first, &open, &listener).await;
        assert_eq!(passed, expected, "{route}");
    }
}

/// LH-ROUTE-9: the second table names the first depot, and the first again itself.
#[tokio::test]
async fn a_passed_depot_is_not_added_again() {
    let key = new_key();
    let third = depot(&key);
    let first_key = new_key();
    let (_closed, nowhere) = refusing_address();
    let second = adding_depot(&key, &format!("{}@{nowhere}", first_key.public()));
    let first = depot_with(loopback_policy(key.public(), ""), |config| {
        adds(config, &keyed(&second));
        config.key = first_key.clone();
    });
    let (listener, address) = acceptor().await;
    let open = open_along(
        &key,
        &format!("{},~{}", first.address, third.address),
        address,
    );
    let (passed, _) = passed_along(&first, &open, &listener).await;
    assert_eq!(passed, [first_key.public(), second.key, third.key]);
    let page = second.metrics.expect("page");
    let failed = metric(page, "longhaul_depot_added_hops_total{outcome=\"failed\"}").await;
    assert_eq!(
        failed, None,
        "the second depot dialled the loose hop at once"
    );
}

/// LH-ROUTE-9.
#[tokio::test]
async fn the_loose_hop_is_dialled_if_the_added_depot_is_dead() {
    let key = new_key();
    let third = depot(&key);
    let (_closed, dead) = refusing_address();
    let first = adding_depot(&key, &dead.to_string());
    let (listener, address) = acceptor().await;
    let route = format!("{},~{}", keyed(&first), keyed(&third));
    for count in 1..=2 {
        let open = open_along(&key, &route, address);
        let (passed, statuses) = passed_along(&first, &open, &listener).await;
        assert_eq!(passed, [first.key, third.key]);
        assert_eq!(statuses[0].at, Some(third.address.into()));
        let page = first.metrics.expect("page");
        let failed = metric(page, "longhaul_depot_added_hops_total{outcome=\"failed\"}").await;
        assert_eq!(failed, Some(f64::from(count)));
    }
}

/// LH-ROUTE-6: a depot is not added at the expense of the listed hops.
#[tokio::test]
async fn nothing_is_added_beyond_the_hop_limit() {
    let key = new_key();
    let (second, third) = (depot(&key), depot(&key));
    let first = adding_depot(&key, &keyed(&second));
    let (listener, address) = acceptor().await;
    for (limit, expected) in [
        (2, vec![first.key, third.key]),
        (3, vec![first.key, second.key, third.key]),
    ] {
        let mut open = open_along(
            &key,
            &format!("{},~{}", first.address, third.address),
            address,
        );
        open.hop_limit = limit;
        let (passed, _) = passed_along(&first, &open, &listener).await;
        assert_eq!(passed, expected, "a hop limit of {limit}");
    }
}

/// LH-ADMIT-3: the table grants nothing that the policy does not.
#[tokio::test]
async fn the_policy_decides_about_added_depots() {
    let key = new_key();
    let (second, third) = (depot(&key), depot(&key));
    let (listener, address) = acceptor().await;
    let first = |next_hop: SocketAddr, allowed: SocketAddr| {
        let text = format!(
            "[[allow]]\nprincipals = [\"{}\"]\nto = [\"127.0.0.0/8\"]\nports = [\"any\"]\n\
             next_hops = [\"{allowed}\"]\n",
            key.public()
        );
        let policy = Policy::parse(&text, Path::new("test.toml")).expect(&text);
        depot_with(policy, |config| adds(config, &next_hop.to_string()))
    };
    let open = |first: &RunningDepot| {
        open_along(
            &key,
            &format!("{},~{}", first.address, third.address),
            address,
        )
    };
    let only_third = first(second.address, third.address);
    let (passed, _) = passed_along(&only_third, &open(&only_third), &listener).await;
    assert_eq!(passed, [only_third.key, third.key]);
    // Such a depot cannot reach the loose hop itself.
    let only_second = first(second.address, second.address);
    let (passed, _) = passed_along(&only_second, &open(&only_second), &listener).await;
    assert_eq!(passed, [only_second.key, second.key, third.key]);
    let (_closed, nowhere) = refusing_address();
    let only_nowhere = first(nowhere, nowhere);
    let mut stream = initiate(only_nowhere.address, &open(&only_nowhere), b"").await;
    let status = with_timeout(read_status(&mut stream)).await;
    assert_eq!(
        (status.code, status.at),
        (StatusCode::DialRefused, Some(nowhere.into()))
    );
    let neither = first(second.address, nowhere);
    let mut stream = initiate(neither.address, &open(&neither), b"").await;
    let status = with_timeout(read_status(&mut stream)).await;
    assert_eq!(
        (status.code, status.at),
        (StatusCode::Refused, Some(third.address.into()))
    );
}
