//! Routes of transfers over depots.

use axum::extract::State;
use axum::{Extension, Json};
use longhaul_api::problem::{JsonBody, QueryParams};
use longhaul_api::{Caller, Problem, ProblemKind};
use longhaul_control_api::principals::{Permission, Resource};
use longhaul_control_api::routes::{
    RouteAnswer, RouteOption, RouteQuestion, RouteTable, TableQuery,
};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{cursor, invalid, limit};
use crate::controller::{Controller, now_ms};
use crate::weather;

/// Maximum length of an end's name, in bytes.
const MAX_END_BYTES: usize = 253;
/// Maximum number of depots to avoid.
const MAX_AVOIDED: usize = 100;
/// Default number of destinations in one answer.
const DEFAULT_LIMIT: u32 = 100;
/// Maximum number of destinations in one answer.
const MAX_LIMIT: u32 = 1000;
/// Validity of an answer about an unknown end, in milliseconds.
const UNKNOWN_LIFE_MS: u64 = 60_000;
/// Odd multiplier that turns a clock value into a seed (2^64 divided by the golden ratio, as in
/// Knuth's multiplicative hashing).
const SEED_MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// Returns the end where routes begin, if `caller` may ask for them: the requested one, or the
/// caller's own.
pub(super) fn route_start(
    controller: &Controller,
    caller: &Caller,
    from: Option<&str>,
) -> Result<String, Problem> {
    let (places, speaker) = (controller.places(), controller.speaker(caller));
    let own = speaker.as_ref().map(|speaker| speaker.name().to_owned());
    let from = match (from, own) {
        (Some(from), _) => places.resolve_end(from).map(str::to_owned),
        (None, own) => own,
    };
    let Some(from) = from else {
        return Err(Problem::new(
            ProblemKind::NotFound,
            "from: neither an end on the map nor a key: name a host or a depot",
        ));
    };
    let subject = places.end(speaker.as_ref(), &from);
    controller.allow(caller, Resource::Routes, Permission::Read, &subject)?;
    Ok(from)
}

/// Returns the endpoints of this module.
pub(super) fn endpoints() -> OpenApiRouter<Controller> {
    OpenApiRouter::default()
        .routes(routes!(question))
        .routes(routes!(table))
}

/// Routes of a transfer. The question changes nothing except the account of explored bytes.
#[utoipa::path(
    post,
    path = "/routes/question",
    request_body = RouteQuestion,
    responses((status = OK, body = RouteAnswer), Problem)
)]
pub async fn question(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    JsonBody(question): JsonBody<RouteQuestion>,
) -> Result<Json<RouteAnswer>, Problem> {
    if !(1..=MAX_END_BYTES).contains(&question.to.len()) {
        return Err(invalid(format!("to: 1 to {MAX_END_BYTES} bytes")));
    }
    if question.avoid.len() > MAX_AVOIDED {
        return Err(invalid(format!("avoid: at most {MAX_AVOIDED} depots")));
    }
    if question.streams == Some(0) {
        return Err(invalid("streams: at least 1"));
    }
    let from = route_start(&controller, &caller, question.from.as_deref())?;
    let places = controller.places();
    controller.metrics().asked();
    let now_ms = now_ms();
    let answer = match places.resolve_end(&question.to) {
        None => unknown(&question.to, places.known.version, now_ms),
        Some(to) => controller.routing().answer(&weather::RouteQuery {
            from: &from,
            to,
            question: &question,
            now_ms,
            // Mixes both halves of the clock value, as the upper half stays the same for weeks.
            seed: now_ms.wrapping_mul(SEED_MULTIPLIER),
        }),
    };
    Ok(Json(answer))
}

/// Creates the answer for an end that is not on the map: the direct route, without a promise.
fn unknown(to: &str, map_version: u64, now_ms: u64) -> RouteAnswer {
    let direct = RouteOption {
        via: Vec::new(),
        route: "direct".to_owned(),
        seconds: None,
        rate_bps: None,
        bottleneck: None,
        share: 1.0,
        explores: false,
    };
    RouteAnswer {
        routes: vec![direct],
        others: Vec::new(),
        fall_back: Vec::new(),
        seconds: None,
        why: vec![format!("route: direct: {to} is not on the map")],
        map_version,
        made_ms: now_ms,
        valid_until_ms: now_ms.saturating_add(UNKNOWN_LIFE_MS),
    }
}

/// Routes from one end to the hosts of the map, for storage by the client.
#[utoipa::path(
    get,
    path = "/routes/table",
    params(TableQuery),
    responses((status = OK, body = RouteTable), Problem)
)]
pub async fn table(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    QueryParams(query): QueryParams<TableQuery>,
) -> Result<Json<RouteTable>, Problem> {
    let from = route_start(&controller, &caller, query.from.as_deref())?;
    let limit =
        usize::try_from(limit(query.limit, DEFAULT_LIMIT, MAX_LIMIT)?).unwrap_or(usize::MAX);
    let skip = usize::try_from(cursor(query.after.as_deref())?).unwrap_or(usize::MAX);
    let places = controller.places();
    let to = match query.to.as_deref() {
        None => None,
        Some(to) => Some(places.resolve_end(to).ok_or_else(|| {
            Problem::new(ProblemKind::NotFound, format!("to: {to} is not on the map"))
        })?),
    };
    let receives = query.receives.unwrap_or(false);
    let table = controller
        .routing()
        .table(&from, to, receives, (skip, limit), now_ms());
    Ok(Json(table))
}
