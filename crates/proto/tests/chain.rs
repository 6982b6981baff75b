//! Whole chains in virtual time: no added round trip, and failures that name the right hop.

#![allow(clippy::unwrap_used, clippy::panic)] // a test that fails may panic, in its helpers too

mod simulation;

use bytes::BytesMut;
use longhaul_proto::{Chain, FailureKind, Progress, Route, Status, StatusCode};
use proptest::prelude::*;
use simulation::{ANSWER, EARLY, Fault, LATER, destination, plain_tcp, run};

const MS: u64 = 1000;
const SEGMENT: usize = 1448;

/// LH-DEPOT-1: through k depots the first byte of payload reaches the acceptor when it would over one TCP connection of
/// the same length, and the first byte of the answer comes back when it would.
#[test]
fn no_round_trip_is_added() {
    for delays in [
        &[61 * MS][..],
        &[44 * MS, 17 * MS],
        &[MS, 59 * MS, MS],
        &[10 * MS, 20 * MS, 30 * MS, MS],
        &[MS, MS, MS, MS, 57 * MS],
    ] {
        let total = delays.iter().sum();
        let outcome = run(delays, Fault::default(), SEGMENT, None);
        let depots = delays.len() - 1;
        assert_eq!(outcome.first_payload, Some(plain_tcp(total)), "{depots} depots");
        assert_eq!(
            outcome.first_answer,
            Some(plain_tcp(total) + total),
            "{depots} depots"
        );
        assert_eq!(
            (outcome.payload.as_slice(), outcome.answer.as_slice()),
            (EARLY, ANSWER)
        );
        // With a ClientHello behind it, within TCP's initial window of ten segments (RFC 6928).
        assert!(outcome.first_flight + 2000 < 10 * 1220);
        assert_eq!(outcome.failure, None);
        assert_eq!(outcome.statuses.len(), depots + 1);
        assert!(
            outcome
                .statuses
                .iter()
                .all(|status| status.code == StatusCode::Ok)
        );
    }
}

/// The first flight may be cut up anywhere.
#[test]
fn segments_of_any_size_give_the_same_session() {
    for segment in [1, 2, 7, 100, 500] {
        let outcome = run(
            &[5 * MS, 6 * MS, 7 * MS],
            Fault::default(),
            segment,
            Some(500 * MS),
        );
        assert_eq!(outcome.first_payload, Some(plain_tcp(18 * MS)), "{segment}");
        assert_eq!(outcome.payload, [EARLY, LATER].concat());
        assert_eq!(outcome.answer, ANSWER);
    }
}

/// LH-CHAIN-4: whatever fails, the initiator names the hop, and says how far payload went.
#[test]
fn a_failure_names_its_hop() {
    let delays = [10 * MS, 10 * MS, 10 * MS];
    let cases = [
        (
            Fault {
                dial: Some(1),
                ..Fault::default()
            },
            1,
            FailureKind::Depot(StatusCode::DialRefused),
            true,
        ),
        (
            Fault {
                dial: Some(2),
                ..Fault::default()
            },
            2,
            FailureKind::Depot(StatusCode::DialRefused),
            true,
        ),
        (
            Fault {
                stranger: Some(2),
                ..Fault::default()
            },
            2,
            FailureKind::Depot(StatusCode::Unauthorised),
            true,
        ),
        (
            Fault {
                stranger: Some(3),
                ..Fault::default()
            },
            3,
            FailureKind::Acceptor(StatusCode::Unauthorised),
            false,
        ),
        (
            Fault {
                clock: Some(1),
                ..Fault::default()
            },
            1,
            FailureKind::Depot(StatusCode::Expired),
            true,
        ),
        (
            Fault {
                clock: Some(3),
                ..Fault::default()
            },
            3,
            FailureKind::Acceptor(StatusCode::Expired),
            false,
        ),
        (
            Fault {
                same_key: Some(2),
                ..Fault::default()
            },
            2,
            FailureKind::Depot(StatusCode::Loop),
            true,
        ),
        (
            Fault {
                dies_connected: Some(1),
                ..Fault::default()
            },
            1,
            FailureKind::Closed,
            false,
        ),
        (
            Fault {
                dies_connected: Some(2),
                ..Fault::default()
            },
            2,
            FailureKind::Closed,
            false,
        ),
    ];
    for (fault, hop, kind, nothing_forwarded) in cases {
        let outcome = run(&delays, fault, SEGMENT, None);
        let failure = outcome.failure.unwrap_or_else(|| panic!("{fault:?}"));
        assert_eq!((failure.hop, failure.kind), (hop, kind), "{fault:?}");
        assert_eq!(failure.nothing_forwarded, nothing_forwarded, "{fault:?}");
        assert_eq!(outcome.payload, b"", "{fault:?}");
        let expected = if hop == 3 {
            destination()
        } else {
            format!("depot{hop}.example:7510").parse().unwrap()
        };
        assert_eq!(failure.endpoint, Some(expected.clone()), "{fault:?}");
        let text = failure.to_string();
        assert!(
            text.contains(&expected.to_string()) && text.lines().count() == 1,
            "{text}"
        );
    }
    let refused = run(
        &delays,
        Fault {
            dial: Some(2),
            ..Fault::default()
        },
        SEGMENT,
        None,
    )
    .failure
    .unwrap();
    assert_eq!(refused.tried, Some(destination()));
}

/// LH-ADMIT-2: where the principal is unknown, its OPEN causes no dial.
#[test]
fn a_stranger_causes_no_dial() {
    let outcome = run(
        &[MS, MS, MS],
        Fault {
            stranger: Some(1),
            ..Fault::default()
        },
        SEGMENT,
        None,
    );
    assert_eq!(outcome.dialled, [1], "the initiator's own");
    assert!(outcome.failure.is_some());
}

