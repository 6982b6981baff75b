//! Circuits of reservations: sets up what is promised and provisioned on the network
//! ([`longhaul_provisioning`]), and reports the result to the book.
//!
//! | module | purpose |
//! |---|---|
//! | [`plan`] | converts a reservation into a circuit. Pure |
//! | [`grants`] | grants with which sessions use its paths at their depots. Pure |
//! | [`following`] | tracks the reservations that concern the network, incrementally. Pure |
//! | [`judge`] | derives the report to the book and the displayed state of a circuit. Pure |
//! | [`keeper`] | the task that follows the book, runs the drivers, and counts traffic |
//! | [`view`] | current state of circuits |

pub mod following;
pub mod grants;
pub mod judge;
pub mod keeper;
pub mod plan;
pub mod view;

pub use view::CircuitsView;
