//! Bounds of the planner's decisions.

use crate::Moment;

/// Share of the time from start to deadline that is kept as a margin.
pub const MARGIN_SHARE: f64 = 0.05;
/// Maximum margin, in milliseconds.
pub const MAX_MARGIN_MS: Moment = 600_000;
/// Factor on the remaining bytes when reserving: for retransmissions and headers.
pub const HEADROOM: f64 = 1.05;
/// Ratio of needed to promised bytes above which a reservation is increased.
pub const CHANGED_ABOVE: f64 = 1.05;
/// Ratio of needed to promised bytes below which a reservation is reduced.
pub const CHANGED_BELOW: f64 = 0.5;
/// Minimum share of the largest promise that a reduction must return.
pub const MIN_RETURNED_SHARE: f64 = 0.2;
/// Ratio of best effort to remaining bytes above which a reservation is returned.
pub const RELEASED_ABOVE: f64 = 1.25;
/// Maximum number of requests and changes of one copy.
pub const MAX_REQUESTS: u32 = 16;
/// Pause after the first request, in milliseconds; it doubles with each request.
pub const FIRST_PAUSE_MS: Moment = 5_000;
/// Maximum pause between requests, in milliseconds.
pub const MAX_PAUSE_MS: Moment = 300_000;
/// Minimum duration of a request's cause, in milliseconds, if it is based on measurements and not
/// on a forecast alone.
pub const SETTLED_MS: Moment = 5_000;
/// Maximum of that duration once there is a measurement, as a share of the time from start to
/// deadline.
pub const SETTLED_SHARE: f64 = 0.05;
/// Time from the grant of a volume until its paths carry streams, in milliseconds. Paths are left
/// [`crate::promise::LEFT_BEFORE_MS`] before their end.
pub const JOINED_AFTER_MS: Moment = 1_000;
/// Minimum duration of the cause of a return, in milliseconds.
pub const RETURN_SETTLED_MS: Moment = 30_000;
/// Maximum wait for the first measurement and for the end of the directory walk, if nothing else is
/// known, in milliseconds. A tenth of the time to the deadline if that is less.
pub const MAX_ESTIMATE_WAIT_MS: Moment = 10_000;
/// Maximum attempts to return a promise; after them it lasts until its end.
pub const MAX_RETURNS: u32 = 3;
/// Minimum window of a reserved rate, in milliseconds.
pub const MIN_RATE_WINDOW_MS: Moment = 60_000;
/// Remaining time at which the window of a reserved rate is extended, in milliseconds.
pub const EXTENDED_BEFORE_MS: Moment = 30_000;
