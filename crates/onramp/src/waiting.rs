//! Listeners on loopback to which programs' sockets connect, and the matching of these connections
//! with their announcements.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use longhaul_hop::{
    AdmittedConnection, ConnectionGate, ConnectionPermit, EventLog, GateLimits, Listener,
};
use longhaul_service::Shell;
use parking_lot::Mutex;
use rustix::io::Errno;
use tokio::sync::oneshot;

use crate::door::listen;
use crate::error::OnrampError;
use crate::failure::ConnectFailure;

/// Name of these listeners in errors.
const ENTRY: &str = "programs";
/// Maximum time that a connection waits for its announcement, and an announcement for its
/// connection.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_secs(5);
/// Limits on connections that wait for their announcement. Beyond them, the oldest is reset.
/// Programs announce their connections at once, so only a client with many unannounced ones loses
/// them.
const WAITING_LIMITS: GateLimits = GateLimits {
    newcomers: 1024,
    verified: 0,
    reserves_for_keys: false,
    header: ANNOUNCE_TIMEOUT,
    least_header: ANNOUNCE_TIMEOUT,
};
/// Initial receive buffer of a connection, in bytes (`SO_RCVBUF`): the minimum of Linux.
///
/// A program whose socket must not be writable yet then needs little fill. The buffer autotunes
/// from the first byte that is read.
const INITIAL_RECEIVE_BUFFER_BYTES: u32 = 2304;

/// The listeners, and the waiting connections and announcements.
#[derive(Debug)]
pub(crate) struct ProgramListeners {
    v4: Option<SocketAddr>,
    v6: Option<SocketAddr>,
    gate: Arc<ConnectionGate>,
    events: EventLog,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: HashMap<SocketAddr, WaitingEntry>,
    arrivals: u64,
    peers: HashMap<SocketAddr, SocketAddr>,
}

#[derive(Debug)]
enum WaitingEntry {
    /// A connection without an announcement.
    Arrived {
        socket: OwnedFd,
        /// Distinguishes it from a later one with the same address.
        number: u64,
        _place: ConnectionPermit,
    },
    /// An announcement without a connection.
    Announced(oneshot::Sender<OwnedFd>),
}

/// A program's announced connection. While it is held, its destination can be queried.
#[derive(Debug)]
pub(crate) struct AnnouncedConnection {
    pub(crate) socket: OwnedFd,
    pub(crate) _peer: PeerRegistration,
}

/// Registration of the destination of a connection, removed when dropped.
#[derive(Debug)]
pub(crate) struct PeerRegistration {
    room: Arc<ProgramListeners>,
    local: SocketAddr,
}

impl Drop for PeerRegistration {
    fn drop(&mut self) {
        self.room.state().peers.remove(&self.local);
    }
}

impl ProgramListeners {
    /// Listens on loopback until `shell` drains.
    pub(crate) fn open(shell: &mut Shell) -> Result<Arc<Self>, OnrampError> {
        Self::open_within(WAITING_LIMITS, shell)
    }

