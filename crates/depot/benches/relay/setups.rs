//! Cost of a session set-up at the depot: from the initiator's connection to the Ok status, when
//! the next hop has been dialled and sent the OPEN.

use std::io::Write;
use std::net::TcpStream;
use std::time::Instant;

use longhaul_proto::SigningKey;
use serde_json::{Value, json};

use crate::ends::{self, Sink};
use crate::idle::read_status;
use crate::relays::Relay;

/// Number of concurrent initiators.
const AT_ONCE: usize = 8;

/// Sets up and ends `sessions` sessions, [`AT_ONCE`] at a time. Returns set-ups per second, and the
/// depot's processor time per set-up.
pub fn measure(depot: &Relay, sink: &Sink, key: &SigningKey, sessions: usize) -> Value {
    // Signed beforehand, so that the initiators' work is not measured.
    let each = sessions / AT_ONCE;
    let opens: Vec<Vec<_>> = (0..AT_ONCE)
        .map(|_| {
            (0..each)
                .map(|_| ends::open(depot.address, sink, key))
                .collect()
        })
        .collect();
    let (cpu, start) = (depot.cpu_seconds(), Instant::now());
    std::thread::scope(|scope| {
        for opens in &opens {
            scope.spawn(move || {
                for open in opens {
                    let mut initiator = TcpStream::connect(depot.address).expect("connect");
                    initiator.write_all(open).expect("OPEN");
                    read_status(&mut initiator);
                }
            });
        }
        scope.spawn(|| (0..each * AT_ONCE).for_each(|_| drop(sink.accept())));
    });
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), depot.cpu_seconds() - cpu);
    let count = (each * AT_ONCE) as f64;
    json!({
        "sessions": each * AT_ONCE,
        "per_second": count / seconds,
        "cpu_microseconds_each": cpu * 1e6 / count,
    })
}
