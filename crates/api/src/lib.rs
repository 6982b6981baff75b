//! What Longhaul's HTTP services stand on.
//!
//! | room | what it does |
//! |---|---|
//! | [`access`] | says who asks, and turns away who may not: by the user at the other end of a Unix socket, by a token on loopback |
//! | [`key_gate`] | says who asks from another machine: keys of a file ([`authorized_keys`]) that have signed what they ask for |
//! | [`signatures`] | signed requests (RFC 9421): signs them, and says whether a signature is good. Pure |
//! | [`tls`] | the certificate of a service, and how one is known |
//! | [`listen`] | where a service listens: a Unix socket of its user, loopback, and other addresses with TLS alone |
//! | [`CallerLog`] | bounds what each caller can have a service write into its log |
//! | [`problem`] | typed errors (RFC 9457), also for what axum itself refuses |
//! | [`database`] | the store: SQLite in a file, or PostgreSQL by its URL, with the same queries |

pub mod access;
pub mod authorized_keys;
mod caller_log;
pub mod database;
pub mod key_gate;
pub mod listen;
pub mod problem;
pub mod signatures;
pub mod tls;

pub use access::{Caller, Gate};
pub use caller_log::CallerLog;
pub use database::Database;
pub use key_gate::KeyGate;
pub use problem::{Problem, ProblemKind};
