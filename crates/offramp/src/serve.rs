//! One connection from its first byte to its last: set-up, join, metrics and log.

use std::net::SocketAddr;
use std::sync::Arc;

use drs::Limit;
use longhaul_hop::{Conn, Entered, Payer, Phase, Phases, RateLimit};
use longhaul_policy::{RateLimits, RuleSession};
use longhaul_proto::{Open, StatusCode};
use longhaul_session::{Declined, End, Ending, Error, Join, JoinOptions, Joined, Session};
use tokio::time::Instant;

use crate::offramp::Shared;
use crate::setup::{Reached, admit, reach};

/// Serves one connection to its end, or until `phases` ends it early.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    conn: Conn,
    peer: SocketAddr,
    entered: Entered,
    mut phases: Phases,
) {
    let Entered {
        mut place,
        mut eviction,
        header,
    } = entered;
    let began = Instant::now();
    let draining = phases.clone();
    let setup = Box::pin(async {
        let mut admitted = None;
        let received = shared.acceptor.receive(conn, header, |open| {
            let found = admit(&shared, peer.ip(), open, &mut place, &draining)?;
            let payer = found.payer;
            admitted = Some(found);
            Ok(payer)
        });
        let incoming = match received.await {
            Ok(incoming) => incoming,
            Err(away) => {
                turned_away(&shared, peer, away.open.as_deref(), &away.error);
                away.report().await;
                return None;
            }
        };
        let admitted = admitted?;
        let payer = admitted.payer;
        let open = incoming.open().clone();
        let deadline = incoming
            .deadline()
            .min(Instant::now() + shared.timeouts.dial);
        let reached = tokio::select! {
            reached = reach(&shared, &open, admitted, deadline) => reached,
            error = incoming.abandoned() => {
                shared.metrics.refused("abandoned");
                tracing::debug!(from = %peer, %error, "connection abandoned during set-up");
                return None;
            }
        };
        let reached = match reached {
            Ok(reached) => reached,
            Err(why) => {
                refused(&shared, peer, Some(&open), &why, Some(payer));
                incoming.decline(why).await;
                return None;
            }
        };
        match incoming.accept().await {
            Ok(session) => Some((session, open, reached, payer)),
            Err(error) => {
                turned_away(&shared, peer, Some(&open), &error);
                None
            }
        }
    });
    let established = tokio::select! {
        established = setup => established,
        // Dropping the connection resets it: a flood gets no answer.
        () = eviction.wait() => return shared.metrics.turned_away("evicted"),
        () = phases.reached(Phase::Aborting) => return,
    };
    if let Some((session, open, reached, payer)) = established {
        shared.metrics.sessions_active.inc();
        carry(&shared, session, open, reached, payer, peer, began, phases).await;
        shared.metrics.sessions_active.dec();
    }
}

#[expect(clippy::too_many_arguments, reason = "the fields of the log line")]
async fn carry(
    shared: &Arc<Shared>,
    session: Session,
    open: Open,
    reached: Reached,
    payer: Payer,
    peer: SocketAddr,
    began: Instant,
    mut phases: Phases,
) {
    let Reached {
        conn,
        address,
        rule,
        most_bytes,
    } = reached;
    let options = JoinOptions {
        most_bytes: most_bytes.unwrap_or(u64::MAX),
        ..options(shared, &rule)
    };
    let mut join = Join::new(session, conn, options);
    let joined = tokio::select! {
        biased;
        joined = &mut join => joined,
        () = phases.reached(Phase::Aborting) => join.abort(),
    };
    drop(join);
    let Joined {
        ending,
        to_tcp,
        to_session,
        flow,
    } = joined;
    let (name, error) = describe(&ending);
    shared.metrics.ended(name);
    let tally = flow.map(|flow| flow.seen().tally).unwrap_or_default();
    shared.metrics.limited(&tally);
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
            forward_bytes = to_tcp,
            backward_bytes = to_session,
            seconds = began.elapsed().as_secs_f64(),
            limited_by = tally.chief().map(|(limit, _)| Limit::word(limit)),
            ending = name,
            error = error.map(tracing::field::display),
            left_out,
            "session ended"
        );
    });
}

fn options(shared: &Arc<Shared>, rule: &RuleSession) -> JoinOptions {
    let RateLimits { forward, backward }: RateLimits = rule.limits();
    let [to_tcp, to_session]: [Arc<RateLimit>; 2] = [forward, backward];
    let metrics = Arc::clone(&shared.metrics);
    JoinOptions {
        silence: shared.timeouts.silence(),
        buffers: Arc::clone(&shared.buffers),
        to_tcp,
        to_session,
        sizing: shared.sizing,
        on_moved: Some(Arc::new(move |to_tcp, to_session| {
            metrics.moved(to_tcp, to_session)
        })),
        ..JoinOptions::default()
    }
}

/// Counts and logs a connection that became no session. Its peer has already been told why, if an
/// answer was possible.
fn turned_away(shared: &Shared, peer: SocketAddr, open: Option<&Open>, error: &Error) {
    let (code, detail) = match error {
        Error::Refused(refusal) => (refusal.code(), refusal.to_string()),
        Error::NoRoom(full) => (StatusCode::Overloaded, full.to_string()),
        Error::Declined { code, detail } => (*code, detail.clone()),
        error => {
            shared.metrics.refused("lost");
            tracing::debug!(from = %peer, %error, "connection lost during set-up");
            return;
        }
    };
    // Charged to no payer: few of these peers have proved who they are.
    refused(shared, peer, open, &Declined { code, detail }, None);
}

fn refused(
    shared: &Shared,
    peer: SocketAddr,
    open: Option<&Open>,
    why: &Declined,
    payer: Option<Payer>,
) {
    shared.metrics.refused(why.code.word());
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

/// Returns the ending as a word for logs and metrics, and its error.
fn describe(ending: &Ending) -> (&'static str, Option<&std::io::Error>) {
    match ending {
        Ending::Finished => ("finished", None),
        Ending::Closed => ("server closed", None),
        Ending::Died(End::Session, error) => ("initiator side died", Some(error)),
        Ending::Died(End::Tcp, error) => ("server died", Some(error)),
        Ending::Idle => ("idle", None),
        Ending::HalfClosed => ("half-closed too long", None),
        Ending::BeyondSize => ("more than stated", None),
        Ending::Aborted => ("drained", None),
    }
}
