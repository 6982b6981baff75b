//! Probing with TCP: the far host's kernel acknowledges a segment, whatever its program does.

use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use drs::{TcpInfo, TcpState};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::Fate;
use crate::fact::CommandName;
use crate::path::Negotiated;

/// Interval at which the kernel is asked whether the segment was acknowledged.
const ACK_POLL_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 5_000_000,
};

/// Result of an attempt to connect.
pub(super) struct ConnectResult {
    /// One round trip: from the first packet to the answer, whether it accepted or refused the
    /// connection.
    pub rtt: Duration,
    /// The connection, unless it was refused.
    pub connection: Option<TcpStream>,
}

pub(super) fn dial(address: SocketAddr, connect_timeout: Duration) -> io::Result<ConnectResult> {
    let start = Instant::now();
    match connect(address, None, connect_timeout) {
        Ok(connection) => {
            let elapsed = start.elapsed();
            // The kernel's own measurement excludes the time that this program took to wake up.
            let measured = TcpInfo::read(&connection).ok().map(|info| info.rtt);
            let rtt = measured
                .filter(|rtt| !rtt.is_zero())
                .map_or(elapsed, |rtt| rtt.min(elapsed));
            Ok(ConnectResult {
                rtt,
                connection: Some(connection),
            })
        }
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(ConnectResult {
            rtt: start.elapsed(),
            connection: None,
        }),
        Err(error) => Err(error),
    }
}

fn connect(
    address: SocketAddr,
    largest_segment: Option<u32>,
    connect_timeout: Duration,
) -> io::Result<TcpStream> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    // Never fragmented, whatever the system's default.
    if address.is_ipv4() {
        set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::WANT)?;
    } else {
        set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::WANT)?;
    }
    if let Some(bytes) = largest_segment {
        socket.set_tcp_mss(bytes)?;
    }
    socket.set_tcp_nodelay(true)?;
    socket.connect_timeout(&address.into(), connect_timeout)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Returns the options that a connection negotiated.
pub(super) fn negotiated(connection: &TcpStream) -> Result<Negotiated, String> {
    let info = TcpInfo::read(connection).map_err(|error| error.to_string())?;
    let congestion = SockRef::from(connection)
        .tcp_congestion()
        .ok()
        .and_then(|name| {
            let name: Vec<u8> = name.into_iter().take_while(|b| *b != 0).collect();
            std::str::from_utf8(&name)
                .ok()
                .and_then(|name| CommandName::new(name).ok())
        });
    Ok(Negotiated {
        timestamps: info.timestamps,
        sack: info.selective_acknowledgement,
        window_scaling: info.window_scaling,
        congestion,
        send_mss: info.send_mss,
    })
}

/// Sends one full segment on a connection of its own, in a packet of at most `size` bytes (or as
/// large as possible). Returns the packet's size and its fate.
pub(super) fn probe_segment(
    address: SocketAddr,
    size: Option<u32>,
    rtt: Duration,
) -> Result<(u32, Fate), String> {
    let words = |error: io::Error| error.to_string();
    let headers = if address.is_ipv4() { 40 } else { 60 };
    // Lost set-up packets are retransmitted after 1 s and 3 s.
    let connect_timeout = Duration::from_secs(5) + 4 * rtt;
    let largest = size.map(|size| size.saturating_sub(headers));
    let mut connection = connect(address, largest, connect_timeout).map_err(words)?;
    let before = TcpInfo::read(&connection).map_err(|error| error.to_string())?;
    let options = if before.timestamps { 12 } else { 0 };
    let packet = before.send_mss + options + headers;
    let data = vec![0; before.send_mss as usize];
    connection.write_all(&data).map_err(words)?;
    // Long enough for two or more retransmissions of the segment, but not for the three after which
    // the kernel itself tries a smaller size.
    let deadline =
        Instant::now() + Duration::from_millis(600).max(10 * rtt + Duration::from_millis(200));
    let fate = loop {
        let info = TcpInfo::read(&connection).map_err(|error| error.to_string())?;
        if info.state == TcpState::Close {
            return Err(format!("{address} resets connections"));
        }
        if info.unacked == 0 && info.bytes_not_sent.unwrap_or(0) == 0 {
            break match info.path_mtu {
                smaller if smaller < packet => Fate::TooLarge(smaller),
                _ => Fate::Arrived,
            };
        }
        if Instant::now() >= deadline {
            break Fate::Vanished;
        }
        // Woken by a reset, or else by the timeout.
        let mut wait = [PollFd::new(&connection, PollFlags::empty())];
        let _ = poll(&mut wait, Some(&ACK_POLL_INTERVAL));
    };
    // Data left in the buffer must not keep the connection open.
    let _ = SockRef::from(&connection).set_linger(Some(Duration::ZERO));
    Ok((packet, fate))
}
