//! Cost of an idle session at the depot: resident memory of its process, and open pipes.
//!
//! Each session first carries some bytes in both directions, so that memory allocated and never
//! freed counts too.

use std::io::{Read, Write};
use std::net::TcpStream;

use longhaul_proto::{SigningKey, StatusCode, StatusDecoder};
use serde_json::{Value, json};

use crate::ends::{self, Sink};
use crate::relays::Relay;

const CARRIED: usize = 64 * 1024;

pub fn measure(depot: &Relay, sink: &Sink, key: &SigningKey, sessions: usize) -> Value {
    // Memory of the preceding transfers is excluded.
    let before = depot.resident();
    let mut held = Vec::with_capacity(sessions);
    for _ in 0..sessions {
        let mut initiator = TcpStream::connect(depot.address).expect("connect");
        initiator
            .write_all(&ends::open(depot.address, sink, key))
            .expect("OPEN");
        let (mut acceptor, _) = sink.accept();
        read_status(&mut initiator);
        carry(&mut initiator, &mut acceptor);
        carry(&mut acceptor, &mut initiator);
        held.push((initiator, acceptor));
    }
    let taken = depot.resident().saturating_sub(before);
    let pipes = depot.metric("longhaul_depot_pipe_bytes");
    assert_eq!(
        depot.metric("longhaul_depot_sessions_active"),
        sessions as f64
    );
    json!({
        "sessions": sessions,
        "bytes_carried_each_way": CARRIED,
        "resident_bytes": taken,
        "resident_bytes_per_session": taken as f64 / sessions as f64,
        "pipe_bytes": pipes,
        "pipe_bytes_per_session": pipes / sessions as f64,
    })
}

fn carry(from: &mut TcpStream, to: &mut TcpStream) {
    let mut arrived = vec![0; CARRIED];
    from.write_all(&arrived).expect("write");
    to.read_exact(&mut arrived).expect("read");
}

pub fn read_status(stream: &mut TcpStream) {
    let mut decoder = StatusDecoder::new();
    let mut byte = [0];
    loop {
        stream.read_exact(&mut byte).expect("a status");
        if let Some((status, _)) = decoder.feed(&byte).expect("status") {
            assert_eq!(status.code, StatusCode::Ok, "{}", status.detail);
            return;
        }
    }
}
