//! Cutting a super-packet into pieces. Each piece gets its own headers, as if the sender's kernel
//! had made it a packet (or a smaller super-packet) in the first place.

use super::layout::{LONGEST_HEADERS, Layout, SuperPacket, Transport};
use super::virtio::{GSO_ECN, GSO_NONE, VirtioHeader};

const TCP_FLAGS: usize = 13;
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;
/// Congestion experienced (RFC 3168), both bits.
const CE: u8 = 0b11;

/// A piece of a packet, ready to be sent as `headers` followed by `body`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Header for the receiving kernel.
    pub virtio: VirtioHeader,
    /// Headers of the piece, or the whole packet if it is not cut.
    pub headers: &'a [u8],
    /// Payload of the piece.
    pub body: &'a [u8],
}

/// Makes a piece of `count` segments, starting at `first`, of `packet`, from which `layout` must
/// have been made. New headers are written to `room`; the payload stays in place. `marked` says
/// that the piece has met congestion (CE, RFC 3168).
#[must_use]
pub fn piece<'a>(
    layout: &Layout,
    packet: &'a [u8],
    first: u32,
    count: u32,
    marked: bool,
    room: &'a mut [u8; LONGEST_HEADERS],
) -> Piece<'a> {
    let segments = layout.sizes().segments;
    let whole = packet.get(..layout.len as usize).unwrap_or(packet);
    let Some(cut) = layout.super_packet.filter(|_| count < segments) else {
        let (headers, body) = if marked {
            mark_whole(whole, room)
        } else {
            (whole, &[][..])
        };
        return Piece {
            virtio: layout.virtio,
            headers,
            body,
        };
    };
    let headers_len = usize::from(cut.headers);
    let (original, payload) = whole.split_at(headers_len.min(whole.len()));
    let skipped = first as usize * usize::from(cut.gso_size);
    let wanted = count as usize * usize::from(cut.gso_size);
    let body = payload.get(skipped..).unwrap_or(&[]);
    let body = &body[..wanted.min(body.len())];

    let headers = &mut room[..original.len()];
    headers.copy_from_slice(original);
    if marked {
        set_ce(headers);
    }
    let is = Place {
        first,
        last: first + count >= segments,
        skipped,
        body: body.len(),
    };
    mend_ip(headers, &cut, &is);
    mend_transport(headers, &cut, &is);

    let mut virtio = layout.virtio;
    if count == 1 {
        virtio.gso_type = GSO_NONE;
        virtio.gso_size = 0;
    } else if first > 0 {
        virtio.gso_type &= !GSO_ECN;
    }
    Piece {
        virtio,
        headers,
        body,
    }
}

/// Returns the marked IP header, copied to `room`, and the data after it.
fn mark_whole<'a>(packet: &'a [u8], room: &'a mut [u8; LONGEST_HEADERS]) -> (&'a [u8], &'a [u8]) {
    let len = match packet.first() {
        Some(first) if first >> 4 == 6 => 40,
        first => usize::from(first.copied().unwrap_or(0) & 0x0f) * 4,
    };
    let (original, rest) = packet.split_at(len.min(packet.len()));
    let header = &mut room[..original.len()];
    header.copy_from_slice(original);
    set_ce(header);
    if header[0] >> 4 == 4 {
        put_ip_checksum(header);
    }
    (header, rest)
}

/// Sets the mark in an IP header, whose checksum is corrected later. The pseudo header of TCP and
/// UDP does not cover it.
fn set_ce(header: &mut [u8]) {
    header[1] |= if header[0] >> 4 == 6 { CE << 4 } else { CE };
}

fn put_ip_checksum(header: &mut [u8]) {
    put(header, 10, 0);
    let sum = !fold(add(0, header));
    put(header, 10, sum);
}

/// Position of a piece in its packet.
struct Place {
    /// Its first segment.
    first: u32,
    /// If true, it has the last segment.
    last: bool,
    /// Payload bytes before it.
    skipped: usize,
    /// Payload bytes in it.
    body: usize,
}

/// Sets the length, and for IPv4 the identification (incremented for each segment, as by the
/// kernel's own segmentation) and the header checksum.
fn mend_ip(headers: &mut [u8], cut: &SuperPacket, is: &Place) {
    let total = headers.len() + is.body;
    if headers[0] >> 4 == 6 {
        put(headers, 4, (total - 40) as u16);
        return;
    }
    put(headers, 2, total as u16);
    let id = u16::from_be_bytes([headers[4], headers[5]]).wrapping_add(is.first as u16);
    put(headers, 4, id);
    put_ip_checksum(&mut headers[..usize::from(cut.transport_at)]);
}

fn mend_transport(headers: &mut [u8], cut: &SuperPacket, is: &Place) {
    let (ip, transport) = headers.split_at_mut(usize::from(cut.transport_at));
    let len = transport.len() + is.body;
    match cut.transport {
        Transport::Tcp => {
            let sequence =
                u32::from_be_bytes([transport[4], transport[5], transport[6], transport[7]]);
            let sequence = sequence.wrapping_add(is.skipped as u32);
            transport[4..8].copy_from_slice(&sequence.to_be_bytes());
            if !is.last {
                transport[TCP_FLAGS] &= !(FIN | PSH);
            }
            if is.first > 0 {
                transport[TCP_FLAGS] &= !CWR;
            }
        }
        Transport::Udp => put(transport, 4, len as u16),
    }
    // The receiving kernel completes the checksum, if it is needed.
    let addresses = if ip[0] >> 4 == 6 {
        &ip[8..40]
    } else {
        &ip[12..20]
    };
    let pseudo = add(len as u64 + u64::from(cut.transport.protocol()), addresses);
    put(
        transport,
        usize::from(cut.transport.checksum_offset()),
        fold(pseudo),
    );
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Adds 16-bit words in one's complement (RFC 1071), without folding the carries.
fn add(sum: u64, bytes: &[u8]) -> u64 {
    let words = bytes
        .chunks_exact(2)
        .map(|word| u64::from(u16::from_be_bytes([word[0], word[1]])));
    sum + words.sum::<u64>()
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests;
