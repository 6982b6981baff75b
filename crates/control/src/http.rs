//! The API: `/api/v1`, described by `/api/v1/openapi.json`, health (`/healthz`), readiness
//! (`/readyz`) and metrics (`/metrics`).

#![allow(
    unused_qualifications,
    reason = "in what utoipa makes of its attributes"
)]

mod depots;
mod describe;
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

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, patch, post, put};
use longhaul_api::access::{guard, guard_origin};
use longhaul_api::key_gate::guard_keys;
use longhaul_api::{Caller, KeyGate, LocalGate, Problem, ProblemKind};
use longhaul_control_api::principals::{Permission, Resource};

pub use describe::description;

use crate::authority::{AccessDenied, Subject};
use crate::controller::Controller;
use crate::store::{IdempotencyKey, StoreError};

/// Maximum size of a signed request's body, in bytes: a batch of measurements, or a map of some
/// thousand links. Many callers may send one at a time.
pub const MAX_BODY_BYTES: usize = 2 << 20;
/// Maximum size of a body over the socket, in bytes: any valid map.
const MAX_LOCAL_BODY_BYTES: usize = 64 << 20;
/// Maximum length of an idempotency key, in bytes.
const MAX_KEY_BYTES: usize = 200;
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
        .route("/healthz", get(service::health))
        .route("/readyz", get(service::ready))
        .fallback(async || Problem::new(ProblemKind::NotFound, "the API is beneath /api/v1"))
        .method_not_allowed_fallback(async || {
            Problem::new(ProblemKind::Method, "see /api/v1/openapi.json")
        })
        .layer(middleware::from_fn_with_state(
            controller.clone(),
            answer_while_connected,
        ))
        .layer(middleware::from_fn_with_state(controller.clone(), count))
        .layer(middleware::map_response(with_headers))
        .with_state(controller)
}

/// Routes for authenticated callers.
fn api() -> Router<Controller> {
    let v1 = Router::new()
        .route("/controller", get(service::info))
        .route("/openapi.json", get(describe::openapi))
        .route("/principals", get(principals::list))
        .route("/principals/{key}", delete(principals::remove))
        .route(
            "/principals/{key}/roles/{role}",
            put(principals::grant).delete(principals::revoke),
        )
        .route("/roles", get(principals::roles))
        .route(
            "/roles/{name}",
            put(principals::put_role).delete(principals::remove_role),
        )
        .route("/map", get(map::show).put(map::replace))
        .route("/routes.toml", get(map::routes_file))
        .route("/depots", get(depots::list))
        .route(
            "/depots/{key}",
            put(depots::register).delete(depots::unregister),
        )
        .route("/names", get(depots::names))
        .route("/names/{name}", delete(depots::release))
        .route(
            "/measurements",
            get(measurements::list).post(measurements::take),
        )
        .route("/measurements/summaries", get(measurements::summaries))
        .route(
            "/pscheduler",
            get(pscheduler::list)
                .post(pscheduler::take)
                .put(pscheduler::put),
        )
        .route("/forecasts", get(forecasts::list))
        .route("/routes/question", post(routes::question))
        .route("/routes/table", get(routes::table))
        .route("/probes", get(probes::list))
        .route("/probes/{id}/result", post(probes::result))
        .route(
            "/reservations",
            get(reservations::list).post(reservations::reserve),
        )
        .route(
            "/reservations/{id}",
            patch(reservations::change)
                .get(reservations::show)
                .delete(reservations::cancel),
        )
        .route("/reservations/{id}/commit", post(reservations::commit))
        .route("/reservations/{id}/abort", post(reservations::abort))
        .route(
            "/reservations/{id}/provision",
            post(reservations::provision),
        )
        .route("/reservations/{id}/release", post(reservations::release))
        .route("/reservations/{id}/document", get(reservations::document))
        .route("/reservations/{id}/grants", get(grants::list))
        .route("/grants/renewals", post(grants::renew))
        .route("/transfers", get(transfers::list).post(transfers::take))
        .route("/transfers/score", get(transfers::score))
        .fallback(async || Problem::new(ProblemKind::NotFound, "see /api/v1/openapi.json"))
        .method_not_allowed_fallback(async || {
            Problem::new(ProblemKind::Method, "see /api/v1/openapi.json")
        });
    Router::new()
        .nest("/api/v1", v1)
        .route("/metrics", get(service::metrics))
}

async fn with_headers(mut response: Response) -> Response {
    let headers: &mut HeaderMap = response.headers_mut();
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    // Answers change, so they must not be cached.
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
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
        let kind = match &error {
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
    match headers.get("idempotency-key").map(|key| key.to_str()) {
        None => Ok(None),
        Some(Ok(key)) if !key.is_empty() && key.len() <= MAX_KEY_BYTES => {
            let content = serde_json::to_vec(content).unwrap_or_default();
            Ok(Some(IdempotencyKey::new(&reporter(caller), key, &content)))
        }
        Some(_) => Err(invalid(format!(
            "Idempotency-Key: up to {MAX_KEY_BYTES} visible ASCII characters"
        ))),
    }
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
