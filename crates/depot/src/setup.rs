//! From accept to both connections standing: read the OPEN, check it, dial on, pass it on, answer.
//!
//! No round trip is added (LH-DEPOT-1): the dial begins as soon as the OPEN is verified, early data is read meanwhile (at
//! most [`MAX_HELD`] bytes, LH-DEPOT-5), and the OPEN and what is held leave together in the first flight of the new
//! connection.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use longhaul_proto::{MAX_HELD, Open, OpenDecoder, Refusal, Status, StatusCode};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::conn::Conn;
use crate::dial::{Way, deadline};
use crate::gate::Place;
use crate::live::{NoPlace, RuleSession};
use crate::policy::Policy;
use crate::refusal::Refused;
use crate::serve::{Phase, Shared};

/// Bytes read at once while the OPEN and the early data come in.
const CHUNK: usize = 4096;

/// A session that has been set up.
pub(crate) struct Established {
    /// As it went on.
    pub(crate) open: Open,
    pub(crate) downstream: Conn,
    /// The upstream's end of stream came with the early data.
    pub(crate) upstream_ended: bool,
    pub(crate) rule: RuleSession,
    /// The next hop.
    pub(crate) to: SocketAddr,
    /// Bytes of early data that went on with the OPEN.
    pub(crate) early: usize,
}

/// Why a connection did not become a session.
pub(crate) enum Failure {
    /// The peer left without a byte: a port check.
    Nothing,
    /// The peer died, or ended, within its OPEN.
    Lost(io::Error),
    /// The peer died while the next hop was dialled.
    Abandoned(io::Error),
    /// The peer is to be told why; with the OPEN, if there was one.
    Refused(Option<Box<Open>>, Refused),
}

/// Sets up the session that `upstream` asks for. `place` becomes a session's as soon as the OPEN is verified.
pub(crate) async fn set_up(
    shared: &Shared,
    upstream: &Conn,
    place: &mut Place,
    phase: &watch::Receiver<Phase>,
) -> Result<Established, Failure> {
    let mut early = Vec::new();
    let header = read_open(upstream, &mut early);
    let (open, began) = match tokio::time::timeout(shared.timeouts.header, header).await {
        Ok(read) => read?,
        Err(_) => {
            return Err(Failure::Refused(
                None,
                Refused::new(StatusCode::HeaderTimeout, ""),
            ));
        }
    };
    let policy = Arc::clone(&shared.policy.read().unwrap_or_else(PoisonError::into_inner));
    if let Err(why) = admit(shared, &policy, &open, place, phase) {
        return Err(Failure::Refused(Some(Box::new(open)), why));
    }
    let mut upstream_ended = false;
    let limit = deadline(&open, began, shared.timeouts.dial);
    let dialled = tokio::select! {
        dialled = dial(shared, &policy, &open, limit) => dialled,
        error = hold(upstream, &mut early, &mut upstream_ended) => return Err(Failure::Abandoned(error)),
    };
    let went_on = match dialled {
        Ok((way, rule, downstream)) => {
            let passed_on = pass_on(shared, &open, &early, began, limit, &downstream).await;
            passed_on.map(|(onward, to)| (way, rule, downstream, onward, to))
        }
        Err(why) => Err(why),
    };
    let (way, rule, downstream, onward, to) = went_on.map_err(|mut why| {
        if why.code == StatusCode::DialTimeout && began.elapsed() >= open.setup_budget {
            why.code = StatusCode::SetupTimeout;
        }
        Failure::Refused(Some(Box::new(open)), why)
    })?;
    let early = early.len();
    answer_ok(shared, upstream, &onward, way, early)
        .await
        .map_err(Failure::Abandoned)?;
    shared.metrics.traffic.count(early as u64, 0);
    Ok(Established {
        open: onward,
        downstream,
        upstream_ended,
        rule,
        to,
        early,
    })
}

