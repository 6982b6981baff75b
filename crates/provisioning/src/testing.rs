//! Helpers shared by the tests of several modules.

use std::net::{Ipv4Addr, Ipv6Addr};

use longhaul_circuits::time::Window;
use proptest::prelude::*;

use crate::circuit::{CircuitPart, EntityName, PartId};
use crate::streams::{PortProtocol, Prefix, SourcePorts, StreamSelector};

pub fn name(text: &str) -> EntityName {
    text.parse().unwrap()
}

/// Returns a part of `owner`'s circuit `circuit` at node `node`, over `link`.
pub fn part(owner: &str, circuit: &str, node: &str, link: &str, rate: u64) -> CircuitPart {
    let streams = StreamSelector::between([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    CircuitPart {
        owner: name(owner),
        id: PartId::for_streams(&name(circuit), &name(node), &name(link), &streams),
        circuit: name(circuit),
        node: name(node),
        link: name(link),
        rate,
        window: Window::new(0, 1_000),
        streams,
    }
}

fn v4() -> impl Strategy<Value = Prefix> {
    (any::<u32>(), 0..=32_u32).prop_map(|(bits, length)| {
        let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
        format!("{}/{length}", Ipv4Addr::from_bits(bits & mask))
            .parse()
            .unwrap()
    })
}

fn v6() -> impl Strategy<Value = Prefix> {
    (any::<u128>(), 0..=128_u32).prop_map(|(bits, length)| {
        let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
        format!("{}/{length}", Ipv6Addr::from_bits(bits & mask))
            .parse()
            .unwrap()
    })
}

pub fn any_prefix() -> impl Strategy<Value = Prefix> {
    prop_oneof![v4(), v6()]
}

fn any_ports() -> impl Strategy<Value = SourcePorts> {
    (1..=u16::MAX, any::<u16>(), any::<bool>()).prop_map(|(first, more, tcp)| SourcePorts {
        first,
        last: first.saturating_add(more),
        transport: if tcp {
            PortProtocol::Tcp
        } else {
            PortProtocol::Udp
        },
    })
}

/// Generates valid streams.
pub fn any_streams() -> impl Strategy<Value = StreamSelector> {
    let ends = prop_oneof![(v4(), v4()), (v6(), v6())];
    let mark = proptest::option::of(1..=u32::MAX);
    let dscp = proptest::option::of(0..=63_u8);
    (ends, proptest::option::of(any_ports()), dscp, mark).prop_map(
        |((from, to), source_ports, dscp, mark)| StreamSelector {
            from,
            to,
            source_ports,
            dscp,
            mark,
        },
    )
}
