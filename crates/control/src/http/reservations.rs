//! Reservations of bandwidth.

use axum::extract::{FromRequest, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use longhaul_api::problem::{JsonBody, PathParams, QueryParams};
use longhaul_api::{Caller, Problem, ProblemKind};
use longhaul_circuits::ledger::ReservationId;
use longhaul_circuits::path::MAX_VIA;
use longhaul_circuits::split::MAX_PATHS;
use longhaul_control_api::reservations::{
    CancelQuery, NotLeadingProblem, RefusedProblem, Reservation, ReservationChange,
    ReservationPage, ReservationQuery, ReservationRequest, Reserved, RouteConstraints,
};
use serde::Serialize;

use super::{idempotency_key, invalid, limit};
use crate::controller::Controller;
use crate::places::MapIndex;
use crate::reservations::document;
use crate::reservations::recurrence::windows;
use crate::reservations::streams::{EndAddresses, addresses};
use crate::reservations::wanted::{InvalidReservation, ReservationEnd, request_window};
use crate::reservations::writer::AskError;
use crate::reservations::{ReservationCommand, ReservationError, book_moment, reported};
use crate::store::{IdempotencyKey, StoreError};

/// Maximum length of an end's, a site's or a link's name, in bytes.
const MAX_NAME_BYTES: usize = 253;
/// Maximum number of sites, and of links, to avoid.
const MAX_AVOIDED: usize = 100;
/// Maximum number of sites of a named path.
const MAX_PATH_SITES: usize = 100;
/// Maximum length of a description, in bytes.
const MAX_DESCRIPTION_BYTES: usize = 200;
/// Default number of reservations in one answer.
const DEFAULT_LIMIT: u32 = 100;
/// Maximum number of reservations in one answer.
const MAX_LIMIT: u32 = 1000;

/// Media types of signed requests, compact and flattened (RFC 7515, section 9.2.1).
const SIGNED_MEDIA_TYPES: [&str; 2] = ["application/jose", "application/jose+json"];

/// Value of `Retry-After`, in seconds, if another controller or none yet leads.
const RETRY_AFTER_S: &str = "1";

/// Refusal of a request: a problem, with the proof if there is not enough bandwidth.
#[derive(Debug)]
pub enum RequestRefusal {
    /// Problem of another kind.
    Problem(Problem),
    /// There is not enough bandwidth.
    InsufficientBandwidth(Box<RefusedProblem>),
    /// Another controller leads.
    NotLeading(Box<NotLeadingProblem>),
}

impl From<Problem> for RequestRefusal {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl From<StoreError> for RequestRefusal {
    fn from(error: StoreError) -> Self {
        Self::Problem(error.into())
    }
}

impl From<AskError> for RequestRefusal {
    fn from(error: AskError) -> Self {
        let detail = error.to_string();
        let kind = match error {
            AskError::Store(StoreError::NotLeading { leader }) => {
                let Problem {
                    kind,
                    title,
                    status,
                    detail,
                } = Problem::new(ProblemKind::NotLeading, detail);
                return Self::NotLeading(Box::new(NotLeadingProblem {
                    kind,
                    title,
                    status,
                    detail,
                    leader,
                }));
            }
            AskError::Store(error) => return Self::Problem(error.into()),
            AskError::Desk(ReservationError::InsufficientBandwidth(refusal)) => {
                let Problem {
                    kind,
                    title,
                    status,
                    detail,
                } = Problem::new(ProblemKind::InsufficientBandwidth, detail);
                return Self::InsufficientBandwidth(Box::new(RefusedProblem {
                    kind,
                    title,
                    status,
                    detail,
                    refusal: *refusal,
                }));
            }
            AskError::Desk(ReservationError::Unknown(_)) => ProblemKind::NotFound,
            AskError::Desk(
                ReservationError::Forbidden(_)
                | ReservationError::Policy(_)
                | ReservationError::Quota(_),
            ) => ProblemKind::Forbidden,
            AskError::Desk(ReservationError::Wanted(_) | ReservationError::Request(_)) => {
                ProblemKind::Invalid
            }
            AskError::Desk(ReservationError::NotNow(..)) => ProblemKind::Conflict,
            AskError::Desk(ReservationError::Fault(_)) => ProblemKind::Unavailable,
        };
        Self::Problem(Problem::new(kind, detail))
    }
}

impl IntoResponse for RequestRefusal {
    fn into_response(self) -> Response {
        match self {
            Self::Problem(problem) => problem.into_response(),
            Self::InsufficientBandwidth(refused) => problem_response(StatusCode::CONFLICT, refused),
            Self::NotLeading(refused) => {
                let mut response = problem_response(StatusCode::SERVICE_UNAVAILABLE, refused);
                let headers = response.headers_mut();
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_S));
                response
            }
        }
    }
}

