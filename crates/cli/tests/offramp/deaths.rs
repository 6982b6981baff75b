//! Observations of each side when another dies, or is told to stop.

use std::fs;
use std::io::ErrorKind;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::bed::*;
use crate::common::{Service, noise};

#[test]
fn an_offramp_that_is_killed_cuts_both_sides_off() {
    on_the_path(
        "deaths::an_offramp_that_is_killed_cuts_both_sides_off",
        2.0,
        |bed, mut initiator| {
            let mut netcat = bed.program("inside", "nc.openbsd", &["-l", "5001"]);
            let mut netcat = Service(netcat.spawn().unwrap());
            bed.listening("inside", 5001);
            fs::write(bed.path("ready"), "").unwrap();
            initiator.receive("established");
            bed.offramp.signal("KILL");
            initiator.finish();
            // A reset, not an end: netcat exits, whatever it reports.
            netcat.0.wait().unwrap();
        },
        async |me| {
            file(&me.directory.join("ready")).await;
            let mut session = me.connect(&format!("{}:5001", me.inside)).await.unwrap();
            session.write_all(b"x").await.unwrap();
            session.flush().await.unwrap();
            say("established");
            let error = session.read_u8().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
        },
    );
}

/// A server's process that is killed looks as it does without an off-ramp: its system ends the
/// connection, or resets it if data was unread.
#[test]
fn a_server_that_is_killed_ends_the_session() {
    on_the_path(
        "deaths::a_server_that_is_killed_ends_the_session",
        2.0,
        |bed, mut initiator| {
            let mut netcat = bed.program("inside", "nc.openbsd", &["-l", "5001"]);
            let netcat = Service(netcat.spawn().unwrap());
            bed.listening("inside", 5001);
            fs::write(bed.path("ready"), "").unwrap();
            initiator.receive("established");
            netcat.signal("KILL");
            initiator.finish();
        },
        async |me| {
            file(&me.directory.join("ready")).await;
            let mut session = me.connect(&format!("{}:5001", me.inside)).await.unwrap();
            say("established");
            let mut received = Vec::new();
            let ended = session.read_to_end(&mut received).await;
            assert!(
                matches!(&ended, Ok(0))
                    || matches!(&ended, Err(error) if error.kind() == ErrorKind::ConnectionReset),
                "{ended:?}"
            );
        },
    );
}

#[test]
fn a_drain_lets_a_transfer_finish() {
    on_the_path(
        "deaths::a_drain_lets_a_transfer_finish",
        2.0,
        |bed, mut initiator| {
            let taken = bed.path("taken");
            let mut netcat = bed.program("inside", "nc.openbsd", &["-N", "-l", "5001"]);
            netcat.stdout(fs::File::create(&taken).unwrap());
            let mut netcat = Service(netcat.spawn().unwrap());
            bed.listening("inside", 5001);
            fs::write(bed.path("ready"), "").unwrap();
            initiator.receive("half");
            bed.offramp.signal("TERM");
            bed.logged("gateway", "draining");
            fs::write(bed.path("draining"), "").unwrap();
            initiator.finish();
            assert_eq!(bed.offramp.0.wait().unwrap().code(), Some(0));
            assert!(netcat.0.wait().unwrap().success());
            assert!(fs::read(taken).unwrap() == noise(2 << 20, 7));
        },
        async |me| {
            file(&me.directory.join("ready")).await;
            let mut session = me.connect(&format!("{}:5001", me.inside)).await.unwrap();
            let whole = noise(2 << 20, 7);
            let (first, second) = whole.split_at(whole.len() / 2);
            session.write_all(first).await.unwrap();
            session.flush().await.unwrap();
            say("half");
            file(&me.directory.join("draining")).await;
            session.write_all(second).await.unwrap();
            session.shutdown().await.unwrap();
            let mut nothing = Vec::new();
            session.read_to_end(&mut nothing).await.unwrap();
            assert!(nothing.is_empty());
        },
    );
}
