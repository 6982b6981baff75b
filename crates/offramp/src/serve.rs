//! One connection from its first byte to its last: set-up, join, metrics and log.

use std::net::SocketAddr;
use std::sync::Arc;

use drs::Limit;
use longhaul_accounts::record::bounded;
use longhaul_accounts::{AccountRecord, SessionRecord, SessionResult};
use longhaul_hop::{Conn, Duplex, DuplexEnding, DuplexOptions, DuplexOutcome, EndPolicy, Payer};
use longhaul_policy::PrincipalWatch;
use longhaul_proto::{Open, StatusCode};
use longhaul_service::{Interruption, PendingConnection, Phase, PhaseReceiver};
use longhaul_session::{Error, IncomingSession, JoinObserver, Session, SessionRefusal};
use tokio::time::Instant;

use crate::resuming;
use crate::setup::{ConnectedServer, admit, connect_server};
use crate::state::OfframpState;

/// Serves one connection to its end, or until it is interrupted.
pub(crate) async fn serve(shared: Arc<OfframpState>, connection: PendingConnection) {
    let PendingConnection {
        conn,
        peer,
        permit: mut place,
        header,
        mut guard,
    } = connection;
    let began = Instant::now();
    let phases = guard.phases().clone();
    let setup = Box::pin(async {
        let mut admitted = None;
        let received = shared.acceptor.receive_open(conn, header, |open| {
            if open.resume.is_some() {
                return Ok(resuming::payer(&shared, peer, open));
            }
            let found = admit(&shared, peer.ip(), open, &mut place, &phases)?;
            let payer = found.payer;
            admitted = Some(found);
            Ok(payer)
        });
        let incoming = match received.await {
            Ok(incoming) => incoming,
            Err(away) => {
                log_turned_away(&shared, peer, away.open.as_deref(), &away.error);
                away.report().await;
                return None;
            }
        };
        if incoming.open().resume.is_some() {
            let payer = resuming::payer(&shared, peer, incoming.open());
            resume(&shared, peer, incoming, payer).await;
            return None;
        }
        let admitted = admitted?;
        let payer = admitted.payer;
        let open = incoming.open().clone();
        let deadline = incoming
            .deadline()
            .min(Instant::now() + shared.timeouts.dial);
        let reached = tokio::select! {
            reached = connect_server(&shared, &open, admitted, deadline) => reached,
            error = incoming.disconnected() => {
                shared.metrics.count_refused("abandoned");
                tracing::debug!(from = %peer, %error, "connection abandoned during set-up");
                return None;
            }
        };
        let reached = match reached {
            Ok(reached) => reached,
            Err(why) => {
                log_refused(&shared, peer, Some(&open), &why, Some(payer));
                incoming.decline(why).await;
                return None;
            }
        };
        match incoming.accept().await {
            Ok(session) => Some((session, open, reached, payer)),
            Err(error) => {
                log_turned_away(&shared, peer, Some(&open), &error);
                None
            }
        }
    });
    let established = match guard.run(setup).await {
        Ok(established) => established,
        Err(Interruption::Evicted) => return shared.metrics.count_turned_away("evicted"),
        Err(Interruption::Aborted) => return,
    };
    drop(guard);
    if let Some((session, open, reached, payer)) = established {
        shared.metrics.sessions_active.inc();
        carry(&shared, session, open, reached, payer, peer, began, phases).await;
        shared.metrics.sessions_active.dec();
    }
}

