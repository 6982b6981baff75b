//! What changes, as it changes: server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use longhaul_api::Problem;
use longhaul_api::problem::Asked;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use utoipa::{IntoParams, ToSchema};

use super::Service;
use crate::model::Progress;

/// Events that wait for a slow reader; beyond that the store is not asked for more.
const MAX_WAITING_EVENTS: usize = 64;
/// How often progress is sent, and what other agents did is looked for.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Jobs that are read from the store at a time.
const CHANGES_AT_ONCE: i64 = 100;

/// How far a job that runs has come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobProgress {
    /// Its number.
    pub id: i64,
    /// How far.
    pub progress: Progress,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EventsQuery {
    /// Begin behind the change of this number (`change` of a job) in place of now. `Last-Event-ID` says the same.
    after: Option<i64>,
}

/// Jobs as they change (`event: job`, a job, with the number of the change as `id`), and how far those that run have come, once a second
/// (`event: progress`, see `JobProgress`).
#[utoipa::path(get, path = "/api/v1/events", params(EventsQuery), responses((status = OK, body = String, content_type = "text/event-stream"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn events(
    State(service): State<Service>,
    headers: HeaderMap,
    Asked(query): Asked<EventsQuery>,
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

/// Sends until nobody listens any more, or the service ends.
async fn send(mut service: Service, mut after: i64, sender: mpsc::Sender<Result<Event, Infallible>>) {
    let mut changes = service.agent.changes();
    let mut sent = Vec::new();
    loop {
        changes.mark_unchanged();
        // While the store does not answer there is nothing to say; it is asked again a second later.
        while let Ok(jobs) = service.agent.store().changed_since(after, CHANGES_AT_ONCE).await {
            let Some(last) = jobs.last() else { break };
            after = last.change;
            for job in jobs {
                let job = service.agent.with_progress(job);
                let event = Event::default().event("job").id(job.change.to_string());
                let Ok(event) = event.json_data(&job) else {
                    continue;
                };
                if sender.send(Ok(event)).await.is_err() {
                    return;
                }
            }
        }
        let running = service.agent.running();
        for (id, progress) in &running {
            let Some(progress) = progress else { continue };
            if sent.contains(&(*id, Some(progress.clone()))) {
                continue;
            }
            let said = JobProgress {
                id: *id,
                progress: progress.clone(),
            };
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
