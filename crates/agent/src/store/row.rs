//! Rows of jobs.

use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::StoreError;
use crate::jobs::{JobLife, Lease, State, StopWish};
use crate::model::{Job, JobRequest, PartOf, Stopping, shown_moment};

/// Columns of a job except its report. A part uses the request of its job.
pub(super) const COLUMNS: &str = "id, owner, parent, part, CASE WHEN parent IS NULL THEN request \
    ELSE (SELECT whole.request FROM jobs AS whole WHERE whole.id = jobs.parent) \
    END AS request, state, wish, due, attempts, in_vain, fence, holder, lease_until, created, \
    started, ended, progress, error, exit_code, change_number";

/// Stored job with its life.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredJob {
    /// The job, as the API has it.
    pub job: Job,
    /// State of its life.
    pub life: JobLife,
}

impl StoredJob {
    pub(super) fn read(row: &AnyRow) -> Result<Self, StoreError> {
        let id: i64 = row.try_get("id")?;
        let unreadable = |what: String| StoreError::Unreadable { job: id, what };
        let count = |name: &str| -> Result<u32, StoreError> {
            let count: i64 = row.try_get(name)?;
            u32::try_from(count).map_err(|_| unreadable(format!("{name} is {count}")))
        };
        let (state, wish): (String, String) = (row.try_get("state")?, row.try_get("wish")?);
        let state =
            State::from_word(&state).ok_or_else(|| unreadable(format!("the state {state:?}")))?;
        let wish =
            StopWish::from_word(&wish).ok_or_else(|| unreadable(format!("the wish {wish:?}")))?;
        let fence = row.try_get("fence")?;
        let lease_until: Option<i64> = row.try_get("lease_until")?;
        let life = JobLife {
            state,
            wish,
            due: row.try_get("due")?,
            attempts: count("attempts")?,
            in_vain: count("in_vain")?,
            lease: lease_until.map(|until| Lease { until, fence }),
            fence,
        };
        let moment = |name: &str| -> Result<Option<String>, StoreError> {
            Ok(row.try_get::<Option<i64>, _>(name)?.map(shown_moment))
        };
        let request: String = row.try_get("request")?;
        let request: JobRequest =
            serde_json::from_str(&request).map_err(|error| unreadable(error.to_string()))?;
        let part = match row.try_get::<Option<i64>, _>("parent")? {
            None => None,
            Some(job) => Some(PartOf {
                job,
                number: count("part")?,
                of: request.split.unwrap_or_default(),
            }),
        };
        let progress: Option<String> = row.try_get("progress")?;
        let job = Job {
            id,
            user: row.try_get("owner")?,
            part,
            parts: None,
            request,
            state,
            stopping: match wish {
                StopWish::Run => None,
                StopWish::Pause => Some(Stopping::Pause),
                StopWish::Cancel => Some(Stopping::Cancel),
            },
            attempts: life.attempts,
            due: matches!(state, State::Queued | State::Waiting).then(|| shown_moment(life.due)),
            created: shown_moment(row.try_get("created")?),
            started: moment("started")?,
            ended: moment("ended")?,
            agent: row.try_get("holder")?,
            // Progress in the format of a later release is skipped, so that the rest can be shown.
            progress: progress.and_then(|progress| serde_json::from_str(&progress).ok()),
            error: row.try_get("error")?,
            exit_code: row.try_get("exit_code")?,
            change: row.try_get("change_number")?,
        };
        Ok(Self { job, life })
    }
}
