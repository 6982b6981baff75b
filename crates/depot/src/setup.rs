//! Session set-up, from accept to both connections: reads the OPEN, checks it, dials the next hop,
//! forwards the OPEN, and answers.
//!
//! No round trip is added (LH-DEPOT-1). The dial begins as soon as the OPEN is verified. Early data
//! is read meanwhile (at most [`MAX_EARLY_DATA_BYTES`] bytes, LH-DEPOT-5). The OPEN and the early
//! data leave together in the first flight of the new connection.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use longhaul_hop::{Conn, ConnectionPermit, Payer, ReceiveOpenError, receive_open, unix_ms};
use longhaul_policy::{PrincipalWatch, Role, RuleSession};
use longhaul_proto::{
    Endpoint, Hop, MAX_EARLY_DATA_BYTES, Open, OpenRefusal, PublicKey, Status, StatusCode,
    Transport, VoucherFault, payload_rate,
};
use longhaul_service::{Phase, PhaseReceiver, is_registration};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};

use crate::circuit::{DelegatedTerms, delegated_terms};
use crate::dial::{deadline, policy_refusal};
use crate::grants::{ClockReading, GrantSession};
use crate::next_hop::{DialledHop, NextHops};
use crate::probe;
use crate::refusal::DepotRefusal;
use crate::registration;
use crate::state::DepotState;

/// Size of a read of early data, in bytes.
const CHUNK_BYTES: usize = 4096;

/// A session that has been set up.
pub(crate) struct EstablishedSession {
    /// OPEN as forwarded.
    pub(crate) open: Open,
    /// Depot that was added before the loose hop, if one was.
    pub(crate) added: Option<Hop>,
    pub(crate) downstream: Conn,
    /// True if the upstream's end of stream came with the early data.
    pub(crate) upstream_ended: bool,
    pub(crate) rule: RuleSession,
    /// Watch of the names that the rule requires; `None` if keys have no names here.
    pub(crate) names: Option<PrincipalWatch>,
    pub(crate) payer: Payer,
    /// Next hop, and its transport.
    pub(crate) next: (Endpoint, Transport),
    /// Address of the next hop.
    pub(crate) to: SocketAddr,
    /// Bytes of early data forwarded with the OPEN.
    pub(crate) early: usize,
    /// Maximum number of bytes in each direction.
    pub(crate) most_bytes: Option<u64>,
    /// The session under a circuit grant, if it has one.
    pub(crate) grant: Option<GrantSession>,
    /// Reservations that it may have.
    pub(crate) delegated: Option<DelegatedTerms>,
}

/// Reason why a connection did not become a session.
pub(crate) enum SetupFailure {
    /// The peer closed without sending a byte: a port check.
    Empty,
    /// The peer died or ended its stream within the OPEN.
    Lost(io::Error),
    /// The peer died while the next hop was dialled.
    Abandoned(io::Error),
    /// The OPEN was refused, and the peer must be told why. Contains the OPEN, if there was one.
    Refused(Option<Box<Open>>, DepotRefusal),
}

