//! Semantics of an OPEN: its binding, its receivers, its signed part and its route.

use std::time::Duration;

use longhaul_proto::{
    Admission, DelegatedAction, Delegation, DelegationFault, MAX_PASSED_DEPOTS, NextReceiver, Open,
    OpenError, OpenRefusal, PublicKey, Route, ServiceName, SessionId, SigningKey, StatusCode,
    TraceContext,
};

use crate::{NOW, bytes, decode, edited, key, signed};

/// LH-TLS-4: depots change nothing that the handshake is bound to, and each OPEN has its own
/// binding.
#[test]
fn a_binding_is_unique_to_its_open() {
    let open = signed(|_| ());
    let onward = open
        .forwarded(key().public(), Duration::from_secs(1))
        .unwrap();
    assert_eq!(onward.binding(), open.binding());
    let later = signed(|open| open.session_id = SessionId::from_bytes([1; 16]));
    assert_ne!(later.binding(), open.binding());
    let mut resigned = open.clone();
    resigned.signature = [0; 64];
    assert_ne!(resigned.binding(), open.binding());
}

/// LH-ADMIT-1, LH-ROUTE-8 and LH-ROUTE-4: refusals before any dial.
#[test]
fn a_depot_must_have_the_key_that_the_route_names() {
    let (mine, other) = (
        PublicKey::from_bytes([1; 32]),
        PublicKey::from_bytes([2; 32]),
    );
    let admitted = |me: PublicKey, route: &str, change: fn(&mut Open)| {
        let mut open = signed(|open| open.route = route.parse().unwrap());
        change(&mut open);
        Admission::new(me)
            .check_at_depot(&open, NOW, |_| true)
            .map_err(|refusal| refusal.code())
    };
    let route = format!("{mine}@d1,~d2");
    assert_eq!(admitted(mine, &route, |_| ()), Ok(()));
    assert_eq!(admitted(other, &route, |_| ()), Err(StatusCode::Misrouted));
    // A depot that was added before the loose hop: the depot at the cursor has already been passed.
    assert_eq!(
        admitted(other, &route, |open| open.passed =
            vec![PublicKey::from_bytes([1; 32])]),
        Ok(())
    );
    let strict = format!("{mine}@d1,d2");
    assert_eq!(
        admitted(other, &strict, |open| open.passed =
            vec![PublicKey::from_bytes([1; 32])]),
        Err(StatusCode::Misrouted)
    );
    assert_eq!(
        admitted(mine, &route, |open| open.passed =
            vec![PublicKey::from_bytes([9; 32]); MAX_PASSED_DEPOTS]),
        Err(StatusCode::HopLimit)
    );
}

/// Returns a delegation to the key of [`signed`] for reading at `server`.
fn read_delegation(principal: &SigningKey, server: PublicKey) -> Box<Delegation> {
    let mut given = Delegation {
        id: [5; 16],
        action: DelegatedAction::Read,
        principal: principal.public(),
        delegate: key().public(),
        audience: Some(server),
        from: "a request".to_owned(),
        to: "b.example:7511".to_owned(),
        both_ways: false,
        max_rate: 1,
        start_unix_ms: NOW,
        end_unix_ms: NOW + 60_000,
        signature: [0; 64],
    };
    given.sign(principal).unwrap();
    Box::new(given)
}

/// LH-DELEGATION-7.
#[test]
fn a_delegate_opens_with_its_principals_rights() {
    let principal = SigningKey::generate().unwrap();
    let me = SigningKey::generate().unwrap().public();
    let given = read_delegation(&principal, me);
    let open = signed(|open| {
        (open.route, open.cursor) = (Route::direct(), 1);
        open.delegation = Some(given.clone());
    });
    let (found, _) = decode(&bytes(&open)).unwrap().unwrap();
    assert_eq!((&found, found.verify()), (&open, Ok(())));
    assert_eq!(found.acting_for(), principal.public());
    let check = |open: &Open, accepts: bool, known: PublicKey| {
        let checks = Admission::new(me).with_delegates(accepts);
        checks.check_at_acceptor(open, NOW, |key| *key == known, |_| true)
    };
    assert_eq!(check(&open, true, principal.public()), Ok(()));
    // The delegate's own rights count for nothing.
    let unknown = OpenRefusal::Unauthorised(principal.public());
    assert_eq!(check(&open, true, key().public()), Err(unknown));
    assert_eq!(
        check(&open, false, principal.public()),
        Err(OpenRefusal::NoDelegates)
    );
    let elsewhere = Admission::new(key().public()).with_delegates(true);
    assert_eq!(
        elsewhere.check_at_acceptor(&open, NOW, |_| true, |_| true),
        Err(OpenRefusal::Delegation(DelegationFault::Audience(me)))
    );
    // The OPEN's signature covers the delegation.
    let mut without = open.clone();
    without.delegation = None;
    assert_eq!(without.verify(), Err(OpenRefusal::BadSignature));
    // A release that does not know the option must not ignore it.
    let unmarked = edited(&open, |options| {
        for (kind, _) in options {
            *kind = if *kind == 0x8000 | 37 { 37 } else { *kind };
        }
    });
    assert!(matches!(decode(&unmarked), Err(OpenError::Invalid { .. })));
    let for_files = edited(&open, |options| {
        for (kind, value) in options {
            if *kind == 0x8000 | 15 {
                *value = b"files".to_vec();
            }
        }
    });
    assert!(matches!(decode(&for_files), Err(OpenError::Invalid { .. })));
}

