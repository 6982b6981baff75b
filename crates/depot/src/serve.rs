//! One connection from its first byte to its last: set-up, relay, metrics and log.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use longhaul_hop::{
    AdmittedConnection, Conn, Duplex, DuplexEnding, DuplexOptions, DuplexOutcome, EndPolicy,
    IdleLimits, Phase, PhaseReceiver,
};
use tokio::time::Instant;

use crate::grants::CountedGrant;
use crate::metrics::{EndingLabel, ReasonLabel, StatusLabel};
use crate::refuse::refuse;
use crate::relay::{HopTallies, RelayObserver};
use crate::setup::{EstablishedSession, SetupFailure, set_up};
use crate::state::DepotState;

/// Serves one connection to its end, or until `phases` ends it early.
pub(crate) async fn serve(
    shared: Arc<DepotState>,
    mut upstream: Conn,
    peer: SocketAddr,
    entered: AdmittedConnection,
    mut phases: PhaseReceiver,
) {
    let began = Instant::now();
    let AdmittedConnection {
        permit: mut place,
        mut eviction,
        header,
    } = entered;
    let draining = phases.clone();
    // The set-up needs buffers that the relay does not. Boxing frees them before the session idles.
    let setup = Box::pin(set_up(
        &shared,
        &mut upstream,
        peer,
        &mut place,
        header,
        &draining,
    ));
    let setup = tokio::select! {
        done = setup => done,
        () = eviction.wait() => return count_evicted(&shared),
        () = phases.wait_until(Phase::Aborting) => return,
    };
    match setup {
        Ok(session) => {
            upstream.mark_verified();
            shared.metrics.sessions_active.inc();
            relay(&shared, session, upstream, peer, began, phases).await;
            shared.metrics.sessions_active.dec();
        }
        Err(SetupFailure::Refused(open, why)) => {
            // Boxed as above: sessions that are not refused keep no memory for it.
            let refusing = Box::pin(refuse(&shared, upstream, peer, open.as_deref(), why));
            tokio::select! {
                () = refusing => {}
                () = eviction.wait() => count_evicted(&shared),
            }
        }
        // A clean close, as the peer sent nothing.
        Err(SetupFailure::Empty) => upstream.close(),
        // The connection is dropped, and so reset; nobody is left to report to.
        Err(SetupFailure::Lost(error)) => record_lost(&shared, peer, "lost", &error),
        Err(SetupFailure::Abandoned(error)) => record_lost(&shared, peer, "abandoned", &error),
    }
}

/// Counts an evicted connection. Dropping it resets it, as a flood gets no answer.
fn count_evicted(shared: &DepotState) {
    let reason = ReasonLabel::new("evicted");
    shared.metrics.turned_away.get_or_create(&reason).inc();
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
        payer,
        next: (next_hop, transport),
        to,
        early,
        most_bytes,
        grant,
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
    let observer = RelayObserver::new(shared.metrics.traffic.clone());
    let mut relay = Duplex::new(upstream, downstream, options, observer);
    if upstream_ended {
        relay.end_first();
    }
    let outcome = loop {
        tokio::select! {
            biased;
            outcome = &mut relay => break outcome,
            () = phases.wait_until(Phase::Aborting) => break relay.abort(),
            () = CountedGrant::wait_for_change(&mut grant) => relay.set_limits(limits(&grant)),
        }
    };
    let observer = relay.into_observer();
    let DuplexOutcome {
        ending,
        forward,
        backward,
    } = outcome;
    let tallies = observer.tallies();
    let sent = observer.sent_downstream().cloned();
    let (name, error) = describe(&ending);
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

/// Returns the ending as a word for logs and metrics, and its error.
fn describe(ending: &DuplexEnding) -> (&'static str, Option<&io::Error>) {
    match ending {
        // Revocable ends do not permit the second of these.
        DuplexEnding::Finished | DuplexEnding::Closed => ("finished", None),
        DuplexEnding::FirstDied(error) => ("initiator side died", Some(error)),
        DuplexEnding::SecondDied(error) => ("next hop died", Some(error)),
        DuplexEnding::Idle => ("idle", None),
        DuplexEnding::HalfClosed => ("half-closed too long", None),
        DuplexEnding::BeyondSize => ("more than stated", None),
        DuplexEnding::Aborted => ("drained", None),
    }
}
