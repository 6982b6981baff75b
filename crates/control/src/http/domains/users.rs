//! Requests of users for reservations across domains.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use longhaul_api::problem::{JsonBody, PathParams, idempotency_key};
use longhaul_api::{Caller, Problem, ProblemKind};
use longhaul_control_api::domains::{
    Criteria, DomainReservation, DomainReservationList, DomainReservationRequest, Shape,
    TerminationPoint,
};
use longhaul_control_api::principals::{Permission, Resource};
use longhaul_domains::connection::{Connection, Phase};
use longhaul_proto::SessionId;
use tokio::time::timeout;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::attempts::try_paths;
use super::domains;
use super::shown::{owner, shown};
use crate::authority::Subject;
use crate::controller::{Controller, now_ms};
use crate::domains::DomainsHandle;
use crate::http::{invalid, reporter};

/// Time limit for the outcome of a request, with all paths that are tried.
const OUTCOME_TIMEOUT: Duration = Duration::from_secs(90);

/// Returns the endpoints of this module.
pub(super) fn endpoints() -> OpenApiRouter<Controller> {
    OpenApiRouter::default()
        .routes(routes!(reserve, list))
        .routes(routes!(show, cancel))
}

/// Requests bandwidth between an end of this domain and one of another. It is answered when all
/// domains on the path have promised their segments, or none has. Requests with the same
/// `Idempotency-Key` reserve once.
#[utoipa::path(
    post,
    path = "/domain/reservations",
    request_body = DomainReservationRequest,
    responses((status = CREATED, body = DomainReservation), Problem)
)]
pub async fn reserve(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    JsonBody(request): JsonBody<DomainReservationRequest>,
) -> Result<(StatusCode, Json<DomainReservation>), Problem> {
    let domains = domains(&controller)?;
    let wanted = criteria(domains, &request)?;
    check_right(&controller, domains, &caller, &wanted)?;
    let name = reservation_name(&caller, &headers)?;
    let reserving = try_paths(&controller, domains, &caller, &request, wanted, &name);
    let done = timeout(OUTCOME_TIMEOUT, reserving).await;
    let connection = done.unwrap_or_else(|_| {
        Err(Problem::new(
            ProblemKind::Unreachable,
            "other domains have not answered in time: ask again with the same Idempotency-Key",
        ))
    })?;
    Ok((StatusCode::CREATED, Json(shown(domains, &connection))))
}

/// Reservations across domains that the caller may see.
#[utoipa::path(
    get,
    path = "/domain/reservations",
    responses((status = OK, body = DomainReservationList), Problem)
)]
pub async fn list(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<DomainReservationList>, Problem> {
    let domains = domains(&controller)?;
    let known = domains.connections();
    let visible = known
        .iter()
        .filter(|connection| may_see(&controller, domains, &caller, connection));
    let items = visible.map(|connection| shown(domains, connection));
    Ok(Json(DomainReservationList {
        items: items.collect(),
    }))
}

/// A reservation across domains, with its segments.
#[utoipa::path(
    get,
    path = "/domain/reservations/{id}",
    params(("id" = String, Path)),
    responses((status = OK, body = DomainReservation), Problem)
)]
pub async fn show(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    PathParams(id): PathParams<String>,
) -> Result<Json<DomainReservation>, Problem> {
    let domains = domains(&controller)?;
    let found = find(&controller, domains, &caller, &id)?;
    Ok(Json(shown(domains, &found)))
}

/// Cancels a reservation across domains: all segments are returned.
#[utoipa::path(
    delete,
    path = "/domain/reservations/{id}",
    params(("id" = String, Path)),
    responses((status = OK, body = DomainReservation), Problem)
)]
pub async fn cancel(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    PathParams(id): PathParams<String>,
) -> Result<Json<DomainReservation>, Problem> {
    let domains = domains(&controller)?;
    let found = find(&controller, domains, &caller, &id)?;
    let subject = Subject::own_if(owner(domains, &found) == controller.asker(&caller).owner);
    controller.allow(
        &caller,
        Resource::Reservations,
        Permission::Modify,
        &subject,
    )?;
    if found.phase < Phase::Terminating {
        let who = reporter(&caller);
        domains.terminate(&who, &found.id).await?;
    }
    let found = find(&controller, domains, &caller, &id)?;
    Ok(Json(shown(domains, &found)))
}

