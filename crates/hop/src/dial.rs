//! Connects to the first of several addresses that answers, according to RFC 8305 (Happy Eyeballs).

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use longhaul_proto::{PublicKey, StatusCode};
use rustix::io::Errno;
use tokio::time::{Instant, sleep_until};

use crate::{Conn, HopOptions, StreamDialler, TcpConn};

/// Delay between the start of one attempt and the next, unless the first fails sooner (RFC 8305,
/// section 5: the recommended value).
const CONNECTION_ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// An established connection.
#[derive(Debug)]
pub struct DialledConnection {
    /// The connection.
    pub conn: Conn,
    /// Address of the peer.
    pub address: SocketAddr,
}

/// Reason why none of the addresses could be connected to: that of the attempt that ended last.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// There was no address to try. The name has addresses, but this machine can use none of them.
    #[error("no address")]
    NoAddress,
    /// The address and the configured source address are of different families (IPv4 and IPv6).
    /// Give `--source` an address of the server's family.
    #[error("{0}: the source address belongs to the other IP family")]
    OtherFamily(SocketAddr),
    /// The address did not answer in time. The machine is down, or a firewall drops the packets.
    /// Check that TCP port 7511 (server) or 7510 (depot) is open.
    #[error("{0}: no answer in time")]
    Timeout(SocketAddr),
    /// The route names QUIC, which this program was told not to use.
    #[error("QUIC is disabled here")]
    NoQuic,
    /// The address refused or is unreachable, or this host lacks a resource.
    #[error("{address}: {source}")]
    Failed {
        /// The address.
        address: SocketAddr,
        /// Cause.
        source: io::Error,
    },
}

impl DialError {
    /// Returns the status code with which a depot reports the error.
    #[must_use]
    pub fn code(&self) -> StatusCode {
        match self {
            Self::NoAddress | Self::OtherFamily(_) | Self::NoQuic => StatusCode::DialUnreachable,
            Self::Timeout(_) => StatusCode::DialTimeout,
            Self::Failed { source, .. } => status_code_of(source),
        }
    }
}

impl From<DialError> for io::Error {
    fn from(error: DialError) -> Self {
        let kind = match &error {
            DialError::NoAddress => io::ErrorKind::NotFound,
            DialError::NoQuic => io::ErrorKind::Unsupported,
            DialError::OtherFamily(_) => io::ErrorKind::AddrNotAvailable,
            DialError::Timeout(_) => io::ErrorKind::TimedOut,
            DialError::Failed { source, .. } => source.kind(),
        };
        Self::new(kind, error)
    }
}

/// Connects to the first of `addresses` that answers before `deadline`.
///
/// They are tried in order, alternating between families. Each attempt starts at most a quarter of
/// a second after the one before, which bounds the cost of an address that does not answer.
/// `options` returns the socket options for each address.
///
/// # Errors
/// [`DialError`], of the attempt that ended last.
pub async fn dial(
    addresses: &[SocketAddr],
    options: impl Fn(SocketAddr) -> HopOptions,
    deadline: Instant,
) -> Result<DialledConnection, DialError> {
    let mut failure = DialError::NoAddress;
    let mut attempts = Vec::with_capacity(addresses.len());
    for address in interleave_families(addresses) {
        let options = options(address);
        if options
            .source
            .is_some_and(|source| source.is_ipv4() != address.is_ipv4())
        {
            failure = DialError::OtherFamily(address);
            continue;
        }
        let attempt = TcpConn::connect(address, move |fd| {
            options.apply(fd)?;
            options.bind_source(fd, address)
        });
        attempts.push((address, attempt));
    }
    let (address, conn) = race(attempts, failure, deadline).await?;
    Ok(DialledConnection {
        conn: conn.into(),
        address,
    })
}

/// Opens a stream to the first of `addresses` that answers before `deadline`, like [`dial`]. The
/// server must prove `key` if one is given.
///
/// # Errors
/// [`DialError`], of the attempt that ended last.
pub async fn dial_stream(
    addresses: &[SocketAddr],
    dialler: &dyn StreamDialler,
    key: Option<PublicKey>,
    deadline: Instant,
) -> Result<DialledConnection, DialError> {
    let attempts = interleave_families(addresses)
        .into_iter()
        .map(|address| (address, dialler.open(address, key, deadline)))
        .collect();
    let (address, conn) = race(attempts, DialError::NoAddress, deadline).await?;
    Ok(DialledConnection { conn, address })
}

/// Interleaves the addresses of the first one's family with those of the other, each in their order
/// (RFC 8305, section 4).
fn interleave_families(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let is_first_family = |address: &SocketAddr| {
        addresses.first().map(SocketAddr::is_ipv4) == Some(address.is_ipv4())
    };
    let (first, other): (Vec<SocketAddr>, Vec<SocketAddr>) = addresses
        .iter()
        .partition(|address| is_first_family(address));
    let mut other = other.into_iter();
    let mut ordered = Vec::with_capacity(addresses.len());
    for address in first {
        ordered.push(address);
        ordered.extend(other.next());
    }
    ordered.extend(other);
    ordered
}

