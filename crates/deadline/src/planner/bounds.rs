//! What bounds the decisions.

use crate::Moment;

/// The margin: of the time from the beginning to the deadline, this share is not counted on...
pub const MARGIN_SHARE: f64 = 0.05;
/// ... but no more of it than this, in milliseconds.
pub const MAX_MARGIN_MS: Moment = 600_000;
/// Of what is left, so much more is reserved: what goes twice, and what headers take.
pub const HEADROOM: f64 = 1.05;
/// What is promised is changed when so many times as much is needed.
pub const CHANGED_ABOVE: f64 = 1.05;
/// And when no more than this part of it is needed...
pub const CHANGED_BELOW: f64 = 0.5;
/// ... and the change returns at least this part of the most that was ever promised.
pub const MIN_RETURNED_SHARE: f64 = 0.2;
/// What is reserved is returned when best effort carries so many times what is left.
pub const RELEASED_ABOVE: f64 = 1.25;
/// Requests for room, and for changes of it, of one copy.
pub const MAX_REQUESTS: u32 = 16;
/// The pause after the first request, in milliseconds; it doubles with each...
pub const FIRST_PAUSE_MS: Moment = 5_000;
/// ... up to this.
pub const MAX_PAUSE_MS: Moment = 300_000;
/// How long what leads to a request must have held, in milliseconds, where it rests on measurements
/// and not on a forecast alone...
pub const SETTLED_MS: Moment = 5_000;
/// ... but, once there is a measurement, no more than this part of the time from the beginning to
/// the deadline.
pub const SETTLED_SHARE: f64 = 0.05;
/// So long after a volume was granted its paths carry streams, in milliseconds; they are left
/// [`crate::promise::LEFT_BEFORE_MS`] before their end.
pub const JOINED_AFTER_MS: Moment = 1_000;
/// How long what leads to a return must have held, in milliseconds.
pub const RETURN_SETTLED_MS: Moment = 30_000;
/// How long the first measurement, and the end of the walk, are waited for where nothing else is
/// known, in milliseconds; a tenth of the time to the deadline where that is less.
pub const MAX_ESTIMATE_WAIT_MS: Moment = 10_000;
/// How often it is tried to give back what is promised; then it lasts until its end.
pub const MAX_RETURNS: u32 = 3;
/// The shortest window of a reserved rate, in milliseconds.
pub const MIN_RATE_WINDOW_MS: Moment = 60_000;
/// The window of a reserved rate is made longer when so much of it is left, in milliseconds.
pub const EXTENDED_BEFORE_MS: Moment = 30_000;
