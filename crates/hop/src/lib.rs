//! One transport connection between two places of a route: how it is dialled, listened for, kept
//! alive and ended, and how newcomers are let in. Both ends of a session and the depots between
//! them stand on this.
//!
//! - [`Conn`] is a connection: an asynchronous byte stream that ends cleanly only when told to,
//!   lends its descriptor to splice(2) and reports what the kernel knows of it. Today every
//!   connection is TCP; what stands above asks [`Conn::splices`] and takes no descriptor for
//!   granted.
//! - [`Resolver`] turns an endpoint into addresses, [`dial`] those into a [`Conn`].
//! - [`Listener`] accepts; [`Gate`] decides who of the newcomers stays while there is room for some
//!   only.
//! - [`receive_open`] reads an OPEN, [`answer_and_linger`] says no and sees to it that it can be
//!   read.
//! - [`Life`] is that of a service that lets what is under way finish.
//! - [`SharedPlaces`] are what is bounded among keys or sources; [`RateLimit`] is a rate that many
//!   share; [`EventLog`] bounds what newcomers can make a program write into its log.
//! - [`read_trusted_file`] reads what says who is trusted, unless others may write it.
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
