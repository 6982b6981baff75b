//! Circuits on the network: set up before they start, taken down after they end, and put right
//! after a crash.
//!
//! | room | what it does |
//! |---|---|
//! | [`circuit`] | what is to be there: circuits, and the part of each at each node. Pure |
//! | [`streams`] | how the streams of a circuit are recognised. Pure |
//! | [`reconcile`] | what is to be asked of which driver, and when; which circuit is provisioned, and which failed. No I/O, no clock |
//! | [`ask`] | what drivers are asked and what they answer, as JSON |
//! | [`driver`] | who can be asked |
//! | [`conductor`] | brings [`reconcile`]'s asks to the drivers, and their answers back |
//! | [`nodes`] | which driver each node has, as an operator writes it |
//! | [`program`] | a driver: a program of the operator's |
//! | [`linux`] | a driver: HTB classes and policy routes of the Linux machine that it runs on |
//! | [`agent`] | answers asks that come over a stream, by another driver |
//! | [`remote`] | a driver: an agent at the other end of a stream |
//!
//! Everything carries the name of its *owner*, who had it set up. What has another owner is never
//! touched.

#![forbid(unsafe_code)]

pub mod agent;
pub mod ask;
pub mod circuit;
pub mod conductor;
pub mod driver;
mod lines;
pub mod linux;
pub mod nodes;
mod process;
pub mod program;
pub mod reconcile;
pub mod remote;
pub mod streams;

#[cfg(test)]
mod testing;
