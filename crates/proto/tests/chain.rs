//! Whole chains in virtual time: no added round trip, and failures that name the right hop.

#![allow(clippy::unwrap_used, clippy::panic)] // failed tests panic, also in helpers

mod simulation;

use bytes::BytesMut;
use longhaul_proto::{
    Chain, ChainProgress, FailureKind, Open, PublicKey, ServiceName, SessionId, SigningKey, Status,
    StatusCode,
};
use proptest::prelude::*;
use simulation::{ANSWER, CLOCK, EARLY, Fault, LATER, destination, key, plain_tcp, run};

const MS: u64 = 1000;
const SEGMENT: usize = 1448;

/// LH-DEPOT-1: through k depots, the first byte of payload arrives as early as over one TCP
/// connection of the same length. The first byte of the answer does so too.
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
        assert_eq!(
            outcome.first_payload,
            Some(plain_tcp(total)),
            "{depots} depots"
        );
        assert_eq!(
            outcome.first_answer,
            Some(plain_tcp(total) + total),
            "{depots} depots"
        );
        assert_eq!(
            (outcome.payload.as_slice(), outcome.answer.as_slice()),
            (EARLY, ANSWER)
        );
        // With a ClientHello behind it, still within TCP's initial window of ten segments (RFC
        // 6928).
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

/// The first flight may be split anywhere.
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

/// LH-CHAIN-4: for any fault, the initiator names the hop, and says how far payload was forwarded.
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

/// LH-ADMIT-2: an OPEN from an unknown principal causes no dial.
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

/// LH-STATUS-8: a depot that forges the next hop's answer is not believed if the route names keys.
#[test]
fn a_failure_cannot_be_forged_in_transit() {
    for (forges, place) in [(1, 2), (2, 3)] {
        let fault = |keyed| Fault {
            forges: Some(forges),
            keyed,
            ..Fault::default()
        };
        let failure = |keyed| {
            run(&[MS, MS, MS], fault(keyed), SEGMENT, None)
                .failure
                .unwrap()
        };
        let proved = failure(true);
        assert_eq!(
            (usize::from(proved.hop), proved.kind),
            (place, FailureKind::Forged)
        );
        assert!(!proved.nothing_forwarded, "no direct attempt rests on it");
        assert_ne!(
            failure(false).kind,
            FailureKind::Forged,
            "without keys nobody can know"
        );
    }
    let honest = Fault {
        keyed: true,
        ..Fault::default()
    };
    assert_eq!(run(&[MS, MS, MS], honest, SEGMENT, None).failure, None);
    let refused = Fault {
        dial: Some(2),
        ..honest
    };
    assert!(
        run(&[MS, MS, MS], refused, SEGMENT, None)
            .failure
            .unwrap()
            .nothing_forwarded
    );
}

fn open(route: &str) -> Open {
    let id = SessionId::from_bytes([5; 16]);
    let route = route.parse().unwrap();
    let mut open = Open::new(
        id,
        ServiceName::COPY,
        route,
        destination(),
        std::time::Duration::from_secs(20),
    );
    open.sign(&key(200), CLOCK).unwrap();
    open
}

fn public(number: u8) -> PublicKey {
    key(number).public()
}

/// Encodes the status, signed by the hop with this key as its answer to an OPEN along `route`.
fn signed(status: &Status, key: &SigningKey, route: &str) -> Vec<u8> {
    let mut status = status.clone();
    status.sign(key, &open(route)).unwrap();
    encoded(&status)
}

fn encoded(status: &Status) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    status.encode(&mut bytes);
    bytes.to_vec()
}

fn chain(route: &str) -> Chain {
    Chain::new(&open(route), None)
}

