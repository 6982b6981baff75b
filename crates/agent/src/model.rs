//! A job, as it is asked for and shown.

mod request;

use std::collections::BTreeMap;

use jiff::Timestamp;
pub use longhaul_jobs::State as JobState;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub(crate) use request::is_location;
pub use request::{CopyOptions, InvalidRequest, JobRequest, MAX_PARTS, MAX_PRIORITY, MIN_PARTS};

/// What a job that runs is being stopped for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Stopping {
    /// To rest.
    Pause,
    /// For good.
    Cancel,
}

/// A job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// Its number.
    pub id: i64,
    /// Whose it is.
    pub user: String,
    /// The job that this is a part of, and which part; none if somebody submitted it.
    pub part: Option<PartOf>,
    /// How its parts stand, if it is split.
    pub parts: Option<JobParts>,
    /// What is to be copied, and how.
    pub request: JobRequest,
    /// Where it stands.
    pub state: JobState,
    /// While it runs: what it is being stopped for.
    pub stopping: Option<Stopping>,
    /// Attempts that were begun.
    pub attempts: u32,
    /// While it is queued or waiting: it does not begin before this.
    #[schema(format = "date-time")]
    pub due: Option<String>,
    /// When it was submitted.
    #[schema(format = "date-time")]
    pub created: String,
    /// When its first attempt began.
    #[schema(format = "date-time")]
    pub started: Option<String>,
    /// When it came to its end.
    #[schema(format = "date-time")]
    pub ended: Option<String>,
    /// Which agent carries it out, or was the last one to.
    pub agent: Option<String>,
    /// How far the last attempt came.
    pub progress: Option<Progress>,
    /// Why the last attempt ended, if it was not that all was copied.
    pub error: Option<String>,
    /// The last attempt's exit code, as of `longhaul cp`.
    pub exit_code: Option<i64>,
    /// The number of its last change: of two views of a job, the greater is the newer.
    pub change: i64,
}

impl Job {
    /// The arguments of `longhaul cp` for its attempts, behind its name.
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

/// Which part of a job a part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PartOf {
    /// The job's number.
    pub job: i64,
    /// Which of its parts, from 1.
    pub number: u32,
    /// How many there are.
    pub of: u32,
}

/// How many of a job's parts are in which state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobParts {
    /// All of them.
    pub of: u32,
    /// Carried out by agents at present.
    pub running: u32,
    /// Copied.
    pub done: u32,
    /// Failed; the job's own run mends what it can of them.
    pub failed: u32,
    /// Cancelled.
    pub cancelled: u32,
}

impl JobParts {
    /// So many more are in `state`.
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

    /// Whether none is under way or waits any more.
    pub fn have_ended(&self) -> bool {
        self.done
            .saturating_add(self.failed)
            .saturating_add(self.cancelled)
            >= self.of
    }
}

/// How far a copy has come: the fields of the event `progress` of `longhaul cp --json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Progress {
    /// Since it began.
    pub seconds: f64,
    /// In place.
    pub bytes: u64,
    /// Found at the source until now.
    pub bytes_found: u64,
    /// Whether `bytes_found` is all there is.
    pub walk_complete: bool,
    /// In place.
    pub files: u64,
    /// Files, directories and links found until now.
    pub entries_found: u64,
    /// Rate, in bit/s.
    pub bps: f64,
    /// The same for each route.
    pub routes_bps: BTreeMap<String, f64>,
}

impl Progress {
    /// What the parts of a copy have come to together, of which there are so many.
    pub fn sum<'a>(parts: impl IntoIterator<Item = &'a Self>, of: u32) -> Self {
        let (mut sum, mut begun) = (Self::default(), 0u32);
        let mut all_walked = true;
        for part in parts {
            begun = begun.saturating_add(1);
            all_walked &= part.walk_complete;
            sum.seconds = sum.seconds.max(part.seconds);
            sum.bytes = sum.bytes.saturating_add(part.bytes);
            sum.bytes_found = sum.bytes_found.saturating_add(part.bytes_found);
            sum.files = sum.files.saturating_add(part.files);
            sum.entries_found = sum.entries_found.saturating_add(part.entries_found);
            sum.bps += part.bps;
            for (route, bps) in &part.routes_bps {
                *sum.routes_bps.entry(route.clone()).or_default() += bps;
            }
        }
        sum.walk_complete = all_walked && begun >= of;
        sum
    }
}

/// A moment as it is shown: RFC 3339, in UTC.
pub fn shown_moment(milliseconds: i64) -> String {
    Timestamp::from_millisecond(milliseconds)
        .unwrap_or(Timestamp::UNIX_EPOCH)
        .to_string()
}

#[cfg(test)]
mod tests;
