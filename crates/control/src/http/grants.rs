//! Grants of reservations' paths, for the key that asks.

use axum::extract::State;
use axum::{Extension, Json};
use longhaul_api::problem::Named;
use longhaul_api::{Caller, Problem, ProblemKind};
use longhaul_control_api::principals::{Permission, Resource};
use longhaul_control_api::reservations::PathGrants;

use super::reservations::{Refused, read_id};
use crate::authority::Subject;
use crate::circuits::grants::{NoGrants, grants};
use crate::controller::Controller;
use crate::reservations::writer::AskError;

/// What lets the asker's sessions use a reservation's paths at the depots on them, now or in the next stretch of its time. For who may set it up.
#[utoipa::path(get, path = "/api/v1/reservations/{id}/grants", params(("id" = u64, Path)), responses((status = OK, body = PathGrants), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub async fn list(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    Named(id): Named<String>,
) -> Result<Json<PathGrants>, Refused> {
    let id = read_id(&id)?;
    // Whoever asks over the socket has no key of its own: its sessions have the controller's.
    let holder = caller.key.unwrap_or(controller.settings().key);
    let asker = controller.asker(&caller);
    let found = controller
        .book()
        .read(|desk, now| desk.show(&asker, id, now))
        .await?;
    let reservation = found.map_err(AskError::from)?;
    let subject = Subject::own_if(reservation.owner == asker.owner);
    controller
        .allow(&caller, Resource::Reservations, Permission::Signal, &subject)
        .map_err(|refused| Problem::new(ProblemKind::Forbidden, refused.to_string()))?;
    let places = controller.places();
    let now = controller.book().now();
    let signer = &controller.settings().signer;
    let found = grants(&reservation, &places.known.map, holder, signer, now).map_err(|no| {
        let kind = match no {
            NoGrants::Sign(_) => ProblemKind::Unavailable,
            NoGrants::Released(_) | NoGrants::Over(_) => ProblemKind::Conflict,
        };
        Problem::new(kind, no.to_string())
    })?;
    Ok(Json(found))
}