/// Creates the response for a problem document with additional fields.
fn problem_response(status: StatusCode, problem: impl Serialize) -> Response {
    let mut response = (status, Json(problem)).into_response();
    let problem_json = HeaderValue::from_static("application/problem+json");
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, problem_json);
    response
}

/// Executes a command, at most once if the request has an idempotency key.
async fn execute(
    controller: &Controller,
    caller: &Caller,
    headers: &HeaderMap,
    content: &impl Serialize,
    command: ReservationCommand,
) -> Result<Reserved, RequestRefusal> {
    let mut once = idempotency_key(caller, headers, content)?;
    if let Some(once) = &mut once {
        // A prefix separates these keys from those whose answers are stored elsewhere.
        once.principal.insert_str(0, "reservations ");
    }
    execute_once(controller, caller, once, command).await
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
    let read = id.parse().ok().and_then(reported::id);
    read.ok_or_else(|| {
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

/// Requests bandwidth between two ends. A signed document (JWS, RFC 7515) is a request of its
/// signer. The answer is sent once the grant is on disk.
#[utoipa::path(
    post,
    path = "/api/v1/reservations",
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
        (status = "default", body = Problem, content_type = "application/problem+json")
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
            let command = wish(&controller, &caller, (*request).clone(), None).await?;
            execute(
                &controller,
                &caller,
                &headers,
                &("reserve", &request),
                command,
            )
            .await?
        }
        SubmittedRequest::Signed(text) => {
            let now = book_moment(controller.book().now());
            let settings = controller.settings();
            let read = document::verify(&text, &settings.roots, &settings.key, now);
            let document = read.map_err(|fault| invalid(fault.to_string()))?;
            let signer = controller.caller(document.key);
            // The same document is the same request, whoever sends it, for as long as it is valid.
            let content = serde_json::to_vec(&document.request).unwrap_or_default();
            let once = IdempotencyKey::new(
                &format!("documents {}", document.key),
                &document.id,
                &content,
            );
            let command = wish(&controller, &signer, document.request, Some(text)).await?;
            controller.log().log(Some(&caller), |left_out| {
                tracing::info!(
                    by = caller.user,
                    signed = signer.user,
                    left_out,
                    "a signed request was received"
                );
            });
            execute_once(&controller, &signer, Some(once), command).await?
        }
    };
    Ok((StatusCode::CREATED, Json(reserved)))
}

/// Converts a request into a command, with the ends as on the map.
async fn wish(
    controller: &Controller,
    caller: &Caller,
    mut request: ReservationRequest,
    document: Option<String>,
) -> Result<ReservationCommand, RequestRefusal> {
    check(&request).map_err(invalid)?;
    request
        .check_options()
        .map_err(|conflict| invalid(conflict.to_string()))?;
    let leadership = controller.leadership();
    if leadership.term().is_none() {
        // A controller that does not lead may have an outdated map.
        let leader = leadership.leader_url().map(str::to_owned);
        return Err(AskError::Store(StoreError::NotLeading { leader }).into());
    }
    let places = controller.places();
    let (mut from, mut to) = (
        place(&places, "from", &request.from)?,
        place(&places, "to", &request.to)?,
    );
    let constraints = &mut request.constraints;
    resolve_sites(&places, constraints)?;
    // A path that begins at the end's own site needs no right to begin elsewhere.
    constraints.ingress.take_if(|site| *site == from.site);
    constraints.egress.take_if(|site| *site == to.site);
    from.path_site.clone_from(&constraints.ingress);
    to.path_site.clone_from(&constraints.egress);
    address(&places, caller, &request, &mut from, &mut to)
        .map_err(|fault| invalid(fault.to_string()))?;
    let speaker = controller.speaker(caller);
    let is_end = speaker
        .is_some_and(|speaker| speaker.speaks_for(&from.name) || speaker.speaks_for(&to.name));
    let now = book_moment(controller.book().now());
    let first = request_window(request.start_ms, request.end_ms, now)
        .map_err(|fault| invalid(fault.to_string()))?;
    let windows = match request.recurrence.clone() {
        None => vec![first],
        Some(recurrence) => {
            // The expansion of a rule can take some time.
            let found = tokio::task::spawn_blocking(move || windows(first, &recurrence)).await;
            let found = found.map_err(|_| invalid("recurrence: the rule cannot be expanded"))?;
            found.map_err(|fault| invalid(fault.to_string()))?
        }
    };
    Ok(ReservationCommand::Reserve {
        request: Box::new(request),
        from,
        to,
        windows,
        is_end,
        document,
    })
}

