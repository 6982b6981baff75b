//! Refusals of a depot: each with its status, and without a dial.

use std::path::Path;

use longhaul_depot::Policy;
use longhaul_proto::{Open, SigningKey, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::bed::*;

/// Sends `open`, and expects `code` followed by a clean end.
async fn refused(depot: &RunningDepot, open: &Open, code: StatusCode) {
    let mut stream = initiate(depot.address, open, b"early data that must go nowhere").await;
    let status = with_timeout(read_status(&mut stream)).await;
    assert_eq!(status.code, code, "{}", status.detail);
    assert_eq!(
        (status.reporter, status.payload_forwarded),
        (Some(depot.key), false)
    );
    with_timeout(assert_end(&mut stream)).await;
}

/// LH-ADMIT-1, LH-ADMIT-2.
#[tokio::test]
async fn without_a_valid_principal_nobody_is_dialled() {
    let (key, stranger) = (new_key(), new_key());
    let depot = depot(&key);
    let (listener, address) = acceptor().await;
    let fresh = |key: &SigningKey| open_via(key, &[depot.address], address);

    refused(&depot, &fresh(&stranger), StatusCode::Unauthorised).await;
    let mut unsigned = fresh(&key);
    unsigned.signature = [0; 64];
    refused(&depot, &unsigned, StatusCode::BadSignature).await;
    let mut borrowed = fresh(&stranger);
    borrowed.principal = key.public();
    refused(&depot, &borrowed, StatusCode::BadSignature).await;
    let mut bent = fresh(&key);
    bent.destination.port ^= 1;
    refused(&depot, &bent, StatusCode::BadSignature).await;
    for at in [now_ms() - 600_000, now_ms() + 600_000] {
        let mut stale = fresh(&key);
        stale.sign(&key, at).expect("sign");
        refused(&depot, &stale, StatusCode::Expired).await;
    }
    assert_never_dialled(&listener).await;
}

/// LH-SIGN-3.
#[tokio::test]
async fn an_open_is_valid_once() {
    let key = new_key();
    let depot = depot(&key);
    let (listener, address) = acceptor().await;
    let open = open_via(&key, &[depot.address], address);
    let mut stream = initiate(depot.address, &open, b"").await;
    let _first = with_timeout(accept_session(&listener)).await;
    assert_eq!(
        with_timeout(read_status(&mut stream)).await.code,
        StatusCode::Ok
    );
    refused(&depot, &open, StatusCode::Replay).await;
    assert_never_dialled(&listener).await;
}

/// LH-ADMIT-3.
#[tokio::test]
async fn the_policy_decides_before_any_dial() {
    let key = new_key();
    let (listener, address) = acceptor().await;
    let port = address.port();
    for rule in [
        // another port; another network; loopback not named; another next hop; nothing at all
        format!("to = [\"127.0.0.0/8\"]\nports = [{}]", port ^ 1),
        format!("to = [\"10.0.0.0/8\"]\nports = [{port}]"),
        format!("to = [\"0.0.0.0/0\"]\nports = [{port}]"),
        format!("to = [\"*\"]\nports = [{port}]"),
        format!("to = [\"127.0.0.0/8\"]\nports = [{port}]\nnext_hops = [\"127.0.0.1:*\"]"),
    ] {
        let text = format!("[[allow]]\nprincipals = [\"{}\"]\n{rule}", key.public());
        let depot = depot_with(Policy::parse(&text, Path::new("t")).expect(&text), |_| {});
        refused(
            &depot,
            &open_via(&key, &[depot.address], address),
            StatusCode::Refused,
        )
        .await;
    }
    let depot = depot_with(Policy::deny_all(), |_| {});
    refused(
        &depot,
        &open_via(&key, &[depot.address], address),
        StatusCode::Unauthorised,
    )
    .await;
    assert_never_dialled(&listener).await;
}

/// A name that resolves to loopback is allowed as a name, and refused for its address (LH-ADMIT-3).
#[tokio::test]
async fn resolved_addresses_are_checked_against_the_policy() {
    let key = new_key();
    let (listener, address) = acceptor().await;
    let destination: longhaul_proto::Endpoint = format!("localhost:{}", address.port())
        .parse()
        .expect("endpoint");
    let rule = |to: &str| {
        let text = format!(
            "[[allow]]\nprincipals = [\"{}\"]\nto = [{to}]\nports = [\"any\"]",
            key.public()
        );
        depot_with(Policy::parse(&text, Path::new("t")).expect(&text), |_| {})
    };
    let by_name = rule("\"localhost\"");
    refused(
        &by_name,
        &open_via(&key, &[by_name.address], destination.clone()),
        StatusCode::Refused,
    )
    .await;
    assert_never_dialled(&listener).await;
    let by_network = rule("\"127.0.0.0/8\"");
    let mut stream = initiate(
        by_network.address,
        &open_via(&key, &[by_network.address], destination.clone()),
        b"",
    )
    .await;
    let _session = with_timeout(accept_session(&listener)).await;
    assert_eq!(
        with_timeout(read_status(&mut stream)).await.code,
        StatusCode::Ok
    );
    let nowhere = "no-such-host.invalid:7511"
        .parse::<longhaul_proto::Endpoint>()
        .expect("endpoint");
    let open = open_via(&key, &[by_network.address], nowhere);
    refused(&by_network, &open, StatusCode::NameNotFound).await;
}

/// LH-ROUTE-5, LH-ROUTE-6.
#[tokio::test]
async fn loops_and_spent_hop_limits_are_refused() {
    let key = new_key();
    let (first, second) = (depot(&key), depot(&key));
    let (listener, address) = acceptor().await;
    let route = [first.address, second.address, first.address];
    let mut stream = initiate(first.address, &open_via(&key, &route, address), b"").await;
    for (place, code) in [
        (1, StatusCode::Ok),
        (2, StatusCode::Ok),
        (3, StatusCode::Loop),
    ] {
        let status = with_timeout(read_status(&mut stream)).await;
        assert_eq!((status.hop, status.code), (place, code));
    }
    let mut spent = open_via(&key, &[first.address], address);
    spent.hop_limit = 0;
    refused(&first, &spent, StatusCode::HopLimit).await;
    let mut last = open_via(&key, &[first.address, second.address], address);
    last.hop_limit = 1;
    let mut stream = initiate(first.address, &last, b"").await;
    assert_eq!(
        with_timeout(read_status(&mut stream)).await.code,
        StatusCode::Ok
    );
    assert_eq!(
        with_timeout(read_status(&mut stream)).await.code,
        StatusCode::HopLimit
    );
    assert_never_dialled(&listener).await;
}

#[tokio::test]
async fn an_open_for_the_acceptor_is_misrouted_here() {
    let key = new_key();
    let depot = depot(&key);
    let (listener, address) = acceptor().await;
    let mut open = open_via(&key, &[depot.address], address);
    open.cursor += 1;
    refused(&depot, &open, StatusCode::Misrouted).await;
    assert_never_dialled(&listener).await;
}

#[tokio::test]
async fn rules_and_the_depot_limit_their_sessions() {
    let key = new_key();
    let full = |depot: RunningDepot| {
        let key = key.clone();
        async move {
            let (initiator, acceptor) = with_timeout(established(&key, &[depot.address])).await;
            let (listener, address) = crate::bed::acceptor().await;
            refused(
                &depot,
                &open_via(&key, &[depot.address], address),
                StatusCode::Overloaded,
            )
            .await;
            assert_never_dialled(&listener).await;
            drop((initiator, acceptor));
            // The permit is free again once the depot has seen the end.
            let again = async {
                loop {
                    let open = open_via(&key, &[depot.address], address);
                    let mut stream = initiate(depot.address, &open, b"").await;
                    if read_status(&mut stream).await.code == StatusCode::Ok {
                        break;
                    }
                }
            };
            with_timeout(again).await;
        }
    };
    full(depot_with(
        loopback_policy(key.public(), "max_sessions = 1"),
        |_| {},
    ))
    .await;
    full(depot_with(loopback_policy(key.public(), ""), |config| {
        config.limits.sessions = 1
    }))
    .await;
}

/// LH-WISH-1.
#[tokio::test]
async fn stated_wishes_must_fit_the_rule() {
    let key = new_key();
    let bounds = "name = \"small\"\nmax_size = \"1 MiB\"\npurposes = [\"tests\"]";
    let depot = depot_with(loopback_policy(key.public(), bounds), |_| {});
    let (listener, address) = acceptor().await;
    let stating = |size, purpose: Option<&str>| {
        let mut open = open_via(&key, &[depot.address], address);
        (open.size, open.purpose) = (size, purpose.map(str::to_owned));
        open.sign(&key, now_ms()).expect("sign");
        open
    };
    for (size, purpose, words) in [
        (
            None,
            Some("tests"),
            "small: state the size, at most 1 MiB (max_size)",
        ),
        (
            Some(2 << 20),
            Some("tests"),
            "small: at most 1 MiB (max_size), not 2 MiB",
        ),
        (
            Some(1),
            None,
            "small: state a purpose that it allows (purposes)",
        ),
        (
            Some(1),
            Some("other"),
            "small: not for purpose \"other\" (purposes)",
        ),
    ] {
        let open = stating(size, purpose);
        let mut stream = initiate(depot.address, &open, b"").await;
        let status = with_timeout(read_status(&mut stream)).await;
        assert_eq!(status.code, StatusCode::WishRefused);
        assert_eq!(status.detail, words);
        assert_eq!(status.verify(&open.signature), Some(depot.key));
    }
    assert_never_dialled(&listener).await;
    let mut stream = initiate(depot.address, &stating(Some(1_000_000), Some("tests")), b"").await;
    let _taken = with_timeout(accept_session(&listener)).await;
    assert_eq!(
        with_timeout(read_status(&mut stream)).await.code,
        StatusCode::Ok
    );
}

/// LH-WISH-2.
#[tokio::test]
async fn a_session_beyond_its_stated_size_is_reset() {
    for backwards in [false, true] {
        let key = new_key();
        let bounds = "max_size = \"1 MB\"";
        let depot = depot_with(loopback_policy(key.public(), bounds), with_page);
        let page = depot.metrics.expect("page");
        let (listener, address) = acceptor().await;
        let mut open = open_via(&key, &[depot.address], address);
        open.size = Some(100_000);
        open.sign(&key, now_ms()).expect("sign");
        let mut initiator = initiate(depot.address, &open, b"").await;
        let (mut acceptor, _) = with_timeout(accept_session(&listener)).await;
        for _ in 0..2 {
            assert_eq!(
                with_timeout(read_status(&mut initiator)).await.code,
                StatusCode::Ok
            );
        }
        let (from, to) = match backwards {
            false => (&mut initiator, &mut acceptor),
            true => (&mut acceptor, &mut initiator),
        };
        // The stated size passes in both directions.
        let stated = vec![7; 100_000];
        with_timeout(from.write_all(&stated)).await.expect("write");
        with_timeout(to.read_exact(&mut vec![0; 100_000]))
            .await
            .expect("read");
        with_timeout(to.write_all(&stated)).await.expect("write");
        with_timeout(from.read_exact(&mut vec![0; 100_000]))
            .await
            .expect("read");
        let far_more = vec![7; 4 << 20];
        let (_, ended) = tokio::join!(
            with_timeout(from.write_all(&far_more)),
            with_timeout(assert_reset(to))
        );
        let () = ended;
        with_timeout(wait_for_metric(
            page,
            "longhaul_depot_sessions_ended_total{ending=\"more than stated\"}",
            1.0,
        ))
        .await;
    }
}