/// LH-STATUS-7, LH-STATUS-8.
#[test]
fn a_status_is_bound_to_its_reporter_and_open() {
    let route = format!("{}@d1,{}@d2", public(1), public(2));
    let ok = |hop| Status::new(StatusCode::Ok, hop);
    let first = signed(&ok(1), &key(1), &route);
    let kind = |bytes: &[u8]| chain(&route).feed(bytes).map_err(|failure| failure.kind);
    assert_eq!(kind(&first), Ok(ChainProgress::Waiting));
    assert_eq!(
        kind(&signed(&ok(1), &key(2), &route)),
        Err(FailureKind::Forged),
        "another's key"
    );
    assert_eq!(
        kind(&signed(&ok(1), &key(1), "d1,d2")),
        Err(FailureKind::Forged),
        "another OPEN"
    );
    assert_eq!(kind(&encoded(&ok(1))), Err(FailureKind::Forged), "unsigned");
    let mut bent = Status::new(StatusCode::DialRefused, 1);
    bent.sign(&key(1), &open(&route)).unwrap();
    for change in [
        (|status: &mut Status| status.code = StatusCode::Ok) as fn(&mut Status),
        |status| status.payload_forwarded = true,
        |status| status.detail = "other".into(),
        |status| status.at = Some(destination()),
        |status| {
            status.unknown = vec![longhaul_proto::UnknownOption {
                kind: 99,
                value: vec![1],
            }]
        },
    ] {
        let mut bent = bent.clone();
        change(&mut bent);
        assert_eq!(kind(&encoded(&bent)), Err(FailureKind::Forged), "{bent:?}");
    }
    // If no key is named, an `Ok` needs no signature; a failure always does.
    assert_eq!(
        chain("d1,d2").feed(&encoded(&ok(1))),
        Ok(ChainProgress::Waiting)
    );
    let failed = encoded(&Status::new(StatusCode::DialRefused, 1));
    assert_eq!(
        chain("d1,d2").feed(&failed).unwrap_err().kind,
        FailureKind::Forged
    );
    // A hop that could not read the OPEN cannot sign. Its failure is believed, but not that nothing
    // was forwarded.
    let unplaced = encoded(&Status::new(StatusCode::BadOpen, 0));
    let failure = chain(&route).feed(&unplaced).unwrap_err();
    assert_eq!(
        (failure.kind, failure.nothing_forwarded),
        (FailureKind::Depot(StatusCode::BadOpen), false)
    );
    assert!(
        chain("d1,d2")
            .feed(&unplaced)
            .unwrap_err()
            .nothing_forwarded
    );
}

/// LH-STATUS-8: the acceptor must sign its refusal if its key is known.
#[test]
fn the_acceptors_refusal_is_signed_by_the_acceptor() {
    let no = Status::from_acceptor(StatusCode::Unauthorised, 1);
    for (expected, signer, kind) in [
        (None, 7, FailureKind::Acceptor(StatusCode::Unauthorised)),
        (
            Some(public(7)),
            7,
            FailureKind::Acceptor(StatusCode::Unauthorised),
        ),
        (Some(public(8)), 7, FailureKind::Forged),
    ] {
        let mut chain = Chain::new(&open("direct"), expected);
        assert_eq!(
            chain
                .feed(&signed(&no, &key(signer), "direct"))
                .unwrap_err()
                .kind,
            kind
        );
    }
}

/// LH-STATUS-8 with LH-ROUTE-3: others may be added before a loose hop, but all named depots must
/// have answered.
#[test]
fn named_depots_behind_loose_hops_are_not_left_out() {
    let route = format!("d1,~{}@d2", public(2));
    let ok = |hop: u8, signer: u8| signed(&Status::new(StatusCode::Ok, hop), &key(signer), &route);
    let end = |hop| signed(&Status::from_acceptor(StatusCode::Ok, hop), &key(9), &route);
    let through = |signers: &[u8]| {
        let mut bytes: Vec<u8> = (1..)
            .zip(signers)
            .flat_map(|(hop, &signer)| ok(hop, signer))
            .collect();
        bytes.extend(end(u8::try_from(signers.len() + 1).unwrap()));
        chain(&route)
            .feed(&bytes)
            .map(|_| ())
            .map_err(|failure| failure.kind)
    };
    assert_eq!(through(&[1, 2]), Ok(()));
    assert_eq!(through(&[1, 5, 2]), Ok(()), "one was added");
    assert_eq!(
        through(&[1, 5]),
        Err(FailureKind::Forged),
        "another took its place"
    );
}

/// LH-CHAIN-2.
#[test]
fn statuses_out_of_order_end_the_chain() {
    let ok = |hop| Status::new(StatusCode::Ok, hop);
    let cases: [(&str, &[Status]); 7] = [
        ("d1,d2", &[ok(2)]),
        ("d1,d2", &[ok(1), ok(1)]),
        ("d1,d2", &[ok(1), ok(3)]),
        ("d1,d2", &[ok(0)]),
        ("d1,d2", &[ok(1), Status::from_acceptor(StatusCode::Ok, 2)]), // a depot is missing
        ("d1", &[ok(1), ok(2)]), // a depot was added on a strict route
        ("direct", &[ok(1)]),
    ];
    for (route, statuses) in cases {
        let bytes: Vec<u8> = statuses
            .iter()
            .flat_map(|status| signed(status, &key(1), route))
            .collect();
        let failure = chain(route).feed(&bytes).unwrap_err();
        assert_eq!(
            failure.kind,
            FailureKind::OutOfOrder,
            "{route} {statuses:?}"
        );
        assert!(!failure.nothing_forwarded);
        assert_eq!(usize::from(failure.hop), statuses.len());
    }
}

