//! Semantics of an OPEN: its binding, its receivers, its signed part and its route.

use std::time::Duration;

use longhaul_proto::{
    Admission, MAX_PASSED, Next, Open, PublicKey, Refusal, Route, Service, SessionId, SigningKey,
    StatusCode, TraceContext,
};

use crate::{NOW, key, signed};

/// LH-TLS-4: depots change nothing that the handshake is bound to, and each OPEN has its own
/// binding.
#[test]
fn a_binding_is_unique_to_its_open() {
    let open = signed(|_| ());
    let onward = open
        .passed_on(key().public(), Duration::from_secs(1))
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
            .depot(&open, NOW, |_| true)
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
            vec![PublicKey::from_bytes([9; 32]); MAX_PASSED]),
        Err(StatusCode::HopLimit)
    );
}

/// LH-OPEN-13.
#[test]
fn an_acceptor_accepts_only_offered_services() {
    let open = signed(|open| (open.route, open.cursor) = (Route::direct(), 1));
    let asked = |knows: bool, offers: bool| {
        Admission::new(key().public())
            .acceptor(&open, NOW, |_| knows, |_| offers)
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
        .passed_on(
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
        |open| open.service = Service::PERF,
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
            Err(Refusal::BadSignature),
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
    assert!(matches!(open.next(), Next::Hop(hop) if !hop.strict));
    let added = open.detour(depot, Duration::from_millis(100)).unwrap();
    assert_eq!(
        (added.cursor, added.hop_limit, added.position()),
        (open.cursor, 3, 2)
    );
    assert_eq!(added.setup_budget, Duration::from_millis(19_400));
    let second = added.passed_on(depot, Duration::ZERO).unwrap();
    assert!(matches!(second.next(), Next::Hop(hop) if hop.strict));
    assert!(matches!(
        second.detour(depot, Duration::ZERO),
        Err(Refusal::Misrouted(_))
    ));
    let third = second.passed_on(depot, Duration::ZERO).unwrap();
    assert_eq!(third.next(), Next::Destination(&open.destination));
    assert!(matches!(
        third.detour(depot, Duration::ZERO),
        Err(Refusal::Misrouted(_))
    ));
    assert_eq!(
        third.passed_on(depot, Duration::from_secs(20)),
        Err(Refusal::SetupTimeout)
    );
    let last = third.passed_on(depot, Duration::ZERO).unwrap();
    assert_eq!(last.next(), Next::Here);
    assert_eq!(last.hop_limit, 0);
    assert_eq!(
        last.passed_on(depot, Duration::ZERO),
        Err(Refusal::HopLimit)
    );
}
