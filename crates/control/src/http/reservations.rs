//! Reservations of bandwidth.

mod refusal;

use axum::extract::{FromRequest, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use longhaul_api::problem::{JsonBody, PathParams, QueryParams};
use longhaul_api::{Caller, Problem, ProblemKind};
use longhaul_circuits::ledger::ReservationId;
use longhaul_control_api::reservations::{
    CancelQuery, NotLeadingProblem, RefusedProblem, Reservation, ReservationChange,
    ReservationPage, ReservationQuery, ReservationRequest, Reserved,
};
use serde::Serialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::domains::add_domain_state;
use super::{idempotency_key, invalid, limit};
use crate::controller::Controller;
use crate::reservations::document;
use crate::reservations::writer::AskError;
use crate::reservations::{ReservationCommand, book_moment};
use crate::store::IdempotencyKey;

pub use refusal::RequestRefusal;

/// Default number of reservations in one answer.
const DEFAULT_LIMIT: u32 = 100;
/// Maximum number of reservations in one answer.
const MAX_LIMIT: u32 = 1000;

/// Media types of signed requests, compact and flattened (RFC 7515, section 9.2.1).
const SIGNED_MEDIA_TYPES: [&str; 2] = ["application/jose", "application/jose+json"];

/// Executes a command, at most once if the request has an idempotency key.
async fn execute(
    controller: &Controller,
    caller: &Caller,
    headers: &HeaderMap,
    content: &impl Serialize,
    command: ReservationCommand,
) -> Result<Reserved, RequestRefusal> {
    let once = reservation_key(caller, headers, content)?;
    execute_once(controller, caller, once, command).await
}

/// Returns the idempotency key of a request about reservations.
fn reservation_key(
    caller: &Caller,
    headers: &HeaderMap,
    content: &impl Serialize,
) -> Result<Option<IdempotencyKey>, Problem> {
    let mut once = idempotency_key(caller, headers, content)?;
    if let Some(once) = &mut once {
        // A prefix separates these keys from those whose answers are stored elsewhere.
        once.principal.insert_str(0, "reservations ");
    }
    Ok(once)
}

async fn execute_once(
    controller: &Controller,
    caller: &Caller,
    once: Option<IdempotencyKey>,
    command: ReservationCommand,
) -> Result<Reserved, RequestRefusal> {
    let mut reserved = controller
        .book()
        .execute(controller.asker(caller), command, once)
        .await?;
    let circuits = controller.circuits();
    reserved
        .reservations
        .iter_mut()
        .for_each(|one| circuits.add_circuit_state(one));
    let ids: Vec<u64> = reserved.reservations.iter().map(|one| one.id).collect();
    controller.log().log(Some(caller), |left_out| {
        tracing::info!(
            by = caller.user,
            ?ids,
            left_out,
            "reservations were changed"
        )
    });
    Ok(reserved)
}

/// Executes a command that needs only a reservation's number. `word` distinguishes requests with
/// the same idempotency key.
async fn act_on(
    controller: &Controller,
    caller: &Caller,
    headers: &HeaderMap,
    id: &str,
    word: &'static str,
    command: fn(ReservationId) -> ReservationCommand,
) -> Result<Json<Reserved>, RequestRefusal> {
    let id = read_id(id)?;
    Ok(Json(
        execute(controller, caller, headers, &(word, id), command(id)).await?,
    ))
}

pub(super) fn read_id(id: &str) -> Result<ReservationId, Problem> {
    id.parse().map(ReservationId).map_err(|_| {
        Problem::new(
            ProblemKind::NotFound,
            "no such reservation: a number is expected",
        )
    })
}

/// Reservation request in one of its forms.
#[derive(Debug)]
pub enum SubmittedRequest {
    /// Plain request, made by the caller.
    Plain(Box<ReservationRequest>),
    /// Signed document, made by its signer.
    Signed(String),
}

impl<S: Send + Sync> FromRequest<S> for SubmittedRequest {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let kind = request.headers().get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if !SIGNED_MEDIA_TYPES
            .iter()
            .any(|signed| kind.eq_ignore_ascii_case(signed))
        {
            let JsonBody(request) = JsonBody::from_request(request, state).await?;
            return Ok(Self::Plain(Box::new(request)));
        }
        let text = String::from_request(request, state).await;
        text.map(Self::Signed)
            .map_err(|rejection| invalid(rejection.body_text()))
    }
}

/// Returns the endpoints of this module.
pub(super) fn endpoints() -> OpenApiRouter<Controller> {
    OpenApiRouter::default()
        .routes(routes!(reserve, list))
        .routes(routes!(show, change, cancel))
        .routes(routes!(document))
        .routes(routes!(commit))
        .routes(routes!(abort))
        .routes(routes!(provision))
        .routes(routes!(release))
}

