//! The life of a job, its retries, and the choice of the job to run next. Pure: no I/O, no clock,
//! no randomness. The caller passes moments in milliseconds since the Unix epoch, because they are
//! stored and compared between hosts. The job store applies these decisions within its
//! transactions.

mod choose;
mod life;
mod moment;
mod retry;
mod split;

pub use choose::{Candidate, JobLimits, RunningJob, choose};
pub use life::{AttemptResult, EventRefusal, JobEvent, JobLife, Lease, State, StopWish};
pub use moment::Moment;
pub use retry::RetryPolicy;
pub use split::{PartCounts, apply_to_split};
