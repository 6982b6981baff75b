use proptest::prelude::*;

use super::*;

fn signed(change: impl FnOnce(&mut CircuitGrant)) -> (SigningKey, CircuitGrant) {
    let controller = SigningKey::generate().unwrap();
    let mut grant = CircuitGrant {
        circuit: b"12".to_vec(),
        holder: PublicKey::from_bytes([1; 32]),
        from: "dtn1".to_owned(),
        to: "archive".to_owned(),
        start_unix_ms: 1_000,
        end_unix_ms: 2_000,
        rate: 1_000_000,
        sessions: 4,
        depots: vec![
            PublicKey::from_bytes([2; 32]),
            PublicKey::from_bytes([3; 32]),
        ],
        issuer: PublicKey::from_bytes([0; 32]),
        signature: [0; 64],
    };
    change(&mut grant);
    grant.sign(&controller).unwrap();
    (controller, grant)
}

fn check(
    grant: &CircuitGrant,
    controller: &SigningKey,
    holder: u8,
    depot: u8,
    now: u64,
) -> Result<(), GrantFault> {
    let [holder, depot] = [holder, depot].map(|byte| PublicKey::from_bytes([byte; 32]));
    let known = controller.public();
    grant.check(&holder, &depot, now, |issuer| *issuer == known)
}

/// LH-GRANT-2.
#[test]
fn a_grant_is_valid_for_its_holder_depots_and_time() {
    let (controller, grant) = signed(|_| {});
    assert_eq!(check(&grant, &controller, 1, 2, 1_000), Ok(()));
    assert_eq!(check(&grant, &controller, 1, 3, 1_999), Ok(()));
    assert_eq!(
        check(&grant, &controller, 9, 2, 1_000),
        Err(GrantFault::Holder)
    );
    assert_eq!(
        check(&grant, &controller, 1, 9, 1_000),
        Err(GrantFault::Depot)
    );
    assert_eq!(
        check(&grant, &controller, 1, 2, 999),
        Err(GrantFault::Early(1))
    );
    assert_eq!(
        check(&grant, &controller, 1, 2, 2_000),
        Err(GrantFault::Over(0))
    );
    let other = SigningKey::generate().unwrap();
    let issuer = GrantFault::Issuer(controller.public());
    assert_eq!(check(&grant, &other, 1, 2, 1_000), Err(issuer));
}

/// LH-GRANT-2: depots accept no lifetime over a minute, so that a controller can withdraw a grant.
#[test]
fn a_grant_for_longer_than_its_lifetime_is_refused() {
    let accepted = 1_000 + 70_000;
    let (controller, grant) = signed(|grant| grant.end_unix_ms = accepted);
    assert_eq!(check(&grant, &controller, 1, 2, 1_000), Ok(()));
    let (controller, long) = signed(|grant| grant.end_unix_ms = accepted + 1);
    assert_eq!(
        check(&long, &controller, 1, 2, 1_000),
        Err(GrantFault::Long(70_001))
    );
    // The arithmetic does not overflow.
    let (controller, endless) = signed(|grant| grant.end_unix_ms = u64::MAX);
    let fault = check(&endless, &controller, 1, 2, 1_000);
    assert!(matches!(fault, Err(GrantFault::Long(_))), "{fault:?}");
}

/// LH-GRANT-1: the signature covers every field.
#[test]
fn a_change_after_signing_invalidates_a_grant() {
    let (controller, grant) = signed(|_| {});
    let changes: [fn(&mut CircuitGrant); 7] = [
        |grant| grant.circuit = b"13".to_vec(),
        |grant| grant.rate += 1,
        |grant| grant.sessions += 1,
        |grant| grant.start_unix_ms = 0,
        |grant| grant.end_unix_ms = 9_000,
        |grant| grant.depots.truncate(1),
        |grant| grant.to = "elsewhere".to_owned(),
    ];
    for change in changes {
        let mut forged = grant.clone();
        change(&mut forged);
        assert_eq!(
            check(&forged, &controller, 1, 2, 1_000),
            Err(GrantFault::Signature)
        );
    }
    // A grant with the holder replaced is a forgery too.
    let mut stolen = grant;
    stolen.holder = PublicKey::from_bytes([7; 32]);
    assert_eq!(
        check(&stolen, &controller, 7, 2, 1_000),
        Err(GrantFault::Signature)
    );
}

#[test]
fn bytes_that_break_a_rule_are_not_a_grant() {
    for change in [
        (|grant: &mut CircuitGrant| grant.circuit.clear()) as fn(&mut CircuitGrant),
        |grant| grant.circuit = vec![b'c'; 129],
        |grant| grant.from = "a\nb".to_owned(),
        |grant| grant.to.clear(),
        |grant| grant.rate = 0,
        |grant| grant.sessions = 0,
        |grant| grant.end_unix_ms = grant.start_unix_ms,
        |grant| grant.depots.clear(),
        |grant| grant.depots.reverse(),
        |grant| grant.depots = vec![PublicKey::from_bytes([2; 32]); 2],
    ] {
        let (_, grant) = signed(change);
        grant.to_bytes().unwrap_err();
        let mut out = BytesMut::new();
        grant.put(&mut out);
        CircuitGrant::from_bytes(&out).unwrap_err();
    }
    let (_, grant) = signed(|grant| {
        grant.circuit = vec![b'c'; 128];
        (grant.from, grant.to) = ("f".repeat(64), "t".repeat(64));
        grant.depots = (0..32)
            .map(|byte| PublicKey::from_bytes([byte; 32]))
            .collect();
    });
    assert_eq!(grant.to_bytes().unwrap().len(), MAX_GRANT_BYTES);
}

proptest! {
    #[test]
    fn a_grant_is_read_as_it_was_written(
        rate in 1..u64::MAX, sessions in 1..u16::MAX, cut in 0..400_usize,
    ) {
        let (_, grant) = signed(|grant| (grant.rate, grant.sessions) = (rate, sessions));
        let bytes = grant.to_bytes().unwrap();
        prop_assert_eq!(CircuitGrant::from_bytes(&bytes), Ok(grant.clone()));
        let text = grant.to_text().unwrap();
        prop_assert_eq!(text.parse::<CircuitGrant>(), Ok(grant.clone()));
        prop_assert!(text.replace("lhg1:", "lhk1:").parse::<CircuitGrant>().is_err());
        let cut = cut.min(bytes.len() - 1);
        prop_assert!(CircuitGrant::from_bytes(&bytes[..cut]).is_err());
        prop_assert!(CircuitGrant::from_bytes(&[&bytes[..], &[0]].concat()).is_err());
    }
}
