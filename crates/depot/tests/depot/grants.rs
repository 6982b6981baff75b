//! Grants of circuits: their validity, their bounds, and their end (LH-GRANT-1 to LH-GRANT-3).

use std::path::Path;
use std::time::Duration;

use longhaul_depot::Policy;
use longhaul_proto::{CircuitGrant, Open, PublicKey, SigningKey, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use crate::bed::*;

/// A minute, in milliseconds.
const MINUTE_MS: u64 = 60_000;
const GRANTED: &str = "longhaul_depot_granted_sessions";
/// A rule with a rate, its burst in bytes, and its bytes per second.
const RULE: &str = "max_rate = \"80 kbit/s\"";
const RULE_BURST: usize = 64 << 10;
const RULE_BYTES_PER_SECOND: usize = 10_000;
/// Bytes that take 19 s under the rule, and a twentieth of a second under the grant.
const BYTES: usize = 256 << 10;
const RULE_SECONDS: f64 = ((BYTES - RULE_BURST) / RULE_BYTES_PER_SECOND) as f64;
/// Step by which the paused clock advances when nothing has arrived in this many polls. Timers fire
/// soon, while the kernel gets ten thousand polls per second of paused time.
const STEP: Duration = Duration::from_millis(2);
const POLLS_PER_STEP: u32 = 20;

/// Sends this many bytes, and returns the seconds they take by the paused clock.
async fn seconds_to_carry((initiator, acceptor): &mut (TcpStream, TcpStream), bytes: usize) -> f64 {
    let began = Instant::now();
    let (mut to_send, mut to_come, mut buffer) = (bytes, bytes, vec![7; bytes]);
    let mut polls = 0;
    while to_come > 0 {
        let sent = initiator
            .try_write(&buffer[..to_send])
            .map(|sent| to_send -= sent);
        let came = acceptor.try_read(&mut buffer).map(|came| to_come -= came);
        polls = if came.is_err() { polls + 1 } else { 0 };
        if polls == POLLS_PER_STEP {
            polls = 0;
            tokio::time::advance(STEP).await;
        } else if polls > 0 {
            tokio::task::yield_now().await;
        }
        for done in [sent, came] {
            let would_block =
                |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
            assert!(done.as_ref().err().is_none_or(would_block), "{done:?}");
        }
    }
    began.elapsed().as_secs_f64()
}

/// Gives a grant a rate at which the kernel's pacing, which takes real time, plays no role.
fn unpaced(grant: &mut CircuitGrant) {
    grant.rate = 8_000_000_000;
}

struct Bed {
    depot: RunningDepot,
    controller: SigningKey,
    client: SigningKey,
    listener: TcpListener,
    acceptor: std::net::SocketAddr,
}

impl Bed {
    /// Starts a depot that accepts a controller's grants and lets a client connect.
    async fn new() -> Self {
        Self::with_rule("").await
    }

    /// Starts the same depot with more text in its rule.
    async fn with_rule(more: &str) -> Self {
        let (controller, client) = (new_key(), new_key());
        let text = format!(
            "controllers = [\"{}\"]\n\
             [[allow]]\nprincipals = [\"{}\"]\nto = [\"127.0.0.0/8\"]\nports = [\"any\"]\n{more}\n",
            controller.public(),
            client.public()
        );
        let depot = depot_with(
            Policy::parse(&text, Path::new("t")).expect(&text),
            with_page,
        );
        let (listener, acceptor) = acceptor().await;
        Self {
            depot,
            controller,
            client,
            listener,
            acceptor,
        }
    }

    /// Returns a grant that is valid now.
    fn grant(&self) -> CircuitGrant {
        CircuitGrant {
            circuit: b"12".to_vec(),
            holder: self.client.public(),
            from: "dtn1".to_owned(),
            to: "archive".to_owned(),
            start_unix_ms: now_ms() - MINUTE_MS,
            end_unix_ms: now_ms() + MINUTE_MS,
            rate: 80_000_000,
            sessions: 2,
            depots: vec![self.depot.key],
            issuer: PublicKey::from_bytes([0; 32]),
            signature: [0; 64],
        }
    }

    /// Returns an OPEN with a grant that the controller signs after this change.
    fn open(&self, rate: Option<u64>, change: impl FnOnce(&mut CircuitGrant)) -> Open {
        self.with(self.signed(change), rate)
    }

    /// Returns a grant that the controller signs after this change.
    fn signed(&self, change: impl FnOnce(&mut CircuitGrant)) -> CircuitGrant {
        let mut grant = self.grant();
        change(&mut grant);
        grant.sign(&self.controller).expect("sign");
        grant
    }

    fn with(&self, grant: CircuitGrant, rate: Option<u64>) -> Open {
        let mut open = open_via(&self.client, &[self.depot.address], self.acceptor);
        (open.grant, open.rate) = (Some(Box::new(grant)), rate);
        open.sign(&self.client, now_ms()).expect("sign");
        open
    }

    async fn refused(&self, open: &Open, words: &str) {
        let mut stream = initiate(self.depot.address, open, b"early data").await;
        let status = with_timeout(read_status(&mut stream)).await;
        assert_eq!(status.code, StatusCode::GrantRefused, "{}", status.detail);
        assert!(status.detail.contains(words), "{}", status.detail);
        assert!(!status.payload_forwarded);
        assert_eq!(status.verify(&open.signature), Some(self.depot.key));
        with_timeout(assert_end(&mut stream)).await;
    }

    /// Returns both ends of a session that is forwarded.
    async fn passed(&self, open: &Open) -> (TcpStream, TcpStream) {
        let mut initiator = initiate(self.depot.address, open, b"").await;
        let (acceptor, onward) = with_timeout(accept_session(&self.listener)).await;
        assert_eq!(
            onward.grant, open.grant,
            "it goes on to the next depot as it is"
        );
        assert_eq!(
            with_timeout(read_status(&mut initiator)).await.code,
            StatusCode::Ok
        );
        (initiator, acceptor)
    }
}

/// LH-GRANT-2.
#[tokio::test]
async fn a_grant_with_wrong_issuer_holder_or_time_is_refused() {
    let bed = Bed::new().await;
    let unsigned = bed.grant();
    bed.refused(&bed.with(unsigned, None), "this depot does not trust")
        .await;
    // Issued by the client itself, as a controller.
    let mut own = bed.grant();
    own.sign(&bed.client).expect("sign");
    bed.refused(&bed.with(own, None), "this depot does not trust")
        .await;
    let mut forged = bed.grant();
    forged.sign(&bed.controller).expect("sign");
    forged.rate += 1;
    bed.refused(
        &bed.with(forged, None),
        "signature does not match its issuer",
    )
    .await;
    let now = now_ms();
    bed.refused(
        &bed.open(None, |grant| grant.end_unix_ms = now - 1),
        "the grant ended",
    )
    .await;
    bed.refused(
        &bed.open(None, |grant| grant.start_unix_ms = now + MINUTE_MS / 2),
        "the grant begins in",
    )
    .await;
    // The lifetime is too long: a withdrawal must take effect soon, even if the controller cannot
    // reach the depot.
    bed.refused(
        &bed.open(None, |grant| grant.end_unix_ms = now + 60 * MINUTE_MS),
        "a depot accepts at most 70 s",
    )
    .await;
    // A grant of another key that this client has seen.
    let other = new_key().public();
    bed.refused(
        &bed.open(None, |grant| grant.holder = other),
        "for another key",
    )
    .await;
    bed.refused(
        &bed.open(None, |grant| grant.depots = vec![other]),
        "for other depots",
    )
    .await;
    assert_never_dialled(&bed.listener).await;
}

/// LH-GRANT-3.
#[tokio::test]
async fn sessions_beyond_the_grant_are_refused_until_others_end() {
    let bed = Bed::new().await;
    let page = bed.depot.metrics.expect("page");
    let (initiator, acceptor) = bed.passed(&bed.open(Some(60_000_000), |_| {})).await;
    with_timeout(wait_for_metric(
        page,
        "longhaul_depot_granted_sessions",
        1.0,
    ))
    .await;
    bed.refused(
        &bed.open(Some(30_000_000), |_| {}),
        "20 Mbit/s of the granted rate is free",
    )
    .await;
    let second = bed.passed(&bed.open(None, |_| {})).await;
    bed.refused(&bed.open(None, |_| {}), "all 2 sessions").await;
    drop((initiator, acceptor));
    with_timeout(wait_for_metric(
        page,
        "longhaul_depot_granted_sessions",
        1.0,
    ))
    .await;
    let third = bed.passed(&bed.open(Some(80_000_000), |_| {})).await;
    drop((second, third));
}

/// LH-GRANT-2: a depot that trusts no controller reads no grant.
#[tokio::test]
async fn a_depot_without_controllers_forwards_grants_unread() {
    let key = new_key();
    let depot = depot(&key);
    let (listener, address) = acceptor().await;
    let bed = Bed::new().await;
    let mut open = open_via(&key, &[depot.address], address);
    open.grant = Some(Box::new(bed.grant()));
    open.sign(&key, now_ms()).expect("sign");
    let mut stream = initiate(depot.address, &open, b"").await;
    let (_acceptor, onward) = with_timeout(accept_session(&listener)).await;
    assert_eq!(onward.grant, open.grant);
    assert_eq!(
        with_timeout(read_status(&mut stream)).await.code,
        StatusCode::Ok
    );
}

/// LH-GRANT-3: the end of a grant resets no session, and the rate of the policy applies again.
#[tokio::test(start_paused = true)]
async fn a_session_without_its_grant_has_the_rate_of_its_rule() {
    let _still = stand_still();
    let bed = Bed::with_rule(RULE).await;
    let page = bed.depot.metrics.expect("page");
    let mut ends = bed.passed(&bed.open(None, unpaced)).await;
    wait_for_metric(page, GRANTED, 1.0).await;
    let granted = seconds_to_carry(&mut ends, BYTES).await;
    assert!(granted < RULE_SECONDS / 2.0, "{granted}");
    tokio::time::advance(Duration::from_millis(MINUTE_MS + 1)).await;
    wait_for_metric(page, GRANTED, 0.0).await;
    let ruled = seconds_to_carry(&mut ends, BYTES).await;
    assert!(ruled >= RULE_SECONDS, "{ruled}");
    let listed = bed.depot.grants.list();
    assert_eq!(listed.len(), 1, "it is asked about while it has a session");
}

/// LH-GRANT-3: a timely renewal changes nothing, and one after an outage gives sessions their rate
/// back.
#[tokio::test(start_paused = true)]
async fn a_renewed_grant_applies_to_its_sessions() {
    let _still = stand_still();
    let bed = Bed::with_rule(RULE).await;
    let page = bed.depot.metrics.expect("page");
    let mut ends = bed.passed(&bed.open(None, unpaced)).await;
    let in_use = bed.depot.grants.list().remove(0);
    let renew = || bed.depot.grants.renew(&in_use, &bed.signed(unpaced));
    for _ in 0..4 {
        tokio::time::advance(Duration::from_millis(MINUTE_MS / 2)).await;
        renew().expect("it is the controller's");
        wait_for_metric(page, GRANTED, 1.0).await;
    }
    tokio::time::advance(Duration::from_millis(MINUTE_MS + 1)).await;
    wait_for_metric(page, GRANTED, 0.0).await;
    let lapsed = seconds_to_carry(&mut ends, BYTES).await;
    assert!(lapsed >= RULE_SECONDS, "{lapsed}");
    renew().expect("it is the controller's");
    wait_for_metric(page, GRANTED, 1.0).await;
    let renewed = seconds_to_carry(&mut ends, BYTES).await;
    assert!(renewed < RULE_SECONDS / 2.0, "{renewed}");
    let active = metric(page, "longhaul_depot_sessions_active").await;
    assert_eq!(active, Some(1.0), "it is the same session");
}

/// LH-GRANT-3: whatever grants the holder still presents, a withdrawal holds until the controller
/// renews.
#[tokio::test]
async fn a_withdrawn_grant_ends_at_once_and_is_refused() {
    let bed = Bed::new().await;
    let page = bed.depot.metrics.expect("page");
    let (mut initiator, mut acceptor) = bed.passed(&bed.open(None, |_| {})).await;
    with_timeout(wait_for_metric(page, GRANTED, 1.0)).await;
    with_timeout(bed.depot.grants.wait_unqueried()).await;
    let in_use = bed.depot.grants.list().remove(0);
    assert_eq!(
        (&in_use.circuit[..], in_use.holder),
        (&b"12"[..], bed.client.public())
    );
    bed.depot
        .grants
        .withdraw(&in_use, "the reservation was cancelled");
    with_timeout(wait_for_metric(page, GRANTED, 0.0)).await;
    bed.refused(
        &bed.open(None, |grant| grant.end_unix_ms += 5_000),
        "has withdrawn it",
    )
    .await;
    // The session continues.
    initiator.write_all(b"?").await.expect("write");
    assert_eq!(with_timeout(acceptor.read_u8()).await.expect("read"), b'?');
    // An unsigned grant, or one for other depots, does not renew it.
    let forged = bed.grant();
    bed.depot
        .grants
        .renew(&in_use, &forged)
        .expect_err("unsigned");
    let other = new_key().public();
    let elsewhere = bed.signed(|grant| grant.depots = vec![other]);
    bed.depot
        .grants
        .renew(&in_use, &elsewhere)
        .expect_err("elsewhere");
    assert_eq!(metric(page, GRANTED).await, Some(0.0));
    bed.depot
        .grants
        .renew(&in_use, &bed.signed(|_| {}))
        .expect("it is the controller's");
    with_timeout(wait_for_metric(page, GRANTED, 1.0)).await;
    drop(bed.passed(&bed.open(None, |_| {})).await);
}
