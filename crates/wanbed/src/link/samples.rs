//! Packets for tests, made by an independent library.

use etherparse::{IpHeaders, Ipv4Header, PacketBuilder, TcpHeader, ip_number};

use super::virtio::{FLAG_NEEDS_CHECKSUM, GSO_ECN, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, VirtioHeader};

/// Parameters of a sample.
#[derive(Debug, Clone)]
pub struct Sample {
    pub v6: bool,
    pub udp: bool,
    /// Number of 4-byte words of TCP options.
    pub options: usize,
    /// Number of 4-byte words of IPv4 options.
    pub ip_options: usize,
    pub sequence: u32,
    pub id: u16,
    pub fin: bool,
    pub psh: bool,
    pub cwr: bool,
    pub payload: usize,
    pub gso_size: u16,
}

pub const PLAIN: Sample = Sample {
    v6: false,
    udp: false,
    options: 3,
    ip_options: 0,
    sequence: 1,
    id: 1,
    fin: false,
    psh: false,
    cwr: false,
    payload: 1448,
    gso_size: 1448,
};

impl Sample {
    /// Returns a TCP super-packet of full segments of 1500 bytes each.
    pub fn segments(count: usize) -> Self {
        Self {
            payload: 1448 * count,
            ..PLAIN
        }
    }

    pub fn payload(&self) -> Vec<u8> {
        (0..self.payload)
            .map(|i| (i * 7 + (i >> 8) * 13) as u8)
            .collect()
    }

    /// Returns the packet as the kernel would pass it, but with the full checksum.
    pub fn packet(&self) -> (VirtioHeader, Vec<u8>) {
        let ip = if self.v6 {
            PacketBuilder::ipv6([0x20; 16], [0x30; 16], 64)
        } else {
            let mut ip =
                Ipv4Header::new(0, 64, ip_number::TCP, [10, 0, 0, 1], [10, 200, 3, 4]).unwrap();
            ip.identification = self.id;
            ip.options = vec![1; self.ip_options * 4].as_slice().try_into().unwrap();
            PacketBuilder::ip(IpHeaders::Ipv4(ip, etherparse::Ipv4Extensions::default()))
        };
        let mut packet = Vec::new();
        if self.udp {
            ip.udp(4000, 5000)
                .write(&mut packet, &self.payload())
                .unwrap();
        } else {
            let mut tcp = TcpHeader::new(4000, 5000, self.sequence, 1234);
            (tcp.fin, tcp.psh, tcp.cwr, tcp.ack) = (self.fin, self.psh, self.cwr, true);
            tcp.set_options_raw(&vec![1; self.options * 4]).unwrap();
            ip.tcp_header(tcp)
                .write(&mut packet, &self.payload())
                .unwrap();
        }
        (self.virtio(), packet)
    }

    pub fn transport_at(&self) -> u16 {
        if self.v6 {
            40
        } else {
            20 + 4 * self.ip_options as u16
        }
    }

    pub fn headers(&self) -> usize {
        usize::from(self.transport_at()) + if self.udp { 8 } else { 20 + 4 * self.options }
    }

    fn virtio(&self) -> VirtioHeader {
        let gso_type = match (self.udp, self.v6) {
            (true, _) => GSO_UDP_L4,
            (false, false) => GSO_TCPV4,
            (false, true) => GSO_TCPV6,
        };
        VirtioHeader {
            flags: FLAG_NEEDS_CHECKSUM,
            gso_type: if self.cwr && !self.udp {
                gso_type | GSO_ECN
            } else {
                gso_type
            },
            // The kernel reports how much of the packet was contiguous in its memory, which may be
            // any number.
            header_len: 4321,
            gso_size: self.gso_size,
            checksum_start: self.transport_at(),
            checksum_offset: if self.udp { 6 } else { 16 },
        }
    }
}
