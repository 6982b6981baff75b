//! Forecasts of paths.

use axum::extract::State;
use axum::{Extension, Json};
use longhaul_api::problem::Asked;
use longhaul_api::{Caller, Problem};
use longhaul_control_api::forecasts::{ForecastPage, ForecastQuery};
use longhaul_control_api::principals::{Permission, Resource};

use super::{cursor, limit};
use crate::authority::Subject;
use crate::controller::Controller;

/// Default number of forecasts in one answer.
const USUAL_LIMIT: u32 = 1000;
/// Maximum number of forecasts in one answer.
const MOST_LIMIT: u32 = 5000;

/// Forecasts, ordered by path and quantity.
#[utoipa::path(
    get,
    path = "/api/v1/forecasts",
    params(ForecastQuery),
    responses(
        (status = OK, body = ForecastPage),
        (status = "default", body = Problem, content_type = "application/problem+json")
    )
)]
pub async fn list(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    Asked(query): Asked<ForecastQuery>,
) -> Result<Json<ForecastPage>, Problem> {
    controller.allow(
        &caller,
        Resource::Forecasts,
        Permission::Read,
        &Subject::all(),
    )?;
    let limit = usize::try_from(limit(query.limit, USUAL_LIMIT, MOST_LIMIT)?).unwrap_or(usize::MAX);
    let skip = usize::try_from(cursor(query.after.as_deref())?).unwrap_or(usize::MAX);
    let items = controller.weather().forecasts(&query, skip, limit);
    Ok(Json(ForecastPage {
        next: (items.len() == limit).then(|| skip.saturating_add(limit).to_string()),
        items,
    }))
}
