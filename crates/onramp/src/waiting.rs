//! The listeners on loopback that programs' sockets are connected to, and who of those that come
//! was announced.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use longhaul_hop::{Entered, EventLog, Gate, GateLimits, ListenError, Listener, Options, Place};
use parking_lot::Mutex;
use rustix::io::Errno;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::PROGRAM_UNACKNOWLEDGED;
use crate::error::OnrampError;
use crate::failure::Failed;

/// How long a connection waits to be announced, and an announcement for its connection.
const ANNOUNCED_WITHIN: Duration = Duration::from_secs(5);
/// Connections that wait to be announced at once. With one more, the oldest of them is reset:
/// programs announce their connections at once, so whoever holds many unannounced ones loses those.
const LIMITS: GateLimits = GateLimits {
    newcomers: 1024,
    verified: 0,
    header: ANNOUNCED_WITHIN,
    least_header: ANNOUNCED_WITHIN,
};
/// Receive buffer of a connection at first, in bytes (`SO_RCVBUF`): the least that Linux gives, so
/// that a program that is not to see its socket writable yet need not put much in front. It grows
/// by autotuning from the first byte that is read.
const FIRST_RECEIVE_BUFFER: u32 = 2304;

/// The listeners, and who waits.
#[derive(Debug)]
pub(crate) struct WaitingRoom {
    v4: Option<SocketAddr>,
    v6: Option<SocketAddr>,
    gate: Arc<Gate>,
    events: EventLog,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: HashMap<SocketAddr, Waiting>,
    arrivals: u64,
    peers: HashMap<SocketAddr, SocketAddr>,
}

#[derive(Debug)]
enum Waiting {
    /// A connection.
    Arrived {
        socket: OwnedFd,
        /// Distinguishes it from a later one with the same address.
        number: u64,
        _place: Place,
    },
    /// An announcement.
    Announced(oneshot::Sender<OwnedFd>),
}

/// A program's connection that was announced. Where it leads is known while this is held.
#[derive(Debug)]
pub(crate) struct Announced {
    pub(crate) socket: OwnedFd,
    pub(crate) _peer: KnownPeer,
}

/// Has it known where the connection with an address leads.
#[derive(Debug)]
pub(crate) struct KnownPeer {
    room: Arc<WaitingRoom>,
    local: SocketAddr,
}

impl Drop for KnownPeer {
    fn drop(&mut self) {
        self.room.state().peers.remove(&self.local);
    }
}

impl WaitingRoom {
    /// Listens on loopback, for as long as `tasks` are held.
    pub(crate) fn open(tasks: &mut JoinSet<()>) -> Result<Arc<Self>, OnrampError> {
        Self::open_within(LIMITS, tasks)
    }

    fn open_within(limits: GateLimits, tasks: &mut JoinSet<()>) -> Result<Arc<Self>, OnrampError> {
        let (v4, v6) = (
            listen(Ipv4Addr::LOCALHOST.into()),
            listen(Ipv6Addr::LOCALHOST.into()),
        );
        let (v4, v6) = match (v4, v6) {
            (Err(error), Err(_)) => return Err(error),
            (v4, v6) => (v4.ok(), v6.ok()),
        };
        let at = |listener: &Option<(Listener, SocketAddr)>| {
            listener.as_ref().map(|(_, address)| *address)
        };
        let room = Arc::new(Self {
            v4: at(&v4),
            v6: at(&v6),
            gate: Gate::new(limits),
            events: EventLog::new(),
            state: Mutex::default(),
        });
        for (listener, _) in [v4, v6].into_iter().flatten() {
            tasks.spawn(Arc::clone(&room).accept(listener));
        }
        Ok(room)
    }

