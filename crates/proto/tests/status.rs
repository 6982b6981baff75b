//! STATUS over the wire, well-formed, damaged and hostile.

#![allow(clippy::unwrap_used)] // failed tests panic, also in helpers

use std::time::Duration;

use bytes::BytesMut;
use longhaul_proto::{
    Endpoint, HopDetails, MAX_PADDING_BYTES, MAX_STATUS_BYTES, PublicKey, ResumeAnswer,
    ResumeOffer, Status, StatusCode, StatusDecoder, StatusError, Transport,
};
use proptest::prelude::*;

fn bytes(status: &Status) -> Vec<u8> {
    let mut out = BytesMut::new();
    status.encode(&mut out);
    out.to_vec()
}

fn full() -> Status {
    Status {
        code: StatusCode::DialTimeout,
        hop: 3,
        acceptor: false,
        reporter: Some(PublicKey::from_bytes([4; 32])),
        at: Some("next.example:7510".parse().unwrap()),
        payload_forwarded: true,
        detail: "no answer within 5 s".into(),
        signature: Some([6; 64]),
        padding: 0,
        clock_unix_ms: None,
        dialled: None,
        resume_offer: Some(ResumeOffer {
            within: Duration::from_secs(60),
        }),
        resumed: None,
        unknown: Vec::new(),
    }
}

fn resealed(mut frame: Vec<u8>) -> Vec<u8> {
    let length = u16::try_from(frame.len()).unwrap();
    frame[6..8].copy_from_slice(&length.to_be_bytes());
    frame[8..12].fill(0);
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&frame);
    frame[8..12].copy_from_slice(&hasher.finalize().to_be_bytes());
    frame
}

#[test]
fn records_are_consecutive_and_precede_payload() {
    let statuses = [
        Status::new(StatusCode::Ok, 1),
        full(),
        Status::from_acceptor(StatusCode::Ok, 3),
    ];
    let mut stream: Vec<u8> = statuses.iter().flat_map(bytes).collect();
    stream.extend(b"\x16\x03payload");
    let mut decoder = StatusDecoder::new();
    let mut rest = stream.as_slice();
    for status in &statuses {
        let (found, used) = decoder.feed(rest).unwrap().unwrap();
        assert_eq!(&found, status);
        rest = &rest[used..];
    }
    assert_eq!(rest, b"\x16\x03payload");
    assert_eq!(decoder.feed(rest), Err(StatusError::Magic));
}

/// LH-STATUS-4: a detail is truncated and escaped, and never makes the record fail.
#[test]
fn details_are_truncated_and_escaped() {
    let mut status = full();
    status.detail = "ä".repeat(1000) + "\x07";
    let (found, _) = StatusDecoder::new().feed(&bytes(&status)).unwrap().unwrap();
    assert_eq!(found.detail, "ä".repeat(128));
    status.detail = "clear\x1b[2Jscreen\n".into();
    let (found, _) = StatusDecoder::new().feed(&bytes(&status)).unwrap().unwrap();
    assert_eq!(found.detail, "clear\\u{1b}[2Jscreen\\u{a}");
    // A detail that the sender did not escape is escaped on arrival.
    let mut frame = bytes(&Status::new(StatusCode::Internal, 1));
    frame.extend([0, 3, 0, 3, b'a', 0x1b, 0xff]);
    let (found, _) = StatusDecoder::new()
        .feed(&resealed(frame))
        .unwrap()
        .unwrap();
    assert_eq!(found.detail, "a\\u{1b}\\xff");
}

/// LH-STATUS-2, LH-STATUS-5.
#[test]
fn malformed_records_are_refused() {
    let frame = bytes(&full());
    for bit in 0..frame.len() * 8 {
        let mut damaged = frame.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(
            !matches!(StatusDecoder::new().feed(&damaged), Ok(Some(_))),
            "bit {bit}"
        );
    }
    let with =
        |tail: &[u8]| resealed([bytes(&Status::new(StatusCode::Ok, 1)).as_slice(), tail].concat());
    let decode = |frame: Vec<u8>| StatusDecoder::new().feed(&frame);
    assert!(
        decode(with(&[0x10, 0, 0, 1, 9])).unwrap().is_some(),
        "unknown and not critical"
    );
    assert!(
        matches!(
            decode(with(&[0x90, 0, 0, 1, 9])),
            Err(StatusError::Malformed(_))
        ),
        "unknown and critical"
    );
    assert!(
        matches!(
            decode(with(&[0x80, 1, 0, 0])),
            Err(StatusError::Malformed(_))
        ),
        "flags of another kind"
    );
    assert!(
        matches!(
            decode(with(&[0, 1, 0, 1, 9])),
            Err(StatusError::Malformed(_))
        ),
        "a key of one byte"
    );
    assert!(
        matches!(
            decode(with(&[0, 3, 0, 9, 9])),
            Err(StatusError::Malformed(_))
        ),
        "cut short"
    );
    assert!(
        matches!(
            decode(with(&[0, 3, 0, 0, 0, 3, 0, 0])),
            Err(StatusError::Malformed(_))
        ),
        "repeated"
    );
    let mut flags = frame.clone();
    flags[5] |= 0x80;
    assert!(matches!(
        decode(resealed(flags)),
        Err(StatusError::Malformed(_))
    ));
    let mut version = frame;
    version[4] = 2;
    assert_eq!(
        decode(resealed(version.clone())),
        Err(StatusError::Version(2))
    );
    assert_eq!(
        decode(version[..6].to_vec()),
        Err(StatusError::Version(2)),
        "as soon as it is certain"
    );
    assert_eq!(
        decode(vec![0xf1, b'L', b'H', b'S', 1, 0, 4, 1]),
        Err(StatusError::Length(1025))
    );
    assert_eq!(
        decode(resealed(vec![
            0xf1, b'L', b'H', b'S', 1, 0, 0, 0, 0, 0, 0, 0
        ])),
        Err(StatusError::Malformed("a value cut short"))
    );
}

