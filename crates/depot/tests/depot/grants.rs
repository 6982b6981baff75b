//! Grants of circuits: which count, what they bound, and when they end (LH-GRANT-1 to LH-GRANT-3).

use std::path::Path;
use std::time::Duration;

use longhaul_depot::Policy;
use longhaul_proto::{CircuitGrant, Open, PublicKey, SigningKey, StatusCode};
use tokio::net::{TcpListener, TcpStream};

use crate::bed::*;

/// A minute, in milliseconds.
const MINUTE_MS: u64 = 60_000;

struct Bed {
    depot: Running,
    controller: SigningKey,
    client: SigningKey,
    listener: TcpListener,
    acceptor: std::net::SocketAddr,
}

impl Bed {
    /// A depot that takes grants of a controller, and lets a client pass.
    async fn new() -> Self {
        let (controller, client) = (new_key(), new_key());
        let text = format!(
            "controllers = [\"{}\"]\n[[allow]]\nprincipals = [\"{}\"]\nto = [\"127.0.0.0/8\"]\nports = [\"any\"]\n",
            controller.public(),
            client.public()
        );
        let depot = depot_with(Policy::parse(&text, Path::new("t")).expect(&text), with_page);
        let (listener, acceptor) = acceptor().await;
        Self {
            depot,
            controller,
            client,
            listener,
            acceptor,
        }
    }

    /// A grant that counts now.
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

    /// An OPEN with a grant that the controller signs after this change.
    fn open(&self, rate: Option<u64>, change: impl FnOnce(&mut CircuitGrant)) -> Open {
        let mut grant = self.grant();
        change(&mut grant);
        grant.sign(&self.controller).expect("sign");
        self.with(grant, rate)
    }

    fn with(&self, grant: CircuitGrant, rate: Option<u64>) -> Open {
        let mut open = open_via(&self.client, &[self.depot.address], self.acceptor);
        (open.grant, open.rate) = (Some(Box::new(grant)), rate);
        open.sign(&self.client, now_ms()).expect("sign");
        open
    }

    async fn refused(&self, open: &Open, words: &str) {
        let mut stream = initiate(self.depot.address, open, b"early data").await;
        let status = soon(read_status(&mut stream)).await;
        assert_eq!(status.code, StatusCode::GrantRefused, "{}", status.detail);
        assert!(status.detail.contains(words), "{}", status.detail);
        assert!(!status.payload_forwarded);
        assert_eq!(status.verify(&open.signature), Some(self.depot.key));
        soon(assert_end(&mut stream)).await;
    }

    /// Both ends of a session that is passed on.
    async fn passed(&self, open: &Open) -> (TcpStream, TcpStream) {
        let mut initiator = initiate(self.depot.address, open, b"").await;
        let (acceptor, onward) = soon(take(&self.listener)).await;
        assert_eq!(onward.grant, open.grant, "it goes on to the next depot as it is");
        assert_eq!(soon(read_status(&mut initiator)).await.code, StatusCode::Ok);
        (initiator, acceptor)
    }
}

/// LH-GRANT-2.
#[tokio::test]
async fn a_grant_of_anybody_else_for_anybody_else_or_at_another_time_is_refused() {
    let bed = Bed::new().await;
    let unsigned = bed.grant();
    bed.refused(&bed.with(unsigned, None), "no controller of this depot")
        .await;
    // Its own, as a controller.
    let mut own = bed.grant();
    own.sign(&bed.client).expect("sign");
    bed.refused(&bed.with(own, None), "no controller of this depot")
        .await;
    let mut forged = bed.grant();
    forged.sign(&bed.controller).expect("sign");
    forged.rate += 1;
    bed.refused(&bed.with(forged, None), "signature is not its issuer's")
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
    // What another key was granted, and this one has seen.
    let other = new_key().public();
    bed.refused(&bed.open(None, |grant| grant.holder = other), "for another key")
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
async fn sessions_beyond_what_is_granted_are_refused_until_others_end() {
    let bed = Bed::new().await;
    let page = bed.depot.metrics.expect("page");
    let (initiator, acceptor) = bed.passed(&bed.open(Some(60_000_000), |_| {})).await;
    soon(until(page, "longhaul_depot_granted_sessions", 1.0)).await;
    bed.refused(
        &bed.open(Some(30_000_000), |_| {}),
        "20 Mbit/s of its rate is left",
    )
    .await;
    let second = bed.passed(&bed.open(None, |_| {})).await;
    bed.refused(&bed.open(None, |_| {}), "all 2 sessions").await;
    drop((initiator, acceptor));
    soon(until(page, "longhaul_depot_granted_sessions", 1.0)).await;
    let third = bed.passed(&bed.open(Some(80_000_000), |_| {})).await;
    drop((second, third));
}

/// LH-GRANT-2: who trusts no controller looks at no grant.
#[tokio::test]
async fn a_depot_without_controllers_passes_grants_on_unread() {
    let key = new_key();
    let depot = depot(&key);
    let (listener, address) = acceptor().await;
    let bed = Bed::new().await;
    let mut open = open_via(&key, &[depot.address], address);
    open.grant = Some(Box::new(bed.grant()));
    open.sign(&key, now_ms()).expect("sign");
    let mut stream = initiate(depot.address, &open, b"").await;
    let (_acceptor, onward) = soon(take(&listener)).await;
    assert_eq!(onward.grant, open.grant);
    assert_eq!(soon(read_status(&mut stream)).await.code, StatusCode::Ok);
}

/// LH-GRANT-3: what has a grant ends with it.
#[tokio::test(start_paused = true)]
async fn a_session_is_reset_when_its_grant_ends() {
    let still = stand_still();
    let bed = Bed::new().await;
    let page = bed.depot.metrics.expect("page");
    let open = bed.open(None, |grant| grant.end_unix_ms = now_ms() + MINUTE_MS);
    let (mut initiator, mut acceptor) = bed.passed(&open).await;
    until(page, "longhaul_depot_granted_sessions", 1.0).await;
    tokio::time::advance(Duration::from_millis(MINUTE_MS + 1)).await;
    // What the depot sent before, then the reset.
    assert_reset(&mut initiator).await;
    assert_reset(&mut acceptor).await;
    let ended = "longhaul_depot_sessions_ended_total{ending=\"grant over\"}";
    until(page, ended, 1.0).await;
    drop(still);
}