/// Requests bandwidth between two ends. A signed document (JWS, RFC 7515) is a request of its
/// signer. The answer is sent once the grant is on disk.
#[utoipa::path(
    post,
    path = "/reservations",
    request_body(
        content(
            (ReservationRequest = "application/json"),
            (String = "application/jose"),
            (String = "application/jose+json")
        )
    ),
    responses(
        (status = CREATED, body = Reserved),
        (status = CONFLICT, body = RefusedProblem, content_type = "application/problem+json"),
        (
            status = SERVICE_UNAVAILABLE,
            body = NotLeadingProblem,
            content_type = "application/problem+json"
        ),
        Problem
    )
)]
pub async fn reserve(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    wanted: SubmittedRequest,
) -> Result<(StatusCode, Json<Reserved>), RequestRefusal> {
    let reserved = match wanted {
        SubmittedRequest::Plain(request) => {
            let (owner, command) = controller
                .reservation_command(&caller, (*request).clone(), None)
                .await?;
            let once = reservation_key(&caller, &headers, &("reserve", &request))?;
            if owner != caller {
                controller.log().log(Some(&caller), |left_out| {
                    tracing::info!(
                        by = caller.user,
                        owner = owner.user,
                        left_out,
                        "a delegate's request was received"
                    );
                });
            }
            execute_once(&controller, &owner, once, command).await?
        }
        SubmittedRequest::Signed(text) => {
            let now = book_moment(controller.book().now());
            let settings = controller.settings();
            let read = document::verify(&text, &settings.roots, &settings.key, now);
            let document = read.map_err(|fault| invalid(fault.to_string()))?;
            let signer = controller.caller(document.key);
            // While it is valid, the same document is the same request, no matter who sends it.
            let content = serde_json::to_vec(&document.request).unwrap_or_default();
            let once = IdempotencyKey::new(
                &format!("documents {}", document.key),
                &document.id,
                &content,
            );
            let (owner, command) = controller
                .reservation_command(&signer, document.request, Some(text))
                .await?;
            controller.log().log(Some(&caller), |left_out| {
                tracing::info!(
                    by = caller.user,
                    signed = signer.user,
                    left_out,
                    "a signed request was received"
                );
            });
            execute_once(&controller, &owner, Some(once), command).await?
        }
    };
    Ok((StatusCode::CREATED, Json(reserved)))
}

/// Reservations that the caller may see, ordered by ID.
#[utoipa::path(
    get,
    path = "/reservations",
    params(ReservationQuery),
    responses((status = OK, body = ReservationPage), Problem)
)]
pub async fn list(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    QueryParams(query): QueryParams<ReservationQuery>,
) -> Result<Json<ReservationPage>, Problem> {
    let limit =
        usize::try_from(limit(query.limit, DEFAULT_LIMIT, MAX_LIMIT)?).unwrap_or(usize::MAX);
    let after = u64::try_from(super::cursor(query.after.as_deref())?).unwrap_or(0);
    let asker = controller.asker(&caller);
    let look = |desk: &crate::reservations::ReservationStore, now| {
        desk.list(&asker, &query, after, limit, now)
    };
    let (mut items, is_more) = controller.book().read(look).await?;
    items
        .iter_mut()
        .for_each(|one| controller.circuits().add_circuit_state(one));
    add_domain_state(&controller, &mut items);
    let next = items
        .last()
        .filter(|_| is_more)
        .map(|last| last.id.to_string());
    Ok(Json(ReservationPage { items, next }))
}

/// A reservation.
#[utoipa::path(
    get,
    path = "/reservations/{id}",
    params(("id" = u64, Path)),
    responses((status = OK, body = Reservation), Problem)
)]
pub async fn show(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    PathParams(id): PathParams<String>,
) -> Result<Json<Reservation>, RequestRefusal> {
    let id = read_id(&id)?;
    let asker = controller.asker(&controller.acting_for(&caller, id).await?);
    let found = controller
        .book()
        .read(|desk, now| desk.show(&asker, id, now))
        .await?;
    let mut found = found.map_err(AskError::from)?;
    controller.circuits().add_circuit_state(&mut found);
    add_domain_state(&controller, std::slice::from_mut(&mut found));
    Ok(Json(found))
}

