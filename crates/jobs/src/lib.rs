//! The life of a job, when it is tried again, and which of those that wait runs next. Pure: no I/O,
//! no clock, no randomness. Moments are what the caller says, in milliseconds since the Unix epoch,
//! because they are kept in a store and compared between hosts. What keeps jobs applies these
//! decisions within a transaction of its store.

mod choose;
mod life;
mod retry;
mod split;

pub use choose::{Candidate, Limits, Load, choose};
pub use life::{End, Event, Lease, Life, Moment, Refused, State, Wish};
pub use retry::RetryPolicy;
pub use split::{Parts, ask_split};
