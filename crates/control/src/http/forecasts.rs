//! Forecasts of paths.

use axum::extract::State;
use axum::{Extension, Json};
use longhaul_api::problem::QueryParams;
use longhaul_api::{Caller, Problem};
use longhaul_control_api::forecasts::{ForecastPage, ForecastQuery};
use longhaul_control_api::principals::{Permission, Resource};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{cursor, limit};
use crate::authority::Subject;
use crate::controller::Controller;

/// Default number of forecasts in one answer.
const DEFAULT_LIMIT: u32 = 1000;
/// Maximum number of forecasts in one answer.
const MAX_LIMIT: u32 = 5000;

/// Returns the endpoints of this module.
pub(super) fn endpoints() -> OpenApiRouter<Controller> {
    OpenApiRouter::default().routes(routes!(list))
}

/// Forecasts, ordered by path and quantity.
#[utoipa::path(
    get,
    path = "/forecasts",
    params(ForecastQuery),
    responses((status = OK, body = ForecastPage), Problem)
)]
pub async fn list(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    QueryParams(query): QueryParams<ForecastQuery>,
) -> Result<Json<ForecastPage>, Problem> {
    controller.allow(
        &caller,
        Resource::Forecasts,
        Permission::Read,
        &Subject::all(),
    )?;
    let limit =
        usize::try_from(limit(query.limit, DEFAULT_LIMIT, MAX_LIMIT)?).unwrap_or(usize::MAX);
    let skip = usize::try_from(cursor(query.after.as_deref())?).unwrap_or(usize::MAX);
    let items = controller.routing().forecasts(&query, skip, limit);
    Ok(Json(ForecastPage {
        next: (items.len() == limit).then(|| skip.saturating_add(limit).to_string()),
        items,
    }))
}
