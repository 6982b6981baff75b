//! Moves bytes on one stream, from or to memory, until the goal is reached.

use std::{
    future::Future,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use longhaul_session::Session;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{Instant, timeout, timeout_at},
};

use crate::{Error, wire::Protection};

/// Time without a byte after which a stream is considered dead.
pub(crate) const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for sent data to arrive once sending is over.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Size of a write to the session, in bytes.
pub(crate) const BLOCK_BYTES: usize = 256 * 1024;
/// Bytes that a stream which never blocks may move before it yields: one or two milliseconds at
/// full memory speed. Without yielding, a worker of the runtime checks its timers only once in 61
/// turns of the stream, which is half a second.
const BYTES_BETWEEN_YIELDS: usize = 4 << 20;

/// Condition under which a stream is done.
#[derive(Debug, Clone)]
pub(crate) enum Goal {
    /// At this time.
    At(Instant),
    /// When all streams of a direction together have moved the bytes that are left here.
    Bytes(Arc<AtomicU64>),
}

impl Goal {
    /// Returns how many of at most `most` bytes may be sent now.
    fn take(&self, most: usize) -> usize {
        match self {
            Self::At(end) if Instant::now() >= *end => 0,
            Self::At(_) => most,
            Self::Bytes(left) => {
                let most = most as u64;
                let take = |left: u64| Some(left.saturating_sub(most));
                let before = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
                before.map_or(0, |before| before.min(most) as usize)
            }
        }
    }

    /// Counts `bytes` that arrived. Returns false if they exceed the requested bytes.
    fn count_arrived(&self, bytes: u64) -> bool {
        match self {
            Self::At(_) => true,
            Self::Bytes(left) => left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                    left.checked_sub(bytes)
                })
                .is_ok(),
        }
    }

    fn end(&self) -> Option<Instant> {
        match self {
            Self::At(end) => Some(*end),
            Self::Bytes(_) => None,
        }
    }
}

/// A session, and the protection of its bytes.
pub(crate) struct StreamPump {
    session: Session,
    protection: Protection,
    /// Bytes moved since the last yield.
    since_yield: usize,
}

impl StreamPump {
    pub(crate) const fn new(session: Session, protection: Protection) -> Self {
        Self {
            session,
            protection,
            since_yield: 0,
        }
    }

    /// Counts `bytes` that moved, and yields if that is due.
    async fn count(&mut self, bytes: usize, count: &AtomicU64) {
        count.fetch_add(bytes as u64, Ordering::Relaxed);
        self.since_yield += bytes;
        if self.since_yield >= BYTES_BETWEEN_YIELDS {
            self.since_yield = 0;
            tokio::task::yield_now().await;
        }
    }

    async fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        match self.protection {
            Protection::Tls => self.session.write(data).await,
            Protection::None => self.session.plaintext_stream().write(data).await,
        }
    }

    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.protection {
            Protection::Tls => self.session.read(buffer).await,
            Protection::None => self.session.plaintext_stream().read(buffer).await,
        }
    }

    async fn shut_down(&mut self) -> io::Result<()> {
        match self.protection {
            Protection::Tls => self.session.shutdown().await,
            Protection::None => self.session.plaintext_stream().shutdown().await,
        }
    }

    /// Sends `block` repeatedly until the goal is reached, then waits until everything has arrived.
    /// Returns the time at which sending ended.
    pub(crate) async fn send(
        mut self,
        block: &[u8],
        goal: &Goal,
        count: &AtomicU64,
    ) -> Result<Instant, Error> {
        let mut over = Instant::now();
        'sending: loop {
            let take = goal.take(block.len());
            let mut rest = block.get(..take).unwrap_or(block);
            if rest.is_empty() {
                break;
            }
            while !rest.is_empty() {
                let Some(written) =
                    with_time_limits("sending", goal.end(), self.write(rest)).await?
                else {
                    break 'sending;
                };
                if written == 0 {
                    return Err(Error::Cut(io::ErrorKind::WriteZero.into()));
                }
                over = Instant::now();
                self.count(written, count).await;
                rest = rest.get(written..).unwrap_or_default();
            }
        }
        let arrival = async {
            self.shut_down().await?;
            // The receiver closes its half when it has read everything.
            while self.read(&mut [0; 1024]).await? != 0 {}
            Ok(())
        };
        match timeout(DRAIN_TIMEOUT, arrival).await {
            Ok(Err(error)) => Err(Error::Cut(error)),
            // Data that has not arrived by now is reset with the session, which shows in the
            // receiver's count.
            Ok(Ok(())) | Err(_) => Ok(over),
        }
    }

    /// Receives until the sender is done. Returns the arrival time of the last byte.
    pub(crate) async fn receive(
        mut self,
        goal: &Goal,
        count: &AtomicU64,
    ) -> Result<Instant, Error> {
        let mut buffer = vec![0; BLOCK_BYTES];
        let mut last = Instant::now();
        let end = goal.end().map(|end| end + DRAIN_TIMEOUT);
        loop {
            let Some(length) = with_time_limits("receiving", end, self.read(&mut buffer)).await?
            else {
                // The sender's time to drain is over as well.
                return Ok(last);
            };
            if length == 0 {
                break;
            }
            last = Instant::now();
            self.count(length, count).await;
            if !goal.count_arrived(length as u64) {
                return Err(Error::Protocol("more bytes than requested".to_owned()));
            }
        }
        // Errors are ignored: the sender learns the count from the report.
        let _ = timeout(DRAIN_TIMEOUT, self.shut_down()).await;
        Ok(last)
    }
}

/// Returns the result of `moving`, or `None` if `end` comes first.
async fn with_time_limits(
    doing: &'static str,
    end: Option<Instant>,
    moving: impl Future<Output = io::Result<usize>>,
) -> Result<Option<usize>, Error> {
    let silent = Instant::now() + SILENCE_TIMEOUT;
    match timeout_at(end.map_or(silent, |end| end.min(silent)), moving).await {
        Ok(moved) => moved.map(Some).map_err(Error::Cut),
        Err(_) if end.is_some_and(|end| end <= silent) => Ok(None),
        Err(_) => Err(Error::Silent {
            doing,
            after: SILENCE_TIMEOUT,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_in_bytes_is_divided_exactly() {
        let left = Arc::new(AtomicU64::new(1000));
        let (one, other) = (Goal::Bytes(left.clone()), Goal::Bytes(left));
        assert_eq!(
            [one.take(600), other.take(600), one.take(600)],
            [600, 400, 0]
        );
        let wanted = Goal::Bytes(Arc::new(AtomicU64::new(10)));
        assert!(wanted.count_arrived(9) && wanted.count_arrived(1) && !wanted.count_arrived(1));
    }

    #[tokio::test(start_paused = true)]
    async fn silence_and_the_end_are_distinguished() {
        let never = std::future::pending::<io::Result<usize>>;
        let now = Instant::now();
        assert!(matches!(
            with_time_limits("x", None, never()).await,
            Err(Error::Silent { .. })
        ));
        assert_eq!(now.elapsed().as_secs(), SILENCE_TIMEOUT.as_secs());
        let soon = Some(Instant::now() + Duration::from_secs(1));
        assert!(matches!(
            with_time_limits("x", soon, never()).await,
            Ok(None)
        ));
    }
}
