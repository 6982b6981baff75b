//! Types of the controller's HTTP API, `/api/v1`, shared by the controller and its clients. No I/O.
//!
//! | module | subject | paths below `/api/v1` |
//! |---|---|---|
//! | [`principals`] | who may do what | `/principals`, `/principals/{key}/roles/{role}`, `/roles`, `/roles/{name}` |
//! | [`map`] | sites, hosts, depots and links; depots that register themselves | `/map`, `/depots`, `/depots/{key}`, `/names`, `/names/{name}`, `/routes.toml` |
//! | [`measurements`] | measurements | `/measurements`, `/measurements/summaries`, `/pscheduler` |
//! | [`forecasts`] | forecasts of paths | `/forecasts` |
//! | [`routes`] | depots that a transfer passes | `/routes/question`, `/routes/table` |
//! | [`transfers`] | durations of transfers | `/transfers`, `/transfers/score` |
//! | [`probes`] | measurements that depots are asked to take | `/probes`, `/probes/{id}/result` |
//! | [`reservations`] | reserved bandwidth: requests, grants, and refusals with their proof | `/reservations`, `/reservations/{id}`, and `commit`, `abort`, `provision`, `release`, `grants` below it |
//! | [`grants`] | circuit grants that depots have in use | `/grants/renewals` |
//! | [`domains`] | reservations across domains: messages, abstract topology | `/domain/messages`, `/domain/topology`, `/domain/forecasts`, `/domain/reservations`, `/domain/reservations/{id}` |
//! | [`service`] | the controller itself | `/controller` |
//!
//! - Times are milliseconds since the Unix epoch (fields that end in `_ms` and name a time).
//!   Durations are seconds (`_s`) or microseconds (`_us`), rates bits per second (`_bps`), sizes
//!   bytes.
//! - Keys are written as `lhk1:...` ([`Key`]).
//! - An **end** of a path is the name of a host or a depot on the map. A party that is on no map is
//!   named by its key. The holder of a depot's key speaks for that depot. A principal that the
//!   operator named like a host of the map speaks for that host.
//! - Lists are reported in pages: pass `next` of one page as `after` to get the following one. It
//!   is left out if nothing follows yet.
//! - A POST may carry an `Idempotency-Key`. A repeated request with the same key and content within
//!   a day gets the first answer and has no second effect.
//! - Errors are problem documents (RFC 9457).

#![forbid(unsafe_code)]

pub mod domains;
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

/// Public Ed25519 key as text: `lhk1:...`.
pub type Key = String;
/// Point in time, in milliseconds since the Unix epoch.
pub type Moment = u64;
/// End of a path: the name of a host or a depot on the map, or the key of a party on no map.
pub type End = String;

/// Prefix of all paths of the API.
pub const BASE: &str = "/api/v1";
/// Default port of a controller.
pub const DEFAULT_PORT: u16 = 7513;

#[cfg(test)]
mod tests;
