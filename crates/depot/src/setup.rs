//! Session set-up, from accept to both connections: reads the OPEN, checks it, dials the next hop,
//! forwards the OPEN, and answers.
//!
//! No round trip is added (LH-DEPOT-1). The dial begins as soon as the OPEN is verified. Early data
//! is read meanwhile (at most [`MAX_HELD`] bytes, LH-DEPOT-5). The OPEN and the early data leave
//! together in the first flight of the new connection.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::BytesMut;
use longhaul_hop::{Conn, Dialled, NoOpen, Payer, Phase, Phases, Place, receive_open};
use longhaul_policy::{Candidates, NoPlace, NoWay, Role, RuleSession, Way, Wishes};
use longhaul_proto::{MAX_HELD, Open, Refusal, Status, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};

use crate::dial::{asked, deadline, not_allowed};
use crate::grants::{GrantSession, Now};
use crate::probe;
use crate::refusal::Refused;
use crate::serve::Shared;

/// Size of a read of early data, in bytes.
const CHUNK: usize = 4096;

/// A session that has been set up.
pub(crate) struct Established {
    /// OPEN as forwarded.
    pub(crate) open: Open,
    pub(crate) downstream: Conn,
    /// True if the upstream's end of stream came with the early data.
    pub(crate) upstream_ended: bool,
    pub(crate) rule: RuleSession,
    pub(crate) payer: Payer,
    /// Address of the next hop.
    pub(crate) to: SocketAddr,
    /// Bytes of early data forwarded with the OPEN.
    pub(crate) early: usize,
    /// Maximum number of bytes in each direction.
    pub(crate) most_bytes: Option<u64>,
    /// The session under a circuit grant, if it has one.
    pub(crate) grant: Option<GrantSession>,
}

/// Reason why a connection did not become a session.
pub(crate) enum Failure {
    /// The peer closed without sending a byte: a port check.
    Nothing,
    /// The peer died or ended its stream within the OPEN.
    Lost(io::Error),
    /// The peer died while the next hop was dialled.
    Abandoned(io::Error),
    /// The OPEN was refused, and the peer must be told why. Contains the OPEN, if there was one.
    Refused(Option<Box<Open>>, Refused),
}

/// Sets up the session that `upstream` asks for. Its permit is charged to the principal as soon as
/// the OPEN is verified.
pub(crate) async fn set_up(
    shared: &Shared,
    upstream: &mut Conn,
    peer: SocketAddr,
    place: &mut Place,
    header: Duration,
    phases: &Phases,
) -> Result<Established, Failure> {
    let (open, began, mut early) = match timeout(header, receive_open(upstream)).await {
        Ok(Ok(received)) => received,
        Ok(Err(NoOpen::Nothing)) => return Err(Failure::Nothing),
        Ok(Err(NoOpen::Lost(error))) => return Err(Failure::Lost(error)),
        Ok(Err(NoOpen::Malformed(error))) => {
            return Err(Failure::Refused(None, Refusal::from(error).into()));
        }
        Err(_) => {
            let why = Refused::new(StatusCode::HeaderTimeout, "");
            return Err(Failure::Refused(None, why));
        }
    };
    if probe::is_probe(&open) {
        // The probe ends here: no hop is dialled.
        let served = probe::serve(shared, upstream, place, &open, early).await;
        return Err(served.map_or_else(
            |why| Failure::Refused(Some(Box::new(open)), why),
            |()| Failure::Nothing,
        ));
    }
    let (candidates, payer, grant) = match admit(shared, peer.ip(), &open, place, phases) {
        Ok(admitted) => admitted,
        Err(why) => return Err(Failure::Refused(Some(Box::new(open)), why)),
    };
    let mut upstream_ended = false;
    let limit = deadline(&open, began, shared.timeouts.dial);
    let dialled = tokio::select! {
        dialled = dial(shared, candidates, &open, payer, limit) => dialled,
        error = hold(upstream, &mut early, &mut upstream_ended) => {
            return Err(Failure::Abandoned(error));
        }
    };
    let went_on = match dialled {
        Ok((way, rule, mut next)) => {
            if let Some(grant) = &grant {
                pace(grant, upstream, &next.conn);
            }
            let passed_on = pass_on(shared, &open, &early, began, limit, &mut next.conn).await;
            passed_on.map(|onward| (way, rule, next, onward))
        }
        Err(why) => Err(why),
    };
    let (way, rule, next, onward) = went_on.map_err(|mut why| {
        if why.code == StatusCode::DialTimeout && began.elapsed() >= open.setup_budget {
            why.code = StatusCode::SetupTimeout;
        }
        Failure::Refused(Some(Box::new(open)), why.on_account_of(payer))
    })?;
    let early = early.len();
    let most_bytes = way.rule.most_bytes(onward.size);
    answer_ok(shared, upstream, &onward, way, early)
        .await
        .map_err(Failure::Abandoned)?;
    shared.metrics.traffic.count(early as u64, 0);
    Ok(Established {
        open: onward,
        downstream: next.conn,
        upstream_ended,
        rule,
        payer,
        to: next.address,
        early,
        most_bytes,
        grant,
    })
}

/// Paces both hops from their first byte on (`SO_MAX_PACING_RATE`), each in the direction in which
/// this depot sends.
fn pace(grant: &GrantSession, upstream: &Conn, downstream: &Conn) {
    for hop in [upstream, downstream] {
        if let Err(error) = drs::set_max_pacing_rate(hop, Some(grant.paced())) {
            // The rate limit bounds the sum in any case, only less smoothly.
            tracing::debug!(%error, "a hop of a circuit can't be paced");
        }
    }
}

