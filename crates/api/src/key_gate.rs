//! Authentication of callers on other machines, by signed requests and a list of keys.
//!
//! A request is admitted if it
//!
//! - is signed (RFC 9421) by a key that is listed, or whose principal is, over its method, its
//!   target, the hash of its body, and `Idempotency-Key` if it has one;
//! - is addressed to this service: its `Host` is one of the names that the service was given, with
//!   the port, so that another service which the key calls cannot forward the request here;
//! - is recent: signed within the last 120 s by the local clock, at most 10 s ahead of it, not
//!   expired, and not signed before this service started, as nonces from before are forgotten;
//! - is new: nonces are remembered, on the key's account, for as long as a request could be
//!   replayed;
//! - is covered by the key's role.
//!
//! Nothing else admits a request: no token, no cookie, no page of this or another site.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{Extensions, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use longhaul_hop::Payer;
use longhaul_identity::{Identities, Principal};
use longhaul_proto::{PublicKey, ReplayMemory, SessionId, VoucherFault, check_time};
use longhaul_service::http::SharedPermit;
use parking_lot::{Mutex, RwLock};
use tokio::time::timeout;

use crate::authorized_keys::{AuthorizedKey, AuthorizedKeys, KeyRole};
use crate::caller::Caller;
use crate::database::system_now;
use crate::problem::{Problem, ProblemKind};
use longhaul_api_common::signatures::message::{Scheme, normalise_authority};
use longhaul_api_common::signatures::{
    Message, Presented, Purpose, SignatureError, VOUCHER_HEADER, digest,
};

/// Default maximum size of a request's body, in bytes.
pub const MAX_BODY_BYTES: usize = 1 << 20;
/// Maximum time to receive a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Authentication of signed requests: keys, names of the service, and nonces that were used.
#[derive(Debug)]
pub struct KeyGate {
    keys: RwLock<Arc<AuthorizedKeys>>,
    /// Hosts with ports, in the form of `@authority`.
    names: Vec<String>,
    /// Time in seconds since 1970. Requests signed before it are refused.
    since: u64,
    /// Command that runs the service, for messages.
    command: &'static str,
    max_body_bytes: usize,
    seen: Mutex<ReplayMemory<PublicKey>>,
    /// Callers that are not listed by key.
    named: Option<NamedCallers>,
}

/// Admission of keys by the names and groups of their principals.
#[derive(Clone)]
pub struct NamedCallers {
    /// Names and groups of keys; they remember the vouchers of requests.
    pub identities: Arc<Identities>,
    /// Returns the name and rights of a principal; `None` if it has none.
    pub authorize: Arc<AuthorizePrincipal>,
}

/// Function that returns the name and rights of a principal; `None` if it has none.
pub type AuthorizePrincipal = dyn Fn(&Principal) -> Option<AuthorizedKey> + Send + Sync;

impl std::fmt::Debug for NamedCallers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NamedCallers").finish_non_exhaustive()
    }
}

/// Request whose signature is valid, and whose body was not checked yet.
#[derive(Debug)]
struct VerifiedRequest {
    presented: Presented,
    authorized: AuthorizedKey,
}

impl KeyGate {
    /// Creates a gate for these keys and a service that is reached as `names` (hosts with ports).
    /// `since` is its start, in seconds since 1970. Requests that were signed before it are
    /// refused, as an earlier process may have admitted them.
    pub fn new<T: AsRef<str>>(
        keys: AuthorizedKeys,
        names: impl IntoIterator<Item = T>,
        since: u64,
    ) -> Arc<Self> {
        Arc::new(Self::with_body_limit(
            "longhaul agent",
            MAX_BODY_BYTES,
            keys,
            names,
            since,
        ))
    }

