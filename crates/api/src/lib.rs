//! Common parts of Longhaul's HTTP services.
//!
//! | module | purpose |
//! |---|---|
//! | [`access`] | authenticates local callers, by user on a Unix socket and by token on loopback |
//! | [`key_gate`] | authenticates callers on other machines, by [`authorized_keys`] |
//! | [`signatures`] | signs requests (RFC 9421) and verifies signatures. Pure |
//! | [`tls`] | certificate of a service, and how clients verify it |
//! | [`listen`] | listeners: a Unix socket, loopback, and other addresses with TLS only |
//! | [`CallerLog`] | bounds the log lines that each caller can cause |
//! | [`problem`] | typed errors (RFC 9457), also for requests that axum rejects |
//! | [`database`] | SQLite in a file, or PostgreSQL by URL, with the same queries |

pub mod access;
pub mod authorized_keys;
mod caller;
mod caller_log;
pub mod database;
pub mod key_gate;
pub mod listen;
pub mod problem;
pub mod signatures;
pub mod tls;

pub use access::{Caller, LocalGate};
pub use caller_log::CallerLog;
pub use database::Database;
pub use key_gate::KeyGate;
pub use problem::{Problem, ProblemKind};