#[expect(clippy::too_many_arguments, reason = "the fields of the log line")]
async fn carry(
    shared: &Arc<OfframpState>,
    session: Session,
    open: Open,
    reached: ConnectedServer,
    payer: Payer,
    peer: SocketAddr,
    began: Instant,
    mut phases: PhaseReceiver,
) {
    let ConnectedServer {
        conn,
        address,
        rule,
        mut names,
        most_bytes,
    } = reached;
    let options = DuplexOptions {
        idle_limits: shared.timeouts.idle_limits(),
        limits: rule.limits(),
        max_bytes: most_bytes.unwrap_or(u64::MAX),
        ends: EndPolicy::Final,
        pipes: None,
        buffers: Arc::clone(&shared.buffers),
    };
    let metrics = Arc::clone(&shared.metrics);
    let on_moved = move |to_server, to_session| metrics.count_bytes(to_server, to_session);
    let observer = JoinObserver {
        sizing: shared.sizing,
        on_moved: Some(Arc::new(on_moved)),
        flow: None,
    };
    let mut join = Duplex::new(session, conn, options, observer);
    let mut revoked = false;
    let joined = tokio::select! {
        biased;
        joined = &mut join => joined,
        () = phases.wait_until(Phase::Aborting) => join.abort(),
        () = PrincipalWatch::wait_until_revoked(&mut names) => {
            revoked = true;
            join.abort()
        }
    };
    let flow = join.into_observer().flow;
    let DuplexOutcome {
        ending,
        forward,
        backward,
    } = joined;
    let (result, name, error) = match revoked {
        true => (SessionResult::Revoked, "revoked", None),
        false => describe(&ending),
    };
    shared.metrics.count_ended(name);
    let tally = flow
        .map(|flow| flow.observations().tally)
        .unwrap_or_default();
    shared.metrics.add_limit_times(&tally);
    if let Some(accounts) = &shared.accounts {
        accounts.add(AccountRecord::Session(SessionRecord {
            rule: Some(bounded(rule.rule())),
            forward_bytes: forward,
            backward_bytes: backward,
            result,
            reason: error.map(bounded),
            ..SessionRecord::new("offramp", &open, (peer, address), began.elapsed())
        }));
    }
    shared.events.log(Some(payer), |left_out| {
        tracing::info!(
            session = %open.session_id,
            principal = %open.principal,
            rule = rule.rule(),
            from = %peer,
            to = %address,
            server = open.onward.as_ref().map(tracing::field::display),
            purpose = open.purpose.as_deref(),
            size = open.size,
            rate = open.rate,
            duration = open.duration,
            forward_bytes = forward,
            backward_bytes = backward,
            seconds = began.elapsed().as_secs_f64(),
            limited_by = tally.dominant_limit().map(|(limit, _)| Limit::as_str(limit)),
            ending = name,
            error = error.map(tracing::field::display),
            left_out,
            "session ended"
        );
    });
}

/// Counts and logs a connection that became no session. Its peer has already been told why, if an
/// answer was possible.
fn log_turned_away(shared: &OfframpState, peer: SocketAddr, open: Option<&Open>, error: &Error) {
    let (code, detail) = match error {
        Error::Refused(refusal) => (refusal.code(), refusal.to_string()),
        Error::QuotaExceeded(full) => (StatusCode::Overloaded, full.to_string()),
        Error::Declined { code, detail } => (*code, detail.clone()),
        Error::Registered => return tracing::debug!(from = %peer, %error),
        error => {
            shared.metrics.count_refused("lost");
            tracing::debug!(from = %peer, %error, "connection lost during set-up");
            return;
        }
    };
    // Charged to no payer: few of these peers have proved who they are.
    log_refused(shared, peer, open, &SessionRefusal { code, detail }, None);
}

pub(crate) fn log_refused(
    shared: &OfframpState,
    peer: SocketAddr,
    open: Option<&Open>,
    why: &SessionRefusal,
    payer: Option<Payer>,
) {
    shared.metrics.count_refused(why.code.word());
    shared.events.log(payer, |left_out| {
        tracing::info!(
            session = open.map(|open| tracing::field::display(open.session_id)),
            principal = open.map(|open| tracing::field::display(open.principal)),
            server = open
                .and_then(|open| open.onward.as_ref())
                .map(tracing::field::display),
            from = %peer,
            status = why.code.word(),
            detail = why.detail,
            left_out,
            "OPEN refused"
        );
    });
}

/// Returns the ending as a result for accounts and a word for logs and metrics, and its error.
fn describe(ending: &DuplexEnding) -> (SessionResult, &'static str, Option<&std::io::Error>) {
    match ending {
        DuplexEnding::Finished => (SessionResult::Completed, "finished", None),
        // Final ends do not report the second of these.
        DuplexEnding::Closed | DuplexEnding::FirstClosed => {
            (SessionResult::Completed, "server closed", None)
        }
        DuplexEnding::FirstDied(error) => (
            SessionResult::InitiatorDied,
            "initiator side died",
            Some(error),
        ),
        DuplexEnding::SecondDied(error) => (SessionResult::NextHopDied, "server died", Some(error)),
        DuplexEnding::Idle => (SessionResult::Idle, "idle", None),
        DuplexEnding::HalfClosed => (SessionResult::HalfClosed, "half-closed too long", None),
        DuplexEnding::BeyondSize => (SessionResult::BeyondSize, "more than stated", None),
        DuplexEnding::Aborted => (SessionResult::Drained, "drained", None),
    }
}

/// Continues the session that the OPEN names, or refuses and logs it.
async fn resume(
    shared: &OfframpState,
    peer: SocketAddr,
    incoming: IncomingSession<'_, Conn>,
    payer: Payer,
) {
    let open = incoming.open().clone();
    if let Err(why) = incoming.resume().await {
        log_refused(shared, peer, Some(&open), &why, Some(payer));
    }
}
