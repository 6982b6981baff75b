//! A port, through which an end of a link takes packets from a node and gives packets to it. Both
//! kinds exchange whole IP packets with a virtio header, so that TCP's super-packets pass
//! unsegmented.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;

use super::packet::PacketPort;
use super::port_read::PortRead;
use super::tun::TunPort;
use super::virtio::VirtioHeader;

/// Maximum length of a packet from a port, in bytes: an IP super-packet of segmentation offload.
pub const MAX_PACKET_BYTES: usize = 65_536;

/// An end of a link. The node's namespace matters only while it is created; afterwards any thread
/// may use it.
#[derive(Debug)]
pub enum Port {
    /// A TUN device in the node's namespace.
    Tun(TunPort),
    /// A packet socket on the emulator's end of a veth pair.
    Packet(PacketPort),
}

impl Port {
    /// Takes the next packet from the node, without waiting. `into` should hold
    /// [`MAX_PACKET_BYTES`] bytes.
    pub(super) fn receive(&mut self, into: &mut [u8]) -> Result<PortRead, Errno> {
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

    /// Returns the number of packets that the kernel dropped since the port was created, because
    /// the engine did not read in time.
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