    /// Where a socket of a family is to be connected to. Where there is no IPv6, a socket of that
    /// family can be connected to an IPv4 address.
    pub(crate) fn listener(&self, v6: bool) -> Option<SocketAddr> {
        let mapped = |at: SocketAddr| match at.ip() {
            IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), at.port()),
            IpAddr::V6(_) => at,
        };
        match v6 {
            true => self.v6.or(self.v4.map(mapped)),
            false => self.v4,
        }
    }

    /// Where the connection of a program's socket leads.
    pub(crate) fn peer(&self, local: SocketAddr) -> Option<SocketAddr> {
        self.state().peers.get(&canonical(local)).copied()
    }

    /// Has it known, while the answer is held, that the connection of a program's socket leads to
    /// `peer`.
    pub(crate) fn leads(self: &Arc<Self>, local: SocketAddr, peer: SocketAddr) -> KnownPeer {
        let local = canonical(local);
        self.state().peers.insert(local, peer);
        KnownPeer {
            room: Arc::clone(self),
            local,
        }
    }

    /// The connection that comes from `local`, a program's socket, which leads to `peer`.
    pub(crate) async fn announced(
        self: &Arc<Self>,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> Result<Announced, Failed> {
        let local = canonical(local);
        let coming = {
            let mut state = self.state();
            match state.waiting.remove(&local) {
                Some(Waiting::Arrived { socket, .. }) => Ok(socket),
                Some(announced @ Waiting::Announced(_)) => {
                    state.waiting.insert(local, announced);
                    return Err(Failed::new(
                        Errno::ALREADY,
                        "that socket was announced before",
                    ));
                }
                None => {
                    let (announce, coming) = oneshot::channel();
                    state.waiting.insert(local, Waiting::Announced(announce));
                    Err(coming)
                }
            }
        };
        let socket = match coming {
            Ok(socket) => socket,
            Err(coming) => match tokio::time::timeout(ANNOUNCED_WITHIN, coming).await {
                Ok(Ok(socket)) => socket,
                _ => {
                    self.state().waiting.remove(&local);
                    return Err(Failed::new(
                        Errno::TIMEDOUT,
                        "the socket that was announced did not come",
                    ));
                }
            },
        };
        Ok(Announced {
            socket,
            _peer: self.leads(local, peer),
        })
    }

    async fn accept(self: Arc<Self>, mut listener: Listener) {
        loop {
            let failed = |error: &io::Error| {
                self.events.log(None, |left_out| {
                    tracing::warn!(%error, left_out, "cannot accept programs' sockets for the moment");
                });
            };
            let (socket, from) = listener.accept(failed).await;
            self.arrived(socket, canonical(from));
        }
    }

    fn arrived(self: &Arc<Self>, socket: OwnedFd, from: SocketAddr) {
        let Entered {
            place,
            mut eviction,
            ..
        } = self.gate.enter(from.ip());
        let mut state = self.state();
        if let Some(Waiting::Announced(announced)) = state.waiting.remove(&from) {
            // Dropped, and so reset, if nobody waits any more.
            let _ = announced.send(socket);
            return;
        }
        state.arrivals += 1;
        let number = state.arrivals;
        let arrived = Waiting::Arrived {
            socket,
            number,
            _place: place,
        };
        state.waiting.insert(from, arrived);
        drop(state);
        let room = Arc::clone(self);
        tokio::spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(ANNOUNCED_WITHIN) => {}
                () = eviction.wait() => {}
            }
            let mut state = room.state();
            if matches!(state.waiting.get(&from), Some(Waiting::Arrived { number: waiting, .. }) if *waiting == number)
            {
                state.waiting.remove(&from);
                drop(state);
                room.events.log(
                    None,
                    |left_out| tracing::warn!(%from, left_out, "reset a connection that no program announced"),
                );
            }
        });
    }

    fn state(&self) -> parking_lot::MutexGuard<'_, State> {
        self.state.lock()
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn listen(ip: IpAddr) -> Result<(Listener, SocketAddr), OnrampError> {
    let address = SocketAddr::new(ip, 0);
    let failed = |source| OnrampError::Listen {
        address,
        entry: "programs",
        source,
    };
    let options = Options {
        unacknowledged: PROGRAM_UNACKNOWLEDGED,
        ..Options::default()
    };
    let listener =
        Listener::bind_prepared(address, &options, small_buffer).map_err(|error| match error {
            ListenError::Io(source) => failed(source),
            ListenError::Congestion(error) => failed(error.source),
        })?;
    let at = listener.local_addr().map_err(failed)?;
    Ok((listener, at))
}

/// A buffer that was set is not autotuned, and bounds the window's scale for good; so it is given
/// back to the kernel at once, which goes on from its size.
fn small_buffer(socket: BorrowedFd<'_>) -> io::Result<()> {
    use drs::{Action, Locks, Outcome, apply};
    if Locks::read(socket).is_none() {
        // Linux before 5.15 could not give it back.
        return Ok(());
    }
    for action in [
        Action::ReceiveBuffer(FIRST_RECEIVE_BUFFER),
        Action::UnlockReceive,
    ] {
        if let Outcome::Refused(errno) = apply(socket, action) {
            return Err(io::Error::from_raw_os_error(errno));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn a_crowd_keeps_no_announced_connection_out() {
        const ROOM: usize = 8;
        let limits = GateLimits {
            newcomers: ROOM,
            ..LIMITS
        };
        let mut tasks = JoinSet::new();
        let room = WaitingRoom::open_within(limits, &mut tasks).unwrap();
        let at = room.v4.unwrap();
        let mut crowd = Vec::new();
        for _ in 0..3 * ROOM {
            crowd.push(TcpStream::connect(at).await.unwrap());
        }
        let program = TcpStream::connect(at).await.unwrap();
        let announced = room.announced(program.local_addr().unwrap(), at).await;
        assert!(announced.is_ok(), "{announced:?}");
        // The oldest of the crowd has made room.
        let mut first = crowd.remove(0);
        assert!(!matches!(first.read(&mut [0]).await, Ok(1..)));
        drop(announced);
        assert!(room.state().peers.is_empty());
    }
}
