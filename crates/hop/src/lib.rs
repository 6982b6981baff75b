//! One transport connection between two hops of a route: dialling, listening, keep-alive, ending,
//! and the admission of pending connections. Both ends of a session and the depots use it.
//!
//! - [`Conn`] is a connection: an asynchronous byte stream that ends cleanly only on request. It
//!   lends its descriptor to splice(2) and reports the kernel's statistics. Today every connection
//!   is TCP; its users check [`Conn::splices`] and do not rely on a descriptor.
//! - [`Resolver`] turns an endpoint into addresses, and [`dial`] turns those into a [`Conn`].
//! - [`Listener`] accepts connections; [`Gate`] decides which pending connections stay when there
//!   are too many.
//! - [`receive_open`] reads an OPEN; [`answer_and_linger`] refuses it and ensures that the answer
//!   can be read.
//! - [`Life`] is the life cycle of a service that finishes its work before it stops.
//! - [`SharedPlaces`] bounds a resource shared among keys or sources. [`RateLimit`] is a shared
//!   rate limit. [`EventLog`] bounds the log lines that pending connections can cause.
//! - [`read_trusted_file`] reads a file that grants trust, unless others may write it.
//!
//! The rules that the code cites (`LH-ACCEPT-1`) are those of `docs/protocol.md`.

mod clock;
mod conn;
mod dial;
mod event_log;
mod gate;
mod life;
mod linger;
mod listen;
mod newcomers;
mod open;
mod options;
mod places;
mod rate;
mod resolve;
mod trusted_file;

pub use clock::unix_ms;
pub use conn::Conn;
pub use dial::{DialError, Dialled, dial};
pub use event_log::EventLog;
pub use gate::{Entered, Eviction, Gate, GateLimits, NoRoom, Payer, Place};
pub use life::{Life, Phase, Phases};
pub use linger::answer_and_linger;
pub use listen::{Listen, ListenError, Listener};
pub use open::{NoOpen, receive_open};
pub use options::{CongestionError, Options, check_congestion};
pub use places::{HeldPlace, SharedPlaces};
pub use rate::{Grant, RateLimit};
pub use resolve::{ResolveError, Resolver};
pub use trusted_file::read_trusted_file;
