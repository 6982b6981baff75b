//! Account of a connection, for its last line in the log. It contains only numbers, because a fork
//! may copy it while it is written.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;

use drs::{Limit, TcpInfo, TcpState};

use crate::table::Kept;

/// Identity of a socket: its inode number, which no other socket has while this one lives.
pub type Inode = u64;

/// The account of one connection.
#[derive(Debug, Clone, Copy, Default)]
pub struct Account {
    /// The socket's identity.
    pub inode: Inode,
    /// Number of the connection in this process, from 1.
    pub number: u64,
    /// Time when it was first seen, in microseconds on the log's clock.
    pub since_us: u64,
    /// Number of samples by the watcher.
    pub looks: u32,
    /// Number of verdicts for each side (sending, receiving), by [`Limit::ALL`].
    pub verdicts: [[u32; Limit::ALL.len()]; 2],
    /// Number of actions that the kernel carried out.
    pub actions: u32,
    /// Number of actions that the kernel refused.
    pub refused: u32,
    /// Bytes acknowledged by the peer, and bytes received.
    pub moved: [u64; 2],
    /// If true, its windows are not scaled, so that none can be over 64 KB.
    pub unscaled: bool,
    /// Local address.
    pub local: Address,
    /// Address of the peer.
    pub peer: Address,
}

// SAFETY: numbers and booleans; zero is a valid value of each.
unsafe impl Kept for Account {}

/// An address and port, if known; IPv4 is mapped into IPv6.
#[derive(Debug, Clone, Copy, Default)]
pub struct Address {
    octets: [u8; 16],
    port: u16,
}

impl Address {
    fn of(address: rustix::net::SocketAddrAny) -> Option<Self> {
        let address = SocketAddr::try_from(address).ok()?;
        let octets = match address.ip() {
            IpAddr::V4(four) => four.to_ipv6_mapped().octets(),
            IpAddr::V6(six) => six.octets(),
        };
        Some(Self {
            octets,
            port: address.port(),
        })
    }

    /// Returns it as a socket address.
    pub fn socket(self) -> Option<SocketAddr> {
        let address = Ipv6Addr::from(self.octets).to_canonical();
        (self.port != 0).then_some(SocketAddr::new(address, self.port))
    }
}

impl Account {
    /// Counts a verdict.
    pub fn count(&mut self, side: usize, limit: Limit) {
        let at = Limit::ALL.iter().position(|each| *each == limit);
        if let Some(count) = at.and_then(|at| self.verdicts.get_mut(side)?.get_mut(at)) {
            *count = count.saturating_add(1);
        }
    }

    /// Updates the account from the kernel's current state.
    pub fn remember(&mut self, socket: BorrowedFd<'_>, info: &TcpInfo) {
        self.moved = [
            info.bytes_acked.unwrap_or(0),
            info.bytes_received.unwrap_or(0),
        ];
        // Not known before the SYNs were exchanged.
        self.unscaled |= info.state == TcpState::Established && !info.window_scaling;
        if self.peer.socket().is_none() {
            let local = rustix::net::getsockname(socket).ok().and_then(Address::of);
            let peer = rustix::net::getpeername(socket).ok().flatten();
            self.local = local.unwrap_or(self.local);
            self.peer = peer.and_then(Address::of).unwrap_or(self.peer);
        }
    }
}

/// Returns the identity of the socket behind a descriptor, or `None` if it is not a TCP socket.
pub fn tcp_inode(descriptor: BorrowedFd<'_>) -> Option<Inode> {
    let protocol = rustix::net::sockopt::socket_protocol(descriptor).ok()??;
    (protocol == rustix::net::ipproto::TCP).then_some(())?;
    rustix::fs::fstat(descriptor).ok().map(|stat| stat.st_ino)
}