/// Returns the first attempt that succeeds, with its address. Each attempt starts when the one
/// before has failed, or some time after it started. `failure` is returned if there are no
/// attempts.
async fn race<T>(
    attempts: Vec<(SocketAddr, impl Future<Output = io::Result<T>>)>,
    mut failure: DialError,
    deadline: Instant,
) -> Result<(SocketAddr, T), DialError> {
    let mut attempts = attempts.into_iter().peekable();
    let mut running = FuturesUnordered::new();
    let mut waited_for: Vec<SocketAddr> = Vec::new();
    let mut next_at = Instant::now();
    loop {
        if running.is_empty() || next_at <= Instant::now() {
            if let Some((address, attempt)) = attempts.next() {
                waited_for.push(address);
                running.push(async move { (address, attempt.await) });
                next_at = Instant::now() + CONNECTION_ATTEMPT_DELAY;
            } else if running.is_empty() {
                return Err(failure);
            }
        }
        tokio::select! {
            biased;
            Some((address, ended)) = running.next() => match ended {
                Ok(connected) => return Ok((address, connected)),
                Err(source) => {
                    waited_for.retain(|other| *other != address);
                    failure = DialError::Failed { address, source };
                    next_at = Instant::now();
                }
            },
            () = sleep_until(next_at), if attempts.peek().is_some() => {}
            () = sleep_until(deadline) => {
                return Err(waited_for.pop().map_or(failure, DialError::Timeout));
            }
        }
    }
}

fn status_code_of(error: &io::Error) -> StatusCode {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::CONNREFUSED | Errno::CONNRESET) => StatusCode::DialRefused,
        Some(Errno::TIMEDOUT) => StatusCode::DialTimeout,
        Some(
            Errno::MFILE
            | Errno::NFILE
            | Errno::NOBUFS
            | Errno::NOMEM
            | Errno::ADDRNOTAVAIL
            | Errno::ADDRINUSE
            | Errno::AGAIN
            | Errno::NOSPC,
        ) => StatusCode::Overloaded,
        _ => StatusCode::DialUnreachable,
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use super::*;

    type Attempt = Pin<Box<dyn Future<Output = io::Result<u16>>>>;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], port))
    }

    /// Returns an attempt that succeeds after some time.
    fn succeeds(port: u16, after_ms: u64) -> (SocketAddr, Attempt) {
        let attempt = async move {
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
            Ok(port)
        };
        (address(port), Box::pin(attempt))
    }

    fn fails(port: u16, after_ms: u64) -> (SocketAddr, Attempt) {
        let attempt = async move {
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
            Err(io::ErrorKind::ConnectionRefused.into())
        };
        (address(port), Box::pin(attempt))
    }

    fn never(port: u16) -> (SocketAddr, Attempt) {
        (address(port), Box::pin(std::future::pending()))
    }

    /// Returns the result of the attempts within ten seconds, and the milliseconds it took.
    async fn raced(attempts: Vec<(SocketAddr, Attempt)>) -> (Result<u16, DialError>, u128) {
        let began = Instant::now();
        let deadline = began + Duration::from_secs(10);
        let ended = race(attempts, DialError::NoAddress, deadline).await;
        let ended = ended.map(|(at, port)| {
            assert_eq!(at, address(port));
            port
        });
        (ended, began.elapsed().as_millis())
    }

    #[tokio::test(start_paused = true)]
    async fn an_unanswered_attempt_costs_only_the_delay() {
        let (ended, after) = raced(vec![never(1), succeeds(2, 40), succeeds(3, 10)]).await;
        assert_eq!((ended.unwrap(), after), (2, 290));
        let (ended, after) = raced(vec![never(1), never(2), succeeds(3, 10)]).await;
        assert_eq!((ended.unwrap(), after), (3, 510));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_attempt_may_win_after_the_next_began() {
        let (ended, after) = raced(vec![succeeds(1, 400), succeeds(2, 400)]).await;
        assert_eq!((ended.unwrap(), after), (1, 400));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_attempt_starts_the_next_at_once() {
        let (ended, after) = raced(vec![fails(1, 5), fails(2, 5), succeeds(3, 5)]).await;
        assert_eq!((ended.unwrap(), after), (3, 15));
        let (ended, after) = raced(vec![fails(1, 5), fails(2, 7)]).await;
        let is_last =
            matches!(ended, Err(DialError::Failed { address, .. }) if address.port() == 2);
        assert!(is_last && after == 12, "{ended:?} after {after} ms");
    }

    #[tokio::test(start_paused = true)]
    async fn a_timeout_names_an_address_that_did_not_answer() {
        let (ended, after) = raced(vec![never(1), fails(2, 5)]).await;
        assert!(matches!(ended, Err(DialError::Timeout(at)) if at.port() == 1));
        assert_eq!(after, 10_000);
        assert!(matches!(
            raced(Vec::new()).await,
            (Err(DialError::NoAddress), 0)
        ));
    }

    #[test]
    fn families_take_turns_and_the_first_address_stays_first() {
        let read = |text: &str| {
            text.split(' ')
                .map(|one| one.parse().unwrap())
                .collect::<Vec<SocketAddr>>()
        };
        let given = read("[2001:db8::1]:1 [2001:db8::2]:1 [2001:db8::3]:1 192.0.2.1:1 192.0.2.2:1");
        let ordered =
            read("[2001:db8::1]:1 192.0.2.1:1 [2001:db8::2]:1 192.0.2.2:1 [2001:db8::3]:1");
        assert_eq!(interleave_families(&given), ordered);
        let given = read("192.0.2.1:1 [2001:db8::1]:1 [2001:db8::2]:1");
        assert_eq!(interleave_families(&given), given);
        assert_eq!(interleave_families(&[]), []);
    }
}
