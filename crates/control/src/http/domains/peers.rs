//! Messages and topologies for other domains.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use longhaul_api::problem::JsonBody;
use longhaul_api::{Caller, Problem, ProblemKind};
use longhaul_control_api::domains::{
    DomainForecastList, DomainForecasts, DomainName, KnownDomain, KnownDomains, Message,
    MessageBody,
};
use longhaul_control_api::principals::{Permission, Resource};
use tokio::time::timeout;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{REFRESH_TIMEOUT, domains};
use crate::authority::Subject;
use crate::controller::{Controller, now_ms};
use crate::domains::DomainsHandle;

/// Returns the endpoints of this module.
pub(super) fn endpoints() -> OpenApiRouter<Controller> {
    OpenApiRouter::default()
        .routes(routes!(receive))
        .routes(routes!(topology))
        .routes(routes!(forecasts))
}

/// Takes a message of another domain. It is answered once the message is stored; the answer of the
/// service follows as a message to the sender.
#[utoipa::path(
    post,
    path = "/domain/messages",
    request_body = Message,
    responses((status = ACCEPTED, description = "The message is stored"), Problem)
)]
pub async fn receive(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
    JsonBody(message): JsonBody<Message>,
) -> Result<StatusCode, Problem> {
    let domains = domains(&controller)?;
    let Some(peer) = peer(domains, &caller) else {
        return Err(Problem::new(
            ProblemKind::Forbidden,
            "the key is of no peer of this domain: have its operator add it to domain.peers",
        ));
    };
    if let MessageBody::Reserve { criteria, .. } = &message.body {
        for point in [&criteria.source, &criteria.destination] {
            let refresh = domains.refresh_unless_known(&point.domain);
            // An unknown domain is refused by the agent.
            let _ = timeout(REFRESH_TIMEOUT, refresh).await;
        }
    }
    domains.receive(&peer, message).await?;
    Ok(StatusCode::ACCEPTED)
}

/// Domains that the controller knows, with what may cross them. For peers, and for those who may
/// read the map.
#[utoipa::path(
    get,
    path = "/domain/topology",
    responses((status = OK, body = KnownDomains), Problem)
)]
pub async fn topology(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<KnownDomains>, Problem> {
    let domains = domains(&controller)?;
    if peer(domains, &caller).is_none() {
        controller.allow(&caller, Resource::Map, Permission::Read, &Subject::all())?;
    }
    let now = now_ms();
    let own = &domains.settings().name;
    let known = domains.topologies();
    let first = known.get(own).into_iter();
    let others = known.iter().filter(|(name, _)| *name != own);
    let items = first.chain(others.map(|(_, known)| known));
    let items = items.map(|known| KnownDomain {
        topology: known.topology.clone(),
        key: known.key.to_string(),
        learned_from: known.learned_from.clone(),
        age_s: now.saturating_sub(known.topology.made_ms) / 1_000,
        signed: known.signed.clone(),
    });
    Ok(Json(KnownDomains {
        domain: own.clone(),
        items: items.collect(),
    }))
}

/// Forecasts that other domains publish, with their origin.
#[utoipa::path(
    get,
    path = "/domain/forecasts",
    responses((status = OK, body = DomainForecastList), Problem)
)]
pub async fn forecasts(
    State(controller): State<Controller>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<DomainForecastList>, Problem> {
    let domains = domains(&controller)?;
    controller.allow(
        &caller,
        Resource::Forecasts,
        Permission::Read,
        &Subject::all(),
    )?;
    let now = now_ms();
    let known = domains.topologies();
    let published = known
        .values()
        .filter(|known| !known.topology.forecasts.is_empty());
    let items = published.map(|known| DomainForecasts {
        domain: known.topology.domain.clone(),
        key: known.key.to_string(),
        age_s: now.saturating_sub(known.topology.made_ms) / 1_000,
        forecasts: known.topology.forecasts.clone(),
    });
    Ok(Json(DomainForecastList {
        items: items.collect(),
    }))
}

fn peer(domains: &DomainsHandle, caller: &Caller) -> Option<DomainName> {
    let key = caller.key.as_ref()?;
    domains.settings().peer_with_key(key).cloned()
}
