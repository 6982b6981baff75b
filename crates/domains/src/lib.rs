//! Reservations across domains: the decisions of one domain's agent. No I/O, no clock, no locks.
//!
//! A reservation from an end of one domain to an end of another consists of segments, one of each
//! domain on the path. The domain that a user asks requests them from the others, in two phases.
//! First every domain holds its segment; when all hold theirs, every domain promises it.
//!
//! Nothing that is held or promised outlives the interest of its requester:
//!
//! - A *hold* expires unless it is committed.
//! - A *promise* lapses unless it is renewed. The first renewal says that all segments are
//!   promised; the later ones say that the requester still wants them.
//!
//! So a domain that dies holds nothing at others when its leases have expired, and others that miss
//! its answers return what they hold for it.
//!
//! The states are driven by *levels*, not by messages. Each connection has a phase, which never
//! goes back, and each leg is asked again until it has followed. A lost, repeated or late message
//! therefore changes nothing, and neither does a restart from the stored connections.
//!
//! | module | contents |
//! |---|---|
//! | [`connection`] | a connection and its legs, as they are stored |
//! | [`timing`] | time limits |
//! | [`agent`] | the agent: takes messages, results and the time, returns changes and effects |
//! | [`graph`] | paths over the graph of domains |
//! | [`publication`] | signing and checking of abstract topologies |

#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)] // input comes from the network
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

pub mod agent;
pub mod connection;
pub mod graph;
pub mod publication;
pub mod timing;
