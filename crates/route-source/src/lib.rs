//! Where routes come from. Whoever needs a route asks a [`RouteSource`], and knows nothing else of
//! it.
//!
//! | room | what it does |
//! |---|---|
//! | [`question`] | what is asked, and what is answered |
//! | [`source`] | the trait |
//! | [`file`] | `routes.toml`, which a person writes |
//! | [`controller`] | a controller, asked each time |
//! | [`cache`] | the last table that a controller gave, on this machine's disk |
//! | [`belief`] | what of a controller's answer or table is gone by, however old, wrong or hostile it is. Pure |
//! | [`promise`] | how long a copy is promised to take, by what was said of its routes. Pure |
//! | [`held`] | routes that failed this machine, and are left alone for a while |
//! | [`client`] | all of them as one: what is known here at once, and what the controller says meanwhile |

#![forbid(unsafe_code)]

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
pub use question::{Choice, ChosenRoute, Origin, Question, Spread, Urgency};
pub use source::{NoRoutes, RouteSource};
