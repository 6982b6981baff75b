//! Forecasts of network paths, and the choice of the fastest route for a transfer. The crate has no
//! I/O and no clock: callers pass the time, so simulations, tests and services run the same code.
//!
//! | module | contents |
//! |---|---|
//! | [`forecast`] | distribution of a path quantity's next values, from its samples |
//! | [`route`] | expected time of each route for a transfer, and the choice among routes |

#![forbid(unsafe_code)]

pub mod forecast;
pub mod route;

mod quantiles;

pub use quantiles::Quantiles;
