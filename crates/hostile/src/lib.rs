//! Peers that break the rules, for tests and measurements that run attacks against the built
//! programs.
//!
//! Everything here connects only to addresses that its caller names: loopback, or the nodes of a
//! lab. Messages are written by hand, as by an attacker ([`frames`], [`status`]), so that a check
//! in a codec of this project cannot soften an attack.
//!
//! - [`Crowd`]: strangers without a key, who hold connections or send invalid data.
//! - [`Flood`]: OPENs, valid or corrupted, at a given rate; [`opens`] makes them.
//! - [`client`]: a client of `longhaul serve` with a session of its own that carries hand-written
//!   frames.
//! - [`HostileServer`], [`Impostor`]: servers that send answers without a question, or show a key
//!   that is not theirs.
//! - [`HostileDepot`]: a depot that lies, or swaps the sessions it carries.
//! - [`SilentNames`]: a name server that never answers.
//! - [`Usage`]: resources of an attacked process: descriptors, memory, processor time.

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
