//! Principals and roles.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use longhaul_api::problem::{JsonBody, PathParams};
use longhaul_api::{Caller, Problem, ProblemKind};
use longhaul_control_api::principals::{
    Constraint, Grant, Permission, PrincipalList, Resource, Role, RoleList,
};
use longhaul_identity::PrincipalPattern;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::invalid;
use crate::authority::{Subject, builtin_roles};
use crate::controller::Controller;

/// Maximum length of a principal's or role's name, in bytes.
const MAX_NAME_BYTES: usize = 64;
/// Maximum number of rights of a role.
const MAX_RIGHTS: usize = 100;

fn may(controller: &Controller, caller: &Caller, permission: Permission) -> Result<(), Problem> {
    Ok(controller.allow(caller, Resource::Principals, permission, &Subject::all())?)
}

/// Reads a key, a name or a group. Nothing can be granted to everybody.
fn read_principal(text: &str) -> Result<PrincipalPattern, Problem> {
    match text.parse() {
        Ok(PrincipalPattern::Anybody) | Err(_) => Err(invalid(
            "not a key, lhk1:..., which longhaul keys show prints, nor name:NAME or group:NAME",
        )),
        Ok(principal) => Ok(principal),
    }
}

fn check_name(name: &str) -> Result<(), Problem> {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte);
    match (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_of_name) {
        true => Ok(()),
        false => Err(invalid(format!(
            "a name has 1 to {MAX_NAME_BYTES} letters, digits, '.', '_', '-' and '@'"
        ))),
    }
}

/// Returns the endpoints of this module.
pub(super) fn endpoints() -> OpenApiRouter<Controller> {
    OpenApiRouter::default()
        .routes(routes!(list))
        .routes(routes!(grant, revoke))
        .routes(routes!(remove))
        .routes(routes!(roles))
        .routes(routes!(put_role, remove_role))
}

/// All principals.
#[utoipa::path(
    get,
    path = "/principals",
    responses((status = OK, body = PrincipalList), Problem)
)]
pub async fn list(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<PrincipalList>, Problem> {
    may(&controller, &caller, Permission::Read)?;
    let items = controller.store().principals().await?;
    Ok(Json(PrincipalList { items }))
}

/// Grants a role to a key.
#[utoipa::path(
    put,
    path = "/principals/{key}/roles/{role}",
    params(("key" = String, Path), ("role" = String, Path)),
    request_body = Grant,
    responses((status = NO_CONTENT), Problem)
)]
pub async fn grant(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    PathParams((key, role)): PathParams<(String, String)>,
    JsonBody(grant): JsonBody<Grant>,
) -> Result<StatusCode, Problem> {
    may(&controller, &caller, Permission::Write)?;
    let key = read_principal(&key)?;
    grant.name.as_deref().map_or(Ok(()), check_name)?;
    controller
        .store()
        .grant(&key, &role, grant.name.as_deref())
        .await?;
    controller.follow().await?;
    controller.log().log(
        Some(&caller),
        |left_out| tracing::info!(by = caller.user, %key, role, left_out, "a role was granted"),
    );
    Ok(StatusCode::NO_CONTENT)
}

/// Removes a role from a key.
#[utoipa::path(
    delete,
    path = "/principals/{key}/roles/{role}",
    params(("key" = String, Path), ("role" = String, Path)),
    responses((status = NO_CONTENT), Problem)
)]
pub async fn revoke(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    PathParams((key, role)): PathParams<(String, String)>,
) -> Result<StatusCode, Problem> {
    take(&controller, &caller, &key, Some(&role)).await
}

/// Removes all roles from a key.
#[utoipa::path(
    delete,
    path = "/principals/{key}",
    params(("key" = String, Path)),
    responses((status = NO_CONTENT), Problem)
)]
pub async fn remove(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    PathParams(key): PathParams<String>,
) -> Result<StatusCode, Problem> {
    take(&controller, &caller, &key, None).await
}

async fn take(
    controller: &Controller,
    caller: &Caller,
    key: &str,
    role: Option<&str>,
) -> Result<StatusCode, Problem> {
    may(controller, caller, Permission::Write)?;
    let key = read_principal(key)?;
    controller.store().revoke(&key, role).await?;
    controller.follow().await?;
    controller.log().log(Some(caller), |left_out| {
        let role = role.unwrap_or("all");
        tracing::info!(by = caller.user, %key, role, left_out, "a role was taken away");
    });
    Ok(StatusCode::NO_CONTENT)
}

/// All roles with their rights.
#[utoipa::path(get, path = "/roles", responses((status = OK, body = RoleList), Problem))]
pub async fn roles(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<RoleList>, Problem> {
    may(&controller, &caller, Permission::Read)?;
    let items = controller.store().roles().await?;
    Ok(Json(RoleList { items }))
}

/// Creates a role, or changes one that was created here.
#[utoipa::path(
    put,
    path = "/roles/{name}",
    params(("name" = String, Path)),
    request_body = Role,
    responses(
        (status = CREATED),
        (status = NO_CONTENT, description = "The role was already granted"),
        Problem
    )
)]
pub async fn put_role(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    PathParams(name): PathParams<String>,
    JsonBody(role): JsonBody<Role>,
) -> Result<StatusCode, Problem> {
    may(&controller, &caller, Permission::Write)?;
    check_name(&name)?;
    check_own(&name)?;
    let is_site =
        |constraint: &Constraint| !matches!(constraint, Constraint::Site(site) if site.is_empty());
    if role.rights.is_empty()
        || role.rights.len() > MAX_RIGHTS
        || !role.rights.iter().all(|right| is_site(&right.constraint))
    {
        return Err(invalid(format!(
            "rights: 1 to {MAX_RIGHTS}, and no site without a name"
        )));
    }
    let is_new = controller.store().put_role(&name, &role.rights).await?;
    controller.follow().await?;
    controller.log().log(Some(&caller), |left_out| {
        tracing::info!(by = caller.user, name, left_out, "a role was changed")
    });
    Ok(if is_new {
        StatusCode::CREATED
    } else {
        StatusCode::NO_CONTENT
    })
}

/// Removes a role, also from the principals that have it.
#[utoipa::path(
    delete,
    path = "/roles/{name}",
    params(("name" = String, Path)),
    responses((status = NO_CONTENT), Problem)
)]
pub async fn remove_role(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    PathParams(name): PathParams<String>,
) -> Result<StatusCode, Problem> {
    may(&controller, &caller, Permission::Write)?;
    check_own(&name)?;
    controller.store().remove_role(&name).await?;
    controller.follow().await?;
    controller.log().log(Some(&caller), |left_out| {
        tracing::info!(by = caller.user, name, left_out, "a role was removed")
    });
    Ok(StatusCode::NO_CONTENT)
}

fn check_own(name: &str) -> Result<(), Problem> {
    match builtin_roles().iter().any(|role| role.name == name) {
        false => Ok(()),
        true => Err(Problem::new(
            ProblemKind::Conflict,
            format!("{name} is a built-in role and cannot be changed: choose another name"),
        )),
    }
}
