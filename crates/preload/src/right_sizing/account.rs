//! What is kept of a connection for its last line in the log. Numbers only: a fork may copy it
//! while it is written.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;

use drs::{Limit, TcpInfo, TcpState};

use crate::table::Kept;

/// A socket's identity: the number of its inode, which no other socket has while this one lives.
pub type Inode = u64;

/// The account of one connection.
#[derive(Debug, Clone, Copy, Default)]
pub struct Account {
    /// The socket's identity.
    pub inode: Inode,
    /// The connection's number in this process, from 1.
    pub number: u64,
    /// When it was first seen, in microseconds on the log's clock.
    pub since_us: u64,
    /// Whether the watcher got to look at it.
    pub looks: u32,
    /// Verdicts on each side (sending, receiving), by [`Limit::ALL`].
    pub verdicts: [[u32; Limit::ALL.len()]; 2],
    /// Actions that the kernel carried out.
    pub actions: u32,
    /// Actions that it refused.
    pub refused: u32,
    /// Bytes acknowledged by the peer, and received.
    pub moved: [u64; 2],
    /// Whether its windows are not scaled, so that none can be over 64 KB.
    pub unscaled: bool,
    /// This end's address.
    pub local: Address,
    /// The other end's.
    pub peer: Address,
}

// SAFETY: numbers and truth values, of which zero is one.
unsafe impl Kept for Account {}

/// An address and port, or none; IPv4 as mapped into IPv6.
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

    /// As it is written.
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

    /// Takes in what the kernel says now.
    pub fn remember(&mut self, socket: BorrowedFd<'_>, info: &TcpInfo) {
        self.moved = [
            info.bytes_acked.unwrap_or(0),
            info.bytes_received.unwrap_or(0),
        ];
        // Not to be known before the SYNs were exchanged.
        self.unscaled |= info.state == TcpState::Established && !info.window_scaling;
        if self.peer.socket().is_none() {
            let local = rustix::net::getsockname(socket).ok().and_then(Address::of);
            let peer = rustix::net::getpeername(socket).ok().flatten();
            self.local = local.unwrap_or(self.local);
            self.peer = peer.and_then(Address::of).unwrap_or(self.peer);
        }
    }
}

/// The identity of the socket behind a descriptor, when it is a TCP socket.
pub fn tcp_inode(descriptor: BorrowedFd<'_>) -> Option<Inode> {
    let protocol = rustix::net::sockopt::socket_protocol(descriptor).ok()??;
    (protocol == rustix::net::ipproto::TCP).then_some(())?;
    rustix::fs::fstat(descriptor).ok().map(|stat| stat.st_ino)
}
