//! Packets of the device: what one is, and the few that are made here and not by the TCP stack.

use std::net::{IpAddr, SocketAddr};

use etherparse::icmpv4::DestUnreachableHeader;
use etherparse::{
    Icmpv4Type, Icmpv6Type, NetSlice, PacketBuilder, SlicedPacket, TransportSlice,
    icmpv6::DestUnreachableCode,
};

/// Hops that a packet made here may go: one, to the program's kernel.
const HOPS: u8 = 64;
/// Bytes of a packet that an ICMP message about it has with it: its IP and transport headers with
/// their options, and more than RFC 792 asks for.
const QUOTED: usize = 128;

/// Whose a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Pair {
    /// The program's end.
    pub(crate) program: SocketAddr,
    /// The other one.
    pub(crate) far: SocketAddr,
}

/// A packet that came out of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packet<'a> {
    /// Of a connection.
    Tcp(Pair, Segment),
    /// A datagram.
    Udp(Pair, &'a [u8]),
    /// Nothing that is answered.
    Other,
}

/// What matters of a TCP segment outside its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    syn: bool,
    reset: bool,
    acknowledges: Option<u32>,
    number: u32,
    /// Sequence numbers that it takes.
    length: u32,
}

/// Why nothing is at a destination, as it is reported to the program's kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unreachable {
    /// `ENETUNREACH`.
    Network,
    /// `EHOSTUNREACH`.
    Host,
    /// `EACCES` of IPv6; IPv4 has no such message, and it is `EHOSTUNREACH` there.
    Prohibited,
    /// `ECONNREFUSED`, for UDP.
    Port,
}

impl<'a> Packet<'a> {
    /// Looks at a packet. Fragments are [`Packet::Other`]: the device takes all in one piece.
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
        let pair = |source, destination| Pair {
            program: SocketAddr::new(from, source),
            far: SocketAddr::new(to, destination),
        };
        match &sliced.transport {
            Some(TransportSlice::Tcp(tcp)) => {
                let length = tcp.payload().len() + usize::from(tcp.syn()) + usize::from(tcp.fin());
                let segment = Segment {
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

impl Segment {
    /// Whether it asks for a connection.
    pub(crate) const fn opens(&self) -> bool {
        self.syn && !self.reset && self.acknowledges.is_none()
    }

    /// Its first sequence number.
    pub(crate) const fn number(&self) -> u32 {
        self.number
    }

    /// How many sequence numbers it takes.
    pub(crate) const fn length(&self) -> u32 {
        self.length
    }

    /// The answer of a host that has no such connection (RFC 9293, section 3.10.7.1). To a reset
    /// there is none.
    pub(crate) fn refusal(&self, pair: &Pair) -> Option<Vec<u8>> {
        if self.reset {
            return None;
        }
        let Pair { program, far } = pair;
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

/// A datagram to the program.
pub(crate) fn datagram(pair: &Pair, payload: &[u8]) -> Option<Vec<u8>> {
    let Pair { program, far } = pair;
    let udp = ip(far.ip(), program.ip())?.udp(far.port(), program.port());
    written(udp.size(payload.len()), |out| {
        udp.write(out, payload).is_ok()
    })
}

/// Reports to the program's kernel that what it has sent did not arrive.
pub(crate) fn unreachable(pair: &Pair, sent: &[u8], why: Unreachable) -> Option<Vec<u8>> {
    use etherparse::icmpv4::DestUnreachableHeader as V4;
    let quoted = sent.get(..sent.len().min(QUOTED))?;
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

/// The first packet of a flow of UDP as the program's kernel has sent it, as far as a message about
/// it needs.
pub(crate) fn sent(pair: &Pair) -> Option<Vec<u8>> {
    let udp = ip(pair.program.ip(), pair.far.ip())?.udp(pair.program.port(), pair.far.port());
    written(udp.size(0), |out| udp.write(out, &[]).is_ok())
}

fn ip(from: IpAddr, to: IpAddr) -> Option<etherparse::PacketBuilderStep<etherparse::IpHeaders>> {
    let headers = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let header = etherparse::Ipv4Header {
                time_to_live: HOPS,
                dont_fragment: true,
                source: from.octets(),
                destination: to.octets(),
                ..etherparse::Ipv4Header::default()
            };
            etherparse::IpHeaders::Ipv4(header, etherparse::Ipv4Extensions::default())
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let header = etherparse::Ipv6Header {
                hop_limit: HOPS,
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
