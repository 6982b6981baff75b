//! Grants of reservations' paths: issued to the calling key, and renewed for the depots that use
//! them.

use axum::extract::State;
use axum::{Extension, Json};
use longhaul_api::problem::{JsonBody, PathParams};
use longhaul_api::{Caller, Problem, ProblemKind};
use longhaul_circuits::ledger::ReservationId;
use longhaul_control_api::grants::{GrantInUse, GrantsInUse, MAX_GRANTS_IN_USE, Renewal, Renewals};
use longhaul_control_api::principals::{Permission, Resource};
use longhaul_control_api::reservations::{PathGrants, Reservation};
use longhaul_proto::PublicKey;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::invalid;
use super::reservations::{RequestRefusal, read_id};
use crate::authority::{self, Subject};
use crate::circuits::grants::{CircuitName, GrantRefusal, grants, renewal};
use crate::controller::Controller;
use crate::leader::Leadership;
use crate::reservations::writer::AskError;

/// Returns the endpoints of this module.
pub(super) fn endpoints() -> OpenApiRouter<Controller> {
    OpenApiRouter::default()
        .routes(routes!(list))
        .routes(routes!(renew))
}

/// Grants with which the caller's sessions use a reservation's paths at their depots, now or in its
/// next piece of time. For callers that may set it up.
#[utoipa::path(
    get,
    path = "/reservations/{id}/grants",
    params(("id" = u64, Path)),
    responses((status = OK, body = PathGrants), Problem)
)]
pub async fn list(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    PathParams(id): PathParams<String>,
) -> Result<Json<PathGrants>, RequestRefusal> {
    let id = read_id(&id)?;
    require_store(&controller)?;
    // The operator has no key over the socket, so its sessions have the controller's.
    let holder = caller.key.unwrap_or(controller.settings().key);
    let asker = controller.asker(&caller);
    let found = controller
        .book()
        .read(|desk, now| desk.show(&asker, id, now))
        .await?;
    let reservation = found.map_err(AskError::from)?;
    may_use(&controller, &caller, &reservation)
        .map_err(|refused| Problem::new(ProblemKind::Forbidden, refused.to_string()))?;
    let places = controller.places();
    let now = controller.book().now();
    let signer = &controller.settings().signer;
    let found = grants(&reservation, &places.known.map, holder, signer, now).map_err(|no| {
        let kind = match no {
            GrantRefusal::Sign(_) => ProblemKind::Unavailable,
            _ => ProblemKind::Conflict,
        };
        Problem::new(kind, no.to_string())
    })?;
    Ok(Json(found))
}

/// Renews grants that the calling depot has in use. A grant that is not renewed has ended: its
/// reservation was cancelled, or its holder may no longer use it.
#[utoipa::path(
    post,
    path = "/grants/renewals",
    request_body = GrantsInUse,
    responses((status = OK, body = Renewals), Problem)
)]
pub async fn renew(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    JsonBody(in_use): JsonBody<GrantsInUse>,
) -> Result<Json<Renewals>, Problem> {
    controller.allow(
        &caller,
        Resource::Registrations,
        Permission::Write,
        &Subject::own(),
    )?;
    require_store(&controller)?;
    let Some(depot) = caller.key else {
        return Err(invalid("a depot signs its request with its key"));
    };
    if in_use.items.len() > MAX_GRANTS_IN_USE {
        return Err(invalid(format!("items: at most {MAX_GRANTS_IN_USE}")));
    }
    let circuits: Vec<Option<CircuitName>> = in_use
        .items
        .iter()
        .map(|item| item.circuit.parse().ok())
        .collect();
    let operator = controller.asker(&controller.operator());
    let found: Vec<Option<Reservation>> = controller
        .book()
        .read(|desk, now| {
            let show = |circuit: &Option<CircuitName>| {
                let id = ReservationId(circuit.as_ref()?.reservation);
                desk.show(&operator, id, now).ok()
            };
            circuits.iter().map(show).collect()
        })
        .await?;
    let circuits = circuits.into_iter().zip(found);
    let items = in_use.items.into_iter().zip(circuits).map(|(item, found)| {
        let renewed = match found {
            (Some(circuit), Some(reservation)) => {
                renewed(&controller, &item, circuit, &reservation, &depot)
            }
            _ => Err("there is no such reservation any more".to_owned()),
        };
        let (grant, ended) = match renewed {
            Ok(grant) => (Some(grant), None),
            Err(why) => (None, Some(why)),
        };
        Renewal {
            circuit: item.circuit,
            holder: item.holder,
            grant,
            ended,
        }
    });
    Ok(Json(Renewals {
        items: items.collect(),
    }))
}

/// Refuses while the store does not answer, as recent cancellations are unknown.
fn require_store(controller: &Controller) -> Result<(), Problem> {
    match controller.leadership() {
        Leadership::Lost => Err(Problem::new(
            ProblemKind::Unavailable,
            "this controller's store does not answer: ask another one",
        )),
        _ => Ok(()),
    }
}

/// Renews one grant, or returns the reason why it has ended.
fn renewed(
    controller: &Controller,
    item: &GrantInUse,
    circuit: CircuitName,
    reservation: &Reservation,
    depot: &PublicKey,
) -> Result<String, String> {
    let holder: PublicKey = item
        .holder
        .parse()
        .map_err(|_| "the holder is not a key, lhk1:...".to_owned())?;
    let settings = controller.settings();
    let user = match holder == settings.key {
        // The operator has no key over the socket, so its grants have the controller's key.
        true => controller.operator(),
        false => controller.caller(holder),
    };
    may_use(controller, &user, reservation).map_err(|refused| refused.to_string())?;
    let places = controller.places();
    let now = controller.book().now();
    let map = &places.known.map;
    renewal(
        reservation,
        circuit,
        depot,
        map,
        holder,
        &settings.signer,
        now,
    )
    .map_err(|no| no.to_string())
}

/// Checks that sessions of `user` may use a reservation's paths, which requires the right to set it
/// up.
fn may_use(
    controller: &Controller,
    user: &Caller,
    reservation: &Reservation,
) -> Result<(), authority::AccessDenied> {
    let subject = Subject::own_if(reservation.owner == controller.asker(user).owner);
    controller.allow(user, Resource::Reservations, Permission::Signal, &subject)
}
