//! Packets of the device: their parsing, and the few that are built here and not by the TCP stack.

use std::net::{IpAddr, SocketAddr};

use etherparse::icmpv4::DestUnreachableHeader;
use etherparse::{
    Icmpv4Type, Icmpv6Type, NetSlice, PacketBuilder, SlicedPacket, TransportSlice,
    icmpv6::DestUnreachableCode,
};

/// Hop limit of packets built here; one hop, to the program's kernel, would do.
const HOP_LIMIT: u8 = 64;
/// Bytes of a packet that are quoted in an ICMP message about it: its IP and transport headers with
/// their options, which is more than RFC 792 requires.
const MAX_QUOTED_BYTES: usize = 128;

/// Addresses of a packet's two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct AddressPair {
    /// Address of the program.
    pub(crate) program: SocketAddr,
    /// Address of the far end.
    pub(crate) far: SocketAddr,
}

/// A packet from the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packet<'a> {
    /// A segment of a connection.
    Tcp(AddressPair, TcpSegment),
    /// A datagram.
    Udp(AddressPair, &'a [u8]),
    /// A packet that is not answered.
    Other,
}

/// Properties of a TCP segment that matter outside its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TcpSegment {
    syn: bool,
    reset: bool,
    acknowledges: Option<u32>,
    number: u32,
    /// Number of sequence numbers that it takes.
    length: u32,
}

/// Reason why a destination is unreachable, as reported to the program's kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unreachable {
    /// `ENETUNREACH`.
    Network,
    /// `EHOSTUNREACH`.
    Host,
    /// `EACCES` of IPv6; IPv4 has no such message and gives `EHOSTUNREACH`.
    Prohibited,
    /// `ECONNREFUSED`, for UDP.
    Port,
}

impl<'a> Packet<'a> {
    /// Parses a packet. Fragments are [`Packet::Other`], because the device takes everything in one
    /// piece.
    pub(crate) fn read(bytes: &'a [u8]) -> Self {
        let Ok(sliced) = SlicedPacket::from_ip(bytes) else {
            return Self::Other;
        };
        let (from, to): (IpAddr, IpAddr) = match &sliced.net {
            Some(NetSlice::Ipv4(packet)) => {
                let header = packet.header();
                (
                    header.source_addr().into(),
                    header.destination_addr().into(),
                )
            }
            Some(NetSlice::Ipv6(packet)) => {
                let header = packet.header();
                (
                    header.source_addr().into(),
                    header.destination_addr().into(),
                )
            }
            _ => return Self::Other,
        };
        let pair = |source, destination| AddressPair {
            program: SocketAddr::new(from, source),
            far: SocketAddr::new(to, destination),
        };
        match &sliced.transport {
            Some(TransportSlice::Tcp(tcp)) => {
                let length = tcp.payload().len() + usize::from(tcp.syn()) + usize::from(tcp.fin());
                let segment = TcpSegment {
                    syn: tcp.syn(),
                    reset: tcp.rst(),
                    acknowledges: tcp.ack().then(|| tcp.acknowledgment_number()),
                    number: tcp.sequence_number(),
                    length: u32::try_from(length).unwrap_or(0),
                };
                Self::Tcp(pair(tcp.source_port(), tcp.destination_port()), segment)
            }
            Some(TransportSlice::Udp(udp)) => Self::Udp(
                pair(udp.source_port(), udp.destination_port()),
                udp.payload(),
            ),
            _ => Self::Other,
        }
    }
}

impl TcpSegment {
    /// Returns true if it asks for a connection.
    pub(crate) const fn opens(&self) -> bool {
        self.syn && !self.reset && self.acknowledges.is_none()
    }

    /// Returns its first sequence number.
    pub(crate) const fn number(&self) -> u32 {
        self.number
    }

    /// Returns the number of sequence numbers that it takes.
    pub(crate) const fn length(&self) -> u32 {
        self.length
    }