/// Makes the checks that cost no more than a signature (LH-ADMIT-1). No name is resolved and no hop
/// is dialled before they pass (LH-ADMIT-2). Checks of shared state come last.
fn admit(
    shared: &Shared,
    peer: IpAddr,
    open: &Open,
    place: &mut Place,
    phases: &Phases,
) -> Result<(Candidates, Payer, Option<GrantSession>), Refused> {
    let at = Now::read();
    let now = at.unix_ms;
    let policy = shared.policy.policy();
    shared
        .admission
        .depot(open, now, |principal| policy.knows(principal, Role::Depot))?;
    let own = shared.dialler.own_addresses();
    let candidates = policy.candidates(&open.principal, asked(open)?, &own);
    // LH-WISH-1.
    let candidates = candidates
        .within(&open.principal, &Wishes::from(open))
        .map_err(|unmet| NoWay::unmet(&unmet))?;
    let payer = match candidates.listed {
        true => Payer::Key(open.principal),
        false => Payer::source(peer),
    };
    let entered = if phases.now() != Phase::Running {
        Err(Refused::new(StatusCode::Draining, ""))
    } else if candidates.rules.is_empty() {
        Err(not_allowed(open))
    } else {
        enter(shared, open, place, payer, now)
    };
    // LH-GRANT-2, LH-GRANT-3.
    let granted = entered.and_then(|()| {
        let me = shared.key.public();
        shared.grants.enter(open, &me, &policy, at)
    });
    match granted {
        Ok(grant) => Ok((candidates, payer, grant)),
        Err(why) => Err(why.on_account_of(payer)),
    }
}

/// Takes from the shared resources: a session permit, and an entry in the replay memory.
fn enter(
    shared: &Shared,
    open: &Open,
    place: &mut Place,
    payer: Payer,
    now_unix_ms: u64,
) -> Result<(), Refused> {
    place.verified(payer)?;
    let mut replays = shared.replays.lock();
    replays
        .admit(&payer, open.session_id, open.signed_at_unix_ms, now_unix_ms)
        .map_err(Refusal::from)?;
    Ok(())
}

/// Finds a route by the policy, takes a permit under its rule, and connects.
async fn dial(
    shared: &Shared,
    candidates: Candidates,
    open: &Open,
    payer: Payer,
    limit: Instant,
) -> Result<(Way, RuleSession, Dialled), Refused> {
    let way = shared
        .dialler
        .authorise(candidates, open, payer, limit)
        .await?;
    let rule = shared
        .policy
        .live()
        .enter(&way.rule)
        .map_err(|no| match no {
            NoPlace::Full => Refused::new(
                StatusCode::Overloaded,
                format!("{}: as many sessions as it allows", way.rule.name()),
            ),
            // The policy changed while the name was looked up.
            NoPlace::Gone => not_allowed(open),
        })?;
    let began = Instant::now();
    let next = shared.dialler.dial(&way, limit).await?;
    shared.metrics.dialled(began.elapsed());
    Ok((way, rule, next))
}

/// Sends the OPEN, advanced by one hop, together with the early data in one write. Returns the OPEN
/// as forwarded.
async fn pass_on(
    shared: &Shared,
    open: &Open,
    early: &[u8],
    began: Instant,
    limit: Instant,
    downstream: &mut Conn,
) -> Result<Open, Refused> {
    // LH-ROUTE-5, LH-ROUTE-6, LH-ROUTE-7; nothing else changes (LH-DEPOT-7).
    let onward = open.passed_on(shared.key.public(), began.elapsed())?;
    let mut flight = BytesMut::with_capacity(1024 + early.len());
    onward.encode(&mut flight).map_err(Refusal::from)?;
    flight.extend_from_slice(early);
    let failed = |code: StatusCode, detail: String| Refused {
        forwarded: !early.is_empty(),
        ..Refused::new(code, detail)
    };
    // A next hop that opens no window blocks only this write, and only until the limit.
    match timeout_at(limit, downstream.write_all(&flight)).await {
        Ok(Ok(())) => Ok(onward),
        Ok(Err(error)) => Err(failed(
            StatusCode::DialRefused,
            format!("it hung up: {error}"),
        )),
        Err(_) => Err(failed(
            StatusCode::DialTimeout,
            "it connected, but did not take the OPEN".to_owned(),
        )),
    }
}

/// Reads early data while the next hop is dialled, up to the bound, and then only watches the
/// upstream. Completes when the upstream dies.
async fn hold(upstream: &mut Conn, early: &mut Vec<u8>, ended: &mut bool) -> io::Error {
    let mut chunk = [0u8; CHUNK];
    loop {
        let room = MAX_HELD.saturating_sub(early.len()).min(CHUNK);
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
    shared: &Shared,
    upstream: &mut Conn,
    onward: &Open,
    way: Way,
    early: usize,
) -> io::Result<()> {
    // The forwarded OPEN lists this depot among those passed, so their number is its position.
    let mut status = Status::new(
        StatusCode::Ok,
        u8::try_from(onward.passed.len()).unwrap_or(u8::MAX),
    );
    status.at = Some(way.endpoint);
    status.payload_forwarded = early > 0;
    status.sign(&shared.key, onward).map_err(io::Error::other)?;
    let mut bytes = BytesMut::new();
    status.encode(&mut bytes);
    upstream.write_all(&bytes).await
}
