//! Fills an agent's store with finished jobs, in the form in which agents store them, for tests
//! with a long history: `history FILE OWNER JOBS REPORT REPORT_OF_A_FAILURE`. The reports are files
//! with the closing report of `longhaul cp --json`.
//!
//! Of 50 jobs, five failed and two were cancelled while queued; the others are done. The first one
//! has the label `the oldest`.

#![allow(missing_docs)]

use std::error::Error;
use std::path::Path;

use longhaul_agent::jobs::{AttemptResult, JobEvent, JobLimits};
use longhaul_agent::store::{AttemptEnd, Holder};
use longhaul_agent::{JobRequest, JobStore};
use serde_json::{Value, json};

/// Number of jobs that are submitted, claimed and ended together. With each claim, the store
/// computes the users' recent usage.
const BATCH_JOBS: usize = 200;
/// Lease of the jobs, in milliseconds, long enough to end them.
const LEASE: i64 = 600_000;
const HOLDER: Holder<'_> = Holder {
    name: "earlier",
    instance: "earlier",
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, owner, jobs, report, failure] = arguments.as_slice() else {
        return Err("history FILE OWNER JOBS REPORT REPORT_OF_A_FAILURE".into());
    };
    let jobs: usize = jobs.parse()?;
    let done = attempt(Path::new(report))?;
    let failed = attempt(Path::new(failure))?;
    let store = JobStore::sqlite(Path::new(file)).await?;
    let limits = JobLimits {
        in_all: BATCH_JOBS,
        per_place: BATCH_JOBS,
        per_user: None,
    };
    let numbers: Vec<usize> = (0..jobs).collect();
    for together in numbers.chunks(BATCH_JOBS) {
        for &number in together {
            let (job, _) = store.submit(owner, &request(number)?, None, None).await?;
            if number % 50 == 49 || number % 50 == 24 {
                store.apply_event(job.id, JobEvent::Cancel).await?;
            }
        }
        for kept in store.claim(HOLDER, BATCH_JOBS, &limits, LEASE).await? {
            let (end, with) = match kept.job.id % 10 {
                0 => (AttemptResult::Failed, &failed),
                _ => (AttemptResult::Done, &done),
            };
            store
                .end_attempt(kept.job.id, kept.life.fence, end, with)
                .await?;
        }
    }
    let counts = store.counts().await?;
    store.close().await;
    println!("{counts:?}");
    Ok(())
}

/// Creates a request from JSON, like those of the API.
fn request(number: usize) -> Result<JobRequest, serde_json::Error> {
    let label = match number {
        0 => Some("the oldest".to_owned()),
        _ => number.is_multiple_of(3).then(|| format!("run {number}")),
    };
    serde_json::from_value(json!({
        "sources": [format!("/data/run-{number:05}")],
        "destination": "ana@store.example:runs/",
        "options": { "recursive": true },
        "label": label,
    }))
}

/// Creates the end of an attempt with this report.
fn attempt(report: &Path) -> Result<AttemptEnd, Box<dyn Error>> {
    let text = std::fs::read_to_string(report)?;
    let text = text.lines().last().unwrap_or_default();
    let report: Value = serde_json::from_str(text)?;
    let of = |name: &str| report.get(name).cloned().unwrap_or(json!(0));
    let progress = json!({
        "seconds": of("seconds"), "bytes": of("bytes"), "bytes_found": of("bytes"),
        "files": of("files"), "walk_complete": true,
    });
    let failed = report["failed"].as_u64().filter(|failed| *failed > 0);
    Ok(AttemptEnd {
        error: failed
            .map(|failed| format!("{failed} files were not copied: the report names them")),
        exit_code: report["exit_code"].as_i64(),
        progress: Some(progress.to_string()),
        report: Some(text.to_owned()),
        travelled: report["bytes"].as_i64().unwrap_or(0),
    })
}
