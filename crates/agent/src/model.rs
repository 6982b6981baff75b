//! Jobs in the form of the API.

mod request;

use jiff::Timestamp;
pub use longhaul_copy_api::Progress;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub(crate) use request::is_location;
pub use request::{InvalidRequest, JobRequest, MAX_PARTS, MAX_PRIORITY, MIN_PARTS};

pub use crate::jobs::State as JobState;

/// Reason why a running job is being stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Stopping {
    /// It is paused.
    Pause,
    /// It is cancelled.
    Cancel,
}

/// A job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// Number of the job.
    pub id: i64,
    /// Owner of the job.
    pub user: String,
    /// The job that this is a part of, and which part. Left out if a user submitted the job.
    pub part: Option<PartOf>,
    /// States of its parts, if it is split.
    pub parts: Option<JobParts>,
    /// The requested copy.
    pub request: JobRequest,
    /// State of the job.
    pub state: JobState,
    /// Reason why the running job is being stopped.
    pub stopping: Option<Stopping>,
    /// Number of attempts that were started.
    pub attempts: u32,
    /// Earliest start of the next attempt, while the job is queued or waiting.
    #[schema(format = "date-time")]
    pub due: Option<String>,
    /// Time of submission.
    #[schema(format = "date-time")]
    pub created: String,
    /// Start of the first attempt.
    #[schema(format = "date-time")]
    pub started: Option<String>,
    /// Time when the job ended.
    #[schema(format = "date-time")]
    pub ended: Option<String>,
    /// Agent that runs the job, or ran it last.
    pub agent: Option<String>,
    /// Progress of the last attempt.
    pub progress: Option<Progress>,
    /// Reason why the last attempt ended before all was copied.
    pub error: Option<String>,
    /// Exit code of the last attempt, as of `longhaul cp`.
    pub exit_code: Option<i64>,
    /// Number of its last change. Of two views of a job, the one with the greater number is newer.
    pub change: i64,
}

impl Job {
    /// Returns the arguments of `longhaul cp` for its attempts, after the command name.
    pub fn arguments(&self) -> Vec<String> {
        let portion = match (&self.part, self.request.split) {
            (Some(part), _) => Some(format!("--part={}/{}", part.number, part.of)),
            (None, Some(_)) => Some("--part=rest".to_owned()),
            (None, None) => None,
        };
        portion
            .into_iter()
            .chain(self.request.arguments())
            .collect()
    }
}

/// Identifies a part of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PartOf {
    /// Number of the job.
    pub job: i64,
    /// Number of the part, from 1.
    pub number: u32,
    /// Number of parts.
    pub of: u32,
}

/// Numbers of a job's parts by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobParts {
    /// Number of parts.
    pub of: u32,
    /// Parts that are running.
    pub running: u32,
    /// Parts that are done.
    pub done: u32,
    /// Parts that failed. The job's own run retries what they did not copy.
    pub failed: u32,
    /// Parts that were cancelled.
    pub cancelled: u32,
}

impl JobParts {
    /// Adds `count` parts in `state`.
    pub(crate) fn add(&mut self, state: Option<JobState>, count: u32) {
        self.of = self.of.saturating_add(count);
        let counter = match state {
            Some(JobState::Running) => &mut self.running,
            Some(JobState::Done) => &mut self.done,
            Some(JobState::Failed) => &mut self.failed,
            Some(JobState::Cancelled) => &mut self.cancelled,
            _ => return,
        };
        *counter = counter.saturating_add(count);
    }

    /// Returns true if all parts have ended.
    pub fn have_ended(&self) -> bool {
        self.done
            .saturating_add(self.failed)
            .saturating_add(self.cancelled)
            >= self.of
    }
}

/// Formats a time in RFC 3339, in UTC.
pub fn shown_moment(milliseconds: i64) -> String {
    Timestamp::from_millisecond(milliseconds)
        .unwrap_or(Timestamp::UNIX_EPOCH)
        .to_string()
}

#[cfg(test)]
mod tests;
