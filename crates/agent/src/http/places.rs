//! Places, their directories, and changes of names in them.

use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use longhaul_api::authorized_keys::KeyRole;
use longhaul_api::problem::{JsonBody, PathParams, QueryParams};
use longhaul_api::{Caller, Problem, ProblemKind};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;
use crate::places::{
    FilePage, Place, PlaceAnswer, PlaceChange, PlaceError, PlaceErrorKind, PlaceRoot,
};

/// Maximum time for an answer from a place. A login through a jump host takes seconds, the removal
/// of a large directory longer.
const PLACE_TIMEOUT: Duration = Duration::from_secs(120);
/// Default and maximum number of entries in one answer.
const DEFAULT_ENTRIES: u32 = 5000;
const MAX_ENTRIES: u32 = 20_000;

impl From<PlaceError> for Problem {
    fn from(error: PlaceError) -> Self {
        let kind = match error.kind {
            PlaceErrorKind::Invalid => ProblemKind::Invalid,
            PlaceErrorKind::NotFound => ProblemKind::NotFound,
            PlaceErrorKind::Denied => ProblemKind::Forbidden,
            PlaceErrorKind::Conflict => ProblemKind::Conflict,
            PlaceErrorKind::Unreachable => ProblemKind::Unreachable,
        };
        Self::new(kind, error.detail)
    }
}

/// Waits for a place, with a time limit.
async fn with_timeout<T>(answer: PlaceAnswer<'_, T>) -> Result<T, PlaceError> {
    timeout(PLACE_TIMEOUT, answer).await.unwrap_or_else(|_| {
        Err(PlaceError {
            kind: PlaceErrorKind::Unreachable,
            detail: format!(
                "it did not answer within {} s: test the place",
                PLACE_TIMEOUT.as_secs()
            ),
        })
    })
}

/// All places.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlaceList {
    /// Built-in places first, then by name.
    pub items: Vec<Place>,
}

/// Returns the endpoints of this module.
pub(super) fn endpoints() -> OpenApiRouter<ApiState> {
    OpenApiRouter::default()
        .routes(routes!(places))
        .routes(routes!(put, remove))
        .routes(routes!(test))
        .routes(routes!(files))
        .routes(routes!(mkdir))
        .routes(routes!(rename))
        .routes(routes!(remove_files))
}

#[utoipa::path(get, path = "/places", responses((status = OK, body = PlaceList), Problem))]
pub(super) async fn places(
    State(service): State<ApiState>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<PlaceList>, Problem> {
    let mut items = service.agent.settings().places.clone();
    items.extend(service.agent.store().places(&caller.user).await?);
    Ok(Json(PlaceList { items }))
}

/// Creates a place, or changes the root of one.
#[utoipa::path(
    put,
    path = "/places/{name}",
    params(("name" = String, Path)),
    request_body = PlaceRoot,
    responses((status = OK, body = Place), Problem)
)]
pub(super) async fn put(
    State(service): State<ApiState>,
    Extension(caller): Extension<Caller>,
    PathParams(name): PathParams<String>,
    JsonBody(root): JsonBody<PlaceRoot>,
) -> Result<Json<Place>, Problem> {
    let place = Place::new(&name, &root.root)
        .map_err(|error| Problem::new(ProblemKind::Invalid, error.to_string()))?;
    if service.builtin(&name).is_some() {
        return Err(Problem::new(
            ProblemKind::Conflict,
            format!("{name} is built in: choose another name"),
        ));
    }
    service
        .agent
        .store()
        .put_place(&caller.user, &place)
        .await?;
    Ok(Json(place))
}

/// Removes a place from the list. Its files stay.
#[utoipa::path(
    delete,
    path = "/places/{name}",
    params(("name" = String, Path)),
    responses((status = NO_CONTENT), Problem)
)]
pub(super) async fn remove(
    State(service): State<ApiState>,
    Extension(caller): Extension<Caller>,
    PathParams(name): PathParams<String>,
) -> Result<StatusCode, Problem> {
    match service
        .agent
        .store()
        .remove_place(&caller.user, &name)
        .await?
    {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(place_not_found(&name)),
    }
}

fn place_not_found(name: &str) -> Problem {
    Problem::new(ProblemKind::NotFound, format!("there is no place {name:?}"))
}

/// Result of a test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlaceTest {
    /// If true, the place answers.
    pub ok: bool,
    /// Answer of the place, or the problem and its remedy, in one line.
    pub detail: String,
}

