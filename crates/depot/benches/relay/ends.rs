//! In-memory ends, the same for every relay: blocking threads that write and read one buffer
//! repeatedly. Each flow begins with an OPEN; a relay that does not speak the protocol relays it
//! like any other bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use longhaul_proto::{Hop, Open, OpenDecoder, Route, ServiceName, SessionId, SigningKey};

const BUFFER: usize = 128 * 1024;

/// Endpoint at which every flow ends.
pub struct Sink {
    listener: TcpListener,
}

impl Sink {
    pub fn open() -> Self {
        Self {
            listener: TcpListener::bind("127.0.0.1:0").expect("bind"),
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().expect("address")
    }

    /// Returns the next flow, after its OPEN, and the number of bytes that came with the OPEN,
    /// which are discarded.
    pub fn accept(&self) -> (TcpStream, u64) {
        let (mut stream, _) = self.listener.accept().expect("accept");
        let mut decoder = OpenDecoder::new();
        let mut buffer = [0; 4096];
        loop {
            let n = stream.read(&mut buffer).expect("read");
            assert!(n > 0, "the relay hung up within the OPEN");
            if let Some((_, used)) = decoder.feed(&buffer[..n]).expect("OPEN") {
                return (stream, (n - used) as u64);
            }
        }
    }
}

/// Returns an OPEN for `relay` to forward to `sink`.
pub fn open(relay: SocketAddr, sink: &Sink, key: &SigningKey) -> BytesMut {
    let route = Route::new(vec![Hop {
        endpoint: relay.into(),
        strict: true,
        key: None,
        transport: None,
    }])
    .expect("route");
    let id = SessionId::from_bytes(rand::random());
    let mut open = Open::new(
        id,
        ServiceName::COPY,
        route,
        sink.address().into(),
        Duration::from_secs(10),
    );
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("clock");
    open.sign(key, now.as_millis() as u64).expect("sign");
    let mut bytes = BytesMut::new();
    open.for_first_hop().encode(&mut bytes).expect("encode");
    bytes
}

/// Sends `bytes` through each of `flows` concurrent connections, and waits until all have arrived
/// and ended.
pub fn transfer(relay: SocketAddr, sink: &Sink, key: &SigningKey, flows: usize, bytes: u64) {
    std::thread::scope(|scope| {
        for _ in 0..flows {
            let head = open(relay, sink, key);
            scope.spawn(move || send(relay, &head, bytes));
        }
        for _ in 0..flows {
            let (stream, early) = sink.accept();
            scope.spawn(move || receive(stream, early, bytes));
        }
    });
}

fn send(relay: SocketAddr, head: &[u8], bytes: u64) {
    let mut stream = TcpStream::connect(relay).expect("connect");
    stream.write_all(head).expect("OPEN");
    let buffer = vec![7; BUFFER];
    let mut left = bytes;
    while left > 0 {
        let n = usize::try_from(left).unwrap_or(BUFFER).min(BUFFER);
        stream.write_all(&buffer[..n]).expect("write");
        left -= n as u64;
    }
    stream.shutdown(Shutdown::Write).expect("FIN");
    // The depot's status, if there is one, and then the receiver's end of stream.
    stream.read_to_end(&mut Vec::new()).expect("a clean end");
}

fn receive(mut stream: TcpStream, early: u64, bytes: u64) {
    let mut buffer = vec![0; BUFFER];
    let mut arrived = early;
    loop {
        let n = stream.read(&mut buffer).expect("read");
        if n == 0 {
            break;
        }
        arrived += n as u64;
    }
    assert_eq!(arrived, bytes, "the relay lost or made up bytes");
}