/// Sets up the session that `upstream` asks for. Its permit is charged to the principal as soon as
/// the OPEN is verified.
pub(crate) async fn set_up(
    shared: &DepotState,
    upstream: &mut Conn,
    peer: SocketAddr,
    place: &mut ConnectionPermit,
    header: Duration,
    phases: &PhaseReceiver,
) -> Result<EstablishedSession, SetupFailure> {
    let (open, began, mut early) = match timeout(header, receive_open(upstream)).await {
        Ok(Ok(received)) => received,
        Ok(Err(ReceiveOpenError::Empty)) => return Err(SetupFailure::Empty),
        Ok(Err(ReceiveOpenError::Lost(error))) => return Err(SetupFailure::Lost(error)),
        Ok(Err(ReceiveOpenError::Malformed(error))) => {
            return Err(SetupFailure::Refused(None, OpenRefusal::from(error).into()));
        }
        Err(_) => {
            let why = DepotRefusal::new(StatusCode::HeaderTimeout, "");
            return Err(SetupFailure::Refused(None, why));
        }
    };
    if probe::is_probe(&open) {
        // The probe ends here: no hop is dialled.
        let served = probe::serve(shared, upstream, place, &open, early).await;
        return Err(served.map_or_else(
            |why| SetupFailure::Refused(Some(Box::new(open)), why),
            |()| SetupFailure::Empty,
        ));
    }
    if is_registration(&open) {
        let served = registration::serve(shared, upstream, &open, &early, header).await;
        return Err(match served {
            Ok(None) => SetupFailure::Empty,
            Ok(Some(why)) => SetupFailure::Refused(Some(Box::new(open)), why),
            Err(error) => SetupFailure::Lost(error),
        });
    }
    let fault = shared.admission.read_voucher(&open, unix_ms()).await;
    let (next_hops, payer, grant) = match admit(shared, peer.ip(), &open, fault, place, phases) {
        Ok(admitted) => admitted,
        Err(why) => return Err(SetupFailure::Refused(Some(Box::new(open)), why)),
    };
    let mut upstream_ended = false;
    let limit = deadline(&open, began, shared.timeouts.dial);
    let dialled = tokio::select! {
        dialled = next_hops.dial(shared, &open, payer, limit) => dialled,
        error = read_early_data(upstream, &mut early, &mut upstream_ended) => {
            return Err(SetupFailure::Abandoned(error));
        }
    };
    let went_on = match dialled {
        Ok(mut next) => {
            pace(grant.as_ref(), &open, upstream, &next.connection.conn);
            let passed_on = forward_open(shared, &open, &early, began, limit, &mut next).await;
            passed_on.map(|onward| (next, onward))
        }
        Err(why) => Err(why),
    };
    let (next, onward) = went_on.map_err(|mut why| {
        if why.code == StatusCode::DialTimeout && began.elapsed() >= open.setup_budget {
            why.code = StatusCode::SetupTimeout;
        }
        SetupFailure::Refused(Some(Box::new(open)), why.charged_to(payer))
    })?;
    let early = early.len();
    let delegated = delegated_terms(shared, &onward, &next.target.rule);
    let most_bytes = next.target.rule.max_bytes(onward.size);
    let next_hop = (
        next.target.endpoint.clone(),
        next.connection.conn.transport(),
    );
    answer_ok(shared, upstream, &onward, &next, early)
        .await
        .map_err(SetupFailure::Abandoned)?;
    shared.metrics.traffic.count(early as u64, 0);
    let identities = Arc::clone(shared.policy.policy().identities());
    let names = PrincipalWatch::new(identities, next.target.rule, onward.principal);
    Ok(EstablishedSession {
        open: onward,
        added: next.added,
        downstream: next.connection.conn,
        upstream_ended,
        rule: next.rule,
        names,
        payer,
        next: next_hop,
        to: next.connection.address,
        early,
        most_bytes,
        grant,
        delegated,
    })
}

/// Paces both hops of a circuit from their first byte on, or a hop that the route wants paced, each
/// in the direction in which this depot sends.
fn pace(grant: Option<&GrantSession>, open: &Open, upstream: &Conn, downstream: &Conn) {
    if let Some(grant) = grant {
        upstream.pace(grant.pacing_rate());
        downstream.pace(grant.pacing_rate());
    } else if let Some(rate) = open.rate
        && open.dialled_transport() == Some(Transport::Paced)
    {
        upstream.pace(payload_rate(rate));
    }
}

