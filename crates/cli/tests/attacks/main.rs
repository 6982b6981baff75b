//! Attacks on the built command by hostile peers of this suite: on loopback, or in a node of a lab
//! if an attack needs addresses or a name server of its own. Every attack is bounded, and each test
//! says what must hold under it.

// A test that can't go on has failed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod circuits;
#[path = "../common/mod.rs"]
mod common;
mod controller;
mod copies;
mod delegates;
mod files;
mod grants;
mod keys;
mod lies;
mod names;
mod nodes;
mod offramp;
mod offramp_keys;
mod onramp;
mod opens;
mod pulls;
mod readers;
mod services;
mod shares;
#[allow(
    dead_code,
    reason = "shared with the tests of the command, which use other parts"
)]
#[path = "../command/stage.rs"]
mod stage;
mod strangers;
mod stripes;
mod terminal;
mod trusted_files;
mod world;
