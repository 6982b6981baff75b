//! The API: `/api/v1`, described by `/api/v1/openapi.json`.

#![allow(
    unused_qualifications,
    reason = "in what utoipa makes of its attributes"
)]

mod describe;
mod events;
mod places;
mod web;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json, Router};
use describe::add_common_parts;
pub use events::JobProgress;
use longhaul_api::access::{guard, guard_origin};
use longhaul_api::endpoints::merge_modules;
use longhaul_api::headers::set_common_headers;
use longhaul_api::key_gate::{MAX_BODY_BYTES, guard_keys};
use longhaul_api::problem::{JsonBody, PathParams, QueryParams, idempotency_key};
use longhaul_api::{Caller, KeyGate, LocalGate, Problem, ProblemKind};
use longhaul_copy_api::CopyOptions;
pub use places::{NewDirectory, NewName, PlaceList, PlaceTest, Removal};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use utoipa::openapi::OpenApi as OpenApiDocument;
use utoipa::{IntoParams, OpenApi, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
pub use web::{PageAddress, Ticket, Web};

use crate::agent::Agent;
pub use crate::asset::Asset;
use crate::jobs::JobEvent;
use crate::model::{Job, JobParts, JobRequest, JobState, PartOf, Progress, Stopping};
use crate::places::{FileEntry, FileKind, FilePage, Place, PlaceRoot};
use crate::store::{JobSelection, StoreError};

/// Default and maximum number of jobs in one answer.
const DEFAULT_LIMIT: u32 = 100;
const MAX_LIMIT: u32 = 1000;

/// State of the handlers.
#[derive(Debug, Clone)]
struct ApiState {
    agent: Agent,
    web: Option<Arc<Web>>,
    stop: watch::Receiver<bool>,
}

impl ApiState {
    /// Returns a place that always exists, by name.
    fn builtin(&self, name: &str) -> Option<&Place> {
        self.agent
            .settings()
            .places
            .iter()
            .find(|place| place.name == name)
    }
}

/// The API's description.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Longhaul agent",
        version = "1",
        description = "Copies as jobs. Over the agent's Unix socket the operating system \
                       identifies the user; on loopback the agent's token is needed; at other \
                       addresses requests are signed with a key (RFC 9421)."
    ),
    components(schemas(
        AgentInfo,
        Job,
        JobPage,
        JobParts,
        JobRequest,
        JobState,
        CopyOptions,
        PartOf,
        Progress,
        Stopping,
        Problem,
        JobProgress,
        Place,
        PlaceRoot,
        PlaceList,
        PlaceTest,
        FileEntry,
        FileKind,
        FilePage,
        NewDirectory,
        NewName,
        Removal,
        PageAddress,
        Ticket
    ))
)]
struct ApiDescription;

/// Returns the API's description (OpenAPI 3.1), as text that ends with a newline.
pub fn description() -> String {
    // It consists of maps with text keys, so it can always be serialized.
    serde_json::to_string_pretty(&describe_api()).unwrap_or_default() + "\n"
}

fn describe_api() -> OpenApiDocument {
    let endpoints = endpoints().merge(merge_modules([("web", web::sign_in())]));
    let described = OpenApiRouter::with_openapi(ApiDescription::openapi());
    let mut description = described.nest("/api/v1", endpoints).into_openapi();
    add_common_parts(&mut description);
    description
}

/// Creates the router of the API and the web page, for callers that `gate` admits. `web` is where
/// tickets open pages, if tickets are issued. Event streams end when `stop` is true.
pub fn router(
    agent: Agent,
    gate: LocalGate,
    web: Option<Arc<Web>>,
    stop: watch::Receiver<bool>,
) -> Router {
    let gate = Arc::new(gate);
    let service = ApiState { agent, web, stop };
    let api = api()
        .layer(middleware::from_fn_with_state(gate.clone(), guard))
        // A page that signs in is not authenticated yet.
        .merge(Router::from(web::sign_in()).layer(DefaultBodyLimit::max(web::MAX_TICKET_BYTES)))
        .with_state(service.clone());
    Router::new()
        .nest("/api/v1", api)
        .fallback(web::asset)
        .with_state(service)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(Extension(gate.clone()))
        .layer(middleware::from_fn_with_state(gate, guard_origin))
        .layer(middleware::map_response(set_headers))
}