    /// Like [`Self::new`], for the service that `command` runs, with bodies of at most
    /// `max_body_bytes`.
    pub fn with_body_limit<T: AsRef<str>>(
        command: &'static str,
        max_body_bytes: usize,
        keys: AuthorizedKeys,
        names: impl IntoIterator<Item = T>,
        since: u64,
    ) -> Self {
        let names = names
            .into_iter()
            .map(|name| normalise_authority(name.as_ref(), Scheme::Https));
        Self {
            keys: RwLock::new(Arc::new(keys)),
            names: names.collect(),
            since,
            command,
            max_body_bytes,
            seen: Mutex::default(),
            named: None,
        }
    }

    /// Admits the principals that `named` authorizes as well.
    #[must_use]
    pub fn with_named_callers(self, named: NamedCallers) -> Self {
        Self {
            named: Some(named),
            ..self
        }
    }

    /// Replaces the authorized keys.
    pub fn replace_keys(&self, keys: AuthorizedKeys) {
        *self.keys.write() = Arc::new(keys);
    }

    /// Checks all of a request except its body and the rights of its key. `now` is in milliseconds
    /// since 1970.
    fn check(&self, parts: &Parts, now: u64) -> Result<Presented, Problem> {
        for (field, named) in [
            (header::ORIGIN, "a page"),
            (header::COOKIE, "a cookie"),
            (header::AUTHORIZATION, "a token"),
        ] {
            if parts.headers.contains_key(field) {
                return Err(Problem::new(
                    ProblemKind::Forbidden,
                    format!("{named} is not accepted here: sign requests with a key"),
                ));
            }
        }
        let message = Message::from_parts(parts, Scheme::Https)?;
        if !self.names.iter().any(|name| name == message.authority()) {
            let detail = format!(
                "{} is not a name of this service ({}): give it that name with {} --server-name",
                message.authority(),
                self.names.join(", "),
                self.command
            );
            return Err(Problem::new(ProblemKind::Forbidden, detail));
        }
        let presented = Presented::read(&message, Purpose::Api)?;
        check_coverage(&presented, parts)?;
        let created = presented.created.saturating_mul(1000);
        check_time(created, now)?;
        if presented.expires.saturating_mul(1000) < now {
            return Err(unauthenticated(
                "the signature has expired: sign again, or check both clocks",
            ));
        }
        if presented.created < self.since {
            return Err(unauthenticated(
                "signed before this service started: sign again, or check both clocks",
            ));
        }
        if self.named.is_none() && self.keys.read().get(&presented.key).is_none() {
            return Err(unknown_key(&presented.key));
        }
        presented.verify(&message)?;
        Ok(presented)
    }

    /// Remembers the voucher of a request whose signature is valid, if it has one (LH-VOUCHER-7).
    /// Returns the fault for which it is not believed.
    async fn read_voucher(&self, presented: &Presented, parts: &Parts) -> Option<VoucherFault> {
        let named = self.named.as_ref()?;
        let text = parts.headers.get(VOUCHER_HEADER)?.to_str();
        let text = text.unwrap_or_default();
        let read = named.identities.introduce_text(&presented.key, text);
        read.await.err()
    }

    /// Authorizes a key that is listed, or whose principal is. `fault` is that of its voucher.
    fn authorize(
        &self,
        presented: Presented,
        parts: &Parts,
        fault: Option<VoucherFault>,
    ) -> Result<VerifiedRequest, Problem> {
        let listed = self.keys.read().get(&presented.key).cloned();
        let by_name = || {
            let named = self.named.as_ref()?;
            (named.authorize)(&named.identities.principal(&presented.key))
        };
        let authorized = listed.or_else(by_name).ok_or_else(|| match fault {
            Some(fault) => unauthenticated(&fault.to_string()),
            None => unknown_key(&presented.key),
        })?;
        if let Some(named) = &self.named {
            named.identities.mark_admitted(&presented.key);
        }
        let changes_nothing = matches!(parts.method, Method::GET | Method::HEAD);
        if authorized.role == KeyRole::Read && !changes_nothing {
            let detail = format!("the key of {} may only read", authorized.name);
            return Err(Problem::new(ProblemKind::Forbidden, detail));
        }
        Ok(VerifiedRequest {
            authorized,
            presented,
        })
    }

