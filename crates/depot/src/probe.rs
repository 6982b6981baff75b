//! Small measurements of the path between two depots: sessions with the service `probe`, which the
//! receiving depot ends itself.
//!
//! No hop is dialled for them, nothing is forwarded, and received data is discarded. They are
//! limited to keys that the policy names under `probes`, and to bounds that keep their cost
//! negligible (LH-PROBE-3).

mod measure;
pub(crate) mod train;

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use longhaul_hop::{Conn, ConnectionPermit, Payer, unix_ms};
use longhaul_proto::{
    MAX_PROBE_BYTES, MAX_PROBE_EXCHANGES, Open, PROBE_MESSAGE_BYTES, ProbeMessage, PublicKey,
    ServiceName, Status, StatusCode,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};

pub use measure::{ProbeFailure, ProbeFigures, ProbePlan, probe};
pub use train::Train;
use train::TrainSample;

use crate::observe::{HopEnd, HopObservation, HopReport};
use crate::refusal::DepotRefusal;
use crate::state::DepotState;

/// Maximum duration of a probe session (LH-PROBE-3).
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between samples of a train in transit.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(5);
/// Size of a read or write of a train, in bytes.
const CHUNK_BYTES: usize = 64 << 10;

/// Returns true if the OPEN asks for a probe that ends at this depot (LH-PROBE-1).
pub(crate) fn is_probe(open: &Open) -> bool {
    open.service == ServiceName::PROBE && open.next_receiver().endpoint().is_none()
}

/// Accepts the session, and answers until it is over. `early` is the data that came with the OPEN.
pub(crate) async fn serve(
    shared: &DepotState,
    upstream: &mut Conn,
    place: &mut ConnectionPermit,
    open: &Open,
    early: Vec<u8>,
) -> Result<(), DepotRefusal> {
    let now = unix_ms();
    let policy = shared.policy.policy();
    let may = |principal: &PublicKey| policy.may_probe(principal);
    let offers = |service: &ServiceName| *service == ServiceName::PROBE;
    // The policy lists probing depots by key, so no voucher is read.
    let checks = &shared.admission;
    checks.check_at_acceptor(open, None, now, may, offers)?;
    let payer = Payer::Key(open.principal);
    shared
        .admission
        .admit(open, place, payer, now)
        .map_err(|why: DepotRefusal| why.charged_to(payer))?;
    let mut status = Status::from_acceptor(StatusCode::Ok, open.position());
    let answered = async {
        // Signed regardless of the route, because the measured depot must prove its key.
        status
            .sign_always(&shared.key, open)
            .map_err(io::Error::other)?;
        let mut bytes = BytesMut::new();
        status.encode(&mut bytes);
        upstream.write_all(&bytes).await?;
        let mut from = EarlyReader {
            early: io::Cursor::new(early),
            conn: upstream,
        };
        answer_requests(&mut from).await
    };
    // A failure is not reported: the measuring end detects it.
    let arrived = match timeout(PROBE_TIMEOUT, answered).await {
        Ok(Ok(arrived)) => arrived,
        Ok(Err(error)) => {
            tracing::debug!(%error, principal = %open.principal, "a probe failed");
            None
        }
        Err(_) => None,
    };
    // Both ends of a hop report, so that neither can make it look better than it is.
    if let (Some(observer), Some(train)) = (&shared.observer, arrived) {
        let rtt = upstream.round_trip();
        (observer.0)(HopReport {
            from: HopEnd::Key(open.principal),
            to: HopEnd::Here,
            observation: HopObservation {
                rtt: rtt.unwrap_or_default(),
                ..HopObservation::default()
            },
            train: Some(train),
        });
    }
    Ok(())
}

/// Reader of the early data, and then of the connection.
struct EarlyReader<'a> {
    early: io::Cursor<Vec<u8>>,
    conn: &'a mut Conn,
}

impl EarlyReader<'_> {
    async fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match io::Read::read(&mut self.early, into)? {
            0 => self.conn.read(into).await,
            read => Ok(read),
        }
    }

    /// Reads a message; `None` at the end of stream.
    async fn read_message(&mut self) -> io::Result<Option<ProbeMessage>> {
        let mut bytes = [0; PROBE_MESSAGE_BYTES];
        let mut read = 0;
        while let Some(rest) = bytes.get_mut(read..).filter(|rest| !rest.is_empty()) {
            match self.read(rest).await? {
                0 if read == 0 => return Ok(None),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => read += more,
            }
        }
        let message = ProbeMessage::decode(&bytes);
        message
            .map(Some)
            .ok_or_else(|| io::Error::other("it sent an unexpected message"))
    }
}

/// Answers until the initiator ends, or a bound is reached (LH-PROBE-3). Returns the measurement of
/// the last train that arrived.
async fn answer_requests(from: &mut EarlyReader<'_>) -> io::Result<Option<Train>> {
    let (mut exchanges, mut trains) = (0, 0u64);
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut arrived = None;
    while let Some(message) = from.read_message().await? {
        exchanges += 1;
        if exchanges > MAX_PROBE_EXCHANGES {
            return Err(io::Error::other("it sent more messages than a probe may"));
        }
        if let ProbeMessage::Train(bytes) = message {
            trains = trains.saturating_add(bytes);
            if trains > MAX_PROBE_BYTES {
                return Err(io::Error::other("it sent more bytes than a probe may"));
            }
            arrived = receive_train(from, bytes, &mut chunk).await?;
        }
        from.conn.write_all(&message.encode()).await?;
    }
    Ok(arrived)
}

/// Discards the bytes of a train, and samples their arrival.
async fn receive_train(
    from: &mut EarlyReader<'_>,
    bytes: u64,
    chunk: &mut [u8],
) -> io::Result<Option<Train>> {
    let (began, mut left) = (Instant::now(), bytes);
    let mut looks = ProgressSampler::default();
    let mut segments_before = None;
    while left > 0 {
        let room = usize::try_from(left)
            .unwrap_or(CHUNK_BYTES)
            .min(CHUNK_BYTES);
        let read = timeout(
            SAMPLE_INTERVAL,
            from.read(chunk.get_mut(..room).unwrap_or_default()),
        )
        .await;
        // On a timeout, sample anyway: segments may have arrived after a gap, which a read does not
        // show.
        if let Ok(read) = read {
            match read? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => left = left.saturating_sub(read as u64),
            }
        }
        looks.sample(began.elapsed(), || {
            let all = u64::from(from.conn.tcp()?.info().ok()?.data_segments_received?);
            Some(all.saturating_sub(*segments_before.get_or_insert(all)))
        });
    }
    Ok(Train::from_samples(bytes, began.elapsed(), &looks.0))
}

/// Progress samples of a train, one per [`SAMPLE_INTERVAL`].
#[derive(Default)]
struct ProgressSampler(Vec<TrainSample>);

impl ProgressSampler {
    fn sample(&mut self, at: Duration, through: impl FnOnce() -> Option<u64>) {
        let is_due = self
            .0
            .last()
            .is_none_or(|last| at >= last.at + SAMPLE_INTERVAL);
        if is_due && let Some(through) = through() {
            self.0.push(TrainSample { at, through });
        }
    }
}
