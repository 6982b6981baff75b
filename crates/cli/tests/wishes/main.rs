//! Wishes that become circuits: unmodified programs state a rate, and routers hold it for them.
#![allow(clippy::unwrap_used, clippy::panic)] // A test that can't go on has failed.

mod bed;
#[path = "../common/mod.rs"]
mod common;
mod depots;
mod fallbacks;
mod programs;
#[allow(dead_code, reason = "shared with the tests of the preload object")]
#[path = "../../../preload/tests/support/mod.rs"]
mod support;
