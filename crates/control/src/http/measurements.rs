//! Measurements of paths.

use std::collections::HashMap;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::{Extension, Json};
use longhaul_api::problem::{JsonBody, QueryParams};
use longhaul_api::{Caller, Problem, ProblemKind};
use longhaul_control_api::measurements::{
    Batch, BatchKept, MAX_BATCH, Measurement, MeasurementPage, MeasurementQuery, Quantity,
    SummaryPage,
};
use longhaul_control_api::principals::{Permission, Resource};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{cursor, idempotency_key, invalid, limit, read_all_or_own, reporter};
use crate::controller::{Controller, now_ms};
use crate::store::measurements::StoredBatch;

/// Maximum length of an end's name, in bytes.
const MAX_END_BYTES: usize = 253;
/// Maximum time by which a measurement may be ahead of the local clock, in milliseconds.
const MAX_AHEAD_MS: u64 = 30_000;
/// Maximum length of a condition's text, in bytes.
const MAX_TEXT_BYTES: usize = 128;
/// Default number of measurements in one answer.
const DEFAULT_LIMIT: u32 = 1000;
/// Maximum number of measurements in one answer.
const MAX_LIMIT: u32 = 5000;

/// Returns the endpoints of this module.
pub(super) fn endpoints() -> OpenApiRouter<Controller> {
    OpenApiRouter::default()
        .routes(routes!(take, list))
        .routes(routes!(summaries))
}

/// Stores measurements. The answer is sent once they are on disk.
#[utoipa::path(
    post,
    path = "/measurements",
    request_body = Batch,
    params((
        "Idempotency-Key" = Option<String>,
        Header,
        description = "A repeated request with the same key gets the same answer"
    )),
    responses((status = OK, body = BatchKept), Problem)
)]
pub async fn take(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    JsonBody(batch): JsonBody<Batch>,
) -> Result<Json<BatchKept>, Problem> {
    Ok(Json(keep(&controller, &caller, &headers, batch).await?))
}

/// Stores a batch, if it is valid and `caller` may report all of it.
pub(super) async fn keep(
    controller: &Controller,
    caller: &Caller,
    headers: &HeaderMap,
    mut batch: Batch,
) -> Result<BatchKept, Problem> {
    if !(1..=MAX_BATCH).contains(&batch.measurements.len()) {
        let detail = format!("measurements: 1 to {MAX_BATCH} at once");
        return Err(match batch.measurements.is_empty() {
            true => invalid(detail),
            false => Problem::new(ProblemKind::TooLarge, detail),
        });
    }
    let once = idempotency_key(caller, headers, &batch)?;
    // Each end gets one name, independent of the reporter. Depots know others by their keys,
    // clients know servers by their addresses. A batch has few different ends.
    let mut names = HashMap::<String, String>::new();
    for measurement in &mut batch.measurements {
        for end in [&mut measurement.from, &mut measurement.to] {
            let name = names.entry(std::mem::take(end));
            end.clone_from(name.or_insert_with_key(|end| controller.canonical_name(end)));
        }
    }
    let (places, speaker) = (controller.places(), controller.speaker(caller));
    let now = now_ms();
    for (index, measurement) in batch.measurements.iter().enumerate() {
        let at = |detail: String| format!("measurements[{index}]: {detail}");
        check(measurement, now).map_err(|wrong| invalid(at(wrong)))?;
        let subject = places.path(speaker.as_ref(), &measurement.from, &measurement.to);
        controller
            .allow(caller, Resource::Measurements, Permission::Write, &subject)
            .map_err(|refused| Problem::new(ProblemKind::Forbidden, at(refused.to_string())))?;
    }
    let kept = StoredBatch {
        reporter: reporter(caller),
        measurements: batch.measurements,
    };
    let answer = controller.ingest().keep(kept, once).await?;
    controller.metrics().kept(answer.kept, answer.duplicates);
    Ok(answer)
}

/// Checks that a measurement is valid.
fn check(measurement: &Measurement, now_ms: u64) -> Result<(), String> {
    let is_end = |end: &str| {
        (1..=MAX_END_BYTES).contains(&end.len())
            && end.trim() == end
            && !end.chars().any(char::is_control)
    };
    if !is_end(&measurement.from) || !is_end(&measurement.to) || measurement.from == measurement.to
    {
        return Err(format!("from, to: two names of 1 to {MAX_END_BYTES} bytes"));
    }
    let most = match measurement.quantity {
        Quantity::Rate => 1e15,
        Quantity::Rtt | Quantity::Delay => 1e5,
        Quantity::Loss => 1.0,
    };
    if !(0.0..=most).contains(&measurement.value) {
        return Err(format!(
            "value: {} is not between 0 and {most}",
            measurement.value
        ));
    }
    if measurement.at_ms > now_ms.saturating_add(MAX_AHEAD_MS) {
        return Err("at_ms: in the future: check both clocks".to_owned());
    }
    let conditions = &measurement.conditions;
    let texts = [&conditions.congestion, &conditions.transfer];
    let is_long = |text: &&String| text.len() > MAX_TEXT_BYTES || text.contains('\0');
    if texts.into_iter().flatten().any(|text| is_long(&text)) {
        return Err(format!(
            "conditions: texts of at most {MAX_TEXT_BYTES} bytes"
        ));
    }
    match conditions.duration_s {
        Some(seconds) if !(seconds.is_finite() && seconds >= 0.0) => {
            Err("conditions: duration_s".to_owned())
        }
        _ => Ok(()),
    }
}

/// Measurements in the order in which they were stored. A caller that may not read all sees its
/// own.
#[utoipa::path(
    get,
    path = "/measurements",
    params(MeasurementQuery),
    responses((status = OK, body = MeasurementPage), Problem)
)]
pub async fn list(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    QueryParams(query): QueryParams<MeasurementQuery>,
) -> Result<Json<MeasurementPage>, Problem> {
    let reporter = read_all_or_own(&controller, &caller, Resource::Measurements)?;
    let limit = limit(query.limit, DEFAULT_LIMIT, MAX_LIMIT)?;
    let after = cursor(query.after.as_deref())?;
    let store = controller.store();
    let found = store
        .measurements(&query, reporter.as_deref(), after, limit.into())
        .await?;
    Ok(Json(MeasurementPage {
        next: found.last().map(|(number, _)| number.to_string()),
        items: found.into_iter().map(|(_, kept)| kept).collect(),
    }))
}

/// Summaries of old measurements, ordered by time. A caller that may not read all sees its own.
#[utoipa::path(
    get,
    path = "/measurements/summaries",
    params(MeasurementQuery),
    responses((status = OK, body = SummaryPage), Problem)
)]
pub async fn summaries(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    QueryParams(query): QueryParams<MeasurementQuery>,
) -> Result<Json<SummaryPage>, Problem> {
    let reporter = read_all_or_own(&controller, &caller, Resource::Measurements)?;
    let limit = i64::from(limit(query.limit, DEFAULT_LIMIT, MAX_LIMIT)?);
    let skip = cursor(query.after.as_deref())?;
    let store = controller.store();
    let items = store
        .summaries(&query, reporter.as_deref(), skip, limit)
        .await?;
    let is_full = i64::try_from(items.len()) == Ok(limit);
    Ok(Json(SummaryPage {
        next: is_full.then(|| skip.saturating_add(limit).to_string()),
        items,
    }))
}