/// Creates the router for other machines: without the page, and for signed requests only.
pub fn router_for_keys(agent: Agent, gate: Arc<KeyGate>, stop: watch::Receiver<bool>) -> Router {
    let service = ApiState {
        agent,
        web: None,
        stop,
    };
    Router::new()
        .nest("/api/v1", api().with_state(service))
        .fallback(async || Problem::new(ProblemKind::NotFound, "the API is beneath /api/v1"))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn_with_state(gate, guard_keys))
        .layer(middleware::map_response(set_headers))
}

/// Sets the headers of every response.
async fn set_headers(mut response: Response) -> Response {
    response.headers_mut().extend(web::HEADERS);
    set_common_headers(response).await
}

/// Creates the router for authenticated callers.
fn api() -> Router<ApiState> {
    Router::from(endpoints())
        .fallback(async || Problem::new(ProblemKind::NotFound, "see /api/v1/openapi.json"))
        .method_not_allowed_fallback(async || {
            Problem::new(ProblemKind::Method, "see /api/v1/openapi.json")
        })
}

/// Returns the endpoints for authenticated callers.
fn endpoints() -> OpenApiRouter<ApiState> {
    let own = OpenApiRouter::default()
        .routes(routes!(agent_info))
        .routes(routes!(list, submit))
        .routes(routes!(job, forget))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(cancel))
        .routes(routes!(retry))
        .routes(routes!(report))
        .routes(routes!(openapi));
    merge_modules([
        ("", own),
        ("events", events::endpoints()),
        ("places", places::endpoints()),
        ("web", web::endpoints()),
    ])
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let kind = match &error {
            StoreError::Missing(_) => ProblemKind::NotFound,
            StoreError::Refused(_) | StoreError::IsPart { .. } => ProblemKind::Conflict,
            StoreError::KeyReused(_) => ProblemKind::KeyReused,
            StoreError::Unreadable { .. } => ProblemKind::Unavailable,
            StoreError::Sql(_) => {
                tracing::warn!(%error, "the store failed");
                return Self::new(
                    ProblemKind::Unavailable,
                    "the store does not answer: try again",
                );
            }
        };
        Self::new(kind, error.to_string())
    }
}

/// An agent and its jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentInfo {
    /// Display name of the agent.
    pub name: String,
    /// Release of the agent.
    pub version: String,
    /// Number of jobs in each state.
    pub jobs: BTreeMap<String, i64>,
    /// If true, other agents run jobs of the same store.
    pub shared: bool,
}

#[utoipa::path(get, path = "/agent", responses((status = OK, body = AgentInfo), Problem))]
async fn agent_info(State(service): State<ApiState>) -> Result<Json<AgentInfo>, Problem> {
    let store = service.agent.store();
    Ok(Json(AgentInfo {
        name: service.agent.settings().name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        jobs: store.counts().await?,
        shared: store.is_shared(),
    }))
}

/// One page of jobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobPage {
    /// Jobs on this page, newest first.
    pub items: Vec<Job>,
    /// Value of `before` for the next page; left out on the last one.
    pub next: Option<i64>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// Only jobs in this state.
    state: Option<JobState>,
    /// Only jobs with smaller numbers: `next` of the previous page.
    before: Option<i64>,
    /// If true, includes parts of jobs.
    parts: Option<bool>,
    /// Only parts of this job.
    part_of: Option<i64>,
    /// Maximum number of jobs in one answer.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

#[utoipa::path(
    get,
    path = "/jobs",
    params(ListQuery),
    responses((status = OK, body = JobPage), Problem)
)]
async fn list(
    State(service): State<ApiState>,
    QueryParams(query): QueryParams<ListQuery>,
) -> Result<Json<JobPage>, Problem> {
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(Problem::new(
            ProblemKind::Invalid,
            format!("limit: between 1 and {MAX_LIMIT}"),
        ));
    }
    let listed = match (query.part_of, query.parts) {
        (Some(job), _) => JobSelection::PartsOf(job),
        (None, Some(true)) => JobSelection::All,
        (None, _) => JobSelection::Jobs,
    };
    // One job more than requested shows if there are more.
    let wanted = usize::try_from(limit).unwrap_or(usize::MAX);
    let store = service.agent.store();
    let mut items = store
        .list(listed, query.state, query.before, i64::from(limit) + 1)
        .await?;
    let more = items.len() > wanted;
    items.truncate(wanted);
    let next = items.last().map(|job| job.id).filter(|_| more);
    let items = service.agent.describe_jobs(items).await?;
    Ok(Json(JobPage { items, next }))
}

