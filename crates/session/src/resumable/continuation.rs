//! The initiator's further connections: a route, an OPEN with the proof, and the acceptor's answer.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use longhaul_hop::{Conn, unix_ms};
use longhaul_proto::{
    Chain, ChainFailure, FailureKind, PublicKey, ResumeRequest, Route, ServiceName, SessionId,
    StatusCode,
};
use longhaul_resume::{AttemptPlan, ResumeAttempt, ResumeSecret};
use tokio::time::{Instant, timeout_at};

use super::RouteList;
use crate::first_hop::{dial_first_hop, new_open};
use crate::hop_stream::HopStream;
use crate::unanswered::PendingSetup;
use crate::{ConnectOptions, Error, ServerTrust};

/// Time limit for one attempt: this, or some round trips if they take longer.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);
const ATTEMPT_ROUND_TRIPS: u32 = 8;
/// Delay before the routes are asked for again if there are none.
const NO_ROUTE_DELAY: Duration = Duration::from_secs(1);

/// Connection on which a session continues.
pub(super) struct Continuation {
    pub(super) conn: Conn,
    /// Position up to which the acceptor has received.
    pub(super) received: u64,
    /// Bytes behind the acceptor's answer.
    pub(super) ahead: Bytes,
    pub(super) route: Route,
}

/// Reason why an attempt failed.
pub(super) enum AttemptError {
    /// The acceptor does not continue the session, and will not later.
    Refused(String),
    /// Another attempt may succeed.
    Failed(String),
}

pub(super) type ContinuationFuture =
    Pin<Box<dyn Future<Output = Result<Continuation, AttemptError>> + Send>>;

/// Opener of the further connections of one session.
pub(crate) struct Continuations {
    parts: Arc<SessionParts>,
    routes: RouteList,
    plan: AttemptPlan<Route>,
    /// Route of the latest connection.
    route: Route,
}

/// Facts of a session that each attempt needs.
struct SessionParts {
    options: ConnectOptions,
    session: SessionId,
    secret: ResumeSecret,
    peer: PublicKey,
}

impl Continuations {
    /// Creates the opener of a session that was established along `route` with the holder of the
    /// key `peer`.
    pub(crate) fn new(
        options: &ConnectOptions,
        routes: RouteList,
        session: SessionId,
        secret: ResumeSecret,
        peer: PublicKey,
        route: Route,
    ) -> Self {
        let mut options = options.clone();
        options.server = ServerTrust::Pinned(peer);
        // The observer belongs to the set-up.
        options.setup_observer = None;
        Self {
            parts: Arc::new(SessionParts {
                options,
                session,
                secret,
                peer,
            }),
            routes,
            plan: AttemptPlan::new(Duration::ZERO),
            route,
        }
    }

    pub(super) const fn route(&self) -> &Route {
        &self.route
    }

    pub(super) fn attached(&mut self, now: Duration, route: Route) {
        self.plan.attached(now);
        self.route = route;
    }

    /// Starts an attempt, or returns the delay before the next and why.
    pub(super) fn start(
        &mut self,
        now: Duration,
        attempt: ResumeAttempt,
        round_trip: Option<Duration>,
    ) -> Result<ContinuationFuture, (Duration, String)> {
        let [spread, ..] = *self.parts.session.as_bytes();
        let delay = self.plan.delay(now, spread);
        let next = self.plan.next_route(&self.route, || self.routes.current());
        let Some(route) = next else {
            return Err((NO_ROUTE_DELAY, "no route is known".to_owned()));
        };
        let limit = round_trip.map_or(ATTEMPT_TIMEOUT, |round_trip| {
            ATTEMPT_TIMEOUT.max(round_trip.saturating_mul(ATTEMPT_ROUND_TRIPS))
        });
        let parts = Arc::clone(&self.parts);
        Ok(Box::pin(async move {
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            let deadline = Instant::now() + limit;
            let late = || AttemptError::Failed(format!("{route}: no answer in time"));
            timeout_at(deadline, parts.attempt(&route, attempt, deadline))
                .await
                .unwrap_or_else(|_| Err(late()))
        }))
    }
}

impl SessionParts {
    async fn attempt(
        &self,
        route: &Route,
        attempt: ResumeAttempt,
        deadline: Instant,
    ) -> Result<Continuation, AttemptError> {
        let failed = |why: &dyn std::fmt::Display| AttemptError::Failed(format!("{route}: {why}"));
        let dialled = dial_first_hop(&self.options, route, deadline)
            .await
            .map_err(|error| failed(&error))?;
        let pending = route
            .is_direct()
            .then(|| PendingSetup::begin(dialled.address));
        let mut open = new_open(&self.options, route, deadline).map_err(|error| failed(&error))?;
        open.service = ServiceName::RESUME;
        open.onward = None;
        open.resume_offer = None;
        open.resume = Some(Box::new(ResumeRequest {
            session: self.session,
            epoch: attempt.epoch,
            received: attempt.received,
            proof: self.secret.prove_request(
                self.session.as_bytes(),
                attempt.epoch,
                attempt.received,
                open.session_id.as_bytes(),
            ),
        }));
        let identity = &self.options.identity;
        identity
            .sign_open(&mut open, unix_ms())
            .map_err(|error| failed(&error))?;
        let chain = Chain::new(&open, Some(self.peer));
        let signature = open.signature;
        let mut bytes = BytesMut::new();
        open.for_first_hop()
            .encode(&mut bytes)
            .map_err(|error| failed(&error))?;
        let mut hop = HopStream::initiating(dialled.conn, bytes.freeze(), chain, None, None);
        let established = hop.establish().await;
        if let Some(pending) = pending {
            pending.answered();
        }
        established.map_err(|error| chain_error(error, route))?;
        let answer = hop.statuses().last().and_then(|status| status.resumed);
        let Some(answer) = answer.filter(|answer| {
            self.secret
                .verify_answer(&answer.proof, answer.received, &signature)
        }) else {
            let unproven = "the other end did not prove that it has the session";
            return Err(failed(&unproven));
        };
        let (conn, ahead) = hop.into_parts();
        Ok(Continuation {
            conn,
            received: answer.received,
            ahead,
            route: route.clone(),
        })
    }
}

fn chain_error(error: io::Error, route: &Route) -> AttemptError {
    match error.downcast::<ChainFailure>() {
        Ok(failure) => {
            let is_final = matches!(failure.kind, FailureKind::Acceptor(code) if is_final(code));
            let why = Error::Hop(Box::new(failure)).to_string();
            match is_final {
                true => AttemptError::Refused(why),
                false => AttemptError::Failed(format!("{route}: {why}")),
            }
        }
        Err(error) => AttemptError::Failed(format!("{route}: {error}")),
    }
}

/// Returns true if an acceptor that answers so will not continue the session later.
const fn is_final(code: StatusCode) -> bool {
    matches!(
        code,
        StatusCode::NotResumable
            | StatusCode::NoService
            | StatusCode::Unauthorised
            | StatusCode::Refused
    )
}
