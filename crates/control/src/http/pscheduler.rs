//! Measurements in pScheduler's format, as its HTTP archiver sends them.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::{Extension, Json};
use longhaul_api::problem::QueryParams;
use longhaul_api::{Caller, Problem};
use longhaul_control_api::map::Map;
use longhaul_control_api::measurements::{
    Batch, BatchKept, Conditions, KeptMeasurement, Limit, Measurement, MeasurementQuery,
    PschedulerPage, Quantity, Source,
};
use longhaul_control_api::principals::Resource;
use longhaul_measurements::pscheduler::{read, write};
use longhaul_measurements::{
    Conditions as Known, Distribution, HistogramBin, MeasuredQuantity as Measured, MeasurementKind,
    MeasurementMethod, MeasurementRecord, RecordBounds, Values,
};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::measurements::keep;
use super::{cursor, invalid, limit, read_all_or_own};
use crate::controller::{Controller, now_ms};

/// Default number of runs in one answer.
const DEFAULT_LIMIT: u32 = 100;
/// Maximum number of runs in one answer.
const MAX_LIMIT: u32 = 1000;
/// Maximum age of a run, in seconds. Archives may arrive late.
const MAX_AGE_S: u64 = 365 * 86_400;
/// Milliseconds in a second.
const SECOND_MS: f64 = 1000.0;

/// Returns the endpoints of this module.
pub(super) fn endpoints() -> OpenApiRouter<Controller> {
    OpenApiRouter::default().routes(routes!(take, put, list))
}

/// Stores a run of pScheduler: throughput, rtt, latency or loss. Its ends are those of the map that
/// are known by the hosts that it names.
#[utoipa::path(
    post,
    path = "/pscheduler",
    request_body = Object,
    responses((status = OK, body = BatchKept), Problem)
)]
pub async fn take(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    text: String,
) -> Result<Json<BatchKept>, Problem> {
    let reporter = caller.key.unwrap_or(controller.settings().key);
    let record = read(&text, reporter).map_err(|error| invalid(error.to_string()))?;
    let bounds = RecordBounds {
        max_age: std::time::Duration::from_secs(MAX_AGE_S),
        ..RecordBounds::default()
    };
    let now = now_ms();
    record
        .check(now, &bounds)
        .map_err(|fault| invalid(fault.to_string()))?;
    let measurements = measurements(&record);
    if measurements.is_empty() {
        // The run has no value that is stored here, such as one that reports the route.
        return Ok(Json(BatchKept {
            kept: 0,
            duplicates: 0,
        }));
    }
    let batch = Batch { measurements };
    Ok(Json(
        keep(&controller, &caller, &HeaderMap::new(), batch).await?,
    ))
}

/// Like POST, as archivers may be configured to use either.
#[utoipa::path(
    put,
    path = "/pscheduler",
    operation_id = "put",
    request_body = Object,
    responses((status = OK, body = BatchKept), Problem)
)]
pub async fn put(
    controller: State<Controller>,
    caller: Extension<Caller>,
    text: String,
) -> Result<Json<BatchKept>, Problem> {
    take(controller, caller, text).await
}

/// Measurements in pScheduler's format, in the order in which they were stored. Measurements
/// between ends without a host name or an address are left out.
#[utoipa::path(
    get,
    path = "/pscheduler",
    params(MeasurementQuery),
    responses((status = OK, body = PschedulerPage), Problem)
)]
pub async fn list(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    QueryParams(query): QueryParams<MeasurementQuery>,
) -> Result<Json<PschedulerPage>, Problem> {
    let own = read_all_or_own(&controller, &caller, Resource::Measurements)?;
    let limit = limit(query.limit, DEFAULT_LIMIT, MAX_LIMIT)?;
    let after = cursor(query.after.as_deref())?;
    let store = controller.store();
    let found = store
        .measurements(&query, own.as_deref(), after, limit.into())
        .await?;
    let places = controller.places();
    let host = |end: &str| host(&places.known.map, end);
    let run = |kept: &KeptMeasurement| write(&record(kept, controller.settings().key), host).ok();
    Ok(Json(PschedulerPage {
        next: found.last().map(|(number, _)| number.to_string()),
        items: found.iter().filter_map(|(_, kept)| run(kept)).collect(),
    }))
}

