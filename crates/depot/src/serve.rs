//! One connection from its first byte to its last: read the OPEN, check it, dial on, answer, relay.
//!
//! No round trip is added (LH-DEPOT-1): the dial begins as soon as the OPEN is verified, early data is read meanwhile (at most
//! [`MAX_HELD`] bytes, LH-DEPOT-5), and the OPEN and what is held leave together in the first flight of the new connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use longhaul_proto::{Admission, MAX_HELD, Open, OpenDecoder, PublicKey, Refusal, Status, StatusCode};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::Timeouts;
use crate::conn::Conn;
use crate::dial::{Dialler, Refused, deadline};
use crate::gate::{Gate, Place};
use crate::metrics::{EndedBy, Metrics, RefusedWith};
use crate::policy::{Policy, RuleSession};
use crate::relay::pipe::PipePool;
use crate::relay::{Ending, Relay, RelayContext, Report, Side, Silence};

/// Bytes read at once while the OPEN and the early data come in.
const CHUNK: usize = 4096;
/// Bytes that a refused initiator may still send while it has not read why.
const LINGER: usize = 1 << 20;

/// What all connections of a depot share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) key: PublicKey,
    pub(crate) policy: RwLock<Arc<Policy>>,
    pub(crate) admission: Mutex<Admission>,
    pub(crate) dialler: Dialler,
    pub(crate) timeouts: Timeouts,
    pub(crate) gate: Arc<Gate>,
    pub(crate) pipes: Arc<PipePool>,
    pub(crate) metrics: Arc<Metrics>,
}

/// How far the depot's life has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Running,
    /// Sessions finish; new ones are refused.
    Draining,
    /// The drain deadline has passed.
    Aborting,
}

/// A session that has been set up.
struct Established {
    open: Open,
    upstream: Conn,
    downstream: Conn,
    /// The upstream's end of stream came with the early data.
    upstream_ended: bool,
    rule: RuleSession,
    to: SocketAddr,
    early: usize,
}

/// Serves one connection to its end. `phase` cuts it short; a sender that is gone means the depot is, too.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    conn: Conn,
    peer: SocketAddr,
    mut place: Place,
    mut phase: watch::Receiver<Phase>,
) {
    let began = Instant::now();
    let draining = phase.clone();
    // The set-up needs buffers that the relay does not: boxed, they are gone once the session is idle.
    let setup = Box::pin(set_up(&shared, conn, peer, &mut place, draining));
    let established = tokio::select! {
        established = setup => established,
        _ = phase.wait_for(|phase| *phase == Phase::Aborting) => return,
    };
    let Some(session) = established else { return };
    shared.metrics.sessions_active.inc();
    relay(&shared, session, peer, began, phase).await;
    shared.metrics.sessions_active.dec();
}

async fn relay(
    shared: &Shared,
    session: Established,
    peer: SocketAddr,
    began: Instant,
    mut phase: watch::Receiver<Phase>,
) {
    let Established {
        open,
        upstream,
        downstream,
        upstream_ended,
        rule,
        to,
        early,
    } = session;
    let (forward_limit, backward_limit) = rule.rule().limits.clone().unzip();
    let context = RelayContext {
        pipes: Arc::clone(&shared.pipes),
        silence: Silence {
            open: shared.timeouts.idle,
            half_closed: shared.timeouts.half_closed,
        },
        traffic: shared.metrics.traffic.clone(),
        forward_limit,
        backward_limit,
    };
    let (session, principal) = (open.session_id, open.principal);
    let (destination, purpose) = (open.destination, open.purpose);
    let mut relay = Relay::new(upstream, downstream, upstream_ended, context);
    let report = tokio::select! {
        biased;
        report = &mut relay => report,
        _ = phase.wait_for(|phase| *phase == Phase::Aborting) => relay.abort(Ending::Drained),
    };
    drop(relay);
    let Report {
        ending,
        forward,
        backward,
    } = report;
    let (name, error) = describe(&ending);
    shared
        .metrics
        .sessions_ended
        .get_or_create(&EndedBy::new(name))
        .inc();
    tracing::info!(
        %session,
        %principal,
        rule = rule.rule().name,
        from = %peer,
        %to,
        %destination,
        purpose = purpose.as_deref(),
        forward_bytes = forward + early as u64,
        backward_bytes = backward,
        seconds = began.elapsed().as_secs_f64(),
        ending = name,
        error = error.map(tracing::field::display),
        "session ended"
    );
}