    /// Checks that the body is the one that was signed, and that the request is not a replay.
    fn check_body_and_replay(
        &self,
        checked: &VerifiedRequest,
        parts: &Parts,
        body: &[u8],
        now: u64,
    ) -> Result<Caller, Problem> {
        let presented = &checked.presented;
        if presented.covers(digest::CONTENT_DIGEST.as_str()) {
            digest::check(&parts.headers, body)?;
        } else if !body.is_empty() {
            return Err(SignatureError::Uncovered("content-digest").into());
        }
        let mut seen = self.seen.lock();
        let created = presented.created.saturating_mul(1000);
        seen.admit(&presented.key, nonce_id(presented), created, now)?;
        Ok(Caller {
            user: checked.authorized.name.clone(),
            key: Some(presented.key),
        })
    }
}

/// Hashes a key and its nonce into 128 bits.
fn nonce_id(presented: &Presented) -> SessionId {
    let mut hasher = blake3::Hasher::new();
    hasher.update(presented.key.as_bytes());
    hasher.update(presented.nonce.as_bytes());
    let mut id = [0; 16];
    hasher.finalize_xof().fill(&mut id);
    SessionId::from_bytes(id)
}

/// Checks that the signature covers all parts that determine the request's effect.
fn check_coverage(presented: &Presented, parts: &Parts) -> Result<(), SignatureError> {
    let uncovered = |component| Err(SignatureError::Uncovered(component));
    if !presented.covers("@method") {
        return uncovered("@method");
    }
    if !presented.covers("@target-uri") {
        for component in ["@authority", "@path", "@query"] {
            if !presented.covers(component) {
                return uncovered(component);
            }
        }
    }
    if parts.headers.contains_key("idempotency-key") && !presented.covers("idempotency-key") {
        return uncovered("idempotency-key");
    }
    Ok(())
}

fn unknown_key(key: &PublicKey) -> Problem {
    unauthenticated(&format!("the key {key} is not authorized here"))
}

fn unauthenticated(detail: &str) -> Problem {
    Problem::new(ProblemKind::Unauthenticated, detail)
}

/// Middleware that reads the body and passes the request to its handler with its [`Caller`], or
/// answers with the reason.
pub async fn guard_keys(
    State(gate): State<Arc<KeyGate>>,
    request: Request,
    next: Next,
) -> Response {
    match admit(&gate, request).await {
        Ok(request) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// Charges the connection of an admitted request to `payer`.
pub(crate) fn charge_connection(request: &Extensions, payer: Payer) -> Result<(), Problem> {
    let Some(place) = request.get::<SharedPermit>() else {
        return Ok(());
    };
    let mut place = place.lock();
    place
        .charge_to(payer)
        .map_err(|full| Problem::new(ProblemKind::TooMany, format!("connections: {full}")))
}

async fn admit(gate: &KeyGate, request: Request) -> Result<Request, Problem> {
    let (mut parts, body) = request.into_parts();
    let presented = gate.check(&parts, now())?;
    let fault = gate.read_voucher(&presented, &parts).await;
    let checked = gate.authorize(presented, &parts, fault)?;
    charge_connection(&parts.extensions, Payer::Key(checked.presented.key))?;
    let body = match timeout(
        BODY_TIMEOUT,
        axum::body::to_bytes(body, gate.max_body_bytes),
    )
    .await
    {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            return Err(Problem::new(
                ProblemKind::TooLarge,
                format!(
                    "a body of more than {} bytes, or an incomplete one",
                    gate.max_body_bytes
                ),
            ));
        }
        Err(_) => {
            return Err(Problem::new(
                ProblemKind::Invalid,
                "the body did not arrive in time",
            ));
        }
    };
    let caller = gate.check_body_and_replay(&checked, &parts, &body, now())?;
    parts.extensions.insert(caller);
    // The method was checked against the role above. Handlers check what else the role excludes.
    parts.extensions.insert(checked.authorized.role);
    Ok(Request::from_parts(parts, Body::from(body)))
}

/// Returns milliseconds since 1970.
fn now() -> u64 {
    u64::try_from(system_now()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
