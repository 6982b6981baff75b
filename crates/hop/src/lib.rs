//! One transport connection between two hops of a route: dialling, listening, keep-alive, ending,
//! and the admission of pending connections. Both ends of a session and the depots use it.
//!
//! - [`Conn`] is a connection: an asynchronous byte stream that ends cleanly only on request. A
//!   [`TcpConn`] lends its descriptor to splice(2) and reports the kernel's statistics; a
//!   [`TransportStream`] of another transport has no descriptor.
//! - [`Resolver`] turns an endpoint into addresses, and [`dial`] turns those into a [`Conn`].
//! - [`Duplex`] moves bytes in both directions between two connections, or other streams. It is the
//!   relay of a depot, and joins sessions with ordinary connections.
//! - [`Listener`] accepts connections; [`ConnectionGate`] decides which pending connections stay
//!   when there are too many.
//! - [`receive_open`] reads an OPEN; [`answer_and_linger`] refuses it and ensures that the answer
//!   can be read.
//! - [`SharedPermits`] bounds a resource shared among keys or sources. [`RateLimit`] is a shared
//!   rate limit. [`EventLog`] bounds the log lines that pending connections can cause.
//! - [`offer`] hands a listening socket to a process that replaces this one, and [`take_inherited`]
//!   takes it over there.
//! - [`read_trusted_file`] reads a file that grants trust, unless others may write it.
//!
//! The rules that the code cites (`LH-ACCEPT-1`) are those of `docs/protocol.md`.

mod announced;
mod clock;
mod conn;
mod dial;
mod duplex;
mod event_log;
mod gate;
mod inherited;
mod linger;
mod listen;
mod newcomers;
mod open;
mod options;
mod places;
mod rate;
mod resolve;
mod tcp_conn;
mod trusted_file;

pub use announced::read_announced;
pub use clock::unix_ms;
pub use conn::{
    AcceptingStream, Conn, OpeningStream, StreamDialler, StreamListener, StreamMeasurement,
    TransportStream,
};
pub use dial::{DialError, DialledConnection, dial, dial_stream};
pub use duplex::{
    BufferPool, Duplex, DuplexEnding, DuplexObserver, DuplexOptions, DuplexOutcome, DuplexSide,
    EndPolicy, IdleLimits, PipeBounds, PipePool,
};
pub use event_log::EventLog;
pub use gate::{
    AdmittedConnection, ConnectionGate, ConnectionPermit, Eviction, GateLimits, Payer,
    QuotaExceeded,
};
pub use inherited::{
    OfferedSocket, SUCCESSOR_VARIABLE, is_successor, offer, send_offered, take_inherited,
};
pub use linger::answer_and_linger;
pub use listen::{ListenError, Listener, ListenerConfig};
pub use open::{ReceiveOpenError, receive_open};
pub use options::{CongestionError, HopOptions, check_congestion};
pub use places::{HeldPermit, SharedPermits};
pub use rate::{DrawOutcome, RateLimit, RateLimits};
pub use resolve::{ResolveError, Resolver};
pub use tcp_conn::TcpConn;
pub use trusted_file::{read_roots_file, read_trusted_bytes, read_trusted_file};
