//! Programs in a network namespace of their own, for those that nothing can be loaded before:
//! statically linked ones, those that make their system calls themselves.
//!
//! The namespace's only interface beside loopback is a TUN device. What comes out of it ends in
//! this process: each TCP connection at a stack of its own, in user space, which asks the on-ramp
//! how its destination is reached, as the preload object does; datagrams of UDP go on from the
//! host. A connection is answered when the route, or the direct connection, stands, so what the
//! program sees of one that fails is what a network would have shown it.

#![deny(clippy::indexing_slicing)] // what is read here comes from the program
#![cfg_attr(
    test,
    allow(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::panic,
        clippy::expect_used
    )
)]

mod addresses;
mod bridge;
mod device;
mod end;
mod error;
#[cfg(test)]
mod fuzzing;
mod hand_over;
mod names;
mod packet;
mod ramp;
mod resolvers;
mod start;
mod tcp;
mod udp;

pub use bridge::Bridge;
pub use error::IsolateError;
pub use ramp::Wishes;
pub use start::{Network, needs_user_namespace, start};
