//! Changes as they happen: server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use longhaul_api::Problem;
use longhaul_api::problem::QueryParams;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;
use crate::model::{JobParts, Progress};

/// Number of events that wait for a slow reader. While they wait, the store is not queried.
const MAX_WAITING_EVENTS: usize = 64;
/// Interval between progress events, and between checks for other agents' changes.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Number of jobs that are read from the store at a time.
const CHANGE_BATCH: i64 = 100;

/// Progress of a running job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobProgress {
    /// Number of the job.
    pub id: i64,
    /// Progress of the job.
    pub progress: Progress,
    /// State of its parts, while they are running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<JobParts>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EventsQuery {
    /// Begin after the change of this number (`change` of a job) instead of now. `Last-Event-ID`
    /// does the same.
    after: Option<i64>,
}

/// Returns the endpoints of this module.
pub(super) fn endpoints() -> OpenApiRouter<ApiState> {
    OpenApiRouter::default().routes(routes!(events))
}

/// Changed jobs (`event: job`, with the number of the change as `id`), and once a second the
/// progress of running jobs (`event: progress`, see `JobProgress`).
#[utoipa::path(
    get,
    path = "/events",
    params(EventsQuery),
    responses((status = OK, body = String, content_type = "text/event-stream"), Problem)
)]
pub(super) async fn events(
    State(service): State<ApiState>,
    headers: HeaderMap,
    QueryParams(query): QueryParams<EventsQuery>,
) -> Result<Response, Problem> {
    let last_id = headers
        .get("last-event-id")
        .and_then(|id| id.to_str().ok()?.parse().ok());
    let after = match last_id.or(query.after) {
        Some(after) => after,
        None => service.agent.store().last_change().await?,
    };
    let (sender, receiver) = mpsc::channel(MAX_WAITING_EVENTS);
    tokio::spawn(send(service, after, sender));
    let events = Sse::new(ReceiverStream::new(receiver)).keep_alive(KeepAlive::default());
    Ok(events.into_response())
}

/// Sends events until the reader disconnects or the service ends.
async fn send(
    mut service: ApiState,
    mut after: i64,
    sender: mpsc::Sender<Result<Event, Infallible>>,
) {
    let mut changes = service.agent.changes();
    let mut sent = Vec::new();
    loop {
        changes.mark_unchanged();
        // While the store does not answer, there are no events. The next attempt follows a second
        // later.
        while let Ok(jobs) = service
            .agent
            .store()
            .changed_since(after, CHANGE_BATCH)
            .await
        {
            let Some(last_change) = jobs.last().map(|last| last.change) else {
                break;
            };
            let Ok(jobs) = service.agent.describe_jobs(jobs).await else {
                break;
            };
            after = last_change;
            for job in jobs {
                let event = Event::default().event("job").id(job.change.to_string());
                let Ok(event) = event.json_data(&job) else {
                    continue;
                };
                if sender.send(Ok(event)).await.is_err() {
                    return;
                }
            }
        }
        let running = progress_of(&service).await;
        for said in &running {
            if sent.contains(said) {
                continue;
            }
            let Ok(event) = Event::default().event("progress").json_data(said) else {
                continue;
            };
            if sender.send(Ok(event)).await.is_err() {
                return;
            }
        }
        sent = running;
        tokio::select! {
            _ = changes.changed() => {}
            () = tokio::time::sleep(PROGRESS_INTERVAL) => {}
            () = sender.closed() => return,
            _ = service.stop.wait_for(|stop| *stop) => return,
        }
    }
}

/// Returns the progress of jobs that run here, and of split jobs that run anywhere.
async fn progress_of(service: &ApiState) -> Vec<JobProgress> {
    let here = service
        .agent
        .running()
        .into_iter()
        .filter_map(|(id, progress)| {
            Some(JobProgress {
                id,
                progress: progress?,
                parts: None,
            })
        });
    // While the store does not answer, split jobs are left out.
    let split = service.agent.split_progress().await.unwrap_or_default();
    let split = split.into_iter().map(|(id, parts, progress)| JobProgress {
        id,
        progress,
        parts: Some(parts),
    });
    here.chain(split).collect()
}
