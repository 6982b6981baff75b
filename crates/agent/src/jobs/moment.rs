//! Times of jobs.

/// Milliseconds since the Unix epoch.
pub type Moment = i64;