/// Signed document that requested a reservation, as it was received: proof of who requested it.
#[utoipa::path(
    get,
    path = "/reservations/{id}/document",
    params(("id" = u64, Path)),
    responses((status = OK, body = String, content_type = "application/jose"), Problem)
)]
pub async fn document(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    PathParams(id): PathParams<String>,
) -> Result<Response, RequestRefusal> {
    let id = read_id(&id)?;
    let asker = controller.asker(&caller);
    let look = |desk: &crate::reservations::ReservationStore, _| {
        desk.document(&asker, id)
            .map(|found| found.map(str::to_owned))
    };
    let found = controller
        .book()
        .read(look)
        .await?
        .map_err(AskError::from)?;
    let text = found.ok_or_else(|| {
        Problem::new(
            ProblemKind::NotFound,
            "it was not requested with a signed document",
        )
    })?;
    let [compact, flattened] = SIGNED_MEDIA_TYPES.map(HeaderValue::from_static);
    let kind = if text.trim_start().starts_with('{') {
        flattened
    } else {
        compact
    };
    let mut response = text.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// Changes a reservation. What is promised stays valid until the change is granted and committed.
#[utoipa::path(
    patch,
    path = "/reservations/{id}",
    params(("id" = u64, Path)),
    request_body = ReservationChange,
    responses(
        (status = OK, body = Reserved),
        (status = CONFLICT, body = RefusedProblem, content_type = "application/problem+json"),
        Problem
    )
)]
pub async fn change(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    PathParams(id): PathParams<String>,
    headers: HeaderMap,
    JsonBody(change): JsonBody<ReservationChange>,
) -> Result<Json<Reserved>, RequestRefusal> {
    let id = read_id(&id)?;
    let content = ("change", id, change.clone());
    let command = ReservationCommand::Change { id, change };
    Ok(Json(
        execute(&controller, &caller, &headers, &content, command).await?,
    ))
}

/// Cancels a reservation, or with `series=true` all of its series that have not ended. Nothing of
/// it is promised any more.
#[utoipa::path(
    delete,
    path = "/reservations/{id}",
    params(("id" = u64, Path), CancelQuery),
    responses((status = OK, body = Reserved), Problem)
)]
pub async fn cancel(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    PathParams(id): PathParams<String>,
    QueryParams(query): QueryParams<CancelQuery>,
    headers: HeaderMap,
) -> Result<Json<Reserved>, RequestRefusal> {
    let id = read_id(&id)?;
    let series = query.series.unwrap_or(false);
    let command = ReservationCommand::Cancel { id, series };
    let once = reservation_key(&caller, &headers, &("cancel", id, series))?;
    let caller = controller.acting_for(&caller, id).await?;
    Ok(Json(
        execute_once(&controller, &caller, once, command).await?,
    ))
}

/// Commits what is held, with all that was granted together with it.
#[utoipa::path(
    post,
    path = "/reservations/{id}/commit",
    params(("id" = u64, Path)),
    responses((status = OK, body = Reserved), Problem)
)]
pub async fn commit(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    PathParams(id): PathParams<String>,
    headers: HeaderMap,
) -> Result<Json<Reserved>, RequestRefusal> {
    act_on(
        &controller,
        &caller,
        &headers,
        &id,
        "commit",
        ReservationCommand::Commit,
    )
    .await
}

/// Aborts what is held, with all that was granted together with it. What was promised before stays.
#[utoipa::path(
    post,
    path = "/reservations/{id}/abort",
    params(("id" = u64, Path)),
    responses((status = OK, body = Reserved), Problem)
)]
pub async fn abort(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    PathParams(id): PathParams<String>,
    headers: HeaderMap,
) -> Result<Json<Reserved>, RequestRefusal> {
    act_on(
        &controller,
        &caller,
        &headers,
        &id,
        "abort",
        ReservationCommand::Abort,
    )
    .await
}

/// Has the paths of a reservation set up in its window.
#[utoipa::path(
    post,
    path = "/reservations/{id}/provision",
    params(("id" = u64, Path)),
    responses((status = OK, body = Reserved), Problem)
)]
pub async fn provision(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    PathParams(id): PathParams<String>,
    headers: HeaderMap,
) -> Result<Json<Reserved>, RequestRefusal> {
    act_on(
        &controller,
        &caller,
        &headers,
        &id,
        "provision",
        ReservationCommand::Provision,
    )
    .await
}

/// Has the paths of a reservation torn down. What is promised stays promised.
#[utoipa::path(
    post,
    path = "/reservations/{id}/release",
    params(("id" = u64, Path)),
    responses((status = OK, body = Reserved), Problem)
)]
pub async fn release(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    PathParams(id): PathParams<String>,
    headers: HeaderMap,
) -> Result<Json<Reserved>, RequestRefusal> {
    act_on(
        &controller,
        &caller,
        &headers,
        &id,
        "release",
        ReservationCommand::Release,
    )
    .await
}
