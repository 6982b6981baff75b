//! Live topology: the states of links in a network that runs OSPF with traffic engineering, as one
//! of its routers knows them. [`longhaul_map::ospf`] parses and matches, this module reads and
//! decides what to believe.
//!
//! | module | purpose |
//! |---|---|
//! | [`config`] | the operator's `[ospf]` |
//! | [`source`] | reads the database of a router, through a socket or a command |
//! | [`vty`] | requests over the socket of FRR's `ospfd` |
//! | [`tracker`] | decides which changes count, and when. Pure |

pub mod config;
pub mod source;
pub mod tracker;
mod vty;

pub use config::{OspfConfig, OspfFault};
