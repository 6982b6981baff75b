//! Bandwidth reservations: admission, path selection, and a record of what has been promised.
//!
//! The crate has no I/O and no clock. Callers pass the time in milliseconds; rates are whole bit/s.
//!
//! | module | contents |
//! |---|---|
//! | [`time`] | moments, half-open windows, rates and volumes |
//! | [`steps`] | reserved rate of one direction of a link, as a step function of time |
//! | [`network`] | nodes, links, and the reservable share of each link |
//! | [`path`] | paths by hops, latency or available bandwidth; k best paths; disjoint paths |
//! | [`split`] | one rate over several paths, and the cut that shows why no more fits |
//! | [`request`] | requests, and the plans that are promised |
//! | [`policy`] | per-user limits on requests |
//! | [`proof`] | evidence that a request does not fit |
//! | [`ledger`] | reserved and available bandwidth of each link, and its holders |
//! | [`admit`] | admission: a plan, or a shortfall with its proof and counter-offers |
//! | [`machine`] | the three state machines of a reservation (NSI Connection Service 2) |
//! | [`book`] | all reservations as recorded by a journal |
//!
//! Recurrence rules (RFC 5545) need calendars and time zones, so the caller expands them. Here a
//! recurring request is a list of windows. [`book::ReservationBook::decide_all`] grants all of
//! them, or names the first that it refuses.

#![forbid(unsafe_code)]

pub mod admit;
pub mod book;
pub mod ledger;
pub mod machine;
pub mod network;
pub mod path;
pub mod policy;
pub mod proof;
pub mod request;
pub mod split;
pub mod steps;
pub mod time;

#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing;
