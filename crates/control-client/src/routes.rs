//! Sources of routes. Users of routes ask a [`RouteSource`], and need not know where it gets them.
//!
//! | module | contents |
//! |---|---|
//! | [`question`] | questions to a source, and its answers |
//! | [`source`] | the trait |
//! | [`file`] | `routes.toml`, the user's rules |
//! | [`controller`] | a controller, asked each time |
//! | [`cache`] | the last tables of a controller on this machine's disk |
//! | [`belief`] | validation of answers and tables, however old, wrong or hostile. Pure |
//! | [`promise`] | promised copy times, from the figures of the routes. Pure |
//! | [`held`] | routes that failed on this machine, and are held back for a while |
//! | [`client`] | all sources in one: local knowledge at once, then the controller's answer |

pub mod belief;
pub mod cache;
pub mod client;
pub mod controller;
pub mod file;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod held;
pub mod promise;
pub mod question;
pub mod source;

pub use client::ClientSource;
pub use question::{Choice, ChosenRoute, Origin, RouteQuery, Spread, Urgency};
pub use source::{NoRoutes, RouteSource};
