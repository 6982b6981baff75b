//! Measurements that depots are asked to take between each other.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::{Extension, Json};
use longhaul_api::problem::{JsonBody, PathParams};
use longhaul_api::{Caller, Problem, ProblemKind};
use longhaul_control_api::map::{Depot, Map};
use longhaul_control_api::measurements::{Batch, BatchKept, Source};
use longhaul_control_api::principals::{Permission, Resource};
use longhaul_control_api::probes::{ProbeList, ProbeResult, ProbeTask};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{invalid, measurements};
use crate::authority::Subject;
use crate::controller::{Controller, now_ms};
use crate::probes::{SLOT_MS, probe_kind, turns};

/// Number of slots for which a depot gets its tasks in advance: a minute and a half.
const SLOTS_AHEAD: u64 = 30;
/// Time since real traffic during which a path is not measured, in milliseconds.
const IN_USE_MS: u64 = 30_000;

/// Returns the endpoints of this module.
pub(super) fn endpoints() -> OpenApiRouter<Controller> {
    OpenApiRouter::default()
        .routes(routes!(list))
        .routes(routes!(result))
}

/// Measurements that the calling depot is to take next. Paths with real traffic are left out, as
/// that measures them.
#[utoipa::path(get, path = "/probes", responses((status = OK, body = ProbeList), Problem))]
pub async fn list(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<ProbeList>, Problem> {
    controller.allow(&caller, Resource::Probes, Permission::Read, &Subject::own())?;
    let places = controller.places();
    let own = caller.key.and_then(|key| places.depot(&key));
    let map = &places.known.map;
    let mut depots: Vec<&Depot> = map
        .depots
        .iter()
        .filter(|depot| depot.state.is_usable())
        .collect();
    depots.sort_by_key(|depot| &depot.name);
    let place = own.and_then(|own| depots.iter().position(|depot| depot.name == own));
    let Some((own, place)) = own.zip(place) else {
        return Err(Problem::new(
            ProblemKind::NotFound,
            "no depot on the map has this key: the depot must register before it measures",
        ));
    };
    let now = now_ms();
    // The current slot may be over when the answer arrives.
    let turns = turns(depots.len(), place, now / SLOT_MS + 1, SLOTS_AHEAD);
    let task = |turn: crate::probes::Turn| {
        let to = depots.get(turn.to)?;
        let carried = controller.routing().carried_ms(own, &to.name);
        if carried.is_some_and(|at| at.saturating_add(IN_USE_MS) > now) {
            return None;
        }
        let stated = capacity(map, places.site(own), places.site(&to.name));
        let mut path = controller.routing().known_path(own, &to.name);
        path.rate_bps = stated.or(path.rate_bps);
        let begins = turn.slot.saturating_mul(SLOT_MS);
        Some(ProbeTask {
            id: turn.slot.to_string(),
            from: own.to_owned(),
            to: to.name.clone(),
            address: to.addresses.first()?.endpoint.to_string(),
            key: Some(to.key.to_string()),
            kind: probe_kind(depots.len(), &path),
            not_before_ms: begins,
            not_after_ms: begins.saturating_add(SLOT_MS),
        })
    };
    Ok(Json(ProbeList {
        items: turns.filter_map(task).collect(),
        again_in_s: SLOTS_AHEAD * SLOT_MS / 2000,
    }))
}

/// Returns the capacity of the link between two sites, if known: the smallest of several.
fn capacity(map: &Map, from: Option<&str>, to: Option<&str>) -> Option<f64> {
    let (from, to) = (from?, to?);
    let rates = map.links.iter().filter_map(|link| {
        let direction = if link.from == from && link.to == to {
            &link.forward
        } else if link.from == to && link.to == from {
            link.backward.as_ref()?
        } else {
            return None;
        };
        Some(direction.rate()?.bits_per_second())
    });
    rates.min_by(f64::total_cmp)
}

/// Stores the result of a measurement, as `POST /measurements` does.
#[utoipa::path(
    post,
    path = "/probes/{id}/result",
    params(("id" = String, Path)),
    request_body = ProbeResult,
    responses((status = OK, body = BatchKept), Problem)
)]
pub async fn result(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    PathParams(id): PathParams<String>,
    headers: HeaderMap,
    JsonBody(result): JsonBody<ProbeResult>,
) -> Result<Json<BatchKept>, Problem> {
    controller.allow(
        &caller,
        Resource::Probes,
        Permission::Write,
        &Subject::own(),
    )?;
    if id.parse::<u64>().is_err() {
        return Err(Problem::new(ProblemKind::NotFound, "no such task"));
    }
    if result
        .measurements
        .iter()
        .any(|one| one.source != Source::Probe)
    {
        return Err(invalid("measurements: their source is probe"));
    }
    if let Some(error) = &result.error {
        controller.log().log(Some(&caller), |left_out| {
            tracing::info!(by = caller.user, error, left_out, "a path was not measured")
        });
    }
    if result.measurements.is_empty() {
        return Ok(Json(BatchKept {
            kept: 0,
            duplicates: 0,
        }));
    }
    let batch = Batch {
        measurements: result.measurements,
    };
    Ok(Json(
        measurements::keep(&controller, &caller, &headers, batch).await?,
    ))
}
