//! The built command with hosts that only run an OpenSSH server: real sshd on the nodes of a lab,
//! real ssh between them.

#![allow(clippy::unwrap_used, clippy::panic)] // A test that can't go on has failed.

mod bringing;
#[path = "../common/mod.rs"]
mod common;
mod copies;
mod deaths;
mod first_minutes;
mod hosts;
mod looking;
#[path = "../docs/page.rs"]
mod page;
mod servers;
mod sftp;
#[path = "../docs/shape.rs"]
mod shape;
mod sums;
mod sync;
mod trees;
mod ways;
