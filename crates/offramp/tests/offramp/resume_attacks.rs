//! Attacks on resumable sessions: strangers, other keys, repeated requests, floods.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use longhaul_policy::Policy;
use longhaul_proto::{
    Open, ResumeRequest, ServiceName, SessionId, Status, StatusCode, StatusDecoder,
};
use longhaul_session::{Identity, ResumeLimits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::bed::*;
use crate::resuming::{both_ends, resumable};

const NOBODY: &str = "127.0.0.1:9";

/// Returns a policy for two keys.
fn two_keys(one: &Identity, other: &Identity) -> Policy {
    let text = format!(
        "[[allow]]\nprincipals = [\"{}\", \"{}\"]\nservers = [\"127.0.0.0/8\"]\nports = [\"any\"]\n",
        one.public(),
        other.public()
    );
    Policy::parse(&text, std::path::Path::new("test.toml")).unwrap()
}

/// Returns a request of `me` to resume `session`, with a proof of somebody who has no secret.
fn request(me: &Identity, offramp: SocketAddr, session: SessionId, epoch: u32) -> Open {
    let mut open = open(me, offramp, NOBODY.parse::<SocketAddr>().unwrap());
    open.cursor = 0;
    open.service = ServiceName::RESUME;
    open.onward = None;
    open.resume = Some(Box::new(ResumeRequest {
        session,
        epoch,
        received: 0,
        proof: [7; 32],
    }));
    open.sign(me.signing_key(), longhaul_hop::unix_ms())
        .unwrap();
    open.for_first_hop()
}

async fn ask(to: SocketAddr, open: &Open) -> Status {
    let mut bytes = BytesMut::new();
    open.encode(&mut bytes).unwrap();
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(&bytes).await.unwrap();
    let mut decoder = StatusDecoder::new();
    loop {
        let byte = with_timeout(stream.read_u8()).await.unwrap();
        if let Some((status, _)) = decoder.feed(&[byte]).unwrap() {
            return status;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_else_can_resume_a_session() {
    let (me, other, stranger) = (me(), me(), me());
    let offramp = offramp_with(two_keys(&me, &other), |_| {});
    let nobody: SocketAddr = NOBODY.parse().unwrap();
    let (options, mut events) =
        resumable(&offramp, &me, nobody, &["direct"], Duration::from_secs(60));
    let (mut session, mut server) = with_timeout(both_ends(&options)).await;
    let id = session.info().session_id;
    // The right key without the secret, another permitted key, an unknown session: all get the same
    // answer.
    let mut answers = Vec::new();
    for (key, session) in [(&me, id), (&other, id), (&me, SessionId::random().unwrap())] {
        let status = ask(offramp.address, &request(key, offramp.address, session, 9)).await;
        answers.push((status.code, status.detail, status.resumed));
    }
    let refused = (StatusCode::NotResumable, String::new(), None);
    assert_eq!(answers, vec![refused; 3]);
    let status = ask(offramp.address, &request(&stranger, offramp.address, id, 9)).await;
    assert_eq!(status.code, StatusCode::Unauthorised);
    // A request that somebody repeats.
    let repeated = request(&me, offramp.address, id, 9);
    assert_eq!(
        ask(offramp.address, &repeated).await.code,
        StatusCode::NotResumable
    );
    assert_eq!(
        ask(offramp.address, &repeated).await.code,
        StatusCode::Replay
    );
    // The session was not touched.
    session.write_all(b"words").await.unwrap();
    let mut words = [0; 5];
    with_timeout(server.read_exact(&mut words)).await.unwrap();
    assert_eq!(&words, b"words");
    assert!(events.try_recv().is_err());
    assert_eq!(
        offramp
            .metric("longhaul_offramp_sessions_resumed_total")
            .await,
        0.0
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn detached_sessions_are_bounded() {
    let (me, other) = (me(), me());
    let limits = ResumeLimits {
        within: Duration::from_secs(60),
        memory: 4 << 20,
        window: 1 << 20,
    };
    let offramp = offramp_with(two_keys(&me, &other), |config| {
        config.resume = Some(limits);
        config.limits.sessions = 64;
    });
    let nobody: SocketAddr = NOBODY.parse().unwrap();
    let start = async |key: &Arc<Identity>, depot: &str| {
        let within = Duration::from_secs(60);
        let (options, _) = resumable(&offramp, key, nobody, &[depot], within);
        with_timeout(both_ends(&options)).await
    };
    let (depot, task) = mortal_depot(&me);
    let depot = depot.to_string();
    // The flood: sessions of one key, whose initiators never come back.
    let mut flood = Vec::new();
    for _ in 0..20 {
        flood.push(start(&me, &depot).await);
    }
    let count = |sessions: &[(longhaul_session::Session, TcpStream)]| {
        let is_resumable =
            |(session, _): &&(longhaul_session::Session, _)| session.info().resumable.is_some();
        sessions.iter().filter(is_resumable).count()
    };
    // Half of the memory, 256 KiB each. The others are plain sessions.
    assert_eq!(count(&flood), 8);
    task.abort();
    offramp
        .wait_for_metric("longhaul_offramp_sessions_resumable", 8.0)
        .await;
    offramp
        .wait_for_metric("longhaul_offramp_resume_memory_bytes", f64::from(2 << 20))
        .await;
    // Another key still gets its share.
    let theirs = start(&other, "direct").await;
    assert!(theirs.0.info().resumable.is_some());
    drop(flood);
}
