//! What the network will be like, and which route brings a transfer home soonest. No I/O, no clock:
//! time is a number that callers give, so simulations, tests and services run the same code.
//!
//! | room | what it does |
//! |---|---|
//! | [`forecast`] | samples of one quantity of one path in; a distribution of its next values out |
//! | [`route`] | forecasts of all hops in; the expected time of each route for a transfer, and the choice among them, out |

#![forbid(unsafe_code)]

pub mod forecast;
pub mod route;

mod quantiles;

pub use quantiles::Quantiles;
