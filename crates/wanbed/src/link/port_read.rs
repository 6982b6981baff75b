//! Results of reading a port.

use super::virtio::VirtioHeader;

/// Result of reading a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortRead {
    /// A packet of `len` bytes is at the start of the buffer.
    Packet {
        /// The kernel's header of the packet.
        virtio: VirtioHeader,
        /// Its length in bytes.
        len: usize,
    },
    /// Input that is not an IP packet, or was truncated; to be ignored.
    Noise,
    /// There is nothing more at this time.
    Empty,
}
