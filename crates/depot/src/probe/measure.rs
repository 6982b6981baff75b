//! The measuring end of a probe.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use bytes::BytesMut;
use longhaul_hop::{Conn, HopOptions, Resolver, TcpConn, check_congestion, dial, unix_ms};
use longhaul_proto::{
    Chain, ChainFailure, ChainProgress, Endpoint, MAX_PROBE_BYTES, MAX_PROBE_EXCHANGES, Open,
    PROBE_MESSAGE_BYTES, ProbeMessage, PublicKey, Route, ServiceName, SessionId, SigningKey,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout};

use super::train::Train;
use super::{CHUNK_BYTES, PROBE_TIMEOUT, ProgressSampler, SAMPLE_INTERVAL};

/// Congestion control of trains, if the kernel has it: one that does not slow down for losses.
const TRAIN_CONGESTION: &str = "bbr";

/// Measurement to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbePlan {
    /// This many exchanges of a few bytes.
    RoundTrips(u32),
    /// A train of this many bytes.
    Train(u64),
}

/// Results of a measurement.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProbeFigures {
    /// Time to establish the connection: a round trip, and the hosts' processing.
    pub connected: Duration,
    /// Time to establish the session after that: another round trip.
    pub established: Duration,
    /// Duration of each exchange.
    pub round_trips: Vec<Duration>,
    /// Measurement of the train, from the times at which its bytes were delivered.
    pub train: Option<Train>,
    /// Segments sent, and the retransmitted ones among them, if the kernel reports them.
    pub segments: Option<(u64, u64)>,
    /// True if losses are those of the path. A congestion control that ignores losses causes some
    /// itself.
    pub counts_losses: bool,
}

/// Reason why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum ProbeFailure {
    /// The depot cannot be connected to, or the connection broke.
    #[error("{at}: {source}")]
    Io {
        /// Endpoint of the depot.
        at: Endpoint,
        /// Cause.
        source: io::Error,
    },
    /// The depot refuses the session.
    #[error(transparent)]
    Refused(#[from] Box<ChainFailure>),
    /// The depot does not prove the expected key. Compare the depot's key with the one on the map.
    #[error("{0} does not show the expected key")]
    UnexpectedKey(Endpoint),
    /// The depot did not answer in time.
    #[error("{0} did not answer in time")]
    TimedOut(Endpoint),
    /// The name resolves only to addresses that may not be measured: the depot registered an
    /// address that is local to the measuring machine.
    #[error(
        "{0} resolves only to addresses of this machine or its own link, which are not \
        measured"
    )]
    LocalAddress(Endpoint),
}

/// Measures the path to the depot at `to`, whose key must be `expected`, with the identity `key`
/// and within the time `within`. After name resolution, only addresses admitted by `may_reach` are
/// connected to.
///
/// # Errors
/// [`ProbeFailure`].
pub async fn probe(
    to: &Endpoint,
    expected: Option<PublicKey>,
    key: &SigningKey,
    plan: ProbePlan,
    within: Duration,
    may_reach: impl Fn(IpAddr) -> bool,
) -> Result<ProbeFigures, ProbeFailure> {
    let within = within.min(PROBE_TIMEOUT);
    let measured = timeout(within, measure(to, expected, key, plan, within, may_reach)).await;
    measured.unwrap_or_else(|_| Err(ProbeFailure::TimedOut(to.clone())))
}

async fn measure(
    to: &Endpoint,
    expected: Option<PublicKey>,
    key: &SigningKey,
    plan: ProbePlan,
    within: Duration,
    may_reach: impl Fn(IpAddr) -> bool,
) -> Result<ProbeFigures, ProbeFailure> {
    let broke = |source| ProbeFailure::Io {
        at: to.clone(),
        source,
    };
    let mut addresses = Resolver::new()
        .addresses(to)
        .await
        .map_err(|error| broke(error.into()))?;
    addresses.retain(|address| may_reach(address.ip()));
    if addresses.is_empty() {
        return Err(ProbeFailure::LocalAddress(to.clone()));
    }
    let mut figures = ProbeFigures::default();
    let began = Instant::now();
    // With the usual congestion controls, a single connection reveals more about the losses than
    // about the capacity of the path.
    let congestion = match plan {
        ProbePlan::Train(_) => {
            Some(TRAIN_CONGESTION.to_owned()).filter(|name| check_congestion(name).is_ok())
        }
        ProbePlan::RoundTrips(_) => None,
    };
    figures.counts_losses = congestion.is_none();
    let options = HopOptions::with_congestion(congestion);
    let dialled = dial(&addresses, |_| options.clone(), began + within).await;
    let mut conn = dialled.map_err(|error| broke(error.into()))?.conn;
    figures.connected = began.elapsed();
    let signed = || -> io::Result<(Open, BytesMut)> {
        let id = SessionId::random().map_err(io::Error::other)?;
        let mut open = Open::new(id, ServiceName::PROBE, Route::direct(), to.clone(), within);
        open.sign(key, unix_ms()).map_err(io::Error::other)?;
        let mut bytes = BytesMut::new();
        let leaving = open.clone().for_first_hop();
        leaving.encode(&mut bytes).map_err(io::Error::other)?;
        Ok((open, bytes))
    };
    let (open, bytes) = signed().map_err(broke)?;
    let sent = Instant::now();
    conn.write_all(&bytes).await.map_err(broke)?;
    let shown = establish(&mut conn, &open, expected).await?;
    figures.established = sent.elapsed();
    if expected.is_some_and(|expected| shown != Some(expected)) {
        return Err(ProbeFailure::UnexpectedKey(to.clone()));
    }
    exchange(&mut conn, plan, &mut figures)
        .await
        .map_err(broke)?;
    if let Some(Ok(info)) = conn.tcp().map(TcpConn::info) {
        let segments = info.bytes_sent.unwrap_or(0) / u64::from(info.send_mss.max(1));
        figures.segments = Some((segments, u64::from(info.retransmits)));
    }
    conn.close();
    Ok(figures)
}

