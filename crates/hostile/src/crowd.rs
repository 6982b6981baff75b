//! Strangers: connections without a key that are held, and made again when they are closed.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};

use crate::flood::Pace;
use crate::{opens, socket};

/// Pause after a connection that could not be made.
const AFTER_FAILURE: Duration = Duration::from_millis(50);
/// Interval at which a dripping stranger sends a byte.
const DRIP_INTERVAL: Duration = Duration::from_secs(1);

/// Behaviour of a stranger on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Sends nothing.
    Idle,
    /// Sends one byte per second, each valid so far.
    Drip,
    /// Sends half an OPEN at once, and no more.
    HalfOpen,
    /// Sends something other than an OPEN, waits for the answer, and connects again.
    Garbage,
}

/// Number, origin and behaviour of strangers.
#[derive(Clone, Debug)]
pub struct Gathering {
    /// Address to which they connect.
    pub target: SocketAddr,
    /// Their addresses, used in turn; the system chooses if there are none.
    pub sources: Vec<IpAddr>,
    /// Number of simultaneous connections.
    pub connections: usize,
    /// Maximum number of new connections per second.
    pub per_second: u32,
    /// Behaviour on each connection.
    pub manner: Manner,
}

/// Strangers who connect until this value is dropped; all their connections then close.
#[derive(Debug)]
pub struct Crowd {
    counts: Arc<Counts>,
    _members: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Counts {
    held: AtomicUsize,
    made: AtomicU64,
    closed: AtomicU64,
    failed: AtomicU64,
}

impl Crowd {
    /// Starts the strangers. Must be called within a tokio runtime.
    #[must_use]
    pub fn gather(gathering: &Gathering) -> Self {
        let counts = Arc::new(Counts::default());
        let pace = Pace::new(gathering.per_second);
        let mut members = JoinSet::new();
        for number in 0..gathering.connections {
            let source = (!gathering.sources.is_empty())
                .then(|| gathering.sources[number % gathering.sources.len()]);
            let (target, manner) = (gathering.target, gathering.manner);
            members.spawn(member(
                target,
                source,
                manner,
                pace.clone(),
                Arc::clone(&counts),
            ));
        }
        Self {
            counts,
            _members: members,
        }
    }

    /// Returns the number of connections that stand, as far as their own end knows.
    #[must_use]
    pub fn held(&self) -> usize {
        self.counts.held.load(Ordering::Relaxed)
    }

    /// Returns the number of connections made so far.
    #[must_use]
    pub fn made(&self) -> u64 {
        self.counts.made.load(Ordering::Relaxed)
    }

    /// Returns the number of connections that the server has closed so far.
    #[must_use]
    pub fn closed(&self) -> u64 {
        self.counts.closed.load(Ordering::Relaxed)
    }

    /// Returns the number of connections that could not be made.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.counts.failed.load(Ordering::Relaxed)
    }

    /// Waits up to `limit` until at least `connections` have been made. Returns true if they have.
    pub async fn has_made(&self, connections: u64, limit: Duration) -> bool {
        let made = async {
            let mut look = interval(Duration::from_millis(10));
            while self.made() < connections {
                look.tick().await;
            }
        };
        timeout(limit, made).await.is_ok()
    }
}

async fn member(
    target: SocketAddr,
    source: Option<IpAddr>,
    manner: Manner,
    pace: Pace,
    counts: Arc<Counts>,
) {
    loop {
        pace.wait().await;
        // A full queue drops the first packet; waiting for the kernel to retransmit it would be too
        // slow.
        match timeout(Duration::from_secs(2), socket::connect(target, source)).await {
            Ok(Ok(stream)) => {
                counts.made.fetch_add(1, Ordering::Relaxed);
                counts.held.fetch_add(1, Ordering::Relaxed);
                let _ = behave(stream, manner).await;
                counts.held.fetch_sub(1, Ordering::Relaxed);
                counts.closed.fetch_add(1, Ordering::Relaxed);
            }
            _ => {
                counts.failed.fetch_add(1, Ordering::Relaxed);
                sleep(AFTER_FAILURE).await;
            }
        }
    }
}

/// Behaves as asked until the server closes.
async fn behave(mut stream: TcpStream, manner: Manner) -> io::Result<()> {
    match manner {
        Manner::Idle => {}
        Manner::HalfOpen => stream.write_all(&opens::beginning(200)).await?,
        Manner::Garbage => stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await?,
        Manner::Drip => {
            let (mut from, mut to) = stream.split();
            let drip = async {
                let mut tick = interval(DRIP_INTERVAL);
                for byte in opens::beginning(4096) {
                    tick.tick().await;
                    to.write_all(&[byte]).await?;
                }
                Ok(())
            };
            return tokio::select! {
                result = drip => result,
                result = drain(&mut from) => result,
            };
        }
    }
    drain(&mut stream).await
}

async fn drain(stream: &mut (impl AsyncReadExt + Unpin)) -> io::Result<()> {
    let mut received = [0; 512];
    while stream.read(&mut received).await? > 0 {}
    Ok(())
}
