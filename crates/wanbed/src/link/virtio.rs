//! The 10-byte virtio network header that TUN devices and packet sockets put before each packet
//! (struct `virtio_net_hdr`, virtio 1.2 section 5.1.6, legacy layout: the machine's own byte
//! order).

/// Bytes on the device.
pub const VIRTIO_HEADER: usize = 10;

/// The checksum field covers only the pseudo header so far; the rest is for whoever needs it.
pub const FLAG_NEEDS_CHECKSUM: u8 = 1;
/// The checksum has been verified already.
pub const FLAG_CHECKSUM_VALID: u8 = 2;

/// One packet on the wire.
pub const GSO_NONE: u8 = 0;
/// A TCP super-packet over IPv4.
pub const GSO_TCPV4: u8 = 1;
/// A TCP super-packet over IPv6.
pub const GSO_TCPV6: u8 = 4;
/// Several UDP datagrams in one (UDP segmentation offload).
pub const GSO_UDP_L4: u8 = 5;
/// Set beside the TCP kinds: the first segment carries CWR, the others don't (RFC 3168).
pub const GSO_ECN: u8 = 0x80;

/// What the kernel says about a packet beside its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VirtioHeader {
    /// `FLAG_*`.
    pub flags: u8,
    /// `GSO_*`.
    pub gso_type: u8,
    /// Length of all headers, from the start of the packet.
    pub header_len: u16,
    /// Payload bytes of each segment.
    pub gso_size: u16,
    /// Where the checksum starts, from the start of the packet.
    pub checksum_start: u16,
    /// Where the checksum goes, from `checksum_start`.
    pub checksum_offset: u16,
}

impl VirtioHeader {
    /// Reads one as the kernel wrote it.
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

    /// Writes one as the kernel reads it.
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

    /// The same with all offsets moved by the `by` bytes of a link-layer header: put before the
    /// packet.
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

    /// The same with all offsets moved by the `by` bytes of a link-layer header: taken off the
    /// packet.
    #[must_use]
    pub fn without(mut self, by: u16) -> Self {
        self.checksum_start = self.checksum_start.saturating_sub(by);
        self.header_len = self.header_len.saturating_sub(by);
        self
    }
}
