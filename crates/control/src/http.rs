//! The API: `/api/v1`, described by `/api/v1/openapi.json`, health (`/healthz`), readiness
//! (`/readyz`) and metrics (`/metrics`).

#![allow(
    unused_qualifications,
    reason = "in what utoipa makes of its attributes"
)]

mod depots;
mod describe;
mod domains;
mod forecasts;
mod grants;
mod map;
mod measurements;
mod principals;
mod probes;
mod pscheduler;
mod reservations;
mod routes;
mod service;
mod transfers;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::HeaderMap;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use longhaul_api::access::{guard, guard_origin};
use longhaul_api::endpoints::merge_modules;
use longhaul_api::headers::set_common_headers;
use longhaul_api::key_gate::guard_keys;
use longhaul_api::{Caller, KeyGate, LocalGate, Problem, ProblemKind, problem};
use longhaul_control_api::principals::{Permission, Resource};
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::authority::{AccessDenied, Subject};
use crate::controller::Controller;
use crate::store::{IdempotencyKey, StoreError};

/// Maximum size of a signed request's body, in bytes: a batch of measurements, or a map of some
/// thousand links. Many callers may send one at a time.
pub const MAX_BODY_BYTES: usize = 2 << 20;
/// Maximum size of a body over the socket, in bytes: any valid map.
const MAX_LOCAL_BODY_BYTES: usize = 64 << 20;
/// Duration from which a request is logged as slow.
const SLOW_REQUEST: Duration = Duration::from_secs(2);

/// Creates the router for the operator, over the Unix socket.
pub fn router(controller: Controller, gate: LocalGate) -> Router {
    let api = api()
        .layer(DefaultBodyLimit::max(MAX_LOCAL_BODY_BYTES))
        .layer(middleware::from_fn_with_state(Arc::new(gate), guard));
    with_common_layers(controller, api)
}

/// Creates the router for other machines, for signed requests only.
pub fn router_for_keys(controller: Controller, gate: Arc<KeyGate>) -> Router {
    let api = api()
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn_with_state(gate, guard_keys));
    with_common_layers(controller, api)
}

/// Creates the router for pScheduler's HTTP archiver only: on loopback, with a token.
pub fn router_for_archives(controller: Controller, gate: LocalGate) -> Router {
    let gate = Arc::new(gate);
    let api = Router::new()
        .route(
            "/api/v1/pscheduler",
            post(pscheduler::take).put(pscheduler::put),
        )
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn_with_state(gate.clone(), guard))
        .layer(middleware::from_fn_with_state(gate, guard_origin));
    with_common_layers(controller, api)
}

fn with_common_layers(controller: Controller, api: Router<Controller>) -> Router {
    Router::new()
        .merge(api)
        // Health is reported to anybody who can connect.
        .merge(Router::from(service::public_endpoints()))
        .fallback(async || Problem::new(ProblemKind::NotFound, "the API is beneath /api/v1"))
        .method_not_allowed_fallback(async || {
            Problem::new(ProblemKind::Method, "see /api/v1/openapi.json")
        })
        .layer(middleware::from_fn_with_state(
            controller.clone(),
            answer_while_connected,
        ))
        .layer(middleware::from_fn_with_state(controller.clone(), count))
        .layer(middleware::map_response(set_common_headers))
        .with_state(controller)
}

/// Creates the router for authenticated callers.
fn api() -> Router<Controller> {
    let v1 = Router::from(v1_endpoints())
        .fallback(async || Problem::new(ProblemKind::NotFound, "see /api/v1/openapi.json"))
        .method_not_allowed_fallback(async || {
            Problem::new(ProblemKind::Method, "see /api/v1/openapi.json")
        });
    Router::new()
        .nest("/api/v1", v1)
        .merge(Router::from(service::metrics_endpoint()))
}

/// Returns the endpoints below `/api/v1`.
fn v1_endpoints() -> OpenApiRouter<Controller> {
    merge_modules([
        ("", OpenApiRouter::default().routes(routes!(openapi))),
        ("service", service::endpoints()),
        ("principals", principals::endpoints()),
        ("map", map::endpoints()),
        ("depots", depots::endpoints()),
        ("measurements", measurements::endpoints()),
        ("pscheduler", pscheduler::endpoints()),
        ("forecasts", forecasts::endpoints()),
        ("routes", routes::endpoints()),
        ("probes", probes::endpoints()),
        ("reservations", reservations::endpoints()),
        ("grants", grants::endpoints()),
        ("domains", domains::endpoints()),
        ("transfers", transfers::endpoints()),
    ])
}