/// Reads the answers to an OPEN. Returns the key that the depot has proved to have.
async fn establish(
    conn: &mut Conn,
    open: &Open,
    expected: Option<PublicKey>,
) -> Result<Option<PublicKey>, ProbeFailure> {
    let mut chain = Chain::new(open, expected);
    // Nothing follows the status before the first request.
    let mut byte = [0; 1];
    loop {
        let read = conn.read(&mut byte).await;
        if read.as_ref().map_or(true, |read| *read == 0) {
            return Err(Box::new(chain.closed()).into());
        }
        if let ChainProgress::Established { .. } = chain.feed(&byte)? {
            let status = chain.statuses().last();
            return Ok(status.and_then(|status| status.verify(&open.signature)));
        }
    }
}

async fn exchange(conn: &mut Conn, plan: ProbePlan, figures: &mut ProbeFigures) -> io::Result<()> {
    let round_trips = match plan {
        ProbePlan::RoundTrips(count) => count.clamp(1, MAX_PROBE_EXCHANGES),
        // One exchange, to subtract the transit time of the answer from the train's time.
        ProbePlan::Train(_) => 1,
    };
    for number in 0..round_trips {
        let began = Instant::now();
        exchange_message(conn, ProbeMessage::Echo(number.into())).await?;
        figures.round_trips.push(began.elapsed());
    }
    if let ProbePlan::Train(bytes) = plan {
        let least = figures
            .round_trips
            .iter()
            .min()
            .copied()
            .unwrap_or_default();
        figures.train = send_train(conn, bytes.min(MAX_PROBE_BYTES), least).await?;
    }
    Ok(())
}

/// Sends a train, samples its progress, and waits for the answer.
async fn send_train(
    conn: &mut Conn,
    bytes: u64,
    least_round_trip: Duration,
) -> io::Result<Option<Train>> {
    let began = Instant::now();
    let through = |conn: &Conn| {
        let info = conn.tcp()?.info().ok()?;
        // Bytes acknowledged in order, and those received after a gap.
        Some(info.bytes_acked? + u64::from(info.sacked) * u64::from(info.send_mss))
    };
    let before = through(conn).unwrap_or(0);
    let mut looks = ProgressSampler::default();
    let chunk = vec![0; CHUNK_BYTES];
    let header = ProbeMessage::Train(bytes).encode();
    conn.write_all(&header).await?;
    let look = |looks: &mut ProgressSampler, conn: &Conn| {
        looks.sample(began.elapsed(), || {
            Some(through(conn)?.saturating_sub(before))
        });
    };
    let mut left = bytes;
    while left > 0 {
        let next = usize::try_from(left)
            .unwrap_or(CHUNK_BYTES)
            .min(CHUNK_BYTES);
        if let Ok(written) = timeout(
            SAMPLE_INTERVAL,
            conn.write(chunk.get(..next).unwrap_or_default()),
        )
        .await
        {
            match written? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => left = left.saturating_sub(written as u64),
            }
        }
        look(&mut looks, conn);
    }
    let mut answer = [0; PROBE_MESSAGE_BYTES];
    let mut answered = 0;
    while let Some(rest) = answer.get_mut(answered..).filter(|rest| !rest.is_empty()) {
        if let Ok(read) = timeout(SAMPLE_INTERVAL, conn.read(rest)).await {
            match read? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => answered += read,
            }
        }
        look(&mut looks, conn);
    }
    check_answer(&answer, ProbeMessage::Train(bytes))?;
    let took = began.elapsed().saturating_sub(least_round_trip);
    Ok(Train::from_samples(bytes, took, &looks.0))
}

/// Sends a message, and receives its echo.
async fn exchange_message<S: AsyncRead + AsyncWrite + Unpin>(
    conn: &mut S,
    message: ProbeMessage,
) -> io::Result<()> {
    conn.write_all(&message.encode()).await?;
    expect_message(conn, message).await
}

async fn expect_message<S: AsyncRead + Unpin>(
    conn: &mut S,
    expected: ProbeMessage,
) -> io::Result<()> {
    let mut answer = [0; PROBE_MESSAGE_BYTES];
    conn.read_exact(&mut answer).await?;
    check_answer(&answer, expected)
}

fn check_answer(answer: &[u8; PROBE_MESSAGE_BYTES], expected: ProbeMessage) -> io::Result<()> {
    match ProbeMessage::decode(answer) == Some(expected) {
        true => Ok(()),
        false => Err(io::Error::other(
            "the echoed data differs from what was sent",
        )),
    }
}