/// Returns the host name or address by which an end is known.
fn host(map: &Map, end: &str) -> Option<String> {
    if let Some(depot) = map.depot(end) {
        let first = depot.addresses.first()?;
        return Some(first.endpoint.host.to_string());
    }
    match map.host(end) {
        Some(host) => host
            .addresses
            .iter()
            .find(|address| !address.contains(['*', '/']))
            .cloned(),
        None => Some(end.to_owned()),
    }
}

/// Returns the quantity of an archived value; `None` for jitter, which is not stored.
const fn quantity(measured: Measured) -> Option<Quantity> {
    match measured {
        Measured::Rate => Some(Quantity::Rate),
        Measured::Rtt => Some(Quantity::Rtt),
        Measured::Delay => Some(Quantity::Delay),
        Measured::Loss => Some(Quantity::Loss),
        Measured::Jitter => None,
    }
}

fn measurements(record: &MeasurementRecord) -> Vec<Measurement> {
    let samples = record.samples().filter_map(|sample| {
        let quantity = quantity(sample.quantity)?;
        Some(Measurement {
            from: record.from.clone(),
            to: record.to.clone(),
            quantity,
            at_ms: sample.at_ms,
            value: sample.value,
            source: Source::Archive,
            conditions: Conditions {
                bytes: record.conditions.bytes,
                duration_s: Some(record.duration_s),
                streams: record.conditions.streams,
                congestion: record.conditions.congestion_control.clone(),
                limit: match sample.bound {
                    longhaul_measurements::ValueBound::Exact => None,
                    longhaul_measurements::ValueBound::AtLeast => Some(Limit::Application),
                },
                transfer: None,
            },
        })
    });
    samples.collect()
}

fn record(kept: &KeptMeasurement, own: longhaul_proto::PublicKey) -> MeasurementRecord {
    let measurement = &kept.measurement;
    let duration_s = measurement.conditions.duration_s.unwrap_or(1.0);
    let value = measurement.value;
    let (kind, values) = match measurement.quantity {
        Quantity::Rate => (
            MeasurementKind::Throughput,
            Values {
                rate_bps: Some(value),
                ..Values::default()
            },
        ),
        Quantity::Rtt => (
            MeasurementKind::Rtt,
            Values {
                rtt: Distribution::from_times(&[value]),
                ..Values::default()
            },
        ),
        Quantity::Delay => (
            MeasurementKind::Latency,
            Values {
                delay: Distribution::from_times(&[value]),
                histogram: vec![HistogramBin {
                    delay_s: value,
                    count: 1,
                }],
                ..Values::default()
            },
        ),
        Quantity::Loss => (
            MeasurementKind::Loss,
            Values {
                loss: Some(value),
                ..Values::default()
            },
        ),
    };
    MeasurementRecord {
        from: measurement.from.clone(),
        to: measurement.to.clone(),
        reporter: kept.reporter.parse().unwrap_or(own),
        start_ms: measurement
            .at_ms
            .saturating_sub((duration_s * SECOND_MS / 2.0) as u64),
        duration_s,
        kind,
        method: match measurement.source {
            Source::Probe => MeasurementMethod::Probe,
            Source::Transfer => MeasurementMethod::Transfer,
            Source::Relay => MeasurementMethod::Relay,
            Source::Archive => MeasurementMethod::Archive,
        },
        conditions: Known {
            bytes: measurement.conditions.bytes,
            streams: measurement.conditions.streams,
            congestion_control: measurement.conditions.congestion.clone(),
            ..Known::default()
        },
        values,
    }
}
