//! One connection from its first byte to its last: set-up, relay, metrics and log.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use longhaul_accounts::record::bounded;
use longhaul_accounts::{AccountRecord, SessionRecord, SessionResult};
use longhaul_hop::{
    Conn, Duplex, DuplexEnding, DuplexOptions, DuplexOutcome, EndPolicy, IdleLimits,
};
use longhaul_policy::PrincipalWatch;
use longhaul_service::{Interruption, PendingConnection, Phase, PhaseReceiver};
use longhaul_wishes::DrivenFlow;
use tokio::time::Instant;

use crate::circuit::{changed_limits, drive_circuit};
use crate::grants::CountedGrant;
use crate::marking::mark_hops;
use crate::metrics::{EndingLabel, ReasonLabel, StatusLabel};
use crate::refuse::refuse;
use crate::relay::{HopTallies, RelayObserver};
use crate::setup::{EstablishedSession, SetupFailure, set_up};
use crate::state::DepotState;

/// Serves one connection to its end, or until it is interrupted.
pub(crate) async fn serve(shared: Arc<DepotState>, connection: PendingConnection) {
    let began = Instant::now();
    let PendingConnection {
        conn: mut upstream,
        peer,
        permit: mut place,
        header,
        mut guard,
    } = connection;
    let phases = guard.phases().clone();
    // The set-up needs buffers that the relay does not. Boxing frees them before the session idles.
    let setup = Box::pin(set_up(
        &shared,
        &mut upstream,
        peer,
        &mut place,
        header,
        &phases,
    ));
    let setup = match guard.run(setup).await {
        Ok(done) => done,
        Err(why) => return count_interrupted(&shared, why),
    };
    match setup {
        Ok(session) => {
            drop(guard);
            upstream.mark_verified();
            shared.metrics.sessions_active.inc();
            relay(&shared, session, upstream, peer, began, phases).await;
            shared.metrics.sessions_active.dec();
        }
        Err(SetupFailure::Refused(open, why)) => {
            // Boxed as above: sessions that are not refused keep no memory for it.
            let refusing = Box::pin(refuse(&shared, upstream, peer, open.as_deref(), why));
            if let Err(why) = guard.run(refusing).await {
                count_interrupted(&shared, why);
            }
        }
        // A clean close, as the peer sent nothing.
        Err(SetupFailure::Empty) => upstream.close(),
        // The connection is dropped, and so reset; nobody is left to report to.
        Err(SetupFailure::Lost(error)) => record_lost(&shared, peer, "lost", &error),
        Err(SetupFailure::Abandoned(error)) => record_lost(&shared, peer, "abandoned", &error),
    }
}

/// Counts an evicted connection.
fn count_interrupted(shared: &DepotState, why: Interruption) {
    if why == Interruption::Evicted {
        let reason = ReasonLabel::new("evicted");
        shared.metrics.turned_away.get_or_create(&reason).inc();
    }
}

fn record_lost(shared: &DepotState, peer: SocketAddr, how: &'static str, error: &io::Error) {
    shared
        .metrics
        .opens_refused
        .get_or_create(&StatusLabel::new(how))
        .inc();
    tracing::debug!(from = %peer, %error, "connection {how} during set-up");
}

