//! Reservations across domains: the controller's part.
//!
//! | module | purpose |
//! |---|---|
//! | [`runner`] | the task that runs the agent: decides, stores, then sends |
//! | [`segments`] | commands of the agent for the book of reservations |
//! | [`exchange`] | exchange of abstract topologies with peers |

pub mod exchange;
pub mod runner;
pub mod segments;
