//! Layout of a packet from a port: one segment, or a super-packet that stands for several.

use super::virtio::{
    FLAG_CHECKSUM_VALID, FLAG_NEEDS_CHECKSUM, GSO_ECN, GSO_NONE, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4,
    VirtioHeader,
};

/// Maximum length of the IP and transport headers of a super-packet, in bytes: 60 + 60, plus space
/// for IPv6 extensions.
pub const LONGEST_HEADERS: usize = 256;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Sizes of a packet's segments on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Number of segments, at least 1.
    pub segments: u32,
    /// Size of every segment but the last, in bytes.
    pub full: u32,
    /// Size of the last segment in bytes, at most `full`.
    pub last: u32,
}

impl Sizes {
    /// Returns the bytes of `count` segments, starting at `first` (0-based).
    #[must_use]
    pub fn bytes(&self, first: u32, count: u32) -> u64 {
        let short = if count > 0 && first + count == self.segments {
            self.full - self.last
        } else {
            0
        };
        u64::from(count) * u64::from(self.full) - u64::from(short)
    }
}

/// Transport protocol of a super-packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TCP segmentation offload.
    Tcp,
    /// UDP segmentation offload.
    Udp,
}

/// Parameters for cutting a super-packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SuperPacket {
    /// Protocol after the IP header.
    pub transport: Transport,
    /// Offset of the transport header.
    pub transport_at: u16,
    /// Length of all headers in bytes, which every segment carries.
    pub headers: u16,
    /// Payload of every segment but the last, in bytes.
    pub gso_size: u16,
}

/// A packet that was examined and found valid enough to be passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Length of the packet according to its IP header, in bytes.
    pub len: u32,
    /// Header for the receiving kernel if the packet is passed on whole.
    pub virtio: VirtioHeader,
    /// Set if it stands for more than one segment.
    pub super_packet: Option<SuperPacket>,
    /// If true, its ends support the congestion mark: ECT(0), ECT(1) or CE (RFC 3168).
    pub markable: bool,
}

/// Error for a packet that is not IP, or whose headers contradict each other or the virtio header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl Layout {
    /// Examines a packet from a port. Its bytes may be anything.
    pub fn of(virtio: &VirtioHeader, packet: &[u8]) -> Result<Self, Malformed> {
        let ip = IpHeader::of(packet)?;
        let packet = packet.get(..ip.total).ok_or(Malformed)?;
        let mut clean = VirtioHeader {
            flags: virtio.flags & FLAG_CHECKSUM_VALID,
            ..VirtioHeader::default()
        };
        if virtio.flags & FLAG_NEEDS_CHECKSUM != 0 {
            let end = usize::from(virtio.checksum_start) + usize::from(virtio.checksum_offset) + 2;
            if end > packet.len() {
                return Err(Malformed);
            }
            clean.flags = FLAG_NEEDS_CHECKSUM;
            clean.checksum_start = virtio.checksum_start;
            clean.checksum_offset = virtio.checksum_offset;
        }
        let len = u32::try_from(packet.len()).map_err(|_| Malformed)?;
        let mut layout = Self {
            len,
            virtio: clean,
            super_packet: None,
            markable: ip.ecn != 0,
        };
        if virtio.gso_type != GSO_NONE {
            layout.look_for_segments(virtio, packet, &ip)?;
        }
        Ok(layout)
    }

    fn look_for_segments(
        &mut self,
        virtio: &VirtioHeader,
        packet: &[u8],
        ip: &IpHeader,
    ) -> Result<(), Malformed> {
        let transport = match (virtio.gso_type & !GSO_ECN, ip.version, ip.protocol) {
            (GSO_TCPV4, 4, TCP) | (GSO_TCPV6, 6, TCP) => Transport::Tcp,
            (GSO_UDP_L4, 4 | 6, UDP) => Transport::Udp,
            _ => return Err(Malformed),
        };
        let headers = ip.header
            + match transport {
                Transport::Udp => 8,
                Transport::Tcp => {
                    let words = usize::from(*packet.get(ip.header + 12).ok_or(Malformed)? >> 4);
                    if words < 5 {
                        return Err(Malformed);
                    }
                    words * 4
                }
            };
        if headers > packet.len() || headers > LONGEST_HEADERS || virtio.gso_size == 0 {
            return Err(Malformed);
        }
        let narrow = |n: usize| u16::try_from(n).map_err(|_| Malformed);
        // The kernel always leaves these checksums incomplete; a header that says otherwise is
        // corrected here.
        self.virtio.flags = FLAG_NEEDS_CHECKSUM;
        self.virtio.checksum_start = narrow(ip.header)?;
        self.virtio.checksum_offset = transport.checksum_offset();
        if packet.len() - headers > usize::from(virtio.gso_size) {
            self.virtio.gso_type = virtio.gso_type;
            self.virtio.gso_size = virtio.gso_size;
            self.virtio.header_len = narrow(headers)?;
            self.super_packet = Some(SuperPacket {
                transport,
                transport_at: narrow(ip.header)?,
                headers: narrow(headers)?,
                gso_size: virtio.gso_size,
            });
        }
        Ok(())
    }

    /// Returns the sizes of its segments on the wire.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        match self.super_packet {
            None => Sizes {
                segments: 1,
                full: self.len,
                last: self.len,
            },
            Some(cut) => {
                let (headers, gso_size) = (u32::from(cut.headers), u32::from(cut.gso_size));
                let payload = self.len - headers;
                let segments = payload.div_ceil(gso_size);
                let last = payload - (segments - 1) * gso_size;
                Sizes {
                    segments,
                    full: headers + gso_size,
                    last: headers + last,
                }
            }
        }
    }
}

