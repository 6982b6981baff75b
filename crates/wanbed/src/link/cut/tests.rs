use etherparse::{Ipv4Header, NetSlice, SlicedPacket, TransportSlice};
use proptest::prelude::*;

use super::super::samples::{PLAIN, Sample};
use super::super::virtio::{FLAG_NEEDS_CHECKSUM, GSO_TCPV4};
use super::*;

/// Returns an assembled piece, with the checksum completed as by a network card.
fn finished(piece: &Piece<'_>) -> Vec<u8> {
    let mut packet = [piece.headers, piece.body].concat();
    if piece.virtio.flags & FLAG_NEEDS_CHECKSUM != 0 {
        let start = usize::from(piece.virtio.checksum_start);
        let at = start + usize::from(piece.virtio.checksum_offset);
        let mut sum = 0_u32;
        for (i, byte) in packet[start..].iter().enumerate() {
            sum += u32::from(*byte) << if i % 2 == 0 { 8 } else { 0 };
            sum = (sum & 0xffff) + (sum >> 16);
        }
        let sum = match !(sum as u16) {
            0 => 0xffff,
            sum => sum,
        };
        packet[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}

/// Checks the headers of a packet with an independent parser.
fn check(sample: &Sample, packet: &[u8]) {
    let parsed = SlicedPacket::from_ip(packet).unwrap();
    let transport = parsed.transport.unwrap();
    match parsed.net.unwrap() {
        NetSlice::Ipv4(ip) => {
            let header = ip.header().to_header();
            assert_eq!(usize::from(header.total_len), packet.len());
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            match transport {
                TransportSlice::Tcp(tcp) => assert_eq!(
                    tcp.checksum(),
                    tcp.calc_checksum_ipv4(header.source, header.destination)
                        .unwrap()
                ),
                TransportSlice::Udp(udp) => assert_eq!(
                    udp.checksum(),
                    udp.to_header()
                        .calc_checksum_ipv4(&header, udp.payload())
                        .unwrap()
                ),
                other => panic!("{other:?}"),
            }
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header().to_header();
            assert_eq!(usize::from(header.payload_length) + 40, packet.len());
            match transport {
                TransportSlice::Tcp(tcp) => assert_eq!(
                    tcp.checksum(),
                    tcp.calc_checksum_ipv6(header.source, header.destination)
                        .unwrap()
                ),
                TransportSlice::Udp(udp) => assert_eq!(
                    udp.checksum(),
                    udp.to_header()
                        .calc_checksum_ipv6(&header, udp.payload())
                        .unwrap()
                ),
                other => panic!("{other:?}"),
            }
        }
        NetSlice::Arp(_) => panic!("no IP"),
    }
    assert_eq!(sample.v6, packet[0] >> 4 == 6);
}

/// Cuts the sample into runs of the given lengths, repeatedly, and checks each piece and their sum.
fn cut_and_check(sample: &Sample, runs: &[u32]) {
    let (virtio, packet) = sample.packet();
    let layout = Layout::of(&virtio, &packet).unwrap();
    let segments = layout.sizes().segments;
    assert_eq!(
        segments as usize,
        sample.payload.div_ceil(usize::from(sample.gso_size)).max(1)
    );
    let (mut first, mut joined) = (0, Vec::new());
    let mut room = [0; LONGEST_HEADERS];
    for run in runs.iter().cycle() {
        if first == segments {
            break;
        }
        let count = (*run).min(segments - first);
        let marked = run % 2 == 0;
        let piece = piece(&layout, &packet, first, count, marked, &mut room);
        let sent = finished(&piece);
        assert_eq!(sent.len() as u64, {
            // Segments of a piece share one set of headers.
            layout.sizes().bytes(first, count) - u64::from(count - 1) * sample.headers() as u64
        });
        if count < segments {
            check(sample, &sent);
        }
        assert_eq!(ecn(&sent), if marked { 3 } else { ecn(&packet) });
        check_fields(sample, &piece, &sent, first, first + count == segments);
        let single = count == 1;
        assert_eq!(piece.virtio.gso_type == GSO_NONE, single, "{piece:?}");
        assert_eq!(
            piece.virtio.gso_size,
            if single { 0 } else { sample.gso_size }
        );
        let header_len = usize::from(piece.virtio.header_len);
        // The kernel refuses a length beyond the packet.
        assert!(
            header_len == sample.headers() || (segments == 1 && header_len == 0),
            "{header_len}"
        );
        joined.extend_from_slice(&sent[sample.headers()..]);
        first += count;
    }
    assert_eq!(joined, sample.payload());
}

/// Returns the field of explicit congestion notification.
fn ecn(packet: &[u8]) -> u8 {
    match SlicedPacket::from_ip(packet).unwrap().net.unwrap() {
        NetSlice::Ipv4(ip) => ip.header().ecn().value(),
        NetSlice::Ipv6(ip) => ip.header().traffic_class() & 3,
        NetSlice::Arp(_) => panic!("no IP"),
    }
}

fn check_fields(sample: &Sample, piece: &Piece<'_>, sent: &[u8], first: u32, last: bool) {
    let skipped = first * u32::from(sample.gso_size);
    if !sample.v6 {
        let id = u16::from_be_bytes([sent[4], sent[5]]);
        assert_eq!(id, sample.id.wrapping_add(first as u16));
    }
    let transport = &sent[usize::from(sample.transport_at())..];
    if sample.udp {
        let len = u16::from_be_bytes([transport[4], transport[5]]);
        assert_eq!(usize::from(len), transport.len());
    } else {
        let tcp = etherparse::TcpSlice::from_slice(transport).unwrap();
        assert_eq!(tcp.sequence_number(), sample.sequence.wrapping_add(skipped));
        assert_eq!(
            (tcp.fin(), tcp.psh()),
            (sample.fin && last, sample.psh && last)
        );
        assert_eq!(tcp.cwr(), sample.cwr && first == 0);
        let ecn = piece.virtio.gso_type & GSO_ECN != 0;
        assert!(!ecn || tcp.cwr(), "ECN is said of a piece without CWR");
        assert_eq!(tcp.options().len(), sample.options * 4);
    }
}

fn samples() -> impl Strategy<Value = Sample> {
    let shape = (
        any::<bool>(),
        any::<bool>(),
        0_usize..=10,
        0_usize..=10,
        1_u16..3000,
    );
    let header = (
        any::<u32>(),
        any::<u16>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    );
    (shape, header, 0_usize..60_000).prop_map(|(shape, header, payload)| {
        let (v6, udp, options, ip_options, gso_size) = shape;
        let (sequence, id, fin, psh, cwr) = header;
        Sample {
            v6,
            udp,
            options,
            ip_options,
            sequence,
            id,
            fin,
            psh,
            cwr,
            payload,
            gso_size,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_cut_of_any_super_packet_is_sound(sample in samples(),
        runs in prop::collection::vec(1_u32..50, 1..5)) {
        // A packet of very many segments tests no more than one of many.
        let gso_size = sample.gso_size.max((sample.payload / 200) as u16 + 1);
        cut_and_check(&Sample { gso_size, ..sample }, &runs);
    }
}

#[test]
fn uncut_packet_is_unchanged() {
    let sample = Sample {
        fin: true,
        psh: true,
        cwr: true,
        ..Sample::segments(44)
    };
    let (virtio, packet) = sample.packet();
    let layout = Layout::of(&virtio, &packet).unwrap();
    let mut room = [0; LONGEST_HEADERS];
    let piece = piece(&layout, &packet, 0, 44, false, &mut room);
    assert_eq!((piece.headers, piece.body.len()), (packet.as_slice(), 0));
    assert_eq!(piece.virtio.gso_type, GSO_TCPV4 | GSO_ECN);
    assert_eq!(piece.virtio.header_len, 52);
}

#[test]
fn a_mark_changes_nothing_but_the_mark() {
    for sample in [
        PLAIN,
        Sample {
            ip_options: 3,
            ..PLAIN
        },
        Sample { v6: true, ..PLAIN },
        Sample {
            udp: true,
            ..Sample::segments(3)
        },
        Sample::segments(44),
    ] {
        let (virtio, mut packet) = sample.packet();
        packet[1] |= if sample.v6 { 2 << 4 } else { 2 };
        let layout = Layout::of(&virtio, &packet).unwrap();
        assert!(layout.markable);
        let segments = layout.sizes().segments;
        let mut room = [0; LONGEST_HEADERS];
        let piece = piece(&layout, &packet, 0, segments, true, &mut room);
        let mut sent = [piece.headers, piece.body].concat();
        assert_eq!((piece.virtio, ecn(&sent)), (layout.virtio, 3));
        if !sample.v6 {
            let header = Ipv4Header::from_slice(&sent).unwrap().0;
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            sent[10..12].copy_from_slice(&packet[10..12]);
        }
        sent[1] = packet[1];
        assert!(sent == packet, "{sample:?}");
    }
    let (virtio, packet) = PLAIN.packet();
    assert!(!Layout::of(&virtio, &packet).unwrap().markable);
}

#[test]
fn ten_segments_are_cut_into_three_one_and_six() {
    // Ten segments at sequence number 2^32 - 100, cut into 3, 1 and 6.
    let sample = Sample {
        sequence: u32::MAX - 99,
        id: u16::MAX,
        fin: true,
        psh: true,
        cwr: true,
        ..Sample::segments(10)
    };
    cut_and_check(&sample, &[3, 1, 6]);
    let (virtio, packet) = sample.packet();
    let layout = Layout::of(&virtio, &packet).unwrap();
    let mut room = [0; LONGEST_HEADERS];
    let middle = piece(&layout, &packet, 3, 1, false, &mut room);
    assert_eq!(middle.headers[2..4], 1500_u16.to_be_bytes());
    assert_eq!(middle.headers[4..6], 2_u16.to_be_bytes());
    assert_eq!(middle.headers[24..28], (3 * 1448_u32 - 100).to_be_bytes());
    assert_eq!(middle.headers[33], 0x10, "ACK alone");
    assert_eq!(middle.body, &sample.payload()[3 * 1448..4 * 1448]);
}

#[test]
fn a_super_packet_of_one_segment_is_a_packet() {
    for payload in [0, 1, 1448] {
        let (virtio, packet) = Sample { payload, ..PLAIN }.packet();
        let layout = Layout::of(&virtio, &packet).unwrap();
        assert_eq!(layout.super_packet, None);
        assert_eq!(
            (layout.virtio.gso_type, layout.virtio.gso_size),
            (GSO_NONE, 0)
        );
    }
}

#[test]
fn ipv6_extension_headers_come_along() {
    let sample = Sample {
        v6: true,
        ..Sample::segments(4)
    };
    let (virtio, plain) = sample.packet();
    // 8 bytes of hop-by-hop options that are all padding.
    let mut packet = plain[..40].to_vec();
    packet.extend_from_slice(&[plain[6], 0, 1, 4, 0, 0, 0, 0]);
    packet.extend_from_slice(&plain[40..]);
    packet[6] = 0;
    let len = (packet.len() - 40) as u16;
    packet[4..6].copy_from_slice(&len.to_be_bytes());
    let layout = Layout::of(&virtio, &packet).unwrap();
    let mut room = [0; LONGEST_HEADERS];
    let piece = piece(&layout, &packet, 1, 2, false, &mut room);
    assert_eq!(piece.virtio.checksum_start, 48);
    let sent = finished(&piece);
    check(&sample, &sent);
    assert_eq!(sent[80..], sample.payload()[1448..3 * 1448]);
}

#[test]
fn contradictions_are_refused() {
    let (virtio, packet) = Sample::segments(4).packet();
    assert!(Layout::of(&virtio, &packet).is_ok());
    let bad = |change: fn(&mut VirtioHeader, &mut Vec<u8>)| {
        let (mut virtio, mut packet) = (virtio, packet.clone());
        change(&mut virtio, &mut packet);
        assert!(Layout::of(&virtio, &packet).is_err(), "{virtio:?}");
    };
    bad(|_, packet| packet.clear());
    bad(|_, packet| packet.truncate(19));
    bad(|_, packet| packet[0] = 0x54);
    bad(|_, packet| packet[0] = 0x44);
    bad(|_, packet| packet[0] = 0x65);
    bad(|_, packet| packet.truncate(1000));
    bad(|_, packet| packet[9] = 17);
    bad(|_, packet| packet[32] = 0x40);
    bad(|virtio, _| virtio.gso_size = 0);
    bad(|virtio, _| virtio.gso_type = 2);
    bad(|virtio, _| virtio.gso_type = super::super::virtio::GSO_TCPV6);
    bad(|virtio, _| virtio.checksum_start = u16::MAX);
}
