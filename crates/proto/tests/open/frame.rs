//! The frame: its bytes, its length, its checksum, and the layout of its options.

use std::time::Duration;

use bytes::BytesMut;
use longhaul_proto::{MAX_OPEN, OpenDecoder, OpenError, Refusal, TraceContext, UnknownOption};

use crate::{bytes, decode, key, resealed, signed, with_option};

#[test]
fn an_open_survives_the_wire_whole_and_byte_by_byte() {
    let open = signed(|open| {
        open.size = Some(1 << 40);
        open.purpose = Some("nightly copy".into());
        open.circuit = Some(b"circuit-7".to_vec());
        open.rate = Some(10_000_000_000);
        open.duration = Some(3600);
        open.trace = Some(TraceContext {
            trace_id: [1; 16],
            parent_id: [2; 8],
            flags: 1,
        });
    });
    let mut sent = bytes(&open);
    let length = sent.len();
    sent.extend(b"early data");
    // LH-OPEN-12.
    assert_eq!(decode(&sent).unwrap(), Some((open.clone(), length)));
    let mut decoder = OpenDecoder::new();
    for (index, byte) in sent[..length].iter().enumerate() {
        let fed = decoder.feed(&[*byte]).unwrap();
        assert_eq!(fed.is_some(), index + 1 == length);
        if let Some((found, used)) = fed {
            assert_eq!((found, used), (open.clone(), 1));
        }
    }
    assert_eq!(open.verify(), Ok(()));
}

/// LH-OPEN-1 and LH-OPEN-2: errors are reported as soon as they are certain.
#[test]
fn another_protocol_is_refused_at_the_first_differing_byte() {
    assert_eq!(decode(b"\x16\x03\x01"), Err(OpenError::Magic));
    assert_eq!(decode(b"GET / HTTP/1.1\r\n"), Err(OpenError::Magic));
    assert_eq!(decode(b"\xf1LX"), Err(OpenError::Magic));
    assert_eq!(decode(b"\xf1LH"), Ok(None));
}

#[test]
fn only_a_common_version_is_accepted() {
    for (min, max, accepted) in [
        (1, 1, true),
        (1, 9, true),
        (2, 9, false),
        (0, 1, false),
        (0, 0, false),
        (3, 2, false),
    ] {
        let mut frame = bytes(&signed(|_| ()));
        frame[4] = min;
        frame[5] = max;
        // The version is known before the length, and whole frames follow the same rule.
        let early = decode(&frame[..6]);
        let whole = decode(&resealed(frame));
        assert_eq!(early.is_ok(), accepted, "{min}-{max}");
        assert_eq!(whole.is_ok(), accepted, "{min}-{max}");
        assert!(
            accepted || matches!(whole, Err(OpenError::Version(_))),
            "{min}-{max}"
        );
    }
}

/// LH-OPEN-3.
#[test]
fn lengths_outside_the_bounds_are_refused_at_once() {
    for length in [0u16, 11, 8193, u16::MAX] {
        let mut head = vec![0xf1, b'L', b'H', b'O', 1, 1];
        head.extend(length.to_be_bytes());
        let mut decoder = OpenDecoder::new();
        assert_eq!(decoder.feed(&head), Err(OpenError::Length(length.into())));
        assert!(decoder.held() <= 8);
    }
}

/// LH-OPEN-3: an OPEN that would not fit is not sent.
#[test]
fn an_open_over_the_limit_cannot_be_encoded() {
    let open = signed(|open| {
        open.unknown = vec![UnknownOption {
            kind: 0x1000,
            value: vec![0; MAX_OPEN],
        }]
    });
    let mut out = BytesMut::from(&b"before"[..]);
    assert!(matches!(open.encode(&mut out), Err(OpenError::Length(_))));
    assert_eq!(&out[..], b"before");
}

/// LH-OPEN-4: every single flipped bit is detected.
#[test]
fn a_flipped_bit_never_decodes() {
    let frame = bytes(&signed(|_| ()));
    for bit in 0..frame.len() * 8 {
        let mut damaged = frame.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(!matches!(decode(&damaged), Ok(Some(_))), "bit {bit}");
    }
}

/// LH-OPEN-5.
#[test]
fn options_must_fill_the_frame() {
    let frame = bytes(&signed(|_| ()));
    for tail in [
        &[0u8][..],
        &[0x10, 0],
        &[0x10, 0, 0],
        &[0x10, 0, 0, 5, 1, 2],
        &[0x10, 0, 0xff, 0xff],
    ] {
        let mut longer = frame.clone();
        longer.extend(tail);
        assert!(
            matches!(decode(&resealed(longer)), Err(OpenError::Malformed(_))),
            "{tail:?}"
        );
    }
}

/// LH-OPEN-6.
#[test]
fn repeated_and_misordered_options_are_refused() {
    let frame = bytes(&signed(|_| ()));
    let repeated = with_option(frame.clone(), 0xc000 | 14, &[0; 64]);
    assert!(matches!(decode(&repeated), Err(OpenError::Malformed(_))));
    let twice = with_option(with_option(frame.clone(), 0x1000, b"a"), 0x1000, b"b");
    assert!(matches!(decode(&twice), Err(OpenError::Malformed(_))));
    // The flags are not part of the number.
    let same_number = with_option(with_option(frame, 0x1000, b"a"), 0x5000, b"b");
    assert!(matches!(decode(&same_number), Err(OpenError::Malformed(_))));
}

/// LH-OPEN-7.
#[test]
fn unknown_options_are_forwarded_unless_critical() {
    let frame = bytes(&signed(|_| ()));
    assert_eq!(
        decode(&with_option(frame.clone(), 0x8000 | 100, b"x")),
        Err(OpenError::UnknownCritical(100))
    );
    assert!(matches!(
        decode(&resealed(
            [&frame[..12], &[0, 0, 0, 0], &frame[12..]].concat()
        )),
        Err(OpenError::Malformed(_))
    ));

    let open = signed(|open| {
        open.unknown = vec![
            UnknownOption {
                kind: 100,
                value: b"signed".to_vec(),
            },
            UnknownOption {
                kind: 0x4000 | 101,
                value: Vec::new(),
            },
        ];
    });
    let (found, _) = decode(&bytes(&open)).unwrap().unwrap();
    let onward = found.passed_on(key().public(), Duration::ZERO).unwrap();
    assert_eq!(onward.unknown, open.unknown);
    assert_eq!(onward.verify(), Ok(()));
    // The signature covers every option not marked mutable, known or unknown.
    let mut changed = onward.clone();
    changed.unknown[0].value[0] ^= 1;
    assert_eq!(changed.verify(), Err(Refusal::BadSignature));
    let mut changed = onward;
    changed.unknown[1].value.push(1);
    assert_eq!(changed.verify(), Ok(()));
}
