//! Programs in a network namespace of their own, for programs that cannot be preloaded: statically
//! linked ones, and those that make their system calls themselves.
//!
//! The namespace's only interface besides loopback is a TUN device. Its packets end in this
//! process. Each TCP connection has a stack of its own, in user space, and asks the on-ramp how to
//! reach its destination, as the preload object does. UDP datagrams are sent on by the host. A
//! connection is answered when the route, or the direct connection, stands. So a connection that
//! fails looks to the program as on any network.

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

pub use bridge::Bridge;
pub use error::IsolateError;
pub use ramp::ConnectionWishes;
pub use start::{ProgramNetwork, needs_user_namespace, start};
