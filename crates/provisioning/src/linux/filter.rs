//! Packet filters of parts, in classic BPF. Unlike other classifiers of Linux, one such filter can
//! match port ranges and marks, and look behind IP options. It needs nothing that a kernel may have
//! been built without.
//!
//! Classic BPF and its ancillary loads: the kernel's Documentation/networking/filter.rst. Headers:
//! RFC 791, RFC 2474, RFC 8200, RFC 9293, RFC 768.

#[cfg(test)]
mod tests;

use std::net::IpAddr;

use crate::streams::{IpFamily, MAX_DSCP, Prefix, StreamSelector};

/// Base of loads relative to the network header, whatever precedes it (`SKF_NET_OFF`).
const NETWORK_HEADER: u32 = 0xfff0_0000;
/// Address of the packet's mark (`SKF_AD_OFF` + `SKF_AD_MARK`).
const PACKET_MARK: u32 = 0xffff_f000 + 20;

const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
/// Loads the half word at X plus a constant.
const LOAD_HALF_AT_X: u16 = 0x48;
/// Loads four times the low half of the byte at a constant into X: the length of an IPv4 header.
const LOAD_HEADER_LENGTH: u16 = 0xb1;
const AND: u16 = 0x54;
const IF_EQUAL: u16 = 0x15;
const IF_GREATER: u16 = 0x25;
const IF_AT_LEAST: u16 = 0x35;
const IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

/// Return value for a packet that matches. The filter itself names the class.
const MATCH: u32 = u32::MAX;
/// Return value for a packet that does not match.
const NO_MATCH: u32 = 0;

/// Offset and bit mask of the fragment offset in IPv4.
const V4_FRAGMENT: (u32, u32) = (6, 0x1fff);
/// Offset of the byte with the code point in IPv4, and its shift (RFC 2474).
const V4_DSCP: (u32, u32) = (1, 2);
/// Offset of the half word with the code point in IPv6, and its shift.
const V6_DSCP: (u32, u32) = (0, 6);
/// Offset of the next protocol in the IPv4 header.
const V4_PROTOCOL_OFFSET: u32 = 9;
const V6_NEXT_HEADER_OFFSET: u32 = 6;
/// Length of an IPv6 header, in bytes.
const V6_HEADER_BYTES: u32 = 40;

/// A BPF instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    k: u32,
}

/// A step of the filter. Comparisons decide if the packet can still match.
#[derive(Debug, Clone, Copy)]
enum FilterStep {
    Do(u16, u32),
    /// Continues if the comparison holds; otherwise the packet does not match.
    Require(u16, u32),
    /// Continues if the comparison does not hold.
    Exclude(u16, u32),
}

/// Returns the filter for the streams, for packets of their IP version. Only first fragments have
/// ports.
fn instructions(streams: &StreamSelector) -> Vec<Instruction> {
    let mut steps = Vec::new();
    if let Some(mark) = streams.mark {
        steps.extend([
            FilterStep::Do(LOAD_WORD, PACKET_MARK),
            FilterStep::Require(IF_EQUAL, mark),
        ]);
    }
    let family = streams.family();
    let (source, destination) = match family {
        IpFamily::V4 => (12, 16),
        IpFamily::V6 => (8, 24),
    };
    match_address(&mut steps, source, streams.from);
    match_address(&mut steps, destination, streams.to);
    if let Some(dscp) = streams.dscp {
        let (word, shift) = match family {
            IpFamily::V4 => (
                FilterStep::Do(LOAD_BYTE, NETWORK_HEADER + V4_DSCP.0),
                V4_DSCP.1,
            ),
            IpFamily::V6 => (
                FilterStep::Do(LOAD_HALF, NETWORK_HEADER + V6_DSCP.0),
                V6_DSCP.1,
            ),
        };
        steps.extend([
            word,
            FilterStep::Do(AND, u32::from(MAX_DSCP) << shift),
            FilterStep::Require(IF_EQUAL, u32::from(dscp) << shift),
        ]);
    }
    if let Some(ports) = streams.source_ports {
        let protocol = match family {
            IpFamily::V4 => V4_PROTOCOL_OFFSET,
            IpFamily::V6 => V6_NEXT_HEADER_OFFSET,
        };
        steps.extend([
            FilterStep::Do(LOAD_BYTE, NETWORK_HEADER + protocol),
            FilterStep::Require(IF_EQUAL, ports.transport.number().into()),
        ]);
        match family {
            IpFamily::V4 => steps.extend([
                FilterStep::Do(LOAD_HALF, NETWORK_HEADER + V4_FRAGMENT.0),
                FilterStep::Exclude(IF_ANY_BIT, V4_FRAGMENT.1),
                FilterStep::Do(LOAD_HEADER_LENGTH, NETWORK_HEADER),
                FilterStep::Do(LOAD_HALF_AT_X, NETWORK_HEADER),
            ]),
            IpFamily::V6 => steps.push(FilterStep::Do(LOAD_HALF, NETWORK_HEADER + V6_HEADER_BYTES)),
        }
        steps.extend([
            FilterStep::Require(IF_AT_LEAST, ports.first.into()),
            FilterStep::Exclude(IF_GREATER, ports.last.into()),
        ]);
    }
    assemble(&steps)
}

fn match_address(steps: &mut Vec<FilterStep>, at: u32, prefix: Prefix) {
    let words: Vec<u32> = match prefix.address() {
        IpAddr::V4(address) => vec![address.to_bits()],
        IpAddr::V6(address) => {
            let bytes = address.octets();
            let (words, _) = bytes.as_chunks::<4>();
            words.iter().copied().map(u32::from_be_bytes).collect()
        }
    };
    for (place, word) in (0..).zip(words) {
        let bits = u32::from(prefix.length())
            .saturating_sub(32 * place)
            .min(32);
        if bits == 0 {
            break;
        }
        steps.push(FilterStep::Do(LOAD_WORD, NETWORK_HEADER + at + 4 * place));
        if bits < 32 {
            steps.push(FilterStep::Do(AND, u32::MAX << (32 - bits)));
        }
        steps.push(FilterStep::Require(IF_EQUAL, word));
    }
}

fn assemble(steps: &[FilterStep]) -> Vec<Instruction> {
    let mut program = Vec::with_capacity(steps.len() + 2);
    for (at, step) in steps.iter().enumerate() {
        // After the last step come the return for a match and that for no match. There are at most
        // 40 steps.
        let out = u8::try_from(steps.len() - at).unwrap_or(u8::MAX);
        let (code, k, if_true, if_false) = match *step {
            FilterStep::Do(code, k) => (code, k, 0, 0),
            FilterStep::Require(code, k) => (code, k, 0, out),
            FilterStep::Exclude(code, k) => (code, k, out, 0),
        };
        program.push(Instruction {
            code,
            if_true,
            if_false,
            k,
        });
    }
    program.extend([MATCH, NO_MATCH].map(|k| Instruction {
        code: RETURN,
        if_true: 0,
        if_false: 0,
        k,
    }));
    program
}

/// Returns the filter in the format of `tc` (tc-bpf(8), `bytecode`).
pub(super) fn bytecode(streams: &StreamSelector) -> String {
    let program = instructions(streams);
    let mut text = program.len().to_string();
    for Instruction {
        code,
        if_true,
        if_false,
        k,
    } in program
    {
        text.push_str(&format!(",{code} {if_true} {if_false} {k}"));
    }
    text
}
