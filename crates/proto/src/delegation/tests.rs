#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use bytes::BytesMut;
use proptest::prelude::*;

use super::*;
use crate::{Open, OpenDecoder, Route, ServiceName, SessionId};

const NOW: u64 = 1_800_000_000_000;
const MINUTE: u64 = 60_000;

fn key() -> SigningKey {
    SigningKey::generate().unwrap()
}

fn delegation(principal: &SigningKey, delegate: PublicKey, audience: PublicKey) -> Delegation {
    let mut delegation = Delegation {
        id: [7; 16],
        action: DelegatedAction::Circuit,
        principal: principal.public(),
        delegate,
        audience: Some(audience),
        from: "near.example".to_owned(),
        to: "192.0.2.9".to_owned(),
        both_ways: false,
        max_rate: 2_000,
        start_unix_ms: NOW,
        end_unix_ms: NOW + 10 * MINUTE,
        signature: [0; 64],
    };
    delegation.sign(principal).unwrap();
    delegation
}

const fn circuit(rate: u64, minutes: u64) -> DelegatedCircuit {
    DelegatedCircuit {
        rate,
        end_unix_ms: NOW + minutes * MINUTE,
    }
}

#[test]
fn only_what_is_delegated_is_accepted() {
    let [principal, depot, other, controller] = [key(), key(), key(), key()];
    let (depot, me) = (depot.public(), controller.public());
    let given = delegation(&principal, depot, me);
    let check =
        |given: &Delegation, by, at, now, circuit| given.check_circuit(by, at, now, circuit);
    assert_eq!(check(&given, &depot, &me, NOW, circuit(2_000, 10)), Ok(()));
    // A clock that is slightly behind the principal's.
    assert_eq!(
        check(&given, &depot, &me, NOW - 9_000, circuit(1, 1)),
        Ok(())
    );
    let other = other.public();
    for (by, at, now, asked, fault) in [
        (
            &other,
            &me,
            NOW,
            circuit(1, 1),
            DelegationFault::Delegate(depot),
        ),
        (
            &depot,
            &other,
            NOW,
            circuit(1, 1),
            DelegationFault::Audience(me),
        ),
        (
            &depot,
            &me,
            NOW - MINUTE,
            circuit(1, 1),
            DelegationFault::NotYetValid(MINUTE),
        ),
        (
            &depot,
            &me,
            NOW + 11 * MINUTE,
            circuit(1, 1),
            DelegationFault::Expired(MINUTE),
        ),
        (
            &depot,
            &me,
            NOW,
            circuit(2_001, 10),
            DelegationFault::Rate(2_000),
        ),
        (
            &depot,
            &me,
            NOW,
            circuit(2_000, 11),
            DelegationFault::Outlasts(MINUTE),
        ),
    ] {
        assert_eq!(check(&given, by, at, now, asked), Err(fault));
    }
    let mut any = given.clone();
    any.audience = None;
    any.sign(&principal).unwrap();
    assert_eq!(check(&any, &depot, &other, NOW, circuit(1, 1)), Ok(()));
    let mut long = given.clone();
    long.end_unix_ms = NOW + 25 * 60 * MINUTE;
    long.sign(&principal).unwrap();
    let fault = check(&long, &depot, &me, NOW, circuit(1, 1)).unwrap_err();
    let too_long = |minutes, maximum| DelegationFault::LifetimeTooLong {
        lifetime: Duration::from_millis(minutes * MINUTE),
        maximum,
    };
    assert_eq!(fault, too_long(25 * 60, MAX_DELEGATION_LIFETIME));
    let mut copies = given;
    copies.action = DelegatedAction::Read;
    copies.sign(&principal).unwrap();
    let fault = check(&copies, &depot, &me, NOW, circuit(1, 1)).unwrap_err();
    assert_eq!(fault, DelegationFault::Action("for circuits"));
}

/// LH-DELEGATION-6, LH-DELEGATION-7.
#[test]
fn a_read_delegation_is_for_one_server_and_delegate() {
    let [principal, delegate, other, server] = [key(), key(), key(), key()];
    let (by, other, me) = (delegate.public(), other.public(), server.public());
    let signed = |change: fn(&mut Delegation)| {
        let mut given = delegation(&principal, by, me);
        given.action = DelegatedAction::Read;
        change(&mut given);
        given.sign(&principal).unwrap();
        given
    };
    let given = signed(|_| ());
    assert_eq!(
        Delegation::from_bytes(&given.to_bytes().unwrap()),
        Ok(given.clone())
    );
    assert_eq!(given.check_read(&by, &me, NOW), Ok(()));
    for (by, at, now, fault) in [
        (other, me, NOW, DelegationFault::Delegate(by)),
        (by, other, NOW, DelegationFault::Audience(me)),
        (by, me, NOW - MINUTE, DelegationFault::NotYetValid(MINUTE)),
        (by, me, NOW + 10 * MINUTE, DelegationFault::Expired(0)),
    ] {
        assert_eq!(given.check_read(&by, &at, now), Err(fault));
    }
    let anywhere = signed(|given| given.audience = None);
    assert_eq!(
        anywhere.check_read(&by, &me, NOW),
        Err(DelegationFault::NoAudience)
    );
    let circuits = signed(|given| given.action = DelegatedAction::Circuit);
    let fault = circuits.check_read(&by, &me, NOW).unwrap_err();
    assert_eq!(fault, DelegationFault::Action("for reading"));
    let long = signed(|given| given.end_unix_ms = NOW + 120 * MINUTE);
    assert_eq!(long.check_read(&by, &me, NOW), Ok(()));
    let longer = signed(|given| given.end_unix_ms = NOW + 121 * MINUTE);
    let fault = DelegationFault::LifetimeTooLong {
        lifetime: Duration::from_secs(121 * 60),
        maximum: MAX_READ_LIFETIME,
    };
    assert_eq!(longer.check_read(&by, &me, NOW), Err(fault));
    for change in [
        |given: &mut Delegation| given.from = "another request".to_owned(),
        |given: &mut Delegation| given.end_unix_ms += MINUTE,
    ] {
        let mut changed = given.clone();
        change(&mut changed);
        assert_eq!(
            changed.check_read(&by, &me, NOW),
            Err(DelegationFault::Signature)
        );
    }
}

