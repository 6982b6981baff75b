//! What the controller and those who ask it say to each other: the types of its HTTP API,
//! `/api/v1`. No I/O.
//!
//! | room | what it is about | paths beneath `/api/v1` |
//! |---|---|---|
//! | [`principals`] | who may ask for what | `/principals`, `/principals/{key}/roles/{role}`, `/roles`, `/roles/{name}` |
//! | [`map`] | sites, hosts, depots and links; depots that register themselves | `/map`, `/depots`, `/depots/{key}`, `/names`, `/names/{name}`, `/routes.toml` |
//! | [`measurements`] | what was measured of paths | `/measurements`, `/measurements/summaries`, `/pscheduler` |
//! | [`forecasts`] | what is expected of paths | `/forecasts` |
//! | [`routes`] | by which depots a transfer goes | `/routes/question`, `/routes/table` |
//! | [`transfers`] | what was promised of transfers, and what they took | `/transfers`, `/transfers/score` |
//! | [`probes`] | what depots are to measure | `/probes`, `/probes/{id}/result` |
//! | [`reservations`] | bandwidth that is promised: what is asked for, granted, or refused with the proof | `/reservations`, `/reservations/{id}`, and `commit`, `abort`, `provision`, `release`, `grants` beneath |
//! | [`grants`] | grants of circuits that depots have in use | `/grants/renewals` |
//! | [`service`] | the controller itself | `/controller` |
//!
//! - Moments are milliseconds since the Unix epoch (fields that end in `_ms` and name a moment),
//!   spans seconds (`_s`) or microseconds (`_us`), rates bits per second (`_bps`), sizes bytes.
//! - Keys are written as `lhk1:...` ([`Key`]).
//! - An **end** of a path is the name of a host or a depot of the map, or, for whoever is on no
//!   map, its key. Whoever has a depot's key speaks for that depot, and a principal that the
//!   operator named as a host of the map is named speaks for that host.
//! - A list is reported in pages: `next` of an answer is what to ask for as `after`; none if
//!   nothing follows by now.
//! - A POST may have an `Idempotency-Key`: sent again with the same key and content within a day it
//!   is answered as it was, and does nothing a second time.
//! - Errors are problem documents (RFC 9457).

#![forbid(unsafe_code)]

pub mod forecasts;
pub mod grants;
pub mod map;
pub mod measurements;
pub mod principals;
pub mod probes;
pub mod reservations;
pub mod routes;
pub mod service;
pub mod transfers;

/// A public Ed25519 key as text: `lhk1:...`.
pub type Key = String;
/// A moment, in milliseconds since the Unix epoch.
pub type Moment = u64;
/// An end of a path: the name of a host or a depot of the map, or the key of whoever is on no map.
pub type End = String;

/// What all paths of the API begin with.
pub const BASE: &str = "/api/v1";
/// The port that a controller listens at unless told otherwise.
pub const DEFAULT_PORT: u16 = 7513;

#[cfg(test)]
mod tests;