/// Reads up to the end of the OPEN, and tells when its first byte came. What came behind it goes to `early`.
async fn read_open(upstream: &Conn, early: &mut Vec<u8>) -> Result<(Open, Instant), Failure> {
    let mut decoder = OpenDecoder::new();
    let mut chunk = [0u8; CHUNK];
    let mut first_byte = None;
    loop {
        let n = upstream.read(&mut chunk).await.map_err(Failure::Lost)?;
        let began = match first_byte {
            None if n == 0 => return Err(Failure::Nothing),
            Some(_) if n == 0 => return Err(Failure::Lost(io::ErrorKind::UnexpectedEof.into())),
            began => *first_byte.insert(began.unwrap_or_else(Instant::now)),
        };
        let input = chunk.get(..n).unwrap_or_default();
        match decoder.feed(input) {
            Ok(None) => {}
            Ok(Some((open, used))) => {
                early.extend_from_slice(input.get(used..).unwrap_or_default());
                return Ok((open, began));
            }
            Err(error) => return Err(Failure::Refused(None, Refusal::from(error).into())),
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
        .depot(open, now, |principal| policy.knows(principal))?;
    if *phase.borrow() != Phase::Running {
        return Err(Refused::new(StatusCode::Draining, ""));
    }
    place
        .authenticated()
        .map_err(|full| Refused::new(StatusCode::Overloaded, full.reason()))
}

/// Asks the policy, takes a place under its rule, and connects.
async fn dial(
    shared: &Shared,
    policy: &Policy,
    open: &Open,
    limit: Instant,
) -> Result<(Way, RuleSession, Conn), Refused> {
    let way = shared.dialler.authorise(policy, open, limit).await?;
    let rule = shared.live.enter(&way.rule).map_err(|why| match why {
        NoPlace::Full => Refused::new(
            StatusCode::Overloaded,
            format!("{}: as many sessions as it allows", way.rule.name),
        ),
        NoPlace::Gone => Refused::new(StatusCode::Refused, "the rule that allowed this is gone"),
    })?;
    let began = Instant::now();
    let conn = shared.dialler.dial(&way, limit).await?;
    shared.metrics.dialled(began.elapsed());
    Ok((way, rule, conn))
}

/// Sends the OPEN, one step further, and the early data behind it in one write. Returns it, and whom it went to.
async fn pass_on(
    shared: &Shared,
    open: &Open,
    early: &[u8],
    began: Instant,
    limit: Instant,
    downstream: &Conn,
) -> Result<(Open, SocketAddr), Refused> {
    // LH-ROUTE-5, LH-ROUTE-6, LH-ROUTE-7: and nothing else changes (LH-DEPOT-7).
    let onward = open.onward(shared.key, began.elapsed())?;
    let mut flight = BytesMut::with_capacity(1024 + early.len());
    onward.encode(&mut flight).map_err(Refusal::from)?;
    flight.extend_from_slice(early);
    let failed = |code: StatusCode, detail: String| Refused {
        code,
        detail,
        forwarded: !early.is_empty(),
    };
    let sent = async {
        downstream.write_all(&flight).await?;
        downstream.peer()
    };
    // A next hop that opens no window keeps us waiting here, and nowhere for ever.
    match tokio::time::timeout_at(limit, sent).await {
        Ok(Ok(to)) => Ok((onward, to)),
        Ok(Err(error)) => Err(failed(StatusCode::DialRefused, format!("it hung up: {error}"))),
        Err(_) => Err(failed(
            StatusCode::DialTimeout,
            "it connected, but did not take the OPEN".to_owned(),
        )),
    }
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
async fn answer_ok(
    shared: &Shared,
    upstream: &Conn,
    onward: &Open,
    way: Way,
    early: usize,
) -> io::Result<()> {
    // The onward OPEN has this depot among those passed, so their number is its place.
    let mut status = Status::new(
        StatusCode::Ok,
        u8::try_from(onward.passed.len()).unwrap_or(u8::MAX),
    );
    status.reporter = Some(shared.key);
    status.at = Some(way.endpoint);
    status.payload_forwarded = early > 0;
    let mut bytes = BytesMut::new();
    status.encode(&mut bytes);
    upstream.write_all(&bytes).await
}
