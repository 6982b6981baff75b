//! Provisioning of circuits on the network: they are set up before they start, torn down after they
//! end, and repaired after a crash.
//!
//! | module | contents |
//! |---|---|
//! | [`circuit`] | circuits, and the part of each at every node. Pure |
//! | [`streams`] | matching of a circuit's streams. Pure |
//! | [`reconcile`] | due requests to drivers, and the status of circuits. No I/O, no clock |
//! | [`ask`] | requests to drivers and their replies, as JSON |
//! | [`driver`] | interface to drivers |
//! | [`conductor`] | carries the requests of [`reconcile`] to the drivers, and their answers back |
//! | [`nodes`] | the operator's configuration of a driver for each node |
//! | [`program`] | a driver: a program of the operator |
//! | [`linux`] | a driver: HTB classes and policy routes of the local Linux machine |
//! | [`agent`] | answers requests from a stream, by means of another driver |
//! | [`process`] | runs a program within limits of time and output |
//! | [`remote`] | a driver: an agent at the other end of a stream |
//!
//! Everything carries the name of its *owner*, on whose behalf it was set up. Parts of other owners
//! are never touched.

#![forbid(unsafe_code)]

pub mod agent;
pub mod ask;
pub mod circuit;
pub mod conductor;
pub mod driver;
mod lines;
pub mod linux;
pub mod nodes;
pub mod process;
pub mod program;
pub mod reconcile;
pub mod remote;
pub mod streams;

#[cfg(test)]
mod testing;
