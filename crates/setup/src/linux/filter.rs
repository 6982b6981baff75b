//! A filter for the packets of a part, in classic BPF: unlike other classifiers of Linux it looks
//! at ranges of ports, at marks, and behind IP options, with one filter a part and nothing that a
//! kernel may have been built without.
//!
//! Classic BPF and its ancillary loads: the kernel's Documentation/networking/filter.rst. Headers:
//! RFC 791, RFC 8200, RFC 9293, RFC 768.

#[cfg(test)]
mod tests;

use std::net::IpAddr;

use crate::streams::{Family, Prefix, Streams};

/// Loads relative to the network header, whatever stands before it (`SKF_NET_OFF`).
const NET: u32 = 0xfff0_0000;
/// Loads the packet's mark (`SKF_AD_OFF` + `SKF_AD_MARK`).
const MARK: u32 = 0xffff_f000 + 20;

const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
/// The half word at X and a constant.
const LOAD_HALF_AT_X: u16 = 0x48;
/// Four times the low half of the byte at a constant to X: the length of an IPv4 header.
const LOAD_HEADER_LENGTH: u16 = 0xb1;
const AND: u16 = 0x54;
const IF_EQUAL: u16 = 0x15;
const IF_GREATER: u16 = 0x25;
const IF_AT_LEAST: u16 = 0x35;
const IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

/// Says that a packet is the filter's, which knows its class.
const MATCHES: u32 = u32::MAX;
/// Says that it isn't.
const PASSES: u32 = 0;

/// IPv4: where the fragment's offset is, and its bits.
const V4_FRAGMENT: (u32, u32) = (6, 0x1fff);
/// Where the protocol stands that follows the header, of IPv4 and IPv6.
const V4_PROTOCOL: u32 = 9;
const V6_PROTOCOL: u32 = 6;
/// Bytes of an IPv6 header.
const V6_HEADER: u32 = 40;

/// One instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    k: u32,
}

/// What a comparison does with a packet that is not the part's.
#[derive(Debug, Clone, Copy)]
enum Step {
    Do(u16, u32),
    /// Goes on where the comparison holds, else the packet passes.
    Need(u16, u32),
    /// Goes on where the comparison doesn't hold.
    Never(u16, u32),
}

/// The filter for such packets of their version of IP. Of fragments, only first ones have ports.
fn instructions(streams: &Streams) -> Vec<Instruction> {
    let mut steps = Vec::new();
    if let Some(mark) = streams.mark {
        steps.extend([Step::Do(LOAD_WORD, MARK), Step::Need(IF_EQUAL, mark)]);
    }
    let family = streams.family();
    let (source, destination) = match family {
        Family::V4 => (12, 16),
        Family::V6 => (8, 24),
    };
    address(&mut steps, source, streams.from);
    address(&mut steps, destination, streams.to);
    if let Some(ports) = streams.source_ports {
        let protocol = match family {
            Family::V4 => V4_PROTOCOL,
            Family::V6 => V6_PROTOCOL,
        };
        steps.extend([
            Step::Do(LOAD_BYTE, NET + protocol),
            Step::Need(IF_EQUAL, ports.transport.number().into()),
        ]);
        match family {
            Family::V4 => steps.extend([
                Step::Do(LOAD_HALF, NET + V4_FRAGMENT.0),
                Step::Never(IF_ANY_BIT, V4_FRAGMENT.1),
                Step::Do(LOAD_HEADER_LENGTH, NET),
                Step::Do(LOAD_HALF_AT_X, NET),
            ]),
            Family::V6 => steps.push(Step::Do(LOAD_HALF, NET + V6_HEADER)),
        }
        steps.extend([
            Step::Need(IF_AT_LEAST, ports.first.into()),
            Step::Never(IF_GREATER, ports.last.into()),
        ]);
    }
    assembled(&steps)
}

fn address(steps: &mut Vec<Step>, at: u32, prefix: Prefix) {
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
        steps.push(Step::Do(LOAD_WORD, NET + at + 4 * place));
        if bits < 32 {
            steps.push(Step::Do(AND, u32::MAX << (32 - bits)));
        }
        steps.push(Step::Need(IF_EQUAL, word));
    }
}

fn assembled(steps: &[Step]) -> Vec<Instruction> {
    let mut program = Vec::with_capacity(steps.len() + 2);
    for (at, step) in steps.iter().enumerate() {
        // Behind the last step stands the return of what matches, and then that of what passes.
        // There are at most 32 steps.
        let out = u8::try_from(steps.len() - at).unwrap_or(u8::MAX);
        let (code, k, if_true, if_false) = match *step {
            Step::Do(code, k) => (code, k, 0, 0),
            Step::Need(code, k) => (code, k, 0, out),
            Step::Never(code, k) => (code, k, out, 0),
        };
        program.push(Instruction {
            code,
            if_true,
            if_false,
            k,
        });
    }
    program.extend([MATCHES, PASSES].map(|k| Instruction {
        code: RETURN,
        if_true: 0,
        if_false: 0,
        k,
    }));
    program
}

/// The filter as `tc` takes it (tc-bpf(8), `bytecode`).
pub(super) fn bytecode(streams: &Streams) -> String {
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
