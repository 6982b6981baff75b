//! Measurements between depots: their permission, their results, and their bounds (LH-PROBE-1 to
//! LH-PROBE-3); and the observation of hops.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul_depot::{HopEnd, HopObserver, HopReport, Policy, ProbeFailure, ProbePlan, probe};
use longhaul_policy::{OwnAddressReader, is_local};
use longhaul_proto::{
    Endpoint, MAX_PROBE_BYTES, MAX_PROBE_EXCHANGES, Open, ProbeMessage, Route, ServiceName,
    SigningKey, StatusCode,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::bed::*;

const WITHIN: Duration = Duration::from_secs(60);

/// Filter that admits every address.
const fn everywhere(_: std::net::IpAddr) -> bool {
    true
}

/// Starts a depot that `key` may measure.
fn measured_by(key: &SigningKey) -> RunningDepot {
    let policy = format!("probes = [\"{}\"]\n", key.public());
    depot_with(
        Policy::parse(&policy, Path::new("p")).expect("policy"),
        |_| {},
    )
}

#[tokio::test]
async fn lh_probe_2_round_trips_and_a_train_are_measured() {
    let key = new_key();
    let depot = measured_by(&key);
    let to: Endpoint = depot.address.into();
    let plan = ProbePlan::RoundTrips(10);
    let figures = probe(&to, Some(depot.key), &key, plan, WITHIN, everywhere)
        .await
        .expect("measured");
    assert_eq!((figures.round_trips.len(), figures.train), (10, None));
    let plan = ProbePlan::Train(300_000);
    let figures = probe(&to, Some(depot.key), &key, plan, WITHIN, everywhere)
        .await
        .expect("measured");
    assert_eq!(figures.train.map(|train| train.bytes), Some(300_000));
    assert!(figures.segments.is_some_and(|(sent, _)| sent > 0));
}

/// A depot that registers names the addresses that others measure. An address local to those must
/// not be measured, as the probe would reach a local service.
#[tokio::test]
async fn no_local_address_is_measured() {
    let own = OwnAddressReader::new().unwrap().addresses();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    for host in [
        "127.0.0.1",
        "localhost",
        "[::ffff:127.0.0.1]",
        "[::1]",
        "0.0.0.0",
        "169.254.169.254",
    ] {
        let to: Endpoint = format!("{host}:{port}").parse().unwrap();
        let plan = ProbePlan::RoundTrips(1);
        let may_reach = |address| !is_local(address, &own);
        let refused = probe(&to, None, &new_key(), plan, WITHIN, may_reach).await;
        assert!(
            matches!(refused, Err(ProbeFailure::LocalAddress(_))),
            "{host}: {refused:?}"
        );
    }
    // Nobody has connected.
    let came = tokio::time::timeout(Duration::ZERO, listener.accept()).await;
    assert!(came.is_err(), "{came:?}");
}

#[tokio::test]
async fn lh_probe_1_only_named_keys_may_probe_and_depots_sign() {
    let key = new_key();
    let plan = ProbePlan::RoundTrips(1);
    // The key may pass, but not measure.
    let relaying = depot(&key);
    let refused = probe(
        &relaying.address.into(),
        None,
        &key,
        plan,
        WITHIN,
        everywhere,
    )
    .await;
    let Err(ProbeFailure::Refused(failure)) = refused else {
        panic!("{refused:?}")
    };
    assert!(
        failure.to_string().contains("not listed") || failure.to_string().contains("unauthorised"),
        "{failure}"
    );
    let measured = measured_by(&key);
    let other = new_key().public();
    let forged = probe(
        &measured.address.into(),
        Some(other),
        &key,
        plan,
        WITHIN,
        everywhere,
    )
    .await;
    assert!(
        matches!(
            forged,
            Err(ProbeFailure::UnexpectedKey(_) | ProbeFailure::Refused(_))
        ),
        "{forged:?}"
    );
    let stranger = probe(
        &measured.address.into(),
        None,
        &new_key(),
        plan,
        WITHIN,
        everywhere,
    )
    .await;
    assert!(
        matches!(stranger, Err(ProbeFailure::Refused(_))),
        "{stranger:?}"
    );
}

#[tokio::test]
async fn lh_probe_3_a_session_beyond_probe_bounds_ends() {
    let key = new_key();
    let depot = measured_by(&key);
    let begun = || async {
        let mut open = Open::new(
            session_id(),
            ServiceName::PROBE,
            Route::direct(),
            depot.address.into(),
            WITHIN,
        );
        open.sign(&key, now_ms()).expect("sign");
        let open = open.for_first_hop();
        let mut stream = initiate(depot.address, &open, b"").await;
        let status = with_timeout(read_status(&mut stream)).await;
        assert_eq!((status.code, status.acceptor), (StatusCode::Ok, true));
        stream
    };
    let mut many = begun().await;
    for number in 0..=u64::from(MAX_PROBE_EXCHANGES) {
        // The session may already be over.
        let _ = many.write_all(&ProbeMessage::Echo(number).encode()).await;
    }
    let mut received = Vec::new();
    let _ = with_timeout(many.read_to_end(&mut received)).await;
    assert!(
        received.len() <= 9 * MAX_PROBE_EXCHANGES as usize,
        "{}",
        received.len()
    );
    for message in [ProbeMessage::Train(MAX_PROBE_BYTES + 1).encode(), [9; 9]] {
        let mut stream = begun().await;
        stream.write_all(&message).await.expect("write");
        let mut received = Vec::new();
        let _ = with_timeout(stream.read_to_end(&mut received)).await;
        assert!(received.is_empty());
    }
}

#[tokio::test]
async fn both_hops_are_reported_when_a_session_ends() {
    let key = new_key();
    let received: Arc<Mutex<Vec<HopReport>>> = Arc::default();
    let depot = {
        let received = received.clone();
        depot_with(loopback_policy(key.public(), ""), |config| {
            config.hop_observer = Some(HopObserver(Arc::new(move |report| {
                received.lock().expect("lock").push(report);
            })));
        })
    };
    let (mut initiator, mut accepted) = established(&key, &[depot.address]).await;
    let address = accepted.local_addr().expect("address");
    let bytes = 4 << 20;
    let sink = tokio::spawn(async move {
        let mut all = Vec::new();
        accepted.read_to_end(&mut all).await.expect("read");
        all.len()
    });
    initiator.write_all(&vec![7; bytes]).await.expect("write");
    initiator.shutdown().await.expect("end");
    let mut back = Vec::new();
    with_timeout(initiator.read_to_end(&mut back))
        .await
        .expect("a clean end");
    assert_eq!(with_timeout(sink).await.expect("sink"), bytes);
    let mut depot = depot;
    depot.stop();
    with_timeout(depot.stopped()).await;
    let received = received.lock().expect("lock");
    let [into, out] = &received[..] else {
        panic!("{received:?}")
    };
    assert_eq!(
        (&into.from, &into.to),
        (&HopEnd::Key(key.public()), &HopEnd::Here)
    );
    assert_eq!(
        (&out.from, &out.to),
        (&HopEnd::Here, &HopEnd::At(address.into()))
    );
    assert!(out.observation.segments > 0, "{out:?}");
}
