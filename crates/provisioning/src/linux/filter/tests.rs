use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;
use crate::streams::{PortProtocol, SourcePorts};
use crate::testing::any_streams;

/// Runs the filter on a packet with a mark, as the kernel would. Returns `None` if it reads behind
/// the packet's end, which the kernel treats as no match.
fn run(program: &[Instruction], packet: &[u8], mark: u32) -> Option<u32> {
    let (mut a, mut x, mut at) = (0_u32, 0_u32, 0_usize);
    let load = |offset: u32, bytes: usize| {
        let from = usize::try_from(offset.wrapping_sub(NETWORK_HEADER)).ok()?;
        let read = packet.get(from..from.checked_add(bytes)?)?;
        Some(
            read.iter()
                .fold(0, |number, byte| number << 8 | u32::from(*byte)),
        )
    };
    loop {
        let Instruction {
            code,
            if_true,
            if_false,
            k,
        } = *program.get(at)?;
        at += 1;
        let mut jump = |holds: bool| at += usize::from(if holds { if_true } else { if_false });
        match code {
            LOAD_WORD if k == PACKET_MARK => a = mark,
            LOAD_WORD => a = load(k, 4)?,
            LOAD_HALF => a = load(k, 2)?,
            LOAD_BYTE => a = load(k, 1)?,
            LOAD_HALF_AT_X => a = load(k.wrapping_add(x), 2)?,
            LOAD_HEADER_LENGTH => x = 4 * (load(k, 1)? & 0xf),
            AND => a &= k,
            IF_EQUAL => jump(a == k),
            IF_GREATER => jump(a > k),
            IF_AT_LEAST => jump(a >= k),
            IF_ANY_BIT => jump(a & k != 0),
            RETURN => return Some(k),
            _ => panic!("{code:#x} is no instruction of these filters"),
        }
    }
}

/// A packet.
#[derive(Debug, Clone)]
struct Packet {
    from: IpAddr,
    to: IpAddr,
    protocol: u8,
    port: u16,
    mark: u32,
    /// Type of service, or traffic class.
    class: u8,
    /// Words of IPv4 options.
    options: u8,
    /// Offset of the fragment, in units of 8 bytes.
    fragment: u16,
}

impl Packet {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match (self.from, self.to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let words = 5 + self.options;
                bytes.extend([0x40 | words, self.class, 0, 0, 0, 0]);
                bytes.extend(self.fragment.to_be_bytes());
                bytes.extend([64, self.protocol, 0, 0]);
                bytes.extend(from.octets());
                bytes.extend(to.octets());
                bytes.extend(vec![1; 4 * usize::from(self.options)]);
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let class = [0x60 | self.class >> 4, self.class << 4];
                bytes.extend(class);
                bytes.extend([0, 0, 0, 8, self.protocol, 64]);
                bytes.extend(from.octets());
                bytes.extend(to.octets());
            }
            _ => panic!("of two versions of IP"),
        }
        bytes.extend(self.port.to_be_bytes());
        bytes.extend([0; 6]);
        bytes
    }

    fn is_of(&self, streams: &StreamSelector) -> bool {
        within(self.from, streams.from)
            && within(self.to, streams.to)
            && streams.mark.is_none_or(|mark| mark == self.mark)
            && streams.dscp.is_none_or(|dscp| dscp == self.class >> 2)
            && streams.source_ports.is_none_or(|ports| {
                self.protocol == ports.transport.number()
                    && (self.from.is_ipv6() || self.fragment & 0x1fff == 0)
                    && (ports.first..=ports.last).contains(&self.port)
            })
    }
}

fn within(address: IpAddr, prefix: Prefix) -> bool {
    let same = |one: u128, other: u128, bits: u32| {
        let apart = bits - u32::from(prefix.length());
        one.checked_shr(apart) == other.checked_shr(apart)
    };
    match (address, prefix.address()) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            same(one.to_bits().into(), other.to_bits().into(), 32)
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => same(one.to_bits(), other.to_bits(), 128),
        _ => false,
    }
}

