//! Registrations of depots.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use longhaul_api::problem::{JsonBody, PathParams};
use longhaul_api::{Caller, Problem, ProblemKind};
use longhaul_control_api::map::{DepotList, DepotNameList, Registered, Registration};
use longhaul_control_api::principals::{Permission, Resource};
use longhaul_proto::PublicKey;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::invalid;
use crate::authority::Subject;
use crate::controller::{Controller, now_ms};
use crate::places::seconds;

/// Share of a registration's validity after which the next one is expected.
const RENEWAL_SHARE: f64 = 1.0 / 3.0;

fn subject(caller: &Caller, key: &PublicKey) -> Subject {
    Subject::own_if(caller.key == Some(*key))
}

fn read_key(key: &str) -> Result<PublicKey, Problem> {
    key.parse().map_err(|_| invalid("not a key, lhk1:..."))
}

/// Returns the endpoints of this module.
pub(super) fn endpoints() -> OpenApiRouter<Controller> {
    OpenApiRouter::default()
        .routes(routes!(list))
        .routes(routes!(register, unregister))
        .routes(routes!(names))
        .routes(routes!(release))
}

/// All depots, as they are on the map.
#[utoipa::path(get, path = "/depots", responses((status = OK, body = DepotList), Problem))]
pub async fn list(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<DepotList>, Problem> {
    controller.allow(&caller, Resource::Map, Permission::Read, &Subject::all())?;
    let items = controller.places().known.map.depots.clone();
    Ok(Json(DepotList { items }))
}

/// Registers a depot, signed with its key. Must be repeated before the registration expires.
#[utoipa::path(
    put,
    path = "/depots/{key}",
    params(("key" = String, Path)),
    request_body = Registration,
    responses((status = OK, body = Registered), Problem)
)]
pub async fn register(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    PathParams(key): PathParams<String>,
    JsonBody(registration): JsonBody<Registration>,
) -> Result<Json<Registered>, Problem> {
    let key = read_key(&key)?;
    controller.allow(
        &caller,
        Resource::Registrations,
        Permission::Write,
        &subject(&caller, &key),
    )?;
    if registration.key != key {
        return Err(invalid("key: differs from the key in the path"));
    }
    registration
        .check()
        .map_err(|problem| invalid(problem.to_string()))?;
    let policy = &controller.settings().registrations;
    let ahead = registration.sent_at - seconds(now_ms());
    if ahead > policy.max_clock_ahead.as_secs_f64() {
        return Err(invalid(format!(
            "sent_at: {ahead:.0} s in the future: set the depot's clock"
        )));
    }
    let places = controller.places();
    // The operator's map names its depots.
    let name = match places.is_listed(&key) {
        true => None,
        false => {
            let checked = places.names().check(&registration.name, &key);
            checked.map_err(|problem| Problem::new(ProblemKind::Conflict, problem.to_string()))?;
            Some(registration.name.as_str())
        }
    };
    controller.store().register(&registration, name).await?;
    controller.take_registration(registration.clone(), name);
    let until = registration.valid_until(policy);
    let name = controller
        .places()
        .depot(&key)
        .map_or_else(|| registration.name.clone(), str::to_owned);
    Ok(Json(Registered {
        name,
        again_in_s: registration
            .valid_for
            .min(policy.max_valid_for)
            .as_secs_f64()
            * RENEWAL_SHARE,
        until_ms: (until * 1000.0) as u64,
    }))
}

/// Removes the registration of a depot that stops.
#[utoipa::path(
    delete,
    path = "/depots/{key}",
    params(("key" = String, Path)),
    responses((status = NO_CONTENT), Problem)
)]
pub async fn unregister(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    PathParams(key): PathParams<String>,
) -> Result<StatusCode, Problem> {
    let key = read_key(&key)?;
    controller.allow(
        &caller,
        Resource::Registrations,
        Permission::Write,
        &subject(&caller, &key),
    )?;
    controller.store().unregister(&key).await?;
    controller.follow().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Names that depots registered, with the keys that own them.
#[utoipa::path(
    get,
    path = "/names",
    responses((status = OK, body = DepotNameList), Problem)
)]
pub async fn names(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<DepotNameList>, Problem> {
    controller.allow(
        &caller,
        Resource::Registrations,
        Permission::Read,
        &Subject::all(),
    )?;
    let items = controller.store().depot_names().await?;
    Ok(Json(DepotNameList { items }))
}

/// Releases a name, and ends the registration under it. The next key that registers the name owns
/// it.
#[utoipa::path(
    delete,
    path = "/names/{name}",
    params(("name" = String, Path)),
    responses((status = NO_CONTENT), Problem)
)]
pub async fn release(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    PathParams(name): PathParams<String>,
) -> Result<StatusCode, Problem> {
    controller.allow(
        &caller,
        Resource::Registrations,
        Permission::Write,
        &Subject::all(),
    )?;
    controller.store().release_depot_name(&name).await?;
    controller.follow().await?;
    controller.log().log(Some(&caller), |left_out| {
        tracing::info!(
            left_out,
            by = caller.user,
            name,
            "a depot's name was released"
        );
    });
    Ok(StatusCode::NO_CONTENT)
}
