//! State of the controller itself.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use longhaul_api::{Caller, Problem};
use longhaul_control_api::principals::{Permission, Resource};
use longhaul_control_api::service::{ControllerInfo, Health};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::authority::Subject;
use crate::controller::Controller;
use crate::leader::Leadership;
use crate::metrics::page;

/// Returns the endpoints below `/api/v1`.
pub(super) fn endpoints() -> OpenApiRouter<Controller> {
    OpenApiRouter::default().routes(routes!(info))
}

/// Returns the endpoint of metrics.
pub(super) fn metrics_endpoint() -> OpenApiRouter<Controller> {
    OpenApiRouter::default().routes(routes!(metrics))
}

/// Returns the endpoints for anybody who can connect.
pub(super) fn public_endpoints() -> OpenApiRouter<Controller> {
    OpenApiRouter::default()
        .routes(routes!(health))
        .routes(routes!(ready))
}

/// Health: the controller runs.
#[utoipa::path(get, path = "/healthz", responses((status = OK, body = Health)))]
pub async fn health() -> Json<Health> {
    Json(Health {
        status: "ok".to_owned(),
    })
}

/// Readiness: the store answers, and forecasts are rebuilt.
#[utoipa::path(
    get,
    path = "/readyz",
    responses((status = OK, body = Health), (status = SERVICE_UNAVAILABLE, body = Health))
)]
pub async fn ready(State(controller): State<Controller>) -> Response {
    let missing = match controller.store().check().await {
        Err(_) => Some("the store does not answer"),
        Ok(()) if !controller.is_ready() => Some("forecasts are being rebuilt"),
        Ok(()) => None,
    };
    let status = match missing {
        None => StatusCode::OK,
        Some(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    let health = Health {
        status: missing.unwrap_or("ok").to_owned(),
    };
    (status, Json(health)).into_response()
}

/// Metrics and the newest measured values, as OpenMetrics.
#[utoipa::path(
    get,
    path = "/metrics",
    responses((status = OK, body = String, content_type = "application/openmetrics-text"), Problem)
)]
pub async fn metrics(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    controller.allow(
        &caller,
        Resource::Controller,
        Permission::Read,
        &Subject::all(),
    )?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], page(controller).text()).into_response())
}

/// Description of the controller.
#[utoipa::path(
    get,
    path = "/controller",
    responses((status = OK, body = ControllerInfo), Problem)
)]
pub async fn info(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<ControllerInfo>, Problem> {
    // Any principal may read it; the counters need the right to read all.
    controller.allow(
        &caller,
        Resource::Controller,
        Permission::Read,
        &Subject::own(),
    )?;
    let series = controller.routing().len();
    let leadership = controller.leadership();
    Ok(Json(ControllerInfo {
        name: controller.settings().name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        key: controller.settings().key.to_string(),
        started_ms: controller.started_ms(),
        map_version: controller.places().known.version,
        series: u64::try_from(series).unwrap_or(u64::MAX),
        shared: controller.store().is_shared(),
        leads: leadership.term().is_some(),
        leader: match leadership {
            Leadership::Following { leader } => leader.and_then(|leader| leader.url),
            _ => None,
        },
    }))
}