/// Makes the checks that cost no more than a signature (LH-ADMIT-1). No name is resolved and no hop
/// is dialled before they pass (LH-ADMIT-2). Checks of shared state come last.
fn admit(
    shared: &DepotState,
    peer: IpAddr,
    open: &Open,
    fault: Option<VoucherFault>,
    place: &mut ConnectionPermit,
    phases: &PhaseReceiver,
) -> Result<(NextHops, Payer, Option<GrantSession>), DepotRefusal> {
    let at = ClockReading::read();
    let now = at.unix_ms;
    let policy = shared.policy.policy();
    let knows = |principal: &PublicKey| policy.has_rules_for(principal, Role::Depot);
    shared.admission.check_at_depot(open, fault, now, knows)?;
    let next_hops = NextHops::find(shared, &policy, open)?;
    let payer = match next_hops.lists_principal {
        true => Payer::Key(open.principal),
        false => Payer::from_address(peer),
    };
    let entered = if phases.current() != Phase::Running {
        Err(DepotRefusal::new(StatusCode::Draining, ""))
    } else if next_hops.is_empty() {
        Err(policy_refusal(open))
    } else {
        shared.admission.admit(open, place, payer, now)
    };
    // LH-GRANT-2, LH-GRANT-3.
    let granted = entered.and_then(|()| {
        let me = shared.key.public();
        shared.grants.enter(open, &me, &policy, at)
    });
    match granted {
        Ok(grant) => Ok((next_hops, payer, grant)),
        Err(why) => Err(why.charged_to(payer)),
    }
}

/// Sends the OPEN together with the early data in one write. It is advanced by one hop, unless the
/// next one was added. Returns the OPEN as forwarded.
async fn forward_open(
    shared: &DepotState,
    open: &Open,
    early: &[u8],
    began: Instant,
    limit: Instant,
    next: &mut DialledHop,
) -> Result<Open, DepotRefusal> {
    // LH-ROUTE-5, LH-ROUTE-6, LH-ROUTE-7; nothing else changes (LH-DEPOT-7).
    let me = shared.key.public();
    let onward = match &next.added {
        None => open.forwarded(me, began.elapsed())?,
        Some(_) => open.detour(me, began.elapsed())?,
    };
    let mut flight = BytesMut::with_capacity(1024 + early.len());
    onward.encode(&mut flight).map_err(OpenRefusal::from)?;
    flight.extend_from_slice(early);
    let failed = |code: StatusCode, detail: String| DepotRefusal {
        forwarded: !early.is_empty(),
        tried: next.added.as_ref().map(|hop| hop.endpoint.clone()),
        ..DepotRefusal::new(code, detail)
    };
    // A next hop that opens no window blocks only this write, and only until the limit.
    match timeout_at(limit, next.connection.conn.write_all(&flight)).await {
        Ok(Ok(())) => Ok(onward),
        Ok(Err(error)) => Err(failed(
            StatusCode::DialRefused,
            format!("it closed the connection: {error}"),
        )),
        Err(_) => Err(failed(
            StatusCode::DialTimeout,
            "it accepted the connection, but not the request".to_owned(),
        )),
    }
}

/// Reads early data while the next hop is dialled, up to the bound, and then only watches the
/// upstream. Completes when the upstream dies.
async fn read_early_data(upstream: &mut Conn, early: &mut Vec<u8>, ended: &mut bool) -> io::Error {
    let mut chunk = [0u8; CHUNK_BYTES];
    loop {
        let room = MAX_EARLY_DATA_BYTES
            .saturating_sub(early.len())
            .min(CHUNK_BYTES);
        if *ended || room == 0 {
            return upstream.broken().await;
        }
        let into = chunk.get_mut(..room).unwrap_or_default();
        match upstream.read(into).await {
            Ok(0) => *ended = true,
            Ok(n) => early.extend_from_slice(chunk.get(..n).unwrap_or_default()),
            Err(error) => return error,
        }
    }
}

/// Reports to the initiator that the next hop has been dialled (LH-DEPOT-2). From then on, every
/// byte towards the initiator comes from later hops, including their statuses (LH-DEPOT-6).
async fn answer_ok(
    shared: &DepotState,
    upstream: &mut Conn,
    onward: &Open,
    next: &DialledHop,
    early: usize,
) -> io::Result<()> {
    // The forwarded OPEN lists this depot among those passed, so their number is its position.
    let mut status = Status::new(
        StatusCode::Ok,
        u8::try_from(onward.passed.len()).unwrap_or(u8::MAX),
    );
    status.at = Some(next.target.endpoint.clone());
    status.dialled = Some(next.connection.conn.details());
    status.payload_forwarded = early > 0;
    status.sign(&shared.key, onward).map_err(io::Error::other)?;
    let mut bytes = BytesMut::new();
    status.encode(&mut bytes);
    upstream.write_all(&bytes).await
}