/// Tests if a place can be reached, and reports the problem if not.
#[utoipa::path(
    post,
    path = "/places/{name}/test",
    params(("name" = String, Path)),
    responses((status = OK, body = PlaceTest), Problem)
)]
pub(super) async fn test(
    State(service): State<ApiState>,
    Extension(caller): Extension<Caller>,
    PathParams(name): PathParams<String>,
) -> Result<Json<PlaceTest>, Problem> {
    let root = match service.builtin(&name) {
        Some(place) => place.root.clone(),
        None => {
            let places = service.agent.store().places(&caller.user).await?;
            let place = places.into_iter().find(|place| place.name == name);
            place.ok_or_else(|| place_not_found(&name))?.root
        }
    };
    let browse = &service.agent.settings().browse;
    let (ok, detail) = match with_timeout(browse.list(&root, None, 1)).await {
        Ok(page) if page.entries.is_empty() => (true, "it answers, and is empty".to_owned()),
        Ok(_) => (true, "it answers".to_owned()),
        Err(error) => (false, error.detail),
    };
    Ok(Json(PlaceTest { ok, detail }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Location of the directory.
    #[param(min_length = 1, max_length = 4096, example = "/data/")]
    at: String,
    /// Only names after this one: `next` of the previous page.
    after: Option<String>,
    /// Maximum number of entries in one answer, 5000 by default. An answer may have fewer although
    /// others follow.
    #[param(minimum = 1, maximum = 20000)]
    limit: Option<u32>,
}

/// Entries of a directory.
#[utoipa::path(
    get,
    path = "/files",
    params(ListQuery),
    responses((status = OK, body = FilePage), Problem)
)]
pub(super) async fn files(
    State(service): State<ApiState>,
    role: Option<Extension<KeyRole>>,
    QueryParams(query): QueryParams<ListQuery>,
) -> Result<Json<FilePage>, Problem> {
    // To list a directory on another host, the agent connects and logs in there.
    let is_reader = role.is_some_and(|Extension(role)| role == KeyRole::Read);
    if is_reader && !is_local(&query.at) {
        return Err(Problem::new(
            ProblemKind::Forbidden,
            "this key may only read, and this directory is on another host: name a directory of \
             the agent's machine, or use a key with the right to do all",
        ));
    }
    let limit = query.limit.unwrap_or(DEFAULT_ENTRIES);
    if !(1..=MAX_ENTRIES).contains(&limit) {
        return Err(Problem::new(
            ProblemKind::Invalid,
            format!("limit: between 1 and {MAX_ENTRIES}"),
        ));
    }
    let browse = &service.agent.settings().browse;
    Ok(Json(
        with_timeout(browse.list(&query.at, query.after.as_deref(), limit)).await?,
    ))
}

/// Returns true if a location is on this machine, which means an absolute path.
fn is_local(location: &str) -> bool {
    location.starts_with('/')
}

async fn change(service: &ApiState, change: PlaceChange) -> Result<StatusCode, Problem> {
    with_timeout(service.agent.settings().browse.change(&change)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Directory to create.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewDirectory {
    /// Location of the directory.
    #[schema(min_length = 1, max_length = 4096, example = "/data/new")]
    pub at: String,
}

#[utoipa::path(
    post,
    path = "/files/mkdir",
    request_body = NewDirectory,
    responses((status = NO_CONTENT), Problem)
)]
pub(super) async fn mkdir(
    State(service): State<ApiState>,
    JsonBody(asked): JsonBody<NewDirectory>,
) -> Result<StatusCode, Problem> {
    change(&service, PlaceChange::MakeDirectory { at: asked.at }).await
}

/// New name of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewName {
    /// Location of the entry.
    #[schema(min_length = 1, max_length = 4096, example = "/data/run-7")]
    pub from: String,
    /// New location, in the same place.
    #[schema(min_length = 1, max_length = 4096, example = "/data/run-8")]
    pub to: String,
    /// If true, an existing file is replaced.
    #[serde(default)]
    pub overwrite: bool,
}

#[utoipa::path(
    post,
    path = "/files/rename",
    request_body = NewName,
    responses((status = NO_CONTENT), Problem)
)]
pub(super) async fn rename(
    State(service): State<ApiState>,
    JsonBody(asked): JsonBody<NewName>,
) -> Result<StatusCode, Problem> {
    let NewName {
        from,
        to,
        overwrite,
    } = asked;
    change(
        &service,
        PlaceChange::Rename {
            from,
            to,
            overwrite,
        },
    )
    .await
}

/// Entry to remove.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Removal {
    /// Location of the entry.
    #[schema(min_length = 1, max_length = 4096, example = "/data/run-6")]
    pub at: String,
    /// If true, a directory is removed with all its content.
    #[serde(default)]
    pub recursive: bool,
}

#[utoipa::path(
    post,
    path = "/files/remove",
    request_body = Removal,
    responses((status = NO_CONTENT), Problem)
)]
pub(super) async fn remove_files(
    State(service): State<ApiState>,
    JsonBody(asked): JsonBody<Removal>,
) -> Result<StatusCode, Problem> {
    let Removal { at, recursive } = asked;
    change(&service, PlaceChange::Remove { at, recursive }).await
}