/// LH-OPEN-13.
#[test]
fn an_acceptor_accepts_only_offered_services() {
    let open = signed(|open| (open.route, open.cursor) = (Route::direct(), 1));
    let asked = |knows: bool, offers: bool| {
        Admission::new(key().public())
            .check_at_acceptor(&open, NOW, |_| knows, |_| offers)
            .map_err(|refusal| refusal.code())
    };
    assert_eq!(asked(true, true), Ok(()));
    assert_eq!(asked(true, false), Err(StatusCode::NoService));
    assert_eq!(
        asked(false, false),
        Err(StatusCode::Unauthorised),
        "strangers do not learn what is offered"
    );
}

/// LH-SIGN-1: fields that depots change are not signed, and everything else is.
#[test]
fn the_signature_covers_what_depots_may_not_change() {
    let open = signed(|open| open.size = Some(5));
    let mut moved = open
        .forwarded(
            SigningKey::generate().unwrap().public(),
            Duration::from_millis(500),
        )
        .unwrap();
    moved.trace = Some(TraceContext {
        trace_id: [1; 16],
        parent_id: [2; 8],
        flags: 0,
    });
    assert_eq!(moved.verify(), Ok(()));
    let changes: [fn(&mut Open); 11] = [
        |open| open.session_id = SessionId::from_bytes([8; 16]),
        |open| open.service = ServiceName::PERF,
        |open| {
            open.route = "lhk1:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa@depot1.example"
                .parse()
                .unwrap()
        },
        |open| open.destination.port += 1,
        |open| open.route = Route::direct(),
        |open| open.size = Some(6),
        |open| open.purpose = Some("other".into()),
        |open| open.circuit = Some(vec![1]),
        |open| open.signed_at_unix_ms += 1,
        |open| open.principal = SigningKey::generate().unwrap().public(),
        |open| open.versions.max += 1,
    ];
    for (index, change) in changes.iter().enumerate() {
        let mut forged = moved.clone();
        change(&mut forged);
        assert_eq!(
            forged.verify(),
            Err(OpenRefusal::BadSignature),
            "change {index}"
        );
    }
}

/// LH-ROUTE-1 to LH-ROUTE-3, LH-ROUTE-6, LH-ROUTE-7.
#[test]
fn a_route_is_followed_hop_by_hop() {
    let depot = key().public();
    let open = signed(|open| open.hop_limit = 4);
    assert_eq!(open.position(), 1);
    assert!(matches!(open.next_receiver(), NextReceiver::Hop(hop) if !hop.strict));
    let added = open.detour(depot, Duration::from_millis(100)).unwrap();
    assert_eq!(
        (added.cursor, added.hop_limit, added.position()),
        (open.cursor, 3, 2)
    );
    assert_eq!(added.setup_budget, Duration::from_millis(19_400));
    let second = added.forwarded(depot, Duration::ZERO).unwrap();
    assert!(matches!(second.next_receiver(), NextReceiver::Hop(hop) if hop.strict));
    assert!(matches!(
        second.detour(depot, Duration::ZERO),
        Err(OpenRefusal::Misrouted(_))
    ));
    let third = second.forwarded(depot, Duration::ZERO).unwrap();
    assert_eq!(
        third.next_receiver(),
        NextReceiver::Destination(&open.destination)
    );
    assert!(matches!(
        third.detour(depot, Duration::ZERO),
        Err(OpenRefusal::Misrouted(_))
    ));
    assert_eq!(
        third.forwarded(depot, Duration::from_secs(20)),
        Err(OpenRefusal::SetupTimeout)
    );
    let last = third.forwarded(depot, Duration::ZERO).unwrap();
    assert_eq!(last.next_receiver(), NextReceiver::Here);
    assert_eq!(last.hop_limit, 0);
    assert_eq!(
        last.forwarded(depot, Duration::ZERO),
        Err(OpenRefusal::HopLimit)
    );
}
