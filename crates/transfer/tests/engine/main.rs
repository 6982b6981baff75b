//! The engine over in-memory streams: whole trees in both directions, with injected faults. Without
//! sockets, fixed ports or sleeps.

#![allow(clippy::unwrap_used, clippy::panic)] // A test that can't go on has failed.

mod asked;
mod attacks;
mod clear;
mod compression;
mod delta;
mod faults;
mod fetch;
mod files;
mod filters;
mod hard_links;
mod harness;
mod input;
mod metadata;
mod outages;
mod parts;
mod receipts;
mod resume;
mod round_trips;
mod rules;
mod shares;
mod striped;
mod tokens;
mod trees;
mod unchanged;
mod wire;
mod write_grants;