/// The ending as a word for logs and metrics, and the error behind it.
fn describe(ending: &Ending) -> (&'static str, Option<&io::Error>) {
    match ending {
        Ending::Finished => ("finished", None),
        Ending::Died(Side::Upstream, error) => ("initiator side died", Some(error)),
        Ending::Died(Side::Downstream, error) => ("next hop died", Some(error)),
        Ending::Idle => ("idle", None),
        Ending::HalfClosed => ("half-closed too long", None),
        Ending::Drained => ("drained", None),
    }
}

/// From accept to both connections standing. `None` when it came to nothing; the initiator has then been told.
async fn set_up(
    shared: &Shared,
    conn: Conn,
    peer: SocketAddr,
    place: &mut Place,
    phase: watch::Receiver<Phase>,
) -> Option<Established> {
    let mut early = Vec::new();
    let mut first_byte = None;
    let header = read_open(&conn, &mut early, &mut first_byte);
    let (open, refusal) = match tokio::time::timeout(shared.timeouts.header, header).await {
        Ok(Ok(Some(open))) => (Some(open), None),
        Ok(Ok(None)) => {
            // Nothing was ever asked: a port check. It may end as cleanly as it came.
            conn.close();
            return None;
        }
        Ok(Err(Unread::Lost(error))) => {
            tracing::debug!(from = %peer, %error, "connection lost before its OPEN was whole");
            shared
                .metrics
                .opens_refused
                .get_or_create(&RefusedWith::new("lost"))
                .inc();
            return None;
        }
        Ok(Err(Unread::Refused(refusal))) => (None, Some(Refused::new(refusal.code(), refusal.to_string()))),
        Err(_) => (None, Some(Refused::new(StatusCode::HeaderTimeout, ""))),
    };
    let began = first_byte.unwrap_or_else(Instant::now);
    let attempt = match (open, refusal) {
        (Some(open), None) => {
            let policy = Arc::clone(&shared.policy.read().unwrap_or_else(PoisonError::into_inner));
            match admit(shared, &policy, &open, place, &phase) {
                Ok(()) => connect_on(shared, &policy, &conn, &open, early, began)
                    .await
                    .map_err(|why| (Some(open), why)),
                Err(why) => Err((Some(open), Attempt::before(why))),
            }
        }
        (_, why) => Err((
            None,
            Attempt::before(why.unwrap_or_else(|| Refused::new(StatusCode::Internal, ""))),
        )),
    };
    let (open, failed) = match attempt {
        Ok(connected) => return answer_ok(shared, conn, connected).await,
        Err(failed) => failed,
    };
    let Some(why) = failed.why else {
        // The initiator died while we dialled: nobody to tell.
        tracing::debug!(from = %peer, "initiator side died during set-up");
        shared
            .metrics
            .opens_refused
            .get_or_create(&RefusedWith::new("abandoned"))
            .inc();
        return None;
    };
    refuse(shared, conn, peer, open.as_ref(), why, failed.forwarded).await;
    None
}

/// Why there is no OPEN.
enum Unread {
    Lost(io::Error),
    Refused(Refusal),
}

/// Reads up to the end of the OPEN; what came after it goes to `early`. `None` when the peer closes without a byte.
async fn read_open(
    conn: &Conn,
    early: &mut Vec<u8>,
    first_byte: &mut Option<Instant>,
) -> Result<Option<Open>, Unread> {
    let mut decoder = OpenDecoder::new();
    let mut chunk = [0u8; CHUNK];
    loop {
        let n = conn.read(&mut chunk).await.map_err(Unread::Lost)?;
        if n == 0 && first_byte.is_none() {
            return Ok(None);
        }
        if n == 0 {
            return Err(Unread::Lost(io::ErrorKind::UnexpectedEof.into()));
        }
        first_byte.get_or_insert_with(Instant::now);
        let input = chunk.get(..n).unwrap_or_default();
        if let Some((open, used)) = decoder
            .feed(input)
            .map_err(|error| Unread::Refused(error.into()))?
        {
            early.extend_from_slice(input.get(used..).unwrap_or_default());
            return Ok(Some(open));
        }
    }
}