fn encoded(status: &Status) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    status.encode(&mut bytes);
    bytes.to_vec()
}

fn chain(route: &str) -> Chain {
    Chain::new(route.parse().unwrap(), destination())
}

/// LH-CHAIN-2.
#[test]
fn statuses_out_of_place_end_the_chain() {
    let ok = |hop| Status::new(StatusCode::Ok, hop);
    let cases: [(&str, &[Status]); 7] = [
        ("d1,d2", &[ok(2)]),
        ("d1,d2", &[ok(1), ok(1)]),
        ("d1,d2", &[ok(1), ok(3)]),
        ("d1,d2", &[ok(0)]),
        ("d1,d2", &[ok(1), Status::of_acceptor(StatusCode::Ok, 2)]), // a depot was left out
        ("d1", &[ok(1), ok(2)]),                                     // one was added on a strict route
        ("direct", &[ok(1)]),
    ];
    for (route, statuses) in cases {
        let bytes: Vec<u8> = statuses.iter().flat_map(encoded).collect();
        let failure = chain(route).feed(&bytes).unwrap_err();
        assert_eq!(failure.kind, FailureKind::OutOfOrder, "{route} {statuses:?}");
        assert!(!failure.nothing_forwarded);
        assert_eq!(usize::from(failure.hop), statuses.len());
    }
}

/// LH-ROUTE-3: before a loose hop there may be others, whose addresses nobody told the initiator.
#[test]
fn depots_added_before_a_loose_hop_are_counted_and_not_named() {
    let mut chain = chain("d1,~d2");
    let mut bytes: Vec<u8> = (1..=3)
        .flat_map(|hop| encoded(&Status::new(StatusCode::Ok, hop)))
        .collect();
    assert_eq!(chain.feed(&bytes), Ok(Progress::Waiting));
    assert_eq!((chain.closed().hop, chain.closed().endpoint), (4, None));
    bytes = encoded(&Status::of_acceptor(StatusCode::Ok, 4));
    bytes.extend(b"payload");
    assert_eq!(
        chain.feed(&bytes),
        Ok(Progress::Established {
            consumed: bytes.len() - 7
        })
    );
}

/// LH-CHAIN-2: who could not read the OPEN does not know its place, and is still named.
#[test]
fn an_unplaced_refusal_is_placed_by_its_order() {
    let mut chain = chain("d1,d2");
    let mut refusal = Status::new(StatusCode::UnknownOption, 0);
    refusal.detail = "too new\x1b[2J\nfor me".into();
    let bytes = [encoded(&Status::new(StatusCode::Ok, 1)), encoded(&refusal)].concat();
    let failure = chain.feed(&bytes).unwrap_err();
    assert_eq!(
        (failure.hop, failure.endpoint.clone()),
        (2, Some("d2:7510".parse().unwrap()))
    );
    // LH-STATUS-4: one line, and nothing that steers a terminal.
    assert!(!failure.to_string().chars().any(char::is_control), "{failure}");
}

#[test]
fn another_protocol_or_silence_is_told_apart() {
    let failure = chain("d1").feed(b"SSH-2.0-").unwrap_err();
    assert!(matches!(failure.kind, FailureKind::Garbled(_)) && !failure.nothing_forwarded);
    assert_eq!(chain("d1").timed_out().kind, FailureKind::TimedOut);
    assert!(!chain("d1").timed_out().nothing_forwarded);
    assert!(chain("d1").not_connected().nothing_forwarded);
    assert_eq!(chain("direct").not_connected().endpoint, Some(destination()));
}

/// Statuses without end are cut off.
#[test]
fn a_chain_never_grows_without_bound() {
    let route: Route = "~d1,~d2".parse().unwrap();
    let mut chain = Chain::new(route, destination());
    let failed = (1..=u8::MAX).find(|&hop| chain.feed(&encoded(&Status::new(StatusCode::Ok, hop))).is_err());
    assert_eq!(failed, Some(34), "32 depots and an acceptor at most");
}

prop_compose! {
    fn any_fault(places: usize)(kind in 0..6, place in 1..=places) -> Fault {
        let mut fault = Fault::default();
        match kind {
            0 => fault.dial = Some(place),
            1 => fault.stranger = Some(place),
            2 => fault.dies_connected = Some(place),
            3 => fault.clock = Some(place),
            4 if place > 1 => fault.same_key = Some(place),
            _ => {}
        }
        fault
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// LH-FALLBACK-1, over any chain, fault and timing: when the initiator is told that nothing went on, nothing did;
    /// and when all is well, everything arrives, once and in order, as early as over plain TCP.
    #[test]
    fn nothing_forwarded_is_never_said_in_vain(
        (delays, fault) in prop::collection::vec(1u64..200_000, 1..=5).prop_flat_map(|delays| { let places = delays.len(); (Just(delays), any_fault(places)) }),
        segment in 20usize..2000, more_at in 0u64..2_000_000,
    ) {
        let outcome = run(&delays, fault, segment, Some(more_at));
        let total: u64 = delays.iter().sum();
        match outcome.failure {
            Some(failure) => {
                prop_assert!(!failure.nothing_forwarded || outcome.payload.is_empty());
                prop_assert!(outcome.answer.is_empty());
            }
            None => {
                prop_assert_eq!(outcome.first_payload, Some(plain_tcp(total)));
                let all = if more_at >= 2 * delays[0] { [EARLY, LATER].concat() } else { EARLY.to_vec() };
                prop_assert_eq!(outcome.payload, all);
                prop_assert_eq!(outcome.answer, ANSWER);
            }
        }
    }
}
