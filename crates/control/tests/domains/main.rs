//! Reservations across domains with real controllers on loopback: each has its own store, map, key
//! and TLS listener, and dies with everything that is not in its store.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod faults;
mod reserving;
mod world;
