//! A port: where an end of a link takes packets from a node and gives packets to it. Both kinds
//! speak in whole IP packets with a virtio header beside them, so that TCP's super-packets pass
//! unsegmented.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;

use super::packet::PacketPort;
use super::tun::TunPort;
use super::virtio::VirtioHeader;

/// The longest packet a port yields: an IP super-packet of segmentation offload.
pub const LONGEST_PACKET: usize = 65_536;

/// An end of a link. The node's namespace matters only while it is made; afterwards any thread may
/// use it.
#[derive(Debug)]
pub enum Port {
    /// A TUN device in the node's namespace.
    Tun(TunPort),
    /// A packet socket on the emulator's end of a veth pair.
    Packet(PacketPort),
}

/// What one read of a port gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// A packet of `len` bytes now lies at the start of the buffer.
    Packet {
        /// What the kernel says about it.
        virtio: VirtioHeader,
        /// Its length in bytes.
        len: usize,
    },
    /// Something that is no IP packet, or was cut off; to be ignored.
    Noise,
    /// Nothing more at this time.
    Empty,
}

impl Port {
    /// Takes the next packet from the node, without waiting. `into` should hold [`LONGEST_PACKET`]
    /// bytes.
    pub(super) fn receive(&mut self, into: &mut [u8]) -> Result<Received, Errno> {
        match self {
            Self::Tun(port) => port.receive(into),
            Self::Packet(port) => port.receive(into),
        }
    }

    /// Gives a packet, in two parts, to the node.
    pub(super) fn send(
        &mut self,
        virtio: VirtioHeader,
        headers: &[u8],
        body: &[u8],
    ) -> Result<(), Errno> {
        match self {
            Self::Tun(port) => port.send(virtio, headers, body),
            Self::Packet(port) => port.send(virtio, headers, body),
        }
    }

    /// Packets that the kernel threw away, since the port was made, because the engine didn't read
    /// in time.
    pub(super) fn device_drops(&mut self) -> u64 {
        match self {
            Self::Tun(port) => port.device_drops(),
            Self::Packet(port) => port.device_drops(),
        }
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tun(port) => port.as_fd(),
            Self::Packet(port) => port.as_fd(),
        }
    }
}