async fn relay(
    shared: &DepotState,
    session: EstablishedSession,
    upstream: Conn,
    peer: SocketAddr,
    began: Instant,
    mut phases: PhaseReceiver,
) {
    let EstablishedSession {
        open,
        added,
        downstream,
        upstream_ended,
        rule,
        mut names,
        payer,
        next: (next_hop, transport),
        to,
        early,
        most_bytes,
        grant,
        delegated,
    } = session;
    let mut grant = grant.map(|session| CountedGrant::new(session, &shared.metrics));
    let limits = |grant: &Option<CountedGrant<'_>>| {
        // The rate of the grant applies while it is in force, and otherwise the rate of the rule.
        let granted = grant.as_ref().and_then(|grant| grant.session.limits());
        granted.unwrap_or_else(|| rule.limits())
    };
    let options = DuplexOptions {
        idle_limits: IdleLimits {
            open: shared.timeouts.idle,
            half_closed: shared.timeouts.half_closed,
        },
        limits: limits(&grant),
        max_bytes: most_bytes.unwrap_or(u64::MAX),
        ends: EndPolicy::Revocable,
        pipes: Some(Arc::clone(&shared.pipes)),
        buffers: Arc::clone(&shared.buffers),
    };
    let mut circuit = drive_circuit(shared, delegated, &open, payer, &downstream);
    let hop = circuit.as_ref().map(DrivenFlow::held_hop);
    let marked = shared
        .marker
        .as_ref()
        .and_then(|marker| mark_hops(marker, &open, (&upstream, peer), (&downstream, to)));
    let bytes = marked.as_ref().map(|marked| Arc::clone(&marked.bytes));
    let observer = RelayObserver::new(shared.metrics.traffic.clone(), hop, bytes);
    let mut relay = Duplex::new(upstream, downstream, options, observer);
    if upstream_ended {
        relay.end_first();
    }
    let mut revoked = false;
    let outcome = loop {
        tokio::select! {
            biased;
            outcome = &mut relay => break outcome,
            () = phases.wait_until(Phase::Aborting) => break relay.abort(),
            () = PrincipalWatch::wait_until_revoked(&mut names) => {
                revoked = true;
                break relay.abort();
            }
            () = CountedGrant::wait_for_change(&mut grant) => relay.set_limits(limits(&grant)),
            changed = changed_limits(&mut circuit, rule.limits()) => relay.set_limits(changed),
        }
    };
    drop(marked);
    // Returned in the background: the session's permit is not held for it.
    drop(circuit);
    let observer = relay.into_observer();
    let DuplexOutcome {
        ending,
        forward,
        backward,
    } = outcome;
    let tallies = observer.tallies();
    let sent = observer.sent_downstream();
    let (result, name, error) = match revoked {
        true => (SessionResult::Revoked, "revoked", None),
        false => describe(&ending, forward),
    };
    shared
        .metrics
        .sessions_ended
        .get_or_create(&EndingLabel::new(name))
        .inc();
    shared
        .metrics
        .add_limit_times("upstream", &tallies.upstream);
    shared
        .metrics
        .add_limit_times("downstream", &tallies.downstream);
    let reports = observer.into_reports(&open, added.as_ref());
    if let (Some(callback), Some(reports)) = (&shared.observer, reports) {
        for report in reports {
            (callback.0)(report);
        }
    }
    let moved = forward + backward + early as u64;
    shared.dialler.learn(
        &next_hop,
        transport,
        sent.as_ref(),
        (moved, began.elapsed()),
    );
    let carried = grant.as_ref().map(|grant| {
        shared.metrics.granted_bytes.inc_by(moved);
        grant.session.count_carried(moved)
    });
    if let Some(accounts) = &shared.accounts {
        accounts.add(AccountRecord::Session(SessionRecord {
            rule: Some(bounded(rule.rule())),
            circuit: grant.as_ref().map(|grant| grant.session.circuit()),
            forward_bytes: forward + early as u64,
            backward_bytes: backward,
            result,
            reason: error.map(bounded),
            ..SessionRecord::new("depot", &open, (peer, to), began.elapsed())
        }));
    }
    shared.events.log(Some(payer), |left_out| {
        tracing::info!(
            session = %open.session_id,
            principal = %open.principal,
            circuit = grant.as_ref().map(|grant| grant.session.circuit()),
            circuit_bytes = carried,
            rule = rule.rule(),
            from = %peer,
            %to,
            transport = %transport,
            added = added.as_ref().map(tracing::field::display),
            destination = %open.destination,
            service = %open.service,
            server = open.onward.as_ref().map(tracing::field::display),
            purpose = open.purpose.as_deref(),
            size = open.size,
            rate = open.rate,
            duration = open.duration,
            forward_bytes = forward + early as u64,
            backward_bytes = backward,
            seconds = began.elapsed().as_secs_f64(),
            upstream_limited_by = HopTallies::dominant_limit(&tallies.upstream),
            downstream_limited_by = HopTallies::dominant_limit(&tallies.downstream),
            ending = name,
            error = error.map(tracing::field::display),
            left_out,
            "session ended"
        );
    });
}

/// Returns the ending as a result for accounts and a word for logs and metrics, and its error.
/// `forward` is the number of bytes that the initiator sent after its OPEN and early data.
fn describe(
    ending: &DuplexEnding,
    forward: u64,
) -> (SessionResult, &'static str, Option<&io::Error>) {
    match ending {
        // Revocable ends do not permit the second of these. The last is a client that is done, and
        // exits without waiting for its server's last words.
        DuplexEnding::Finished | DuplexEnding::Closed | DuplexEnding::FirstClosed => {
            (SessionResult::Completed, "finished", None)
        }
        // It never answered the acceptor. A client opens streams that it turns out not to need.
        DuplexEnding::FirstDied(error) if forward == 0 => {
            (SessionResult::Abandoned, "abandoned", Some(error))
        }
        DuplexEnding::FirstDied(error) => (
            SessionResult::InitiatorDied,
            "initiator side died",
            Some(error),
        ),
        DuplexEnding::SecondDied(error) => {
            (SessionResult::NextHopDied, "next hop died", Some(error))
        }
        DuplexEnding::Idle => (SessionResult::Idle, "idle", None),
        DuplexEnding::HalfClosed => (SessionResult::HalfClosed, "half-closed too long", None),
        DuplexEnding::BeyondSize => (SessionResult::BeyondSize, "more than stated", None),
        DuplexEnding::Aborted => (SessionResult::Drained, "drained", None),
    }
}
