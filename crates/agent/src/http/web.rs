//! The web page: its files, and how a browser signs in.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use longhaul_api::listen::{self, ServiceListenError};
use longhaul_api::problem::JsonBody;
use longhaul_api::{LocalGate, Problem, ProblemKind};
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, watch};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;
use crate::agent::Agent;

/// Preferred port of the page.
const PAGE_PORT: u16 = 7512;

/// Maximum size of a sign-in request, in bytes. Any user of this machine can send one.
pub(super) const MAX_TICKET_BYTES: usize = 1024;

/// Headers of every response that restrict what a browser may do with it. Others are set by
/// [`set_common_headers`](longhaul_api::headers::set_common_headers).
pub(super) const HEADERS: [(HeaderName, HeaderValue); 2] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
            connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        ),
    ),
    (
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    ),
];

/// Listener on loopback for the page, opened on demand.
#[derive(Debug)]
pub struct Web {
    agent: Agent,
    gate: LocalGate,
    stop: watch::Receiver<bool>,
    address: Mutex<Option<SocketAddr>>,
}

impl Web {
    /// Creates the service without listening yet. `gate` admits callers on loopback.
    pub fn new(agent: Agent, gate: LocalGate, stop: watch::Receiver<bool>) -> Arc<Self> {
        Arc::new(Self {
            agent,
            gate,
            stop,
            address: Mutex::default(),
        })
    }

    /// Listens at an address, unless it already listens. Returns the address in use.
    ///
    /// # Errors
    /// It cannot listen there.
    pub async fn listen_at(&self, address: SocketAddr) -> Result<SocketAddr, ServiceListenError> {
        let mut open = self.address.lock().await;
        if let Some(address) = *open {
            return Ok(address);
        }
        let listener = listen::loopback(address).await?;
        let address = listener
            .local_addr()
            .map_err(|source| ServiceListenError::Socket {
                place: address.to_string(),
                source,
            })?;
        let router = super::router(
            self.agent.clone(),
            self.gate.clone(),
            None,
            self.stop.clone(),
        );
        tokio::spawn(listen::serve(listener, router, self.stop.clone()));
        *open = Some(address);
        Ok(address)
    }

    /// Listens at the preferred port, or at another one if that is taken.
    async fn listen(&self) -> Result<SocketAddr, ServiceListenError> {
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        match self.listen_at(at(PAGE_PORT)).await {
            Err(ServiceListenError::Socket { .. }) => self.listen_at(at(0)).await,
            other => other,
        }
    }
}

/// Address at which a page is opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PageAddress {
    /// Address with a ticket after `#`, which is valid once and for a minute.
    pub url: String,
}

/// Returns the endpoints for authenticated callers.
pub(super) fn endpoints() -> OpenApiRouter<ApiState> {
    OpenApiRouter::default().routes(routes!(tickets))
}

/// Returns the endpoint at which a page signs in.
pub(super) fn sign_in() -> OpenApiRouter<ApiState> {
    OpenApiRouter::default().routes(routes!(session))
}

/// Creates the address of a page. Only over the Unix socket.
#[utoipa::path(
    post,
    path = "/tickets",
    responses((status = OK, body = PageAddress), Problem)
)]
pub(super) async fn tickets(State(service): State<ApiState>) -> Result<Json<PageAddress>, Problem> {
    let Some(web) = &service.web else {
        return Err(Problem::new(
            ProblemKind::Forbidden,
            "tickets are issued over the agent's socket only",
        ));
    };
    let unavailable = |detail: String| Problem::new(ProblemKind::Unavailable, detail);
    let address = web
        .listen()
        .await
        .map_err(|error| unavailable(error.to_string()))?;
    let ticket = web.gate.sessions.ticket(Instant::now());
    let ticket = ticket.map_err(|error| unavailable(error.to_string()))?;
    Ok(Json(PageAddress {
        url: format!("http://{address}/#ticket={}", ticket.text()),
    }))
}

/// A ticket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Ticket {
    /// Ticket, as in the page's address.
    pub ticket: String,
}

/// Signs a page in: exchanges its ticket for a cookie.
#[utoipa::path(
    post,
    path = "/session",
    request_body = Ticket,
    responses((status = NO_CONTENT), Problem)
)]
pub(super) async fn session(
    Extension(gate): Extension<Arc<LocalGate>>,
    JsonBody(asked): JsonBody<Ticket>,
) -> Result<Response, Problem> {
    let signed_in = gate.sessions.sign_in(&asked.ticket, Instant::now());
    let signed_in =
        signed_in.map_err(|error| Problem::new(ProblemKind::Unavailable, error.to_string()))?;
    let cookie = signed_in.ok_or_else(|| {
        Problem::new(
            ProblemKind::Unauthenticated,
            "the ticket is no longer valid: longhaul ui opens the page with a new one",
        )
    })?;
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response())
}

/// Serves a file of the page.
pub(super) async fn asset(State(service): State<ApiState>, uri: Uri) -> Response {
    let assets = service.agent.settings().assets;
    let path = match uri.path() {
        "/" => "/index.html",
        other => other,
    };
    match assets.iter().find(|asset| asset.path == path) {
        Some(asset) => {
            // These files have a hash of their content in their names.
            let kept = match asset.path.starts_with("/assets/") {
                true => "private, max-age=31536000, immutable",
                false => "no-cache",
            };
            let headers = [
                (header::CONTENT_TYPE, asset.media_type),
                (header::CACHE_CONTROL, kept),
            ];
            (headers, asset.bytes).into_response()
        }
        None if assets.is_empty() && path == "/index.html" => Problem::new(
            ProblemKind::NotFound,
            "this program was built without the page: build it with make build",
        )
        .into_response(),
        None => Problem::new(
            ProblemKind::NotFound,
            "the API is beneath /api/v1: see /api/v1/openapi.json",
        )
        .into_response(),
    }
}
