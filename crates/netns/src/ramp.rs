//! Reaching a destination: the on-ramp is asked, as by the preload object.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use drs::TcpInfo;
use longhaul_ramp_protocol::{
    ConnectionWish, MAX_MESSAGE_BYTES, RampReply, RampRequest, RouteQuery,
};
use rustix::io::Errno;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_seqpacket::UnixSeqpacket;

/// Time for an answer, after which the on-ramp counts as gone. It answers immediately.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum duration of an attempt. It is not shorter than the system's own (`tcp_syn_retries`), and
/// a waiting kernel has given up by then.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(135);

/// Wishes for connections.
#[derive(Debug, Clone, Default)]
pub struct ConnectionWishes {
    /// Socket of the on-ramp.
    pub ramp: PathBuf,
    /// If true, connections without a route are refused.
    pub closed: bool,
    /// Purpose of the connections, at most [`longhaul_ramp_protocol::MAX_PURPOSE_BYTES`] bytes.
    pub purpose: Option<String>,
    /// Size of a transfer in bytes.
    pub size: Option<u64>,
    /// Requested rate in bit/s.
    pub rate: Option<u64>,
    /// Maximum duration in seconds.
    pub duration: Option<u64>,
}

/// The on-ramp's answer.
enum RouteAnswer {
    /// Connect directly, and report the round-trip time over this socket, if the on-ramp wants it.
    Direct(Option<UnixSeqpacket>),
    /// Connect directly, from this local address.
    DirectFrom(SocketAddr),
    Refused(Errno),
    Via(SocketAddr, u64, UnixSeqpacket),
}

impl ConnectionWishes {
    /// Connects to a destination by the on-ramp's route, or directly. The error is what `connect`
    /// would report.
    pub(crate) async fn reach(
        &self,
        to: SocketAddr,
        name: Option<&str>,
    ) -> Result<TcpStream, Errno> {
        let stream = match self.ask(to, name).await {
            None => self.without_ramp(to).await,
            Some(RouteAnswer::Direct(wants_to_know)) => {
                let reached = connect_directly(to).await;
                if let (Ok(stream), Some(control)) = (&reached, wants_to_know) {
                    report_round_trip(stream, to, &control).await;
                }
                reached
            }
            Some(RouteAnswer::DirectFrom(source)) => connect_from(source, to).await,
            Some(RouteAnswer::Refused(errno)) => Err(errno),
            Some(RouteAnswer::Via(listener, ticket, control)) => {
                match connect_via_listener(listener, ticket, control).await {
                    Some(result) => result,
                    None => self.without_ramp(to).await,
                }
            }
        }?;
        // The program's own kernel has already coalesced small writes.
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }

    async fn without_ramp(&self, to: SocketAddr) -> Result<TcpStream, Errno> {
        if self.closed {
            return Err(Errno::NETUNREACH);
        }
        connect_directly(to).await
    }

    /// Asks the on-ramp for a destination. Returns `None` if it does not answer.
    async fn ask(&self, to: SocketAddr, name: Option<&str>) -> Option<RouteAnswer> {
        let request = RampRequest::Ask(RouteQuery {
            address: Some(to.ip()),
            name,
            port: to.port(),
            route: None,
            wish: ConnectionWish {
                purpose: self.purpose.as_deref(),
                size: self.size,
                rate: self.rate,
                duration: self.duration,
            },
            // The listener is for a socket of this process, whatever the program's is.
            v6: false,
            route_required: self.closed,
            acceptor: false,
            key: None,
            remembers: false,
            binds: true,
        });
        let asked = async {
            let control = UnixSeqpacket::connect(&self.ramp).await.ok()?;
            let mut room = [0; MAX_MESSAGE_BYTES];
            say(&control, &request).await?;
            let reply = received(&control, &mut room).await?;
            Some(match reply {
                RampReply::Direct { measure, .. } => {
                    RouteAnswer::Direct(measure.then_some(control))
                }
                RampReply::DirectFrom { source, .. } => RouteAnswer::DirectFrom(source),
                RampReply::Refuse { errno, .. } => {
                    RouteAnswer::Refused(Errno::from_raw_os_error(errno))
                }
                RampReply::Via {
                    listener, ticket, ..
                } if listener.ip().is_loopback() => RouteAnswer::Via(listener, ticket, control),
                _ => return None,
            })
        };
        timeout(ANSWER_TIMEOUT, asked).await.ok()?
    }
}

/// Connects to a destination or a name server directly.
pub(crate) async fn connect_directly(to: SocketAddr) -> Result<TcpStream, Errno> {
    match timeout(CONNECT_TIMEOUT, TcpStream::connect(to)).await {
        Ok(connected) => connected.map_err(|error| errno(&error)),
        Err(_) => Err(Errno::TIMEDOUT),
    }
}

/// Connects to a destination directly, from a local address.
async fn connect_from(source: SocketAddr, to: SocketAddr) -> Result<TcpStream, Errno> {
    let connected = async {
        let socket = match to {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        }?;
        socket.bind(source)?;
        socket.connect(to).await
    };
    match timeout(CONNECT_TIMEOUT, connected).await {
        Ok(connected) => connected.map_err(|error| errno(&error)),
        Err(_) => Err(Errno::TIMEDOUT),
    }
}

/// Reports the round-trip time of a destination to the on-ramp.
async fn report_round_trip(stream: &TcpStream, to: SocketAddr, control: &UnixSeqpacket) {
    let Ok(info) = TcpInfo::read(stream.as_fd()) else {
        return;
    };
    let round_trip = info.min_rtt.unwrap_or(info.rtt).as_micros();
    let Ok(round_trip @ 1..) = u64::try_from(round_trip) else {
        return;
    };
    let address = to.ip();
    say(
        control,
        &RampRequest::Measured {
            address,
            round_trip,
        },
    )
    .await;
}

/// Connects through the on-ramp's listener. Returns `None` if the on-ramp went away meanwhile.
async fn connect_via_listener(
    listener: SocketAddr,
    ticket: u64,
    control: UnixSeqpacket,
) -> Option<Result<TcpStream, Errno>> {
    let connected = async {
        let stream = TcpStream::connect(listener).await.ok()?;
        let begin = RampRequest::Begin {
            ticket,
            local: stream.local_addr().ok()?,
            fill: 0,
        };
        say(&control, &begin).await?;
        let mut room = [0; MAX_MESSAGE_BYTES];
        match received(&control, &mut room).await? {
            RampReply::Done { errno: 0, .. } => Some(Ok(stream)),
            RampReply::Done { errno, .. } => Some(Err(Errno::from_raw_os_error(errno))),
            _ => None,
        }
    };
    timeout(CONNECT_TIMEOUT, connected)
        .await
        .unwrap_or(Some(Err(Errno::TIMEDOUT)))
}

async fn say(control: &UnixSeqpacket, request: &RampRequest<'_>) -> Option<()> {
    let bytes = request.encode();
    control.send(bytes.finish().ok()?).await.ok()?;
    Some(())
}

async fn received<'a>(
    control: &UnixSeqpacket,
    room: &'a mut [u8; MAX_MESSAGE_BYTES],
) -> Option<RampReply<'a>> {
    let read = control.recv(room).await.ok()?;
    if read.truncated() {
        return None;
    }
    RampReply::decode(room.get(..read.bytes_read())?).ok()
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::HOSTUNREACH)
}
