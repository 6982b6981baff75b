//! Promised and actual durations of transfers.

use axum::extract::State;
use axum::{Extension, Json};
use longhaul_api::problem::{JsonBody, QueryParams};
use longhaul_api::{Caller, Problem};
use longhaul_control_api::principals::{Permission, Resource};
use longhaul_control_api::transfers::{
    ReportKept, Score, TransferPage, TransferQuery, TransferReport,
};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{cursor, invalid, limit, read_all_or_own, reporter};
use crate::authority::Subject;
use crate::controller::Controller;

/// Maximum length of a transfer's ID and of an end's name, in bytes.
const MAX_NAME_BYTES: usize = 253;
/// Maximum number of routes in a report, and of depots on a route.
const MAX_ROUTES: usize = 64;
const MAX_DEPOTS: usize = 16;
/// Maximum length of a failure's reason, in bytes.
const MAX_ERROR_BYTES: usize = 1000;
/// Default number of reports in one answer.
const DEFAULT_LIMIT: u32 = 100;
/// Maximum number of reports in one answer.
const MAX_LIMIT: u32 = 1000;

/// Returns the endpoints of this module.
pub(super) fn endpoints() -> OpenApiRouter<Controller> {
    OpenApiRouter::default()
        .routes(routes!(take, list))
        .routes(routes!(score))
}

/// Stores the report of a transfer, once. The answer is sent once it is on disk.
#[utoipa::path(
    post,
    path = "/transfers",
    request_body = TransferReport,
    responses((status = OK, body = ReportKept), Problem)
)]
pub async fn take(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    JsonBody(mut report): JsonBody<TransferReport>,
) -> Result<Json<ReportKept>, Problem> {
    check(&report).map_err(invalid)?;
    let (places, speaker) = (controller.places(), controller.speaker(&caller));
    let own = speaker.as_ref().map(|speaker| speaker.name().to_owned());
    let meant = |end: Option<String>| match end {
        Some(end) => Some(controller.canonical_name(&end)),
        None => own.clone(),
    };
    report.from = meant(report.from.take());
    report.to = meant(report.to.take());
    let (Some(from), Some(to)) = (&report.from, &report.to) else {
        return Err(invalid("from, to: name the ends of the transfer"));
    };
    if from == to {
        return Err(invalid("from, to: they are the same"));
    }
    let subject = places.path(speaker.as_ref(), from, to);
    controller.allow(&caller, Resource::Transfers, Permission::Write, &subject)?;
    let reporter = reporter(&caller);
    let is_new = controller.store().keep_report(&reporter, &report).await?;
    if is_new {
        controller.metrics().reported();
        controller.take_report(&reporter, &report);
    }
    Ok(Json(ReportKept { is_new }))
}

/// Checks that a report is valid.
fn check(report: &TransferReport) -> Result<(), String> {
    let is_name = |name: &str| {
        (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.chars().any(char::is_control)
    };
    let ends = [&report.from, &report.to].into_iter().flatten();
    let depots = report.routes.iter().flat_map(|route| &route.via);
    if !is_name(&report.id) || !ends.chain(depots).all(|name| is_name(name)) {
        return Err(format!("id, from, to, via: 1 to {MAX_NAME_BYTES} bytes"));
    }
    if report.routes.len() > MAX_ROUTES
        || report
            .routes
            .iter()
            .any(|route| route.via.len() > MAX_DEPOTS)
    {
        return Err(format!(
            "routes: at most {MAX_ROUTES}, each with at most {MAX_DEPOTS} depots"
        ));
    }
    if !(report.seconds.is_finite() && report.seconds >= 0.0) {
        return Err("seconds: a number that is not negative".to_owned());
    }
    let is_long = |error: &String| error.len() > MAX_ERROR_BYTES || error.contains('\0');
    if report.error.as_ref().is_some_and(is_long) {
        return Err(format!("error: at most {MAX_ERROR_BYTES} bytes"));
    }
    match &report.promised {
        Some(promised)
            if !(0.0 < promised.p10
                && promised.p10 <= promised.p50
                && promised.p50 <= promised.p90) =>
        {
            Err("promised: p10 <= p50 <= p90, above 0".to_owned())
        }
        _ => Ok(()),
    }
}

/// Reports in the order in which they were stored. A caller that may not read all sees its own.
#[utoipa::path(
    get,
    path = "/transfers",
    params(TransferQuery),
    responses((status = OK, body = TransferPage), Problem)
)]
pub async fn list(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    QueryParams(query): QueryParams<TransferQuery>,
) -> Result<Json<TransferPage>, Problem> {
    let reporter = read_all_or_own(&controller, &caller, Resource::Transfers)?;
    let limit = limit(query.limit, DEFAULT_LIMIT, MAX_LIMIT)?;
    let after = cursor(query.after.as_deref())?;
    let found = controller
        .store()
        .reports(reporter.as_deref(), after, limit.into())
        .await?;
    Ok(Json(TransferPage {
        next: found.last().map(|(number, _)| number.to_string()),
        items: found.into_iter().map(|(_, kept)| kept).collect(),
    }))
}

/// Accuracy of promises.
#[utoipa::path(
    get,
    path = "/transfers/score",
    responses((status = OK, body = Score), Problem)
)]
pub async fn score(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<Score>, Problem> {
    controller.allow(
        &caller,
        Resource::Transfers,
        Permission::Read,
        &Subject::all(),
    )?;
    Ok(Json(controller.routing().score()))
}
