use std::time::Duration;

use tokio::time::Instant;

use super::*;

const CLIENT: PublicKey = PublicKey::from_bytes([1; 32]);
const ISSUER: PublicKey = PublicKey::from_bytes([3; 32]);
const MINUTE_MS: u64 = 60_000;

/// Returns the moment this many milliseconds after the beginning.
fn now_at(began: Instant, unix_ms: u64) -> ClockReading {
    ClockReading {
        unix_ms,
        instant: began + Duration::from_millis(unix_ms),
    }
}

fn grant(end_unix_ms: u64) -> CircuitGrant {
    CircuitGrant {
        circuit: b"12".to_vec(),
        holder: CLIENT,
        from: "a".to_owned(),
        to: "b".to_owned(),
        start_unix_ms: 0,
        end_unix_ms,
        rate: 80_000_000,
        sessions: 2,
        depots: vec![PublicKey::from_bytes([2; 32])],
        issuer: ISSUER,
        signature: [0; 64],
    }
}

fn account() -> AccountKey {
    (ISSUER, b"12".to_vec())
}

/// LH-GRANT-3.
#[test]
fn sessions_share_the_granted_bounds() {
    let (grants, now) = (Arc::new(Grants::default()), now_at(Instant::now(), 0));
    let whole = grants.take(&grant(1_000), Some(50_000_000), now).unwrap();
    let beyond = grants
        .take(&grant(1_000), Some(40_000_000), now)
        .unwrap_err();
    assert_eq!(beyond.code, StatusCode::GrantRefused);
    assert!(
        beyond
            .detail
            .contains("30 Mbit/s of the granted rate is free"),
        "{}",
        beyond.detail
    );
    let rest = grants.take(&grant(1_000), Some(30_000_000), now).unwrap();
    assert_eq!(rest.pacing_rate(), payload_rate(30_000_000));
    let third = grants.take(&grant(1_000), None, now).unwrap_err();
    assert!(third.detail.contains("all 2 sessions"), "{}", third.detail);
    drop(whole);
    let again = grants.take(&grant(1_000), None, now).unwrap();
    assert_eq!(
        again.pacing_rate(),
        76_512_549,
        "of 80 Mbit/s, less what headers take"
    );
    let [one, other] = [&again, &rest].map(|session| session.limits().unwrap().forward);
    assert!(Arc::ptr_eq(&one, &other));
    assert_eq!((rest.count_carried(5), again.count_carried(6)), (5, 11));
}

#[test]
fn accounts_stay_until_their_grant_is_over() {
    let (grants, began) = (Arc::new(Grants::default()), Instant::now());
    drop(grants.take(&grant(1_000), None, now_at(began, 0)).unwrap());
    assert_eq!(grants.accounts().len(), 1, "its bucket is as it was");
    let mut other = grant(9_000);
    other.circuit = b"13".to_vec();
    let _session = grants.take(&other, None, now_at(began, 2_000)).unwrap();
    assert_eq!(grants.accounts().len(), 1);
}

/// LH-GRANT-3: unused grants from before a withdrawal are as invalid as used ones.
#[test]
fn grants_from_before_a_withdrawal_are_refused() {
    let (grants, began) = (Arc::new(Grants::default()), Instant::now());
    let session = grants
        .take(&grant(MINUTE_MS), None, now_at(began, 0))
        .unwrap();
    assert!(grants.withdraw(&account(), &CLIENT, now_at(began, 30_000)));
    assert!(
        !grants.withdraw(&account(), &CLIENT, now_at(began, 31_000)),
        "twice"
    );
    // Issued a moment before the withdrawal, and presented for the first time.
    let stored = grant(30_000 + MINUTE_MS);
    for now in [31_000, 89_999] {
        let refused = grants.take(&stored, None, now_at(began, now)).unwrap_err();
        assert_eq!(refused.code, StatusCode::GrantRefused);
        assert!(refused.detail.contains("withdrawn"), "{}", refused.detail);
    }
    drop(session);
    assert_eq!(
        grants.list(now_at(began, 95_000)).len(),
        1,
        "it is remembered"
    );
    assert!(
        grants.list(now_at(began, 101_000)).is_empty(),
        "all of that time are over"
    );
    grants
        .take(&grant(160_000), None, now_at(began, 101_000))
        .unwrap();
}