    /// Returns the answer of a host that has no such connection (RFC 9293, section 3.10.7.1), or
    /// `None` for a reset, which is not answered.
    pub(crate) fn refusal(&self, pair: &AddressPair) -> Option<Vec<u8>> {
        if self.reset {
            return None;
        }
        let AddressPair { program, far } = pair;
        let number = self.acknowledges.unwrap_or(0);
        let tcp = ip(far.ip(), program.ip())?
            .tcp(far.port(), program.port(), number, 0)
            .rst();
        let tcp = match self.acknowledges {
            Some(_) => tcp,
            None => tcp.ack(self.number.wrapping_add(self.length)),
        };
        written(tcp.size(0), |out| tcp.write(out, &[]).is_ok())
    }
}

/// Builds a datagram to the program.
pub(crate) fn datagram(pair: &AddressPair, payload: &[u8]) -> Option<Vec<u8>> {
    let AddressPair { program, far } = pair;
    let udp = ip(far.ip(), program.ip())?.udp(far.port(), program.port());
    written(udp.size(payload.len()), |out| {
        udp.write(out, payload).is_ok()
    })
}

/// Builds a report to the program's kernel that its packet did not arrive.
pub(crate) fn unreachable(pair: &AddressPair, sent: &[u8], why: Unreachable) -> Option<Vec<u8>> {
    use etherparse::icmpv4::DestUnreachableHeader as V4;
    let quoted = sent.get(..sent.len().min(MAX_QUOTED_BYTES))?;
    let step = ip(pair.far.ip(), pair.program.ip())?;
    if pair.far.is_ipv4() {
        let code: DestUnreachableHeader = match why {
            Unreachable::Network => V4::Network,
            Unreachable::Host => V4::Host,
            Unreachable::Prohibited => V4::FilterProhibited,
            Unreachable::Port => V4::Port,
        };
        let message = step.icmpv4(Icmpv4Type::DestinationUnreachable(code));
        return written(message.size(quoted.len()), |out| {
            message.write(out, quoted).is_ok()
        });
    }
    let code = match why {
        Unreachable::Network => DestUnreachableCode::NoRoute,
        Unreachable::Host => DestUnreachableCode::Address,
        Unreachable::Prohibited => DestUnreachableCode::Prohibited,
        Unreachable::Port => DestUnreachableCode::Port,
    };
    let message = step.icmpv6(Icmpv6Type::DestinationUnreachable(code));
    written(message.size(quoted.len()), |out| {
        message.write(out, quoted).is_ok()
    })
}

/// Rebuilds the first packet of a UDP flow as the program's kernel sent it, as far as a message
/// about it needs.
pub(crate) fn first_packet(pair: &AddressPair) -> Option<Vec<u8>> {
    let udp = ip(pair.program.ip(), pair.far.ip())?.udp(pair.program.port(), pair.far.port());
    written(udp.size(0), |out| udp.write(out, &[]).is_ok())
}

fn ip(from: IpAddr, to: IpAddr) -> Option<etherparse::PacketBuilderStep<etherparse::IpHeaders>> {
    let headers = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let header = etherparse::Ipv4Header {
                time_to_live: HOP_LIMIT,
                dont_fragment: true,
                source: from.octets(),
                destination: to.octets(),
                ..etherparse::Ipv4Header::default()
            };
            etherparse::IpHeaders::Ipv4(header, etherparse::Ipv4Extensions::default())
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let header = etherparse::Ipv6Header {
                hop_limit: HOP_LIMIT,
                source: from.octets(),
                destination: to.octets(),
                ..etherparse::Ipv6Header::default()
            };
            etherparse::IpHeaders::Ipv6(header, etherparse::Ipv6Extensions::default())
        }
        _ => return None,
    };
    Some(PacketBuilder::ip(headers))
}

fn written(size: usize, write: impl FnOnce(&mut Vec<u8>) -> bool) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(size);
    write(&mut out).then_some(out)
}

#[cfg(test)]
mod tests;