impl Transport {
    /// Returns the offset of the checksum in the transport header.
    #[must_use]
    pub fn checksum_offset(self) -> u16 {
        match self {
            Self::Tcp => 16,
            Self::Udp => 6,
        }
    }

    /// Returns its IP protocol number.
    #[must_use]
    pub fn protocol(self) -> u8 {
        match self {
            Self::Tcp => TCP,
            Self::Udp => UDP,
        }
    }
}

struct IpHeader {
    version: u8,
    /// Length of the header in bytes, including IPv6 extension headers.
    header: usize,
    /// Protocol after the header.
    protocol: u8,
    /// Field of explicit congestion notification (RFC 3168); 0 means not capable.
    ecn: u8,
    /// Length of the packet in bytes.
    total: usize,
}

impl IpHeader {
    fn of(packet: &[u8]) -> Result<Self, Malformed> {
        match packet.first().map(|first| first >> 4) {
            Some(4) => Self::v4(packet),
            Some(6) => Self::v6(packet),
            _ => Err(Malformed),
        }
    }

    fn v4(packet: &[u8]) -> Result<Self, Malformed> {
        let fixed = packet.first_chunk::<20>().ok_or(Malformed)?;
        let header = usize::from(fixed[0] & 0x0f) * 4;
        let total = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
        if header < 20 || total < header || total > packet.len() {
            return Err(Malformed);
        }
        Ok(Self {
            version: 4,
            header,
            protocol: fixed[9],
            ecn: fixed[1] & 3,
            total,
        })
    }

    fn v6(packet: &[u8]) -> Result<Self, Malformed> {
        let fixed = packet.first_chunk::<40>().ok_or(Malformed)?;
        let total = 40 + usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
        if total > packet.len() {
            return Err(Malformed);
        }
        let (mut header, mut protocol) = (40, fixed[6]);
        // Hop-by-hop, routing and destination options (RFC 8200 section 4) may precede the
        // transport.
        while matches!(protocol, 0 | 43 | 60) {
            let Some(&[next, words]) = packet[..total]
                .get(header..)
                .and_then(|rest| rest.first_chunk::<2>())
            else {
                break;
            };
            protocol = next;
            header += (usize::from(words) + 1) * 8;
        }
        Ok(Self {
            version: 6,
            header,
            protocol,
            ecn: fixed[1] >> 4 & 3,
            total,
        })
    }
}