#[test]
fn every_changed_field_breaks_the_signature() {
    let [principal, depot, controller, other] = [key(), key(), key(), key()];
    let (by, me) = (depot.public(), controller.public());
    let given = delegation(&principal, by, me);
    let changes: [fn(&mut Delegation, PublicKey); 8] = [
        |given, _| given.id = [8; 16],
        |given, other| given.principal = other,
        |given, _| given.audience = None,
        |given, _| given.from = "far.example".to_owned(),
        |given, _| given.to = "192.0.2.1".to_owned(),
        |given, _| given.both_ways = true,
        |given, _| given.max_rate = 1 << 40,
        |given, _| given.end_unix_ms += MINUTE,
    ];
    for change in changes {
        let mut changed = given.clone();
        change(&mut changed, other.public());
        assert_ne!(changed, given);
        let fault = changed.check_circuit(&by, &me, NOW, circuit(1, 1));
        assert_eq!(fault, Err(DelegationFault::Signature));
    }
}

#[test]
fn an_open_carries_them_signed() {
    let [principal, depot, second, controller, stranger] = [key(), key(), key(), key(), key()];
    let given =
        [&depot, &second].map(|to| delegation(&principal, to.public(), controller.public()));
    let mut open = Open::new(
        SessionId::random().unwrap(),
        ServiceName::STREAM,
        Route::direct(),
        "server.example:7511".parse().unwrap(),
        Duration::from_secs(5),
    );
    open.set_delegations(&given).unwrap();
    open.sign(&principal, NOW).unwrap();
    let mut bytes = BytesMut::new();
    open.encode(&mut bytes).unwrap();
    let (read, _) = OpenDecoder::new().feed(&bytes).unwrap().unwrap();
    assert_eq!(read, open);
    assert_eq!(
        read.delegation_to(&second.public()).unwrap().as_ref(),
        Some(&given[1])
    );
    assert_eq!(read.delegation_to(&stranger.public()), Ok(None));
    // Another principal's delegation is not this session's.
    let mut stolen = open.clone();
    stolen.sign(&stranger, NOW).unwrap();
    assert_eq!(stolen.delegation_to(&depot.public()), Ok(None));
    // A malformed option leaves the rest of the OPEN alone.
    let mut odd = open.clone();
    odd.unknown[0].value.truncate(40);
    odd.sign(&principal, NOW).unwrap();
    assert!(odd.delegation_to(&depot.public()).is_err());
    open.set_delegations(&[]).unwrap();
    assert!(open.unknown.is_empty());
    let many = vec![given[0].clone(); MAX_OPEN_DELEGATIONS + 1];
    assert!(open.set_delegations(&many).is_err());
}

#[test]
fn text_must_be_complete() {
    let [principal, depot, controller] = [key(), key(), key()];
    let given = delegation(&principal, depot.public(), controller.public());
    let text = given.to_text().unwrap();
    assert_eq!(text.parse(), Ok(given));
    for odd in ["", "lhd1:", "lhg1:aaaa", "lhd1:!", &text[..text.len() - 8]] {
        assert!(odd.parse::<Delegation>().is_err(), "{odd}");
    }
}

proptest! {
    #[test]
    fn decoding_any_bytes_is_canonical(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        if let Ok(read) = Delegation::from_bytes(&bytes) {
            prop_assert_eq!(read.to_bytes().unwrap(), bytes);
        }
    }

    #[test]
    fn flipped_bytes_are_never_accepted(at in 0_usize..300, with in 1_u8..) {
        let [principal, depot, controller] = [key(), key(), key()];
        let given = delegation(&principal, depot.public(), controller.public());
        let mut bytes = given.to_bytes().unwrap();
        let at = at % bytes.len();
        bytes[at] ^= with;
        if let Ok(read) = Delegation::from_bytes(&bytes) {
            let me = controller.public();
            prop_assert!(read.check_circuit(&depot.public(), &me, NOW, circuit(1, 1)).is_err());
        }
    }
}