/// Checks that a request is valid, as far as that does not depend on the book.
fn check(request: &ReservationRequest) -> Result<(), String> {
    let is_name = |name: &str| {
        (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.chars().any(char::is_control)
    };
    let avoided = request.avoid_sites.iter().chain(&request.avoid_links);
    if !is_name(&request.from)
        || !is_name(&request.to)
        || !avoided.clone().all(|name| is_name(name))
    {
        return Err(format!(
            "from, to, avoid_sites, avoid_links: 1 to {MAX_NAME_BYTES} bytes"
        ));
    }
    let RouteConstraints {
        via,
        only_links,
        ingress,
        egress,
        paths,
        ..
    } = &request.constraints;
    let of_paths = paths.iter().flat_map(|path| &path.sites);
    let mut named = via.iter().chain(only_links).chain(ingress).chain(egress);
    if !named.all(|name| is_name(name)) || !of_paths.clone().all(|name| is_name(name)) {
        return Err(format!(
            "constraints: names have 1 to {MAX_NAME_BYTES} bytes"
        ));
    }
    let is_long = paths
        .iter()
        .any(|path| !(2..=MAX_PATH_SITES).contains(&path.sites.len()));
    if via.len() > MAX_VIA || only_links.len() > MAX_AVOIDED || paths.len() > MAX_PATHS || is_long {
        return Err(format!(
            "constraints: at most {MAX_VIA} sites in via, {MAX_AVOIDED} links, and {MAX_PATHS} \
             paths of 2 to {MAX_PATH_SITES} sites"
        ));
    }
    if request.avoid_sites.len() > MAX_AVOIDED || request.avoid_links.len() > MAX_AVOIDED {
        return Err(format!("avoid_sites, avoid_links: at most {MAX_AVOIDED}"));
    }
    let is_long =
        |text: &String| text.len() > MAX_DESCRIPTION_BYTES || text.chars().any(char::is_control);
    if request.description.as_ref().is_some_and(is_long) {
        return Err(format!(
            "description: one line of at most {MAX_DESCRIPTION_BYTES} bytes"
        ));
    }
    Ok(())
}

/// Replaces the names of hosts and depots in constraints by those of their sites. Neighbours on a
/// named path that are at the same site are one.
fn resolve_sites(places: &MapIndex, constraints: &mut RouteConstraints) -> Result<(), Problem> {
    let RouteConstraints {
        via,
        ingress,
        egress,
        paths,
        ..
    } = constraints;
    let named = via.iter_mut().map(|name| ("via", name));
    let named = named.chain(ingress.iter_mut().map(|name| ("ingress", name)));
    let named = named.chain(egress.iter_mut().map(|name| ("egress", name)));
    let of_paths = paths.iter_mut().flat_map(|path| &mut path.sites);
    for (what, name) in named.chain(of_paths.map(|name| ("path", name))) {
        *name = place(places, what, name)?.site;
    }
    for path in paths {
        path.sites.dedup();
    }
    Ok(())
}

fn place(places: &MapIndex, what: &str, name: &str) -> Result<ReservationEnd, Problem> {
    places.place(name).ok_or_else(|| {
        let detail = format!(
            "{what}: no host, depot or site of the map is called {name}: longhaul map lists them"
        );
        Problem::new(ProblemKind::NotFound, detail)
    })
}

/// Finds the addresses of both ends. The operator may name any. Others may name only those that the
/// map lists for the end, so that nobody can have another host's streams set up.
fn address(
    places: &MapIndex,
    caller: &Caller,
    request: &ReservationRequest,
    from: &mut ReservationEnd,
    to: &mut ReservationEnd,
) -> Result<(), InvalidReservation> {
    let known = [&from, &to].map(|end| places.addresses(&end.name));
    let [of_from, of_to] = &known;
    let end = |option, asked, known| EndAddresses {
        option,
        asked,
        known,
        is_free: caller.key.is_none(),
    };
    let found = addresses(
        end("from_address", request.from_address.as_deref(), of_from),
        end("to_address", request.to_address.as_deref(), of_to),
    )?;
    (from.address, to.address) = found;
    Ok(())
}

/// Reservations that the caller may see, ordered by ID.
#[utoipa::path(
    get,
    path = "/api/v1/reservations",
    params(ReservationQuery),
    responses(
        (status = OK, body = ReservationPage),
        (status = "default", body = Problem, content_type = "application/problem+json")
    )
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
    let next = items
        .last()
        .filter(|_| is_more)
        .map(|last| last.id.to_string());
    Ok(Json(ReservationPage { items, next }))
}