/// Generates addresses in a prefix, or just outside it.
fn near(prefix: Prefix) -> impl Strategy<Value = IpAddr> {
    (any::<u128>(), 0..=8_u8, any::<bool>()).prop_map(move |(noise, bit, out)| {
        let length = u32::from(prefix.length());
        let top = |bits: u32| {
            let inside = noise.checked_shr(128 - bits + length).unwrap_or(0);
            let flip = u32::from(bit).min(length.saturating_sub(1));
            let outside = if out && length > 0 {
                1_u128 << (bits - 1 - flip)
            } else {
                0
            };
            (inside, outside)
        };
        match prefix.address() {
            IpAddr::V4(address) => {
                let (inside, outside) = top(32);
                let bits = (u128::from(address.to_bits()) | inside) ^ outside;
                IpAddr::V4(Ipv4Addr::from_bits(
                    u32::try_from(bits & u128::from(u32::MAX)).unwrap(),
                ))
            }
            IpAddr::V6(address) => {
                let (inside, outside) = top(128);
                IpAddr::V6(Ipv6Addr::from_bits((address.to_bits() | inside) ^ outside))
            }
        }
    })
}

fn any_packet(streams: StreamSelector) -> impl Strategy<Value = (StreamSelector, Packet)> {
    let ports = streams.source_ports;
    let edges = ports.map_or([0, 1, 2, 3], |ports| {
        [
            ports.first,
            ports.last,
            ports.first.wrapping_sub(1),
            ports.last.wrapping_add(1),
        ]
    });
    let port = prop_oneof![any::<u16>(), proptest::sample::select(edges.to_vec())];
    let mark = prop_oneof![any::<u32>(), Just(streams.mark.unwrap_or(0))];
    let class = prop_oneof![any::<u8>(), Just(streams.dscp.unwrap_or(0) << 2 | 1)];
    let fragment = prop_oneof![Just(0), Just(0x4000), any::<u16>()];
    let protocol = proptest::sample::select(vec![6, 17, 1]);
    (
        near(streams.from),
        near(streams.to),
        protocol,
        port,
        mark,
        class,
        0..=10_u8,
        fragment,
    )
        .prop_map(
            move |(from, to, protocol, port, mark, class, options, fragment)| {
                let packet = Packet {
                    from,
                    to,
                    protocol,
                    port,
                    mark,
                    class,
                    options,
                    fragment,
                };
                (streams, packet)
            },
        )
}

#[test]
fn a_filter_is_formatted_for_tc() {
    let mut streams = StreamSelector::between([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    streams.from = "10.0.0.0/24".parse().unwrap();
    streams.mark = Some(7);
    streams.source_ports = Some(SourcePorts {
        first: 21_000,
        last: 21_999,
        transport: PortProtocol::Tcp,
    });
    assert_eq!(
        bytecode(&streams),
        "17,32 0 0 4294963220,21 0 14 7,32 0 0 4293918732,84 0 0 4294967040,21 0 11 167772160,\
         32 0 0 4293918736,21 0 9 167772162,48 0 0 4293918729,21 0 7 6,40 0 0 4293918726,\
         69 5 0 8191,\
         177 0 0 4293918720,72 0 0 4293918720,53 0 2 21000,37 1 0 21999,6 0 0 4294967295,6 0 0 0"
    );
}

#[test]
fn the_code_point_ignores_congestion_marks() {
    let mut streams = StreamSelector::between([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    streams.dscp = Some(46);
    assert_eq!(
        bytecode(&streams),
        "9,32 0 0 4293918732,21 0 6 167772161,32 0 0 4293918736,21 0 4 167772162,\
         48 0 0 4293918721,84 0 0 252,21 0 1 184,6 0 0 4294967295,6 0 0 0"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_filter_matches_exactly_the_parts_packets(
        (streams, packet) in any_streams().prop_flat_map(any_packet),
    ) {
        let program = instructions(&streams);
        let said = run(&program, &packet.bytes(), packet.mark);
        let right = if packet.is_of(&streams) { MATCH } else { NO_MATCH };
        prop_assert_eq!(said, Some(right), "{:?}", streams);
    }

    #[test]
    fn filters_terminate_on_any_bytes(
        streams in any_streams(),
        bytes in proptest::collection::vec(any::<u8>(), 0..80),
    ) {
        let program = instructions(&streams);
        prop_assert!(program.len() < 64);
        let _ = run(&program, &bytes, 0);
    }
}
