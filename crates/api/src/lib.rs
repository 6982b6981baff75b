//! Common parts of Longhaul's HTTP services.
//!
//! | module | purpose |
//! |---|---|
//! | [`access`] | authenticates local callers, by user on a Unix socket and by token on loopback |
//! | [`key_gate`] | authenticates callers on other machines, by [`authorized_keys`] |
//! | [`listen`] | listeners: a Unix socket, loopback, and other addresses with TLS only |
//! | [`CallerLog`] | bounds the log lines that each caller can cause |
//! | [`endpoints`] | endpoints, declared once for router and description |
//! | [`headers`] | headers of every response |
//! | [`problem`] | parts of requests, whose rejections are typed errors |
//! | [`database`] | SQLite in a file, or PostgreSQL by URL, with the same queries |

pub mod access;
pub mod authorized_keys;
mod caller;
mod caller_log;
pub mod database;
pub mod endpoints;
pub mod headers;
pub mod key_gate;
pub mod listen;
pub mod problem;

pub use access::{Caller, LocalGate};
pub use caller_log::CallerLog;
pub use database::Database;
pub use key_gate::KeyGate;
pub use longhaul_api_common::{Problem, ProblemKind, signatures, tls};