    fn open_within(limits: GateLimits, shell: &mut Shell) -> Result<Arc<Self>, OnrampError> {
        let (v4, v6) = (
            listen(ENTRY, (Ipv4Addr::LOCALHOST, 0).into(), set_small_buffer),
            listen(ENTRY, (Ipv6Addr::LOCALHOST, 0).into(), set_small_buffer),
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
            gate: ConnectionGate::new(limits),
            events: EventLog::new(),
            state: Mutex::default(),
        });
        for (listener, _) in [v4, v6].into_iter().flatten() {
            shell.accept_by(Arc::clone(&room).accept(listener));
        }
        Ok(room)
    }

    /// Returns the listener for a socket of this family. Without IPv6, an IPv6 socket can connect
    /// to an IPv4-mapped address.
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

    /// Returns the destination of the connection of a program's socket.
    pub(crate) fn registered_peer(&self, local: SocketAddr) -> Option<SocketAddr> {
        self.state().peers.get(&canonical(local)).copied()
    }

    /// Registers `peer` as the destination of the connection of a program's socket, until the
    /// result is dropped.
    pub(crate) fn register_peer(
        self: &Arc<Self>,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> PeerRegistration {
        let local = canonical(local);
        self.state().peers.insert(local, peer);
        PeerRegistration {
            room: Arc::clone(self),
            local,
        }
    }

    /// Waits for the connection from `local`, a program's socket, and registers `peer` as its
    /// destination.
    pub(crate) async fn wait_announced(
        self: &Arc<Self>,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> Result<AnnouncedConnection, ConnectFailure> {
        let local = canonical(local);
        let coming = {
            let mut state = self.state();
            match state.waiting.remove(&local) {
                Some(WaitingEntry::Arrived { socket, .. }) => Ok(socket),
                Some(announced @ WaitingEntry::Announced(_)) => {
                    state.waiting.insert(local, announced);
                    return Err(ConnectFailure::new(
                        Errno::ALREADY,
                        "this socket was already announced",
                    ));
                }
                None => {
                    let (announce, coming) = oneshot::channel();
                    state
                        .waiting
                        .insert(local, WaitingEntry::Announced(announce));
                    Err(coming)
                }
            }
        };
        let socket = match coming {
            Ok(socket) => socket,
            Err(coming) => match tokio::time::timeout(ANNOUNCE_TIMEOUT, coming).await {
                Ok(Ok(socket)) => socket,
                _ => {
                    self.state().waiting.remove(&local);
                    return Err(ConnectFailure::new(
                        Errno::TIMEDOUT,
                        "the announced socket did not arrive in time",
                    ));
                }
            },
        };
        Ok(AnnouncedConnection {
            socket,
            _peer: self.register_peer(local, peer),
        })
    }

    async fn accept(self: Arc<Self>, mut listener: Listener) {
        loop {
            let failed = |error: &io::Error| {
                self.events.log(None, |left_out| {
                    tracing::warn!(
                        %error, left_out,
                        "cannot accept the sockets of programs; retrying"
                    );
                });
            };
            let (socket, from) = listener.accept(failed).await;
            self.handle_arrival(socket, canonical(from));
        }
    }

    fn handle_arrival(self: &Arc<Self>, socket: OwnedFd, from: SocketAddr) {
        let AdmittedConnection {
            permit: place,
            mut eviction,
            ..
        } = self.gate.admit(from.ip());
        let mut state = self.state();
        if let Some(WaitingEntry::Announced(announced)) = state.waiting.remove(&from) {
            // If nobody waits any more, it is dropped, and so reset.
            let _ = announced.send(socket);
            return;
        }
        state.arrivals += 1;
        let number = state.arrivals;
        let arrived = WaitingEntry::Arrived {
            socket,
            number,
            _place: place,
        };
        state.waiting.insert(from, arrived);
        drop(state);
        let room = Arc::clone(self);
        tokio::spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(ANNOUNCE_TIMEOUT) => {}
                () = eviction.wait() => {}
            }
            let mut state = room.state();
            let arrived = match state.waiting.get(&from) {
                Some(WaitingEntry::Arrived { number, .. }) => Some(*number),
                _ => None,
            };
            if arrived == Some(number) {
                state.waiting.remove(&from);
                drop(state);
                room.events.log(None, |left_out| {
                    tracing::warn!(
                        %from, left_out,
                        "reset a connection that no program announced"
                    )
                });
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

/// Sets a small receive buffer, then returns it to autotuning, which continues from that size. A
/// fixed buffer would not be autotuned, and would limit the window scale for good.
fn set_small_buffer(socket: BorrowedFd<'_>) -> io::Result<()> {
    use drs::{Action, ActionOutcome, BufferLocks, apply};
    if BufferLocks::read(socket).is_none() {
        // Linux before 5.15 cannot return it to autotuning.
        return Ok(());
    }
    for action in [
        Action::ReceiveBuffer(INITIAL_RECEIVE_BUFFER_BYTES),
        Action::UnlockReceive,
    ] {
        if let ActionOutcome::Refused(errno) = apply(socket, action) {
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
    async fn a_crowd_does_not_block_announced_connections() {
        const ROOM: usize = 8;
        let limits = GateLimits {
            newcomers: ROOM,
            ..WAITING_LIMITS
        };
        let mut shell = Shell::new();
        let room = ProgramListeners::open_within(limits, &mut shell).unwrap();
        let at = room.v4.unwrap();
        let mut crowd = Vec::new();
        for _ in 0..3 * ROOM {
            crowd.push(TcpStream::connect(at).await.unwrap());
        }
        let program = TcpStream::connect(at).await.unwrap();
        let announced = room.wait_announced(program.local_addr().unwrap(), at).await;
        assert!(announced.is_ok(), "{announced:?}");
        // The oldest of the crowd has been evicted.
        let mut first = crowd.remove(0);
        assert!(!matches!(first.read(&mut [0]).await, Ok(1..)));
        drop(announced);
        assert!(room.state().peers.is_empty());
    }
}