/// Converts a request into a segment from end to end.
fn criteria(
    domains: &DomainsHandle,
    request: &DomainReservationRequest,
) -> Result<Criteria, Problem> {
    let own = &domains.settings().name;
    let point = |what: &str, name: &str| {
        let parsed = name
            .parse::<TerminationPoint>()
            .or_else(|_| TerminationPoint::new(own.clone(), name));
        parsed.map_err(|error| invalid(format!("{what}: {error}")))
    };
    let (source, destination) = (point("from", &request.from)?, point("to", &request.to)?);
    if source.domain != *own && destination.domain != *own {
        return Err(invalid(format!(
            "from, to: one of them must be of domain {own}: ask the controller of the other's \
             domain"
        )));
    }
    if source.domain == destination.domain {
        return Err(invalid(format!(
            "from, to: both are of domain {own}: leave the domain out"
        )));
    }
    let now = now_ms();
    let start_ms = request.start_ms.unwrap_or(now);
    if request.end_ms <= start_ms.max(now) {
        return Err(invalid("end_ms: the window is over before it begins"));
    }
    let capacity_bps = request.rate_bps;
    if !(1..=longhaul_circuits::time::MAX_RATE).contains(&capacity_bps) {
        return Err(invalid("rate_bps: it is 0, or more than any link has"));
    }
    Ok(Criteria {
        source,
        destination,
        capacity_bps,
        start_ms,
        end_ms: request.end_ms,
        shape: Shape::default(),
        source_address: request.from_address.clone(),
        destination_address: request.to_address.clone(),
    })
}

/// Checks that the caller may reserve at its own end, before other domains are asked.
fn check_right(
    controller: &Controller,
    domains: &DomainsHandle,
    caller: &Caller,
    wanted: &Criteria,
) -> Result<(), Problem> {
    let own = &domains.settings().name;
    let ends = [&wanted.source, &wanted.destination];
    let end = ends.into_iter().find(|end| end.domain == *own);
    let places = controller.places();
    let place = end.and_then(|end| places.place(&end.point));
    let place = place.ok_or_else(|| {
        let name = end.map_or("", |end| end.point.as_str());
        let detail = format!("no host, depot or site of the map is called {name}");
        Problem::new(ProblemKind::NotFound, detail)
    })?;
    let subject = Subject {
        own: controller
            .speaker(caller)
            .is_some_and(|speaker| speaker.speaks_for(&place.name)),
        sites: BTreeSet::from([place.site]),
    };
    controller.allow(caller, Resource::Reservations, Permission::Create, &subject)?;
    Ok(())
}

/// Returns the name of a new reservation: that of the request's idempotency key, or a random one.
fn reservation_name(caller: &Caller, headers: &HeaderMap) -> Result<String, Problem> {
    match idempotency_key(headers)? {
        None => SessionId::random()
            .map(|id| id.to_string())
            .map_err(|error| Problem::new(ProblemKind::Unavailable, error.to_string())),
        Some(key) => {
            let text = format!("{} {key}", reporter(caller));
            let hash = blake3::hash(text.as_bytes()).to_hex();
            Ok(hash.chars().take(32).collect())
        }
    }
}

fn may_see(
    controller: &Controller,
    domains: &DomainsHandle,
    caller: &Caller,
    connection: &Connection,
) -> bool {
    let subject = Subject::own_if(owner(domains, connection) == controller.asker(caller).owner);
    let allowed = controller.allow(caller, Resource::Reservations, Permission::Read, &subject);
    allowed.is_ok()
}

fn find(
    controller: &Controller,
    domains: &DomainsHandle,
    caller: &Caller,
    id: &str,
) -> Result<Connection, Problem> {
    let known = domains.connections().into_iter();
    let mut visible = known.filter(|connection| {
        connection.global.as_str() == id && may_see(controller, domains, caller, connection)
    });
    visible.next().ok_or_else(|| {
        Problem::new(
            ProblemKind::NotFound,
            "there is no such reservation across domains that you may see",
        )
    })
}
