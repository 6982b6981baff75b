//! Reservations of bandwidth: which are admitted, over which paths, and what is promised to whom.
//! Values in, values out: no I/O, no clock; moments are what the caller says, in milliseconds, and
//! rates whole bit/s.
//!
//! | room | what it does |
//! |---|---|
//! | [`time`] | moments, half-open windows, rates and volumes |
//! | [`steps`] | what is reserved of one direction of a link, as a step function of time |
//! | [`network`] | nodes and links, and what of each link may be reserved |
//! | [`path`] | paths with the fewest hops, the least latency or the most room; several, and disjoint ones |
//! | [`split`] | one rate over several paths, and the cut that shows why no more goes |
//! | [`request`] | what is asked, and the plan that is promised |
//! | [`policy`] | what somebody may ask for |
//! | [`ledger`] | what is taken of each link, when, and by whom; and what is left, to somebody |
//! | [`admit`] | a request in; a plan, or a proof that there is no room with counter-offers, out |
//! | [`machine`] | the three state machines of a reservation (NSI Connection Service 2) |
//! | [`book`] | all reservations, as a journal makes them: holds, changes, early returns, several windows as one |
//! | [`check`] | a second opinion on answers, slow and simple, for tests |
//! | [`oscars`] | OSCARS' published rule, to compare with |
//!
//! Recurrence rules (RFC 5545) are read by whoever takes requests, who knows calendars and time
//! zones: a recurring request is a list of windows here, all of which are granted, or the first
//! that is refused is named ([`book::Book::decide_all`]).

#![forbid(unsafe_code)]

pub mod admit;
pub mod book;
pub mod check;
mod flow;
pub mod ledger;
pub mod machine;
pub mod network;
pub mod oscars;
pub mod path;
pub mod policy;
pub mod request;
pub mod split;
pub mod steps;
pub mod time;

#[cfg(test)]
mod testing;
