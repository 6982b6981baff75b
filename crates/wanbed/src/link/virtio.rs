//! The 10-byte virtio network header that TUN devices and packet sockets put before each packet
//! (struct `virtio_net_hdr`, virtio 1.2 section 5.1.6, legacy layout: the machine's own byte
//! order).

/// Size of the header in bytes.
pub const VIRTIO_HEADER: usize = 10;

/// Flag: the checksum field covers only the pseudo header so far, and has to be completed.
pub const FLAG_NEEDS_CHECKSUM: u8 = 1;
/// Flag: the checksum has already been verified.
pub const FLAG_CHECKSUM_VALID: u8 = 2;

/// Type of a single packet on the wire.
pub const GSO_NONE: u8 = 0;
/// Type of a TCP super-packet over IPv4.
pub const GSO_TCPV4: u8 = 1;
/// Type of a TCP super-packet over IPv6.
pub const GSO_TCPV6: u8 = 4;
/// Type of several UDP datagrams in one (UDP segmentation offload).
pub const GSO_UDP_L4: u8 = 5;
/// Bit in addition to the TCP types: the first segment carries CWR, the others do not (RFC 3168).
pub const GSO_ECN: u8 = 0x80;

/// The kernel's description of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VirtioHeader {
    /// Combination of `FLAG_*`.
    pub flags: u8,
    /// One of `GSO_*`.
    pub gso_type: u8,
    /// Length of all headers, from the start of the packet.
    pub header_len: u16,
    /// Payload bytes of each segment.
    pub gso_size: u16,
    /// Offset from the start of the packet at which the checksummed data begins.
    pub checksum_start: u16,
    /// Offset of the checksum from `checksum_start`.
    pub checksum_offset: u16,
}

impl VirtioHeader {
    /// Reads a header that the kernel wrote.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; VIRTIO_HEADER]) -> Self {
        let field = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Self {
            flags: bytes[0],
            gso_type: bytes[1],
            header_len: field(2),
            gso_size: field(4),
            checksum_start: field(6),
            checksum_offset: field(8),
        }
    }

    /// Returns a header for the kernel to read.
    #[must_use]
    pub fn to_bytes(self) -> [u8; VIRTIO_HEADER] {
        let mut bytes = [0; VIRTIO_HEADER];
        bytes[0] = self.flags;
        bytes[1] = self.gso_type;
        bytes[2..4].copy_from_slice(&self.header_len.to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.gso_size.to_ne_bytes());
        bytes[6..8].copy_from_slice(&self.checksum_start.to_ne_bytes());
        bytes[8..10].copy_from_slice(&self.checksum_offset.to_ne_bytes());
        bytes
    }

    /// Returns the header with all offsets increased by the `by` bytes of a link-layer header that
    /// is prepended to the packet.
    #[must_use]
    pub fn behind(mut self, by: u16) -> Self {
        if self.flags & FLAG_NEEDS_CHECKSUM != 0 {
            self.checksum_start = self.checksum_start.saturating_add(by);
        }
        if self.header_len != 0 {
            self.header_len = self.header_len.saturating_add(by);
        }
        self
    }

    /// Returns the header with all offsets decreased by the `by` bytes of a link-layer header that
    /// is removed from the packet.
    #[must_use]
    pub fn without(mut self, by: u16) -> Self {
        self.checksum_start = self.checksum_start.saturating_sub(by);
        self.header_len = self.header_len.saturating_sub(by);
        self
    }
}
