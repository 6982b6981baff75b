//! The built `longhaul` on emulated long paths.

#![allow(clippy::unwrap_used, clippy::panic)] // A test that can't go on has failed.

mod agent;
mod circuits;
#[path = "../common/mod.rs"]
mod common;
mod doctor;
mod ipv6;
mod onramp;
mod ospf;
mod own_addresses;
mod path;
mod perf;
mod reserved;
mod round_trips;
mod routing;
mod spread;
#[allow(dead_code, reason = "shared with other tests, which use other parts")]
#[path = "../command/stage.rs"]
mod stage;
mod striped;