/// The checks that cost nothing but a signature (LH-ADMIT-1): nobody is dialled and nothing resolved before they pass
/// (LH-ADMIT-2).
fn admit(
    shared: &Shared,
    policy: &Policy,
    open: &Open,
    place: &mut Place,
    phase: &watch::Receiver<Phase>,
) -> Result<(), Refused> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    shared
        .admission
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .depot(open, now, |principal| policy.knows(principal))
        .map_err(|refusal| Refused::new(refusal.code(), refusal.to_string()))?;
    if *phase.borrow() != Phase::Running {
        return Err(Refused::new(StatusCode::Draining, ""));
    }
    place
        .authenticated()
        .map_err(|full| Refused::new(StatusCode::Overloaded, full.reason()))
}

/// Why the attempt to connect on came to nothing.
struct Attempt {
    /// `None` when the initiator's side died.
    why: Option<Refused>,
    /// Early data may have gone on.
    forwarded: bool,
}

impl Attempt {
    const fn before(why: Refused) -> Self {
        Self {
            why: Some(why),
            forwarded: false,
        }
    }
}

/// The next hop's connection, with the OPEN and the early data on their way.
struct Connected {
    downstream: Conn,
    to: SocketAddr,
    rule: RuleSession,
    upstream_ended: bool,
    early: usize,
    onward: Open,
}

async fn connect_on(
    shared: &Shared,
    policy: &Policy,
    upstream: &Conn,
    open: &Open,
    mut early: Vec<u8>,
    began: Instant,
) -> Result<Connected, Attempt> {
    let mut upstream_ended = false;
    let limit = deadline(open, began, shared.timeouts.dial);
    let dial = async {
        let way = shared.dialler.authorise(policy, open, limit).await?;
        let full = || {
            Refused::new(
                StatusCode::Overloaded,
                format!("{}: as many sessions as it allows", way.rule.name),
            )
        };
        let rule = way.rule.enter().ok_or_else(full)?;
        let dialled = Instant::now();
        let conn = shared.dialler.dial(&way, limit).await?;
        shared.metrics.dialled(dialled.elapsed());
        Ok::<_, Refused>((conn, rule))
    };
    let dialled = tokio::select! {
        dialled = dial => dialled,
        _ = hold(upstream, &mut early, &mut upstream_ended) => return Err(Attempt { why: None, forwarded: false }),
    };
    let (downstream, rule) = dialled.map_err(|mut why| {
        if why.code == StatusCode::DialTimeout && began.elapsed() >= open.setup_budget {
            why.code = StatusCode::SetupTimeout;
        }
        Attempt::before(why)
    })?;
    let refused = |refusal: Refusal| Attempt::before(Refused::new(refusal.code(), refusal.to_string()));
    // LH-ROUTE-5, LH-ROUTE-6, LH-ROUTE-7: and nothing else changes (LH-DEPOT-7).
    let onward = open.onward(shared.key, began.elapsed()).map_err(refused)?;
    let mut flight = BytesMut::with_capacity(1024 + early.len());
    onward
        .encode(&mut flight)
        .map_err(|error| refused(error.into()))?;
    flight.extend_from_slice(&early);
    let lost = |error: io::Error| Attempt {
        why: Some(Refused::new(StatusCode::DialRefused, error.to_string())),
        forwarded: !early.is_empty(),
    };
    let to = rustix::net::getpeername(&downstream)
        .map_err(io::Error::from)
        .map_err(lost)?;
    let to = to.and_then(|address| SocketAddr::try_from(address).ok());
    let to = to.ok_or_else(|| lost(io::ErrorKind::NotConnected.into()))?;
    downstream.write_all(&flight).await.map_err(lost)?;
    Ok(Connected {
        downstream,
        to,
        rule,
        upstream_ended,
        early: early.len(),
        onward,
    })
}

