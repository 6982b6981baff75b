//! Drain, reload, rates: behaviour that an off-ramp initiates itself.

use std::time::Duration;

use longhaul_identity::Identities;
use longhaul_offramp::{Error, Offramp, OfframpConfig};
use longhaul_policy::Policy;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::bed::*;

#[tokio::test]
async fn a_drain_lets_sessions_finish_and_takes_no_new_ones() {
    let me = me();
    let mut offramp = offramp(&me);
    let (mut session, mut server) = with_timeout(established(&offramp, &me)).await;
    offramp.stop();
    // The listener closes first: once it is closed, the drain has begun.
    let closed = async { while TcpStream::connect(offramp.address).await.is_ok() {} };
    with_timeout(closed).await;
    let finishing = async {
        session.write_all(b"the rest").await.unwrap();
        session.shutdown().await.unwrap();
        let mut received = String::new();
        server.read_to_string(&mut received).await.unwrap();
        assert_eq!(received, "the rest");
        server.write_all(b"heard").await.unwrap();
        server.shutdown().await.unwrap();
        received.clear();
        session.read_to_string(&mut received).await.unwrap();
        assert_eq!(received, "heard");
    };
    with_timeout(finishing).await;
    offramp.stopped().await;
}

#[tokio::test]
async fn sessions_left_at_the_drain_deadline_are_reset() {
    let me = me();
    let mut offramp = offramp_with(loopback(me.public()), |config| {
        config.timeouts.drain = Duration::from_millis(50);
    });
    let (mut session, mut server) = with_timeout(established(&offramp, &me)).await;
    offramp.stop();
    offramp.stopped().await;
    for error in [
        with_timeout(session.read_u8()).await.unwrap_err(),
        with_timeout(server.read_u8()).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    }
}

#[tokio::test]
async fn a_policy_without_servers_is_a_mistake() {
    let text = "[[allow]]\nprincipals = [\"*\"]\nto = [\"192.0.2.0/24\"]\n";
    let policy = Policy::parse(text, std::path::Path::new("test.toml")).unwrap();
    let bound = Offramp::bind(OfframpConfig::new(me(), policy));
    assert!(matches!(bound, Err(Error::NoServers)));
}

/// Only this test uses the signal, since it reaches the whole process.
#[tokio::test]
async fn sighup_reloads_the_policy_unless_it_is_invalid() {
    let (me, other) = (me(), me());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("policy.toml");
    let rule = |key| {
        format!(
            "[[allow]]\nprincipals = [\"{key}\"]\nservers = [\"127.0.0.0/8\"]\nports = [\"any\"]\n"
        )
    };
    std::fs::write(&file, rule(me.public())).unwrap();
    let offramp = offramp_with(Policy::load(&file).unwrap(), |_| {});
    let (mut session, mut server) = with_timeout(established(&offramp, &me)).await;
    let (_listener, address) = crate::bed::server().await;
    assert!(offramp.connect(&other, address).await.is_err());

    let hang_up =
        || rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::HUP);
    std::fs::write(&file, "[[allow]]\nprincipals = 5\n").unwrap();
    hang_up().unwrap();
    offramp
        .wait_for_metric(
            "longhaul_offramp_policy_reloads_total{outcome=\"refused\"}",
            1.0,
        )
        .await;
    offramp.connect(&me, address).await.expect("the old rules");

    std::fs::write(&file, rule(other.public())).unwrap();
    hang_up().unwrap();
    offramp
        .wait_for_metric(
            "longhaul_offramp_policy_reloads_total{outcome=\"loaded\"}",
            1.0,
        )
        .await;
    offramp
        .connect(&other, address)
        .await
        .expect("the new rules");
    assert!(offramp.connect(&me, address).await.is_err());
    // The current session continues.
    session.write_all(b"x").await.unwrap();
    session.flush().await.unwrap();
    assert_eq!(with_timeout(server.read_u8()).await.unwrap(), b'x');
}

#[tokio::test]
async fn session_ends_when_its_principal_leaves_the_group() {
    let me = me();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("principals.toml");
    let join = |group: &str| {
        let key = me.public();
        let text =
            format!("[[principal]]\nname = \"me\"\nkeys = [\"{key}\"]\ngroups = [\"{group}\"]\n");
        std::fs::write(&file, text).unwrap();
    };
    join("lab");
    let identities = Identities::load(&file).unwrap();
    let rule = "[[allow]]\nprincipals = [\"group:lab\"]\nservers = [\"127.0.0.0/8\"]\n\
                ports = [\"any\"]\n";
    let policy = Policy::parse(rule, std::path::Path::new("test.toml")).unwrap();
    let offramp = offramp_with(policy.with_identities(identities.clone()), |_| {});
    let (mut session, mut server) = with_timeout(established(&offramp, &me)).await;
    identities.reload().unwrap();
    session.write_all(b"x").await.unwrap();
    session.flush().await.unwrap();
    assert_eq!(with_timeout(server.read_u8()).await.unwrap(), b'x');
    join("other");
    identities.reload().unwrap();
    for error in [
        with_timeout(session.read_u8()).await.unwrap_err(),
        with_timeout(server.read_u8()).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    }
    let (_listener, address) = crate::bed::server().await;
    assert!(offramp.connect(&me, address).await.is_err());
}
