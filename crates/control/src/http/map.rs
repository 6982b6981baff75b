//! The map, and route files made from it.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use longhaul_api::problem::{JsonBody, QueryParams};
use longhaul_api::{Caller, Problem};
use longhaul_control_api::map::{DepotSource, KnownMap, Map, MapChanged, RoutesFileQuery};
use longhaul_control_api::principals::{Permission, Resource};
use longhaul_map::routes::{ChosenRoute, routes_toml};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::invalid;
use super::routes::route_start;
use crate::authority::Subject;
use crate::controller::{Controller, now_ms};

/// Returns the endpoints of this module.
pub(super) fn endpoints() -> OpenApiRouter<Controller> {
    OpenApiRouter::default()
        .routes(routes!(show, replace))
        .routes(routes!(routes_file))
}

/// The current map.
#[utoipa::path(get, path = "/map", responses((status = OK, body = KnownMap), Problem))]
pub async fn show(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<KnownMap>, Problem> {
    controller.allow(&caller, Resource::Map, Permission::Read, &Subject::all())?;
    Ok(Json(controller.places().known.clone()))
}

/// Replaces the operator's map. Depots that registered themselves stay.
#[utoipa::path(
    put,
    path = "/map",
    request_body = Map,
    responses((status = OK, body = MapChanged), Problem)
)]
pub async fn replace(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    JsonBody(mut map): JsonBody<Map>,
) -> Result<Json<MapChanged>, Problem> {
    controller.allow(&caller, Resource::Map, Permission::Write, &Subject::all())?;
    // A map that was read from the controller is stored without the depots that it added.
    map.depots
        .retain(|depot| depot.source != DepotSource::Registered);
    for depot in &mut map.depots {
        depot.source = DepotSource::File;
        depot.state = Default::default();
    }
    map.forget_live();
    map.estimate_latencies();
    map.check().map_err(|fault| invalid(fault.to_string()))?;
    controller.store().put_map(&map).await?;
    controller.follow().await?;
    controller.log().log(Some(&caller), |left_out| {
        tracing::info!(
            by = caller.user,
            sites = map.sites.len(),
            depots = map.depots.len(),
            left_out,
            "the map was replaced"
        );
    });
    Ok(Json(MapChanged {
        sites: map.sites.len(),
        depots: map.depots.len(),
        hosts: map.hosts.len(),
        links: map.links.len(),
    }))
}

/// `routes.toml` with routes from one end to all hosts of the map, for depots, clients and
/// on-ramps.
#[utoipa::path(
    get,
    path = "/routes.toml",
    params(RoutesFileQuery),
    responses((status = OK, body = String, content_type = "application/toml"), Problem)
)]
pub async fn routes_file(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    QueryParams(query): QueryParams<RoutesFileQuery>,
) -> Result<Response, Problem> {
    let from = route_start(&controller, &caller, query.from.as_deref())?;
    let places = controller.places();
    let map = &places.known.map;
    let mut chosen = Vec::new();
    for host in map.hosts.iter().filter(|host| host.name != from) {
        let depots = controller.routing().bulk_route(&from, &host.name, now_ms());
        let depots: Vec<&str> = depots.iter().map(String::as_str).collect();
        // A depot may have been lost a moment ago; then the host is reached without it.
        let route = ChosenRoute::through_depots(map, &host.name, &depots)
            .or_else(|_| ChosenRoute::through_depots(map, &host.name, &[]));
        chosen.push(route.map_err(|error| invalid(error.to_string()))?);
    }
    let heading = format!(
        "Routes from {from}, by {}, map {}",
        controller.settings().name,
        places.known.version
    );
    let text = routes_toml(&heading, &chosen).map_err(|error| invalid(error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, "application/toml")], text).into_response())
}
