//! Circuits of reservations: what is promised and provisioned is set up on the network
//! ([`longhaul_setup`]), and what becomes of it is taken into the book.
//!
//! | room | what it does |
//! |---|---|
//! | [`plan`] | a reservation as a circuit. Pure |
//! | [`grants`] | what lets sessions use its paths at the depots on them. Pure |
//! | [`following`] | what of the book is followed, brought up to date by what has changed. Pure |
//! | [`judge`] | what the book is to take of how circuits stand, and what people see of it. Pure |
//! | [`keeper`] | the one task that follows the book, conducts, and counts |
//! | [`view`] | what is known of circuits at the moment |

pub mod following;
pub mod grants;
pub mod judge;
pub mod keeper;
pub mod plan;
pub mod view;

pub use view::CircuitsView;