#[test]
fn a_renewal_ends_a_withdrawal() {
    let (grants, began) = (Arc::new(Grants::default()), Instant::now());
    let _session = grants
        .take(&grant(MINUTE_MS), None, now_at(began, 0))
        .unwrap();
    grants.withdraw(&account(), &CLIENT, now_at(began, 1_000));
    assert!(grants.renew(ISSUER, &grant(62_000), now_at(began, 2_000)));
    grants
        .take(&grant(62_000), None, now_at(began, 2_000))
        .unwrap();
    let unknown = PublicKey::from_bytes([9; 32]);
    assert!(!grants.renew(unknown, &grant(62_000), now_at(began, 2_000)));
}

#[test]
fn a_withdrawal_affects_one_key_only() {
    let (grants, began) = (Arc::new(Grants::default()), Instant::now());
    let mut other = grant(MINUTE_MS);
    other.holder = PublicKey::from_bytes([7; 32]);
    let _one = grants
        .take(&grant(MINUTE_MS), None, now_at(began, 0))
        .unwrap();
    let two = grants.take(&other, None, now_at(began, 0)).unwrap();
    grants.withdraw(&account(), &CLIENT, now_at(began, 1_000));
    grants
        .take(&grant(MINUTE_MS), None, now_at(began, 1_000))
        .unwrap_err();
    drop(two);
    grants.take(&other, None, now_at(began, 1_000)).unwrap();
}

#[test]
fn the_latest_grant_bounds_all_sessions() {
    let (grants, began) = (Arc::new(Grants::default()), Instant::now());
    let session = grants.take(&grant(30_000), None, now_at(began, 0)).unwrap();
    let mut less = grant(40_000);
    (less.rate, less.sessions) = (8_000_000, 1);
    assert!(grants.renew(ISSUER, &less, now_at(began, 1_000)));
    // A grant that was issued before is ignored, and does not shorten the time.
    grants
        .take(&grant(30_000), None, now_at(began, 1_000))
        .unwrap_err();
    drop(session);
    let state = grants.take(&grant(30_000), Some(9_000_000), now_at(began, 1_000));
    let detail = state.unwrap_err().detail;
    assert!(
        detail.contains("8 Mbit/s of the granted rate is free"),
        "{detail}"
    );
    assert!(!grants.list(now_at(began, 39_999)).is_empty());
    assert!(grants.list(now_at(began, 40_000)).is_empty());
}

/// LH-GRANT-3: a session does not notice a renewal. It notices the end of the grant, and a renewal
/// after that.
#[tokio::test(start_paused = true)]
async fn a_session_has_its_rate_while_its_grant_is_in_force() {
    let (grants, began) = (Arc::new(Grants::default()), Instant::now());
    let mut session = grants
        .take(&grant(MINUTE_MS), None, now_at(began, 0))
        .unwrap();
    for renewals in 1..=20 {
        let now = renewals * MINUTE_MS / 2;
        let elapsed =
            tokio::time::timeout_at(now_at(began, now).instant, session.wait_for_change()).await;
        elapsed.expect_err("it is in force all the time");
        grants.renew(ISSUER, &grant(now + MINUTE_MS), now_at(began, now));
    }
    assert!(session.limits().is_some());
    assert!(!session.wait_for_change().await, "nobody renews it");
    assert_eq!(began.elapsed(), Duration::from_secs(660));
    assert!(session.limits().is_none());
    grants.renew(ISSUER, &grant(700_000), now_at(began, 660_000));
    assert!(session.wait_for_change().await, "and then somebody does");
    grants.withdraw(&account(), &CLIENT, now_at(began, 660_000));
    assert!(!session.wait_for_change().await);
    assert_eq!(began.elapsed(), Duration::from_secs(660), "at once");
}