/// LH-STATUS-9: padding is accepted only if requested, only up to that size, and only as zeros.
#[test]
fn padding_is_accepted_only_if_requested() {
    let padded = Status {
        padding: 12_000,
        ..Status::from_acceptor(StatusCode::Ok, 1)
    };
    let sent = bytes(&padded);
    assert!(sent.len() > 12_000);
    let (found, used) = StatusDecoder::with_padding(12_000)
        .feed(&sent)
        .unwrap()
        .unwrap();
    assert_eq!((found, used), (padded.clone(), sent.len()));
    assert_eq!(
        StatusDecoder::new().feed(&sent),
        Err(StatusError::Length(sent.len()))
    );
    assert!(matches!(
        StatusDecoder::with_padding(10_000).feed(&sent),
        Err(StatusError::Length(_))
    ));
    let mut odd = sent;
    *odd.last_mut().unwrap() = 1;
    assert!(matches!(
        StatusDecoder::with_padding(12_000).feed(&resealed(odd)),
        Err(StatusError::Malformed(_))
    ));
    // Whatever is set, no more padding is sent than can be requested.
    let most = bytes(&Status {
        padding: u16::MAX,
        ..padded
    });
    let (found, _) = StatusDecoder::with_padding(MAX_PADDING_BYTES)
        .feed(&most)
        .unwrap()
        .unwrap();
    assert_eq!(found.padding, MAX_PADDING_BYTES);
}

/// LH-STATUS-11.
#[test]
fn details_of_a_hop_have_one_encoding() {
    let mut status = full();
    let names = ["bbr", "", "seventeen-letters", "a b", "\u{e9}"];
    let found = names.map(|name| {
        status.dialled = Some(HopDetails {
            transport: Transport::Tcp,
            round_trip: Some(Duration::from_nanos(1500)),
            congestion: Some(name.to_owned()),
        });
        let fed = StatusDecoder::new().feed(&bytes(&status)).unwrap();
        let details = fed.unwrap().0.dialled.unwrap();
        assert_eq!(details.round_trip, Some(Duration::from_micros(1)));
        details.congestion
    });
    assert_eq!(found, [Some("bbr".to_owned()), None, None, None, None]);
    // A transport that does not exist, and a name that cannot be one.
    for value in [&[9, 0, 0, 0, 1][..], &[1, 0, 0, 0, 1, b' '], &[1, 0]] {
        let mut frame = bytes(&full());
        frame.extend([0, 7, 0, value.len() as u8]);
        frame.extend(value);
        let fed = StatusDecoder::new().feed(&resealed(frame));
        assert!(matches!(fed, Err(StatusError::Malformed(_))), "{value:?}");
    }
}

prop_compose! {
    fn any_details()(
        transport in prop::sample::select(&Transport::ALL[..]),
        micros in prop::option::of(1..=u32::MAX),
        congestion in prop::option::of("[!-~]{1,16}"),
    ) -> HopDetails {
        HopDetails {
            transport,
            round_trip: micros.map(|micros| Duration::from_micros(micros.into())),
            congestion,
        }
    }
}

prop_compose! {
    fn any_status()(
        code: u8,
        hop: u8,
        acceptor: bool,
        reporter: Option<[u8; 32]>,
        signature in prop::option::of(any::<u8>()),
        at in prop::option::of((any::<[u8; 4]>(), 1..=u16::MAX)),
        payload_forwarded: bool,
        detail in "[a-z :äé]{0,100}",
        padding in prop_oneof![Just(0), 1..=MAX_PADDING_BYTES],
        clock: Option<u64>,
        dialled in prop::option::of(any_details()),
        within in prop::option::of(1..=u32::MAX),
        resumed in prop::option::of(any::<(u64, [u8; 32])>()),
    ) -> Status {
        let at = at.map(|(ip, port)| Endpoint::new(longhaul_proto::Host::Ip(ip.into()), port));
        Status {
            code: StatusCode::from_u8(code),
            hop,
            acceptor,
            reporter: reporter.map(PublicKey::from_bytes),
            at,
            payload_forwarded,
            detail,
            signature: signature.map(|byte| [byte; 64]),
            padding,
            clock_unix_ms: clock,
            dialled,
            resume_offer: within.map(|within| ResumeOffer {
                within: Duration::from_millis(within.into()),
            }),
            resumed: resumed.map(|(received, proof)| ResumeAnswer { received, proof }),
            unknown: Vec::new(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn encode_and_decode_are_inverse(status in any_status(), cut in any::<prop::sample::Index>()) {
        let sent = bytes(&status);
        prop_assert!(sent.len() <= MAX_STATUS_BYTES + usize::from(status.padding));
        let (first, second) = sent.split_at(cut.index(sent.len()));
        let mut decoder = StatusDecoder::with_padding(status.padding);
        prop_assert_eq!(decoder.feed(first).unwrap(), None);
        prop_assert_eq!(decoder.feed(second).unwrap(), Some((status, second.len())));
    }

    #[test]
    fn arbitrary_bytes_never_panic(tail in prop::collection::vec(any::<u8>(), 0..300), seal: bool) {
        let mut input = vec![0xf1, b'L', b'H', b'S', 1, 0, 0, 0, 0, 0, 0, 0];
        input.extend(tail);
        let input = if seal { resealed(input) } else { input };
        let mut decoder = StatusDecoder::new();
        let _ = decoder.feed(&input);
        prop_assert!(decoder.buffered_bytes() <= MAX_STATUS_BYTES);
    }
}
