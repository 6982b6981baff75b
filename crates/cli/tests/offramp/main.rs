//! `longhaul offramp` at the end of a path with two depots, and ordinary servers behind it:
//! Debian's own programs, which know nothing of sessions.

#![allow(clippy::unwrap_used, clippy::panic)] // A test that can't go on has failed.

mod bed;
#[path = "../common/mod.rs"]
mod common;
mod deaths;
mod depot;
#[path = "../../../api/tests/support/postgres.rs"]
mod postgres;
mod programs;
mod refusals;
mod resuming;
