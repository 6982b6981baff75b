//! Peers that break the rules, for tests and measurements that run attacks against the built
//! programs.
//!
//! Everything here speaks to addresses that its caller names: loopback, or the nodes of a lab. What
//! an attacker would write by hand is written by hand ([`frames`], [`status`]), so that a check in
//! a codec of this project cannot soften an attack.
//!
//! - [`Crowd`]: strangers without a key, who hold connections or say something else than they
//!   should.
//! - [`Flood`]: OPENs, valid or spoilt, as fast as asked; [`opens`] makes them.
//! - [`client`]: a client of `longhaul serve` with a session of its own and hand-written frames
//!   inside.
//! - [`HostileServer`], [`Impostor`]: servers that answer with what was not asked for, or with a
//!   key that is not theirs.
//! - [`HostileDepot`]: a depot that lies, or swaps the sessions it carries.
//! - [`SilentNames`]: a name server that never answers.
//! - [`Usage`]: what an attacked process holds: descriptors, memory, processor time.

#![forbid(unsafe_code)]

pub mod client;
mod crowd;
mod depot;
mod flood;
pub mod frames;
mod impostor;
mod names;
pub mod opens;
mod server;
mod socket;
pub mod status;
mod usage;

pub use crowd::{Crowd, Gathering, Manner};
pub use depot::{HostileDepot, Lie};
pub use flood::{Flood, Pace};
pub use impostor::Impostor;
pub use names::SilentNames;
pub use server::{Answer, HostileServer};
pub use usage::Usage;
