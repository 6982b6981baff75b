//! What Longhaul's HTTP services stand on.
//!
//! | room | what it does |
//! |---|---|
//! | [`access`] | says who asks, and turns away who may not: by the user at the other end of a Unix socket, by a token on loopback |
//! | [`listen`] | where a service listens: a Unix socket of its user, loopback, and nowhere else |
//! | [`problem`] | typed errors (RFC 9457), also for what axum itself refuses |
//! | [`database`] | the store: SQLite in a file, or PostgreSQL by its URL, with the same queries |

pub mod access;
pub mod database;
pub mod listen;
pub mod problem;

pub use access::{Caller, Gate};
pub use database::Database;
pub use problem::{Problem, ProblemKind};
