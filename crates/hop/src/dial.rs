//! Connecting to the first of some addresses that answers.

use std::io;
use std::net::SocketAddr;

use longhaul_proto::StatusCode;
use rustix::io::Errno;
use tokio::time::Instant;

use crate::{Conn, Options};

/// A connection that stands.
#[derive(Debug)]
pub struct Dialled {
    /// The connection.
    pub conn: Conn,
    /// With whom.
    pub address: SocketAddr,
}

/// Why none of the addresses could be connected to: of the last one tried.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// There was none.
    #[error("no address")]
    NoAddress,
    /// It is an IPv4 address, and the connection is to be dialled from an IPv6 address, or the other way round.
    #[error("{0}: the address to connect from is of the other family")]
    OtherFamily(SocketAddr),
    /// It did not answer in time.
    #[error("{0}: no answer in time")]
    Timeout(SocketAddr),
    /// It refused, cannot be reached, or this host lacks something.
    #[error("{address}: {source}")]
    Failed {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
}

impl DialError {
    /// What a depot says of it.
    #[must_use]
    pub fn code(&self) -> StatusCode {
        match self {
            Self::NoAddress | Self::OtherFamily(_) => StatusCode::DialUnreachable,
            Self::Timeout(_) => StatusCode::DialTimeout,
            Self::Failed { source, .. } => code_of(source),
        }
    }
}

impl From<DialError> for io::Error {
    fn from(error: DialError) -> Self {
        let kind = match &error {
            DialError::NoAddress => io::ErrorKind::NotFound,
            DialError::OtherFamily(_) => io::ErrorKind::AddrNotAvailable,
            DialError::Timeout(_) => io::ErrorKind::TimedOut,
            DialError::Failed { source, .. } => source.kind(),
        };
        Self::new(kind, error)
    }
}

/// Connects to the first of `addresses` that answers before `deadline`. Each gets its share of the time that is left, so that one black
/// hole does not use up everything. `options` says what is set for each.
///
/// # Errors
/// [`DialError`], of the last address.
pub async fn dial(
    addresses: &[SocketAddr],
    options: impl Fn(SocketAddr) -> Options,
    deadline: Instant,
) -> Result<Dialled, DialError> {
    let mut failure = DialError::NoAddress;
    for (index, &address) in addresses.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        let others = u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
        let options = options(address);
        if options
            .source
            .is_some_and(|source| source.is_ipv4() != address.is_ipv4())
        {
            failure = DialError::OtherFamily(address);
            continue;
        }
        let attempt = Conn::connect(address, |fd| {
            options.apply(fd)?;
            options.bind_source(fd, address)
        });
        failure = match tokio::time::timeout(left / others.max(1), attempt).await {
            Ok(Ok(conn)) => return Ok(Dialled { conn, address }),
            Ok(Err(source)) => DialError::Failed { address, source },
            Err(_) => DialError::Timeout(address),
        };
    }
    Err(failure)
}

fn code_of(error: &io::Error) -> StatusCode {
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