#[utoipa::path(
    post,
    path = "/jobs",
    request_body = JobRequest,
    params((
        "Idempotency-Key" = Option<String>,
        Header,
        description = "A repeated request with the same key creates no second job"
    )),
    responses(
        (status = CREATED, body = Job),
        (status = OK, body = Job, description = "The job exists already: the key is known"),
        Problem
    )
)]
async fn submit(
    State(service): State<ApiState>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    JsonBody(mut request): JsonBody<JobRequest>,
) -> Result<Response, Problem> {
    if request.on_end_url.is_none() {
        request
            .on_end_url
            .clone_from(&service.agent.settings().on_end_url);
    }
    let invalid = |detail: String| Problem::new(ProblemKind::Invalid, detail);
    request
        .check()
        .map_err(|error| invalid(error.to_string()))?;
    (service.agent.settings().check)(&request).map_err(invalid)?;
    let due = request.due().map_err(|error| invalid(error.to_string()))?;
    let key = idempotency_key(&headers)?;
    let (job, is_new) = service
        .agent
        .submit(&caller.user, &request, due, key)
        .await?;
    let status = if is_new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((status, Json(job)).into_response())
}

#[utoipa::path(
    get,
    path = "/jobs/{id}",
    params(("id" = i64, Path)),
    responses((status = OK, body = Job), Problem)
)]
async fn job(
    State(service): State<ApiState>,
    PathParams(id): PathParams<i64>,
) -> Result<Json<Job>, Problem> {
    let kept = service.agent.store().job(id).await?;
    Ok(Json(service.agent.describe_job(kept.job).await?))
}

/// Removes a job that has ended from the history.
#[utoipa::path(
    delete,
    path = "/jobs/{id}",
    params(("id" = i64, Path)),
    responses((status = NO_CONTENT), Problem)
)]
async fn forget(
    State(service): State<ApiState>,
    PathParams(id): PathParams<i64>,
) -> Result<StatusCode, Problem> {
    service.agent.store().forget(id).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn ask(service: &ApiState, id: i64, event: JobEvent) -> Result<Json<Job>, Problem> {
    Ok(Json(service.agent.apply_event(id, event).await?))
}

/// Pauses a job. A running job stops first, and loses nothing.
#[utoipa::path(
    post,
    path = "/jobs/{id}/pause",
    params(("id" = i64, Path)),
    responses((status = OK, body = Job), Problem)
)]
async fn pause(
    State(service): State<ApiState>,
    PathParams(id): PathParams<i64>,
) -> Result<Json<Job>, Problem> {
    ask(&service, id, JobEvent::Pause).await
}

/// Resumes a paused job.
#[utoipa::path(
    post,
    path = "/jobs/{id}/resume",
    params(("id" = i64, Path)),
    responses((status = OK, body = Job), Problem)
)]
async fn resume(
    State(service): State<ApiState>,
    PathParams(id): PathParams<i64>,
) -> Result<Json<Job>, Problem> {
    ask(&service, id, JobEvent::Resume).await
}

/// Cancels a job.
#[utoipa::path(
    post,
    path = "/jobs/{id}/cancel",
    params(("id" = i64, Path)),
    responses((status = OK, body = Job), Problem)
)]
async fn cancel(
    State(service): State<ApiState>,
    PathParams(id): PathParams<i64>,
) -> Result<Json<Job>, Problem> {
    ask(&service, id, JobEvent::Cancel).await
}

/// Retries a job now that failed, was cancelled or waits for a retry.
#[utoipa::path(
    post,
    path = "/jobs/{id}/retry",
    params(("id" = i64, Path)),
    responses((status = OK, body = Job), Problem)
)]
async fn retry(
    State(service): State<ApiState>,
    PathParams(id): PathParams<i64>,
) -> Result<Json<Job>, Problem> {
    ask(&service, id, JobEvent::Retry).await
}

/// Closing report of a job's last attempt, as of `longhaul cp --json`.
#[utoipa::path(
    get,
    path = "/jobs/{id}/report",
    params(("id" = i64, Path)),
    responses((status = OK, body = Object), Problem)
)]
async fn report(
    State(service): State<ApiState>,
    PathParams(id): PathParams<i64>,
) -> Result<Response, Problem> {
    let report = service.agent.store().report(id).await?;
    let report = report.ok_or_else(|| {
        Problem::new(ProblemKind::NotFound, format!("job {id} has no report yet"))
    })?;
    Ok(([("content-type", "application/json")], report).into_response())
}

/// This description.
#[utoipa::path(get, path = "/openapi.json", responses((status = OK, body = Object)))]
async fn openapi() -> Json<OpenApiDocument> {
    Json(describe_api())
}