/// Returns the API's description, as text that ends with a newline.
#[must_use]
pub fn description() -> String {
    // It consists of maps with text keys, so it can always be serialized.
    serde_json::to_string_pretty(&describe_api()).unwrap_or_default() + "\n"
}

/// This description.
#[utoipa::path(get, path = "/openapi.json", responses((status = OK, body = Object)))]
async fn openapi() -> Json<OpenApi> {
    Json(describe_api())
}

fn describe_api() -> OpenApi {
    let others = [
        ("service", service::public_endpoints()),
        ("service", service::metrics_endpoint()),
    ];
    let api = OpenApiRouter::default().nest("/api/v1", v1_endpoints());
    describe::describe(api.merge(merge_modules(others)).into_openapi())
}

/// Answers requests that wait for the store when its connections are abandoned.
async fn answer_while_connected(
    State(controller): State<Controller>,
    request: axum::extract::Request,
    next: Next,
) -> Response {
    let answered = async { Ok(next.run(request).await) };
    match controller.store().unless_given_up(answered).await {
        Ok(response) => response,
        Err(error) => Problem::from(error).into_response(),
    }
}

/// Counts answers, and logs slow requests.
async fn count(
    State(controller): State<Controller>,
    request: axum::extract::Request,
    next: Next,
) -> Response {
    let began = tokio::time::Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = next.run(request).await;
    let (status, took) = (response.status().as_u16(), began.elapsed());
    controller.metrics().answered(method.as_str(), status);
    let milliseconds = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    tracing::debug!(%method, path, status, milliseconds, "answered");
    if took > SLOW_REQUEST {
        controller.log().log(None, |left_out| {
            tracing::warn!(
                %method,
                path,
                status,
                milliseconds,
                left_out,
                "slow request"
            )
        });
    }
    response
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::from(&error)
    }
}

impl From<&StoreError> for Problem {
    fn from(error: &StoreError) -> Self {
        let kind = match error {
            StoreError::Missing { .. } => ProblemKind::NotFound,
            StoreError::KeyReused(_) => ProblemKind::KeyReused,
            StoreError::TooManyNames { .. } => ProblemKind::Conflict,
            StoreError::NotLeading { .. } => ProblemKind::NotLeading,
            StoreError::Unreadable { .. }
            | StoreError::Ending
            | StoreError::Behind
            | StoreError::Silent
            | StoreError::Fenced => ProblemKind::Unavailable,
            StoreError::Busy => ProblemKind::TooMany,
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

impl From<AccessDenied> for Problem {
    fn from(refused: AccessDenied) -> Self {
        Self::new(ProblemKind::Forbidden, refused.to_string())
    }
}

/// Checks that `caller` may read. Returns `None` if it may read all, or its key if only its own.
fn read_all_or_own(
    controller: &Controller,
    caller: &Caller,
    resource: Resource,
) -> Result<Option<String>, Problem> {
    if controller
        .allow(caller, resource, Permission::Read, &Subject::all())
        .is_ok()
    {
        return Ok(None);
    }
    controller.allow(caller, resource, Permission::Read, &Subject::own())?;
    Ok(caller.key.map(|key| key.to_string()))
}

/// Returns the caller's name in the store: its key, or `operator`.
fn reporter(caller: &Caller) -> String {
    match &caller.key {
        Some(key) => key.to_string(),
        None => crate::authority::OPERATOR.to_owned(),
    }
}

/// Returns the idempotency key of a request with that content, if it has one.
fn idempotency_key(
    caller: &Caller,
    headers: &HeaderMap,
    content: &impl serde::Serialize,
) -> Result<Option<IdempotencyKey>, Problem> {
    let key = problem::idempotency_key(headers)?;
    Ok(key.map(|key| {
        let content = serde_json::to_vec(content).unwrap_or_default();
        IdempotencyKey::new(&reporter(caller), key, &content)
    }))
}

fn invalid(detail: impl AsRef<str>) -> Problem {
    Problem::new(ProblemKind::Invalid, detail)
}

/// Returns the page size, checked against its maximum.
fn limit(asked: Option<u32>, usual: u32, most: u32) -> Result<u32, Problem> {
    let limit = asked.unwrap_or(usual);
    match (1..=most).contains(&limit) {
        true => Ok(limit),
        false => Err(invalid(format!("limit: between 1 and {most}"))),
    }
}

/// Parses the position after which a page begins: `next` of the previous page.
fn cursor(after: Option<&str>) -> Result<i64, Problem> {
    let Some(after) = after else {
        return Ok(0);
    };
    let place = after.parse().ok().filter(|place| *place >= 0);
    place.ok_or_else(|| invalid("after: not the next of an earlier answer"))
}
