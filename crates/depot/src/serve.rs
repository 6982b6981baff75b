//! One connection from its first byte to its last: set-up, relay, metrics and log.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use longhaul_hop::{Conn, Entered, EventLog, Gate, Payer, Phase, Phases};
use longhaul_policy::InForce;
use longhaul_proto::{Admission, ReplayMemory, SigningKey};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::config::Timeouts;
use crate::dial::Dialler;
use crate::grants::{CountedGrant, Grants};
use crate::metrics::{EndedBy, Metrics, Reason, RefusedWith};
use crate::observe::{self, HopObserver};
use crate::refusal::refuse;
use crate::relay::hops::HopTallies;
use crate::relay::pipe::PipePool;
use crate::relay::{Ending, Relay, RelayContext, Report, Side, Silence};
use crate::setup::{Established, Failure, set_up};

/// State shared by all connections of a depot.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) key: SigningKey,
    pub(crate) policy: InForce,
    pub(crate) admission: Admission,
    pub(crate) replays: Mutex<ReplayMemory<Payer>>,
    pub(crate) dialler: Dialler,
    pub(crate) timeouts: Timeouts,
    pub(crate) gate: Arc<Gate>,
    pub(crate) pipes: Arc<PipePool>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) events: EventLog,
    /// Observer of the relayed hops.
    pub(crate) observer: Option<HopObserver>,
    /// Use of circuit grants.
    pub(crate) grants: Arc<Grants>,
}

/// Serves one connection to its end, or until `phases` ends it early.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    mut upstream: Conn,
    peer: SocketAddr,
    entered: Entered,
    mut phases: Phases,
) {
    let began = Instant::now();
    let Entered {
        mut place,
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
        () = eviction.wait() => return evicted(&shared),
        () = phases.reached(Phase::Aborting) => return,
    };
    match setup {
        Ok(session) => {
            shared.metrics.sessions_active.inc();
            relay(&shared, session, upstream, peer, began, phases).await;
            shared.metrics.sessions_active.dec();
        }
        Err(Failure::Refused(open, why)) => {
            // Boxed as above: sessions that are not refused keep no memory for it.
            let refusing = Box::pin(refuse(&shared, upstream, peer, open.as_deref(), why));
            tokio::select! {
                () = refusing => {}
                () = eviction.wait() => evicted(&shared),
            }
        }
        // A clean close, as the peer sent nothing.
        Err(Failure::Nothing) => upstream.close(),
        // The connection is dropped, and so reset; nobody is left to report to.
        Err(Failure::Lost(error)) => lost(&shared, peer, "lost", &error),
        Err(Failure::Abandoned(error)) => lost(&shared, peer, "abandoned", &error),
    }
}

/// Counts an evicted connection. Dropping it resets it, as a flood gets no answer.
fn evicted(shared: &Shared) {
    let reason = Reason::new("evicted");
    shared.metrics.turned_away.get_or_create(&reason).inc();
}

fn lost(shared: &Shared, peer: SocketAddr, how: &'static str, error: &io::Error) {
    shared
        .metrics
        .opens_refused
        .get_or_create(&RefusedWith::new(how))
        .inc();
    tracing::debug!(from = %peer, %error, "connection {how} during set-up");
}

async fn relay(
    shared: &Shared,
    session: Established,
    upstream: Conn,
    peer: SocketAddr,
    began: Instant,
    mut phases: Phases,
) {
    let Established {
        open,
        downstream,
        upstream_ended,
        rule,
        payer,
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
    let context = RelayContext {
        pipes: Arc::clone(&shared.pipes),
        silence: Silence {
            open: shared.timeouts.idle,
            half_closed: shared.timeouts.half_closed,
        },
        traffic: shared.metrics.traffic.clone(),
        limits: limits(&grant),
        most_bytes: most_bytes.unwrap_or(u64::MAX),
    };
    let mut relay = Relay::new(upstream, downstream, upstream_ended, context);
    let report = loop {
        tokio::select! {
            biased;
            report = &mut relay => break report,
            () = phases.reached(Phase::Aborting) => break relay.abort(Ending::Drained),
            () = CountedGrant::turned(&mut grant) => relay.limit(limits(&grant)),
        }
    };
    drop(relay);
    let Report {
        ending,
        forward,
        backward,
        hops,
        seen,
    } = report;
    let (name, error) = describe(&ending);
    shared
        .metrics
        .sessions_ended
        .get_or_create(&EndedBy::new(name))
        .inc();
    shared.metrics.limited("upstream", &hops.upstream);
    shared.metrics.limited("downstream", &hops.downstream);
    if let (Some(observer), Some(seen)) = (&shared.observer, seen) {
        let (initiator, acceptor) = observe::ends(&open);
        for report in seen.reports(initiator, acceptor) {
            (observer.0)(report);
        }
    }
    let moved = forward + backward + early as u64;
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
            upstream_limited_by = HopTallies::chief(&hops.upstream),
            downstream_limited_by = HopTallies::chief(&hops.downstream),
            ending = name,
            error = error.map(tracing::field::display),
            left_out,
            "session ended"
        );
    });
}

/// Returns the ending as a word for logs and metrics, and its error.
fn describe(ending: &Ending) -> (&'static str, Option<&io::Error>) {
    match ending {
        Ending::Finished => ("finished", None),
        Ending::Died(Side::Upstream, error) => ("initiator side died", Some(error)),
        Ending::Died(Side::Downstream, error) => ("next hop died", Some(error)),
        Ending::Idle => ("idle", None),
        Ending::HalfClosed => ("half-closed too long", None),
        Ending::BeyondSize => ("more than stated", None),
        Ending::Drained => ("drained", None),
    }
}
