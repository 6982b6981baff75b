//! The TCP sockets beneath: how they are made, and what is set on each.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use longhaul_proto::{Endpoint, Host};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream, lookup_host},
    time::{Instant, timeout_at},
};

use crate::Error;

/// A silent peer is probed after this long, and given up after `USER_TIMEOUT`, which on Linux takes the place of a number of
/// probes.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(15);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);
/// How long sent data may go unacknowledged. Linux counts a window that stays shut as well (since 5.11), so this also
/// bounds how long the far end may stop reading: long enough for a disk that stalls, far from the 15 minutes of the default.
const USER_TIMEOUT: Duration = Duration::from_secs(180);
const BACKLOG: u32 = 1024;

/// Connects to the first address of `endpoint` that answers, each given its share of the time that is left.
pub(crate) async fn dial(
    endpoint: &Endpoint,
    congestion: Option<&str>,
    deadline: Instant,
) -> Result<TcpStream, DialError> {
    let addresses = resolve(endpoint, deadline).await?;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for (index, &address) in addresses.iter().enumerate() {
        let socket = new_socket(address, congestion)?;
        let attempts = u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
        let share = Instant::now() + deadline.saturating_duration_since(Instant::now()) / attempts;
        match timeout_at(share, socket.connect(address)).await {
            Ok(Ok(stream)) => {
                configure(&stream)?;
                return Ok(stream);
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = io::Error::new(io::ErrorKind::TimedOut, "no answer in time"),
        }
    }
    Err(DialError::Io(last))
}

/// Listens on `address`; what is accepted inherits the congestion control.
pub(crate) fn listen(address: SocketAddr, congestion: Option<&str>) -> Result<TcpListener, Error> {
    let failed = |source| Error::Listen { address, source };
    let socket = new_socket(address, congestion).map_err(|error| match error {
        DialError::Congestion(name, source) => Error::Congestion { name, source },
        DialError::Io(source) => failed(source),
    })?;
    socket.set_reuseaddr(true).map_err(failed)?;
    socket.bind(address).map_err(failed)?;
    socket.listen(BACKLOG).map_err(failed)
}

/// What every connection gets.
pub(crate) fn configure(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_AFTER)
        .with_interval(KEEPALIVE_EVERY);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))
}

/// Makes the close to come a reset, whatever is still to be sent (LH-END-3).
pub(crate) fn reset_on_close(stream: &TcpStream) {
    // A socket too broken for this is gone already.
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

/// Why a connection did not come about.
pub(crate) enum DialError {
    Congestion(String, io::Error),
    Io(io::Error),
}

impl From<io::Error> for DialError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

async fn resolve(endpoint: &Endpoint, deadline: Instant) -> io::Result<Vec<SocketAddr>> {
    let name = match &endpoint.host {
        Host::Ip(ip) => return Ok(vec![SocketAddr::new(*ip, endpoint.port)]),
        Host::Name(name) => name.as_str(),
    };
    let found = timeout_at(deadline, lookup_host((name, endpoint.port)))
        .await
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the name did not resolve in time"))??;
    Ok(found.collect())
}

fn new_socket(address: SocketAddr, congestion: Option<&str>) -> Result<TcpSocket, DialError> {
    let socket = match address.ip() {
        IpAddr::V4(_) => TcpSocket::new_v4()?,
        IpAddr::V6(_) => TcpSocket::new_v6()?,
    };
    if let Some(name) = congestion {
        // Before connecting, so that the handshake and slow start are already under it.
        let set = SockRef::from(&socket).set_tcp_congestion(name.as_bytes());
        set.map_err(|source| DialError::Congestion(name.to_owned(), source))?;
    }
    Ok(socket)
}