/// A reservation.
#[utoipa::path(
    get,
    path = "/api/v1/reservations/{id}",
    params(("id" = u64, Path)),
    responses(
        (status = OK, body = Reservation),
        (status = "default", body = Problem, content_type = "application/problem+json")
    )
)]
pub async fn show(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    PathParams(id): PathParams<String>,
) -> Result<Json<Reservation>, RequestRefusal> {
    let id = read_id(&id)?;
    let asker = controller.asker(&caller);
    let found = controller
        .book()
        .read(|desk, now| desk.show(&asker, id, now))
        .await?;
    let mut found = found.map_err(AskError::from)?;
    controller.circuits().add_circuit_state(&mut found);
    Ok(Json(found))
}

/// Signed document that requested a reservation, as it was received: proof of who requested it.
#[utoipa::path(
    get,
    path = "/api/v1/reservations/{id}/document",
    params(("id" = u64, Path)),
    responses(
        (status = OK, body = String, content_type = "application/jose"),
        (status = "default", body = Problem, content_type = "application/problem+json")
    )
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
    path = "/api/v1/reservations/{id}",
    params(("id" = u64, Path)),
    request_body = ReservationChange,
    responses(
        (status = OK, body = Reserved),
        (status = CONFLICT, body = RefusedProblem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json")
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
    path = "/api/v1/reservations/{id}",
    params(("id" = u64, Path), CancelQuery),
    responses(
        (status = OK, body = Reserved),
        (status = "default", body = Problem, content_type = "application/problem+json")
    )
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
    let content = ("cancel", id, series);
    Ok(Json(
        execute(&controller, &caller, &headers, &content, command).await?,
    ))
}

/// Commits what is held, with all that was granted together with it.
#[utoipa::path(
    post,
    path = "/api/v1/reservations/{id}/commit",
    params(("id" = u64, Path)),
    responses(
        (status = OK, body = Reserved),
        (status = "default", body = Problem, content_type = "application/problem+json")
    )
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
    path = "/api/v1/reservations/{id}/abort",
    params(("id" = u64, Path)),
    responses(
        (status = OK, body = Reserved),
        (status = "default", body = Problem, content_type = "application/problem+json")
    )
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
    path = "/api/v1/reservations/{id}/provision",
    params(("id" = u64, Path)),
    responses(
        (status = OK, body = Reserved),
        (status = "default", body = Problem, content_type = "application/problem+json")
    )
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
    path = "/api/v1/reservations/{id}/release",
    params(("id" = u64, Path)),
    responses(
        (status = OK, body = Reserved),
        (status = "default", body = Problem, content_type = "application/problem+json")
    )
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
