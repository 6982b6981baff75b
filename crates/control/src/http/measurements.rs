//! What was measured of paths.

use std::collections::HashMap;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::{Extension, Json};
use longhaul_api::problem::{Asked, Body};
use longhaul_api::{Caller, Problem, ProblemKind};
use longhaul_control_api::measurements::{
    Batch, BatchKept, MAX_BATCH, Measurement, MeasurementPage, MeasurementQuery, Quantity,
    SummaryPage,
};
use longhaul_control_api::principals::{Permission, Resource};

use super::{cursor, invalid, limit, once, read_all_or_own, reporter};
use crate::controller::{Controller, now_ms};
use crate::store::measurements::Kept;

/// Longest name of an end, in bytes.
const MAX_END_BYTES: usize = 253;
/// How far ahead of the clock here something may have been measured, in milliseconds.
const MAX_AHEAD_MS: u64 = 30_000;
/// Longest text of a condition, in bytes.
const MAX_TEXT_BYTES: usize = 128;
/// Measurements of one answer, unless asked otherwise.
const USUAL_LIMIT: u32 = 1000;
/// And at most.
const MOST_LIMIT: u32 = 5000;

/// Keeps measurements. Answered when they are on the disk.
#[utoipa::path(post, path = "/api/v1/measurements", request_body = Batch,
    params(("Idempotency-Key" = Option<String>, Header, description = "Sent again with the same key, it is answered as before")),
    responses((status = OK, body = BatchKept), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub async fn take(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Body(batch): Body<Batch>,
) -> Result<Json<BatchKept>, Problem> {
    Ok(Json(keep(&controller, &caller, &headers, batch).await?))
}

/// Keeps a batch, if it makes sense and `caller` may report all of it.
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
    let once = once(caller, headers, &batch)?;
    // One end has one name, whoever reports it: a depot knows the others by their keys, a client
    // knows servers by their addresses. A batch is of few ends.
    let mut names = HashMap::<String, String>::new();
    for measurement in &mut batch.measurements {
        for end in [&mut measurement.from, &mut measurement.to] {
            let name = names.entry(std::mem::take(end));
            end.clone_from(name.or_insert_with_key(|end| controller.called(end)));
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
    let kept = Kept {
        reporter: reporter(caller),
        measurements: batch.measurements,
    };
    let answer = controller.ingest().keep(kept, once).await?;
    controller.metrics().kept(answer.kept, answer.duplicates);
    Ok(answer)
}

/// Whether it can be one.
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

/// Measurements in the order in which they were kept; whoever may not read all finds its own.
#[utoipa::path(get, path = "/api/v1/measurements", params(MeasurementQuery), responses((status = OK, body = MeasurementPage), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub async fn list(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    Asked(query): Asked<MeasurementQuery>,
) -> Result<Json<MeasurementPage>, Problem> {
    let reporter = read_all_or_own(&controller, &caller, Resource::Measurements)?;
    let limit = limit(query.limit, USUAL_LIMIT, MOST_LIMIT)?;
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

/// What old measurements were brought together to, by time; whoever may not read all finds its own.
#[utoipa::path(get, path = "/api/v1/measurements/summaries", params(MeasurementQuery), responses((status = OK, body = SummaryPage), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub async fn summaries(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    Asked(query): Asked<MeasurementQuery>,
) -> Result<Json<SummaryPage>, Problem> {
    let reporter = read_all_or_own(&controller, &caller, Resource::Measurements)?;
    let limit = i64::from(limit(query.limit, USUAL_LIMIT, MOST_LIMIT)?);
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
