//! How a destination is reached: the on-ramp is asked, as the preload object asks it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use drs::TcpInfo;
use longhaul_ramp::{Ask, MAX_MESSAGE, Reply, Request, Wish};
use rustix::io::Errno;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_seqpacket::UnixSeqpacket;

/// Within this the on-ramp answers a question, or it counts as gone. It does so at once.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Longest that an attempt may take: no shorter than the system's own (`tcp_syn_retries`), and a
/// kernel that waits for it has given up by then.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(135);

/// What is wanted of connections.
#[derive(Debug, Clone, Default)]
pub struct Wishes {
    /// The on-ramp's socket.
    pub ramp: PathBuf,
    /// No connection where there is no route.
    pub closed: bool,
    /// What the connections are for, at most [`longhaul_ramp::MAX_PURPOSE`] bytes.
    pub purpose: Option<String>,
    /// Bytes.
    pub size: Option<u64>,
    /// Bits a second.
    pub rate: Option<u64>,
    /// Seconds.
    pub duration: Option<u64>,
}

/// What the on-ramp said.
enum Way {
    /// With whom to report how far it is to, who would know.
    Direct(Option<UnixSeqpacket>),
    Refused(Errno),
    Via(SocketAddr, u64, UnixSeqpacket),
}

impl Wishes {
    /// Connects to a destination by the route that the on-ramp knows, or directly. The error is
    /// what `connect` would report.
    pub(crate) async fn reach(
        &self,
        to: SocketAddr,
        name: Option<&str>,
    ) -> Result<TcpStream, Errno> {
        let stream = match self.ask(to, name).await {
            None => self.without_ramp(to).await,
            Some(Way::Direct(wants_to_know)) => {
                let reached = direct(to).await;
                if let (Ok(stream), Some(control)) = (&reached, wants_to_know) {
                    measured(stream, to, &control).await;
                }
                reached
            }
            Some(Way::Refused(errno)) => Err(errno),
            Some(Way::Via(listener, ticket, control)) => match via(listener, ticket, control).await
            {
                Some(result) => result,
                None => self.without_ramp(to).await,
            },
        }?;
        // What is to be gathered, the program's own kernel has gathered.
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }

    async fn without_ramp(&self, to: SocketAddr) -> Result<TcpStream, Errno> {
        if self.closed {
            return Err(Errno::NETUNREACH);
        }
        direct(to).await
    }

    /// `None` where nobody answers.
    async fn ask(&self, to: SocketAddr, name: Option<&str>) -> Option<Way> {
        let request = Request::Ask(Ask {
            address: Some(to.ip()),
            name,
            port: to.port(),
            route: None,
            wish: Wish {
                purpose: self.purpose.as_deref(),
                size: self.size,
                rate: self.rate,
                duration: self.duration,
            },
            // The listener is for a socket of ours, whatever the program's is.
            v6: false,
            closed: self.closed,
            acceptor: false,
            key: None,
            remembers: false,
        });
        let asked = async {
            let control = UnixSeqpacket::connect(&self.ramp).await.ok()?;
            let mut room = [0; MAX_MESSAGE];
            say(&control, &request).await?;
            let reply = received(&control, &mut room).await?;
            Some(match reply {
                Reply::Direct { measure, .. } => Way::Direct(measure.then_some(control)),
                Reply::Refuse { errno, .. } => Way::Refused(Errno::from_raw_os_error(errno)),
                Reply::Via {
                    listener, ticket, ..
                } if listener.ip().is_loopback() => Way::Via(listener, ticket, control),
                _ => return None,
            })
        };
        timeout(ANSWER_WITHIN, asked).await.ok()?
    }
}

/// Connects to a destination itself, or a name server.
pub(crate) async fn direct(to: SocketAddr) -> Result<TcpStream, Errno> {
    match timeout(CONNECT_TIMEOUT, TcpStream::connect(to)).await {
        Ok(connected) => connected.map_err(|error| errno(&error)),
        Err(_) => Err(Errno::TIMEDOUT),
    }
}

/// Reports to the on-ramp how long a round trip to a destination takes.
async fn measured(stream: &TcpStream, to: SocketAddr, control: &UnixSeqpacket) {
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
        &Request::Measured {
            address,
            round_trip,
        },
    )
    .await;
}

/// `None` where the on-ramp went away meanwhile.
async fn via(
    listener: SocketAddr,
    ticket: u64,
    control: UnixSeqpacket,
) -> Option<Result<TcpStream, Errno>> {
    let connected = async {
        let stream = TcpStream::connect(listener).await.ok()?;
        let begin = Request::Begin {
            ticket,
            local: stream.local_addr().ok()?,
            fill: 0,
        };
        say(&control, &begin).await?;
        let mut room = [0; MAX_MESSAGE];
        match received(&control, &mut room).await? {
            Reply::Done { errno: 0, .. } => Some(Ok(stream)),
            Reply::Done { errno, .. } => Some(Err(Errno::from_raw_os_error(errno))),
            _ => None,
        }
    };
    timeout(CONNECT_TIMEOUT, connected)
        .await
        .unwrap_or(Some(Err(Errno::TIMEDOUT)))
}

async fn say(control: &UnixSeqpacket, request: &Request<'_>) -> Option<()> {
    let bytes = request.encode();
    control.send(bytes.finished().ok()?).await.ok()?;
    Some(())
}

async fn received<'a>(
    control: &UnixSeqpacket,
    room: &'a mut [u8; MAX_MESSAGE],
) -> Option<Reply<'a>> {
    let read = control.recv(room).await.ok()?;
    if read.truncated() {
        return None;
    }
    Reply::decode(room.get(..read.bytes_read())?).ok()
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::HOSTUNREACH)
}