/// LH-ROUTE-3: before a loose hop there may be other depots, whose addresses the initiator does not
/// know.
#[test]
fn depots_added_before_a_loose_hop_are_counted_and_not_named() {
    let mut chain = chain("d1,~d2");
    let mut bytes: Vec<u8> = (1..=3)
        .flat_map(|hop| signed(&Status::new(StatusCode::Ok, hop), &key(hop), "d1,~d2"))
        .collect();
    assert_eq!(chain.feed(&bytes), Ok(ChainProgress::Waiting));
    assert_eq!((chain.closed().hop, chain.closed().endpoint), (4, None));
    bytes = signed(&Status::from_acceptor(StatusCode::Ok, 4), &key(4), "d1,~d2");
    bytes.extend(b"payload");
    assert_eq!(
        chain.feed(&bytes),
        Ok(ChainProgress::Established {
            consumed: bytes.len() - 7
        })
    );
}

/// LH-CHAIN-2: a hop that could not read the OPEN does not know its position, and is still named.
#[test]
fn a_refusal_without_position_gets_it_from_its_order() {
    let mut chain = chain("d1,d2");
    let mut refusal = Status::new(StatusCode::UnknownOption, 0);
    refusal.detail = "too new\x1b[2J\nfor me".into();
    let bytes = [
        signed(&Status::new(StatusCode::Ok, 1), &key(1), "d1,d2"),
        encoded(&refusal),
    ]
    .concat();
    let failure = chain.feed(&bytes).unwrap_err();
    assert_eq!(
        (failure.hop, failure.endpoint.clone()),
        (2, Some("d2:7510".parse().unwrap()))
    );
    // LH-STATUS-4: one line, without terminal control characters.
    assert!(
        !failure.to_string().chars().any(char::is_control),
        "{failure}"
    );
}

#[test]
fn another_protocol_or_silence_is_distinguished() {
    let failure = chain("d1").feed(b"SSH-2.0-").unwrap_err();
    assert!(matches!(failure.kind, FailureKind::Garbled(_)) && !failure.nothing_forwarded);
    assert_eq!(chain("d1").timed_out().kind, FailureKind::TimedOut);
    assert!(!chain("d1").timed_out().nothing_forwarded);
    assert!(chain("d1").not_connected().nothing_forwarded);
    assert_eq!(
        chain("direct").not_connected().endpoint,
        Some(destination())
    );
}

/// LH-STATUS-10.
#[test]
fn refused_signing_times_report_the_clock_difference() {
    let refused = |clock, code| {
        let mut status = Status::new(code, 1);
        status.clock_unix_ms = clock;
        status.detail = "signed long ago".into();
        let bytes = signed(&status, &key(1), "d1");
        chain("d1").feed(&bytes).unwrap_err()
    };
    for (clock, ahead_ms, says) in [
        (
            CLOCK + 360_000,
            360_000,
            "has a clock that is 360 s ahead of this machine's",
        ),
        (
            CLOCK - 24_500,
            -24_500,
            "has a clock that is 25 s behind this machine's",
        ),
    ] {
        let failure = refused(Some(clock), StatusCode::Expired);
        assert_eq!(failure.clock_ahead_ms, Some(ahead_ms));
        let text = failure.to_string();
        assert!(
            text.starts_with("depot 1 (d1:7510) ") && text.contains(says),
            "{text}"
        );
    }
    // An earlier release reports it in the detail only.
    let text = refused(None, StatusCode::Expired).to_string();
    assert!(
        text.ends_with("check both clocks: signed long ago"),
        "{text}"
    );
    let other = refused(Some(CLOCK + 360_000), StatusCode::Refused);
    assert_eq!(other.clock_ahead_ms, None);
    // Any clock value is handled.
    for clock in [0, u64::MAX] {
        let _ = refused(Some(clock), StatusCode::Expired).to_string();
    }
}

/// An endless sequence of statuses is cut off.
#[test]
fn a_chain_never_grows_without_bound() {
    let mut chain = chain("~d1,~d2");
    let ok = |hop| signed(&Status::new(StatusCode::Ok, hop), &key(hop), "~d1,~d2");
    let failed = (1..=u8::MAX).find(|&hop| chain.feed(&ok(hop)).is_err());
    assert_eq!(failed, Some(34), "32 depots and an acceptor at most");
}

prop_compose! {
    fn any_fault(places: usize)(kind in 0..6, place in 1..=places, keyed: bool) -> Fault {
        let mut fault = Fault { keyed, ..Fault::default() };
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

    /// LH-FALLBACK-1, over any chain, fault and timing: if the initiator is told that nothing was
    /// forwarded, that is true. Without a fault, everything arrives once and in order, as early as
    /// over plain TCP.
    #[test]
    fn nothing_forwarded_is_always_true(
        (delays, fault) in prop::collection::vec(1u64..200_000, 1..=5).prop_flat_map(|delays| {
            let places = delays.len();
            (Just(delays), any_fault(places))
        }),
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
                let all = if more_at >= 2 * delays[0] {
                    [EARLY, LATER].concat()
                } else {
                    EARLY.to_vec()
                };
                prop_assert_eq!(outcome.payload, all);
                prop_assert_eq!(outcome.answer, ANSWER);
            }
        }
    }
}