/// Reads early data while the next hop is dialled, up to the bound, and then only watches. Ends when the upstream dies.
async fn hold(upstream: &Conn, early: &mut Vec<u8>, ended: &mut bool) -> io::Error {
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

/// Tells the initiator that it has been dialled on (LH-DEPOT-2); from then on every byte towards it is from further on,
/// the statuses of later places included (LH-DEPOT-6).
async fn answer_ok(shared: &Shared, upstream: Conn, connected: Connected) -> Option<Established> {
    let Connected {
        downstream,
        to,
        rule,
        upstream_ended,
        early,
        onward: open,
    } = connected;
    let mut status = Status::new(StatusCode::Ok, u8::try_from(open.passed.len()).unwrap_or(u8::MAX));
    status.reporter = Some(shared.key);
    status.payload_forwarded = early > 0;
    let mut bytes = BytesMut::new();
    status.encode(&mut bytes);
    shared.metrics.traffic.count(early as u64, 0);
    if upstream.write_all(&bytes).await.is_err() {
        shared
            .metrics
            .opens_refused
            .get_or_create(&RefusedWith::new("abandoned"))
            .inc();
        return None;
    }
    Some(Established {
        open,
        upstream,
        downstream,
        upstream_ended,
        rule,
        to,
        early,
    })
}

/// Says why not (LH-DEPOT-4), and makes sure that it can be read (LH-STATUS-6).
async fn refuse(
    shared: &Shared,
    upstream: Conn,
    peer: SocketAddr,
    open: Option<&Open>,
    why: Refused,
    forwarded: bool,
) {
    let Refused { code, detail } = why;
    shared
        .metrics
        .opens_refused
        .get_or_create(&RefusedWith::new(name_of(code)))
        .inc();
    tracing::info!(
        session = open.map(|open| tracing::field::display(open.session_id)),
        principal = open.map(|open| tracing::field::display(open.principal)),
        destination = open.map(|open| tracing::field::display(&open.destination)),
        from = %peer,
        status = name_of(code),
        detail,
        "OPEN refused"
    );
    // Who could not read the OPEN does not know its own place: 0 (LH-CHAIN-2).
    let mut status = Status::new(code, open.map_or(0, Open::position));
    status.reporter = Some(shared.key);
    status.at = open.and_then(|open| open.next().endpoint().cloned());
    status.payload_forwarded = forwarded;
    status.detail = detail;
    let mut bytes = BytesMut::new();
    status.encode(&mut bytes);
    let tell = async {
        // An initiator that is gone or does not read has nothing to be told.
        if upstream.write_all(&bytes).await.is_ok() {
            upstream.linger(LINGER).await;
        }
    };
    let patience: Duration = shared.timeouts.refusal;
    let _ = tokio::time::timeout(patience, tell).await;
}

/// A status code as a word for logs and metrics.
fn name_of(code: StatusCode) -> &'static str {
    match code {
        StatusCode::Ok => "ok",
        StatusCode::BadOpen => "bad open",
        StatusCode::NoVersion => "no version",
        StatusCode::UnknownOption => "unknown option",
        StatusCode::Unauthorised => "unauthorised",
        StatusCode::Refused => "refused by policy",
        StatusCode::BadSignature => "bad signature",
        StatusCode::Replay => "replay",
        StatusCode::Expired => "expired",
        StatusCode::Loop => "loop",
        StatusCode::HopLimit => "hop limit",
        StatusCode::Misrouted => "misrouted",
        StatusCode::HeaderTimeout => "header timeout",
        StatusCode::DialRefused => "dial refused",
        StatusCode::DialUnreachable => "dial unreachable",
        StatusCode::DialTimeout => "dial timeout",
        StatusCode::NameNotFound => "name not found",
        StatusCode::SetupTimeout => "set-up timeout",
        StatusCode::Overloaded => "overloaded",
        StatusCode::Draining => "draining",
        StatusCode::Internal => "internal",
        StatusCode::Unknown(_) => "unknown",
    }
}
