//! OPEN over the wire: every rule of the codec, from well-formed, damaged and hostile bytes.

#![allow(clippy::unwrap_used)] // a test that fails may panic, in its helpers too

use std::time::Duration;

use bytes::BytesMut;
use longhaul_proto::{
    Admission, Endpoint, MAX_OPEN, MAX_PASSED, Next, Open, OpenDecoder, OpenError, PublicKey, Refusal, Route,
    Service, SessionId, SigningKey, StatusCode, TraceContext, UnknownOption,
};
use proptest::prelude::*;

const NOW: u64 = 1_800_000_000_000;

fn key() -> SigningKey {
    // Ed25519 from a fixed seed (RFC 8410 document), so that failures repeat.
    let mut document = vec![
        0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20,
    ];
    document.extend([7; 32]);
    SigningKey::from_pkcs8(&document).unwrap()
}

fn signed(change: impl FnOnce(&mut Open)) -> Open {
    let route: Route = "depot1.example:7510,~192.0.2.2:99,[2001:db8::3]:7510"
        .parse()
        .unwrap();
    let destination = "server.example:7511".parse().unwrap();
    let mut open = Open::new(
        SessionId::from_bytes([9; 16]),
        Service::COPY,
        route,
        destination,
        Duration::from_millis(19_500),
    )
    .departing();
    change(&mut open);
    open.sign(&key(), NOW).unwrap();
    open
}

fn bytes(open: &Open) -> Vec<u8> {
    let mut out = BytesMut::new();
    open.encode(&mut out).unwrap();
    out.to_vec()
}

fn decode(bytes: &[u8]) -> Result<Option<(Open, usize)>, OpenError> {
    OpenDecoder::new().feed(bytes)
}

/// Recomputes length and CRC, so that damage behind them is reached.
fn resealed(mut frame: Vec<u8>) -> Vec<u8> {
    let length = u16::try_from(frame.len()).unwrap();
    frame[6..8].copy_from_slice(&length.to_be_bytes());
    frame[8..12].fill(0);
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&frame);
    frame[8..12].copy_from_slice(&hasher.finalize().to_be_bytes());
    frame
}

fn with_option(frame: Vec<u8>, kind: u16, value: &[u8]) -> Vec<u8> {
    let mut frame = frame;
    frame.extend(kind.to_be_bytes());
    frame.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
    frame.extend(value);
    resealed(frame)
}

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

/// LH-OPEN-1 and LH-OPEN-2: errors come as soon as they are certain.
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
        // The version is known before the length is, and whole frames are held to the same rule.
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
fn lengths_outside_the_bounds_are_refused_before_anything_is_held() {
    for length in [0u16, 11, 8193, u16::MAX] {
        let mut head = vec![0xf1, b'L', b'H', b'O', 1, 1];
        head.extend(length.to_be_bytes());
        let mut decoder = OpenDecoder::new();
        assert_eq!(decoder.feed(&head), Err(OpenError::Length(length.into())));
        assert!(decoder.held() <= 8);
    }
}

/// LH-OPEN-3: what would not fit does not leave.
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

/// LH-OPEN-4: every single flipped bit is noticed.
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
    // The flags are no part of the number.
    let same_number = with_option(with_option(frame, 0x1000, b"a"), 0x5000, b"b");
    assert!(matches!(decode(&same_number), Err(OpenError::Malformed(_))));
}

/// LH-OPEN-7.
#[test]
fn unknown_options_pass_on_unchanged_unless_critical() {
    let frame = bytes(&signed(|_| ()));
    assert_eq!(
        decode(&with_option(frame.clone(), 0x8000 | 100, b"x")),
        Err(OpenError::UnknownCritical(100))
    );
    assert!(matches!(
        decode(&resealed([&frame[..12], &[0, 0, 0, 0], &frame[12..]].concat())),
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
    // What is not marked mutable is under the signature, known or not.
    let mut changed = onward.clone();
    changed.unknown[0].value[0] ^= 1;
    assert_eq!(changed.verify(), Err(Refusal::BadSignature));
    let mut changed = onward;
    changed.unknown[1].value.push(1);
    assert_eq!(changed.verify(), Ok(()));
}

/// Cuts the frame into its options, lets `change` edit them as (kind, value), and puts it together again.
/// LH-OPEN-14.
#[test]
fn a_server_is_named_exactly_where_the_service_is_tcp() {
    let server: Endpoint = "[2001:db8::7]:443".parse().unwrap();
    let open = signed(|open| {
        open.service = Service::TCP;
        open.onward = Some(server.clone());
    });
    let (found, _) = decode(&bytes(&open)).unwrap().unwrap();
    assert_eq!((found.onward.as_ref(), found.verify()), (Some(&server), Ok(())));
    // It is covered by the signature, and no depot changes it.
    let mut elsewhere = found.clone();
    elsewhere.onward = Some("[2001:db8::7]:22".parse().unwrap());
    assert_eq!(elsewhere.verify(), Err(Refusal::BadSignature));
    let passed_on = found.passed_on(key().public(), Duration::ZERO).unwrap();
    assert_eq!(passed_on.onward, found.onward);
    let without = decode(&edited(&open, |options| {
        options.retain(|(kind, _)| *kind != 0x8000 | 18)
    }));
    assert!(matches!(without, Err(OpenError::Missing(_))), "{without:?}");
    let for_copy = decode(&edited(&open, |options| {
        for (kind, value) in options {
            if *kind == 0x8000 | 15 {
                *value = b"copy".to_vec();
            }
        }
    }));
    assert!(
        matches!(for_copy, Err(OpenError::Invalid { option: "onward", .. })),
        "{for_copy:?}"
    );
    let unmarked = decode(&edited(&open, |options| {
        for (kind, _) in options {
            if *kind == 0x8000 | 18 {
                *kind = 18;
            }
        }
    }));
    assert!(matches!(unmarked, Err(OpenError::Invalid { .. })), "{unmarked:?}");
}

/// LH-OPEN-15.
#[test]
fn wishes_travel_as_they_were_signed() {
    let open = signed(|open| {
        open.size = Some(1 << 40);
        open.rate = Some(10_000_000_000);
        open.duration = Some(3600);
    });
    let passed_on = open.passed_on(key().public(), Duration::ZERO).unwrap();
    let (found, _) = decode(&bytes(&passed_on)).unwrap().unwrap();
    assert_eq!(
        (found.size, found.rate, found.duration),
        (Some(1 << 40), Some(10_000_000_000), Some(3600))
    );
    assert_eq!(found.verify(), Ok(()));
    let mut more = found.clone();
    more.rate = Some(20_000_000_000);
    assert_eq!(more.verify(), Err(Refusal::BadSignature));
    for number in [16, 17] {
        for value in [vec![0; 8], vec![0, 0, 0, 1]] {
            let odd = decode(&edited(&open, |options| {
                for (kind, found) in options {
                    if *kind == number {
                        *found = value.clone();
                    }
                }
            }));
            assert!(matches!(odd, Err(OpenError::Invalid { .. })), "{number}: {odd:?}");
        }
    }
}

fn edited(open: &Open, change: impl FnOnce(&mut Vec<(u16, Vec<u8>)>)) -> Vec<u8> {
    let frame = bytes(open);
    let (mut options, mut rest) = (Vec::new(), &frame[12..]);
    while !rest.is_empty() {
        let length = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
        options.push((
            u16::from_be_bytes([rest[0], rest[1]]),
            rest[4..4 + length].to_vec(),
        ));
        rest = &rest[4 + length..];
    }
    change(&mut options);
    options
        .into_iter()
        .fold(frame[..12].to_vec(), |frame, (kind, value)| {
            with_option(frame, kind, &value)
        })
}

/// LH-OPEN-9 and LH-OPEN-8: whichever mandatory option is missing, longer, shorter or differently flagged.
#[test]
fn every_mandatory_option_is_held_to_its_form() {
    let open = signed(|_| ());
    for index in 0..11 {
        assert!(
            matches!(
                decode(&edited(&open, |all| drop(all.remove(index)))),
                Err(OpenError::Missing(_))
            ),
            "{index}"
        );
        for change in [
            (|(_, value): &mut (u16, Vec<u8>)| value.push(0)) as fn(&mut (u16, Vec<u8>)),
            |(kind, _)| *kind ^= 0x8000,
            |(kind, _)| *kind ^= 0x4000,
        ] {
            let frame = edited(&open, |all| change(&mut all[index]));
            assert!(
                matches!(decode(&frame), Err(OpenError::Invalid { .. })),
                "{index}: {:?}",
                decode(&frame)
            );
        }
        // The list of depots passed may be empty and a service's name have any length, so neither can be too short.
        if !matches!(index, 4 | 10) {
            let frame = edited(&open, |all| _ = all[index].1.pop());
            assert!(
                matches!(decode(&frame), Err(OpenError::Invalid { .. })),
                "{index}"
            );
        }
    }
}

/// LH-OPEN-10, LH-ROUTE-1, LH-ROUTE-4: values that are well-formed bytes and still senseless.
#[test]
fn senseless_values_are_refused() {
    let open = signed(|_| ());
    let destination = |value: &[u8]| {
        let value = value.to_vec();
        edited(&open, move |all| all[1].1 = value)
    };
    for value in [
        &[0, 0, 0x1d, 0x57][..],      // a name of no bytes
        &[0, 1, b'-', 0x1d, 0x57],    // an ill-formed name
        &[0, 1, 0xff, 0x1d, 0x57],    // not ASCII
        &[0, 200, b'a', 0x1d, 0x57],  // a name cut short
        b"\x00\x09127.0.0.1\x1d\x57", // an address dressed as a name
        &[4, 127, 0, 0, 1, 0, 0],     // port 0
        &[9, 127, 0, 0, 1, 0, 1],     // an unknown kind
        &[],
    ] {
        assert!(
            matches!(
                decode(&destination(value)),
                Err(OpenError::Invalid {
                    option: "destination",
                    ..
                })
            ),
            "{value:?}"
        );
    }
    let route = |value: Vec<u8>| edited(&open, move |all| all[2].1 = value);
    let hop = [1, 4, 192, 0, 2, 1, 0, 80];
    assert!(
        decode(&route([&[16][..], &hop.repeat(16)].concat()))
            .unwrap()
            .is_some()
    );
    assert!(decode(&route([&[17][..], &hop.repeat(17)].concat())).is_err());
    assert!(decode(&route([&[2][..], &hop].concat())).is_err());
    assert!(decode(&route([&[1, 4][..], &hop[1..]].concat())).is_err());
    assert!(
        decode(&route([&[1, 3][..], &hop[1..]].concat())).is_err(),
        "a key that is not there"
    );
    assert!(decode(&route([&[1, 3][..], &hop[1..], &[7; 32]].concat())).is_ok());
    for (cursor, fine) in [(0, true), (4, true), (5, false), (255, false)] {
        assert_eq!(
            decode(&edited(&open, |all| all[3].1 = vec![cursor])).is_ok(),
            fine,
            "{cursor}"
        );
    }
    assert!(
        decode(&edited(&open, |all| all[4].1 = vec![0; 32 * 32]))
            .unwrap()
            .is_some()
    );
    assert!(decode(&edited(&open, |all| all[4].1 = vec![0; 32 * 33])).is_err());
    assert!(decode(&edited(&open, |all| all.insert(7, (9, b"bell\x07".to_vec())))).is_err());
    assert!(decode(&edited(&open, |all| all.insert(7, (9, vec![b'a'; 65])))).is_err());
    assert!(decode(&edited(&open, |all| all.insert(7, (9, "a\u{202e}b".into())))).is_err());
    assert!(decode(&edited(&open, |all| all.insert(7, (10, Vec::new())))).is_err());
    for service in [&b""[..], b"Copy", b"co py", &[b'a'; 33], b"caf\xc3\xa9", b"\xff"] {
        assert!(decode(&edited(&open, |all| all[10].1 = service.to_vec())).is_err());
    }
}

/// LH-TLS-4: depots change nothing that the handshake is bound to, and nothing else has the same binding.
#[test]
fn a_binding_is_the_opens_own() {
    let open = signed(|_| ());
    let onward = open.passed_on(key().public(), Duration::from_secs(1)).unwrap();
    assert_eq!(onward.binding(), open.binding());
    let later = signed(|open| open.session_id = SessionId::from_bytes([1; 16]));
    assert_ne!(later.binding(), open.binding());
    let mut resigned = open.clone();
    resigned.signature = [0; 64];
    assert_ne!(resigned.binding(), open.binding());
}

/// LH-ADMIT-1, LH-ROUTE-8 and LH-ROUTE-4: what is refused before anybody is dialled.
#[test]
fn a_depot_is_the_one_that_the_route_names() {
    let (mine, other) = (PublicKey::from_bytes([1; 32]), PublicKey::from_bytes([2; 32]));
    let admitted = |me: PublicKey, route: &str, change: fn(&mut Open)| {
        let mut open = signed(|open| open.route = route.parse().unwrap());
        change(&mut open);
        Admission::new(me)
            .depot(&open, NOW, |_| true)
            .map_err(|refusal| refusal.code())
    };
    let route = format!("{mine}@d1,~d2");
    assert_eq!(admitted(mine, &route, |_| ()), Ok(()));
    assert_eq!(admitted(other, &route, |_| ()), Err(StatusCode::Misrouted));
    // One that was added before the loose hop: the depot that the cursor names has been passed.
    assert_eq!(
        admitted(other, &route, |open| open.passed =
            vec![PublicKey::from_bytes([1; 32])]),
        Ok(())
    );
    let strict = format!("{mine}@d1,d2");
    assert_eq!(
        admitted(other, &strict, |open| open.passed =
            vec![PublicKey::from_bytes([1; 32])]),
        Err(StatusCode::Misrouted)
    );
    assert_eq!(
        admitted(mine, &route, |open| open.passed =
            vec![PublicKey::from_bytes([9; 32]); MAX_PASSED]),
        Err(StatusCode::HopLimit)
    );
}

/// LH-OPEN-13.
#[test]
fn an_acceptor_takes_what_it_offers() {
    let open = signed(|open| (open.route, open.cursor) = (Route::direct(), 1));
    let asked = |knows: bool, offers: bool| {
        Admission::new(key().public())
            .acceptor(&open, NOW, |_| knows, |_| offers)
            .map_err(|refusal| refusal.code())
    };
    assert_eq!(asked(true, true), Ok(()));
    assert_eq!(asked(true, false), Err(StatusCode::NoService));
    assert_eq!(
        asked(false, false),
        Err(StatusCode::Unauthorised),
        "strangers do not learn what is offered"
    );
}

/// LH-SIGN-1: what depots change is outside the signature, and everything else inside.
#[test]
fn the_signature_covers_what_depots_may_not_change() {
    let open = signed(|open| open.size = Some(5));
    let mut moved = open
        .passed_on(
            SigningKey::generate().unwrap().public(),
            Duration::from_millis(500),
        )
        .unwrap();
    moved.trace = Some(TraceContext {
        trace_id: [1; 16],
        parent_id: [2; 8],
        flags: 0,
    });
    assert_eq!(moved.verify(), Ok(()));
    let changes: [fn(&mut Open); 11] = [
        |open| open.session_id = SessionId::from_bytes([8; 16]),
        |open| open.service = Service::PERF,
        |open| {
            open.route = "lhk1:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa@depot1.example"
                .parse()
                .unwrap()
        },
        |open| open.destination.port += 1,
        |open| open.route = Route::direct(),
        |open| open.size = Some(6),
        |open| open.purpose = Some("other".into()),
        |open| open.circuit = Some(vec![1]),
        |open| open.signed_at_unix_ms += 1,
        |open| open.principal = SigningKey::generate().unwrap().public(),
        |open| open.versions.max += 1,
    ];
    for (index, change) in changes.iter().enumerate() {
        let mut forged = moved.clone();
        change(&mut forged);
        assert_eq!(forged.verify(), Err(Refusal::BadSignature), "change {index}");
    }
}

/// LH-ROUTE-1 to LH-ROUTE-3, LH-ROUTE-6, LH-ROUTE-7.
#[test]
fn a_route_is_walked_place_by_place() {
    let depot = key().public();
    let open = signed(|open| open.hop_limit = 4);
    assert_eq!(open.position(), 1);
    assert!(matches!(open.next(), Next::Hop(hop) if !hop.strict));
    let added = open.detour(depot, Duration::from_millis(100)).unwrap();
    assert_eq!(
        (added.cursor, added.hop_limit, added.position()),
        (open.cursor, 3, 2)
    );
    assert_eq!(added.setup_budget, Duration::from_millis(19_400));
    let second = added.passed_on(depot, Duration::ZERO).unwrap();
    assert!(matches!(second.next(), Next::Hop(hop) if hop.strict));
    assert!(matches!(
        second.detour(depot, Duration::ZERO),
        Err(Refusal::Misrouted(_))
    ));
    let third = second.passed_on(depot, Duration::ZERO).unwrap();
    assert_eq!(third.next(), Next::Destination(&open.destination));
    assert!(matches!(
        third.detour(depot, Duration::ZERO),
        Err(Refusal::Misrouted(_))
    ));
    assert_eq!(
        third.passed_on(depot, Duration::from_secs(20)),
        Err(Refusal::SetupTimeout)
    );
    let last = third.passed_on(depot, Duration::ZERO).unwrap();
    assert_eq!(last.next(), Next::Here);
    assert_eq!(last.hop_limit, 0);
    assert_eq!(last.passed_on(depot, Duration::ZERO), Err(Refusal::HopLimit));
}

prop_compose! {
    fn any_endpoint()(name in "[a-z0-9_]{1,20}(\\.[a-z][a-z0-9-]{0,20}){0,3}", v4 in any::<[u8; 4]>(), v6 in any::<[u8; 16]>(), kind in 0..3, port in 1..=u16::MAX) -> Endpoint {
        let host = match kind {
            0 => longhaul_proto::Host::parse(&name).unwrap_or(longhaul_proto::Host::Ip(v4.into())),
            1 => longhaul_proto::Host::Ip(v4.into()),
            _ => longhaul_proto::Host::Ip(v6.into()),
        };
        Endpoint::new(host, port)
    }
}

prop_compose! {
    fn any_open()(
        id in any::<[u8; 16]>(), destination in any_endpoint(), hops in prop::collection::vec((any_endpoint(), any::<bool>(), prop::option::of(any::<[u8; 32]>())), 0..=16),
        passed in prop::collection::vec(any::<[u8; 32]>(), 0..=32), cursor in any::<prop::sample::Index>(), hop_limit: u8, budget: u32,
        size: Option<u64>, purpose in prop::option::of("[a-zA-Z ä]{1,32}"), circuit in prop::option::of(prop::collection::vec(any::<u8>(), 1..=128)),
        numbers in prop::collection::btree_map(19u16..0x4000, (any::<bool>(), prop::collection::vec(any::<u8>(), 0..40)), 0..8), signed_at: u64, service in "[a-z0-9-]{1,32}",
        rate in prop::option::of(1u64..), duration in prop::option::of(1u64..), onward in prop::option::of(any_endpoint()),
    ) -> Open {
        let hops = hops.into_iter().map(|(endpoint, strict, key)| longhaul_proto::Hop { endpoint, strict, key: key.map(PublicKey::from_bytes) }).collect();
        let route = Route::new(hops).unwrap();
        let places = route.hops().len() + 2;
        let mut open = Open::new(SessionId::from_bytes(id), service.parse().unwrap(), route, destination, Duration::from_millis(budget.into()));
        open.cursor = u8::try_from(cursor.index(places)).unwrap();
        open.passed = passed.into_iter().map(PublicKey::from_bytes).collect();
        (open.hop_limit, open.size, open.purpose, open.circuit) = (hop_limit, size, purpose, circuit);
        (open.rate, open.duration) = (rate, duration);
        if let Some(server) = onward {
            (open.service, open.onward) = (Service::TCP, Some(server));
        } else if open.service == Service::TCP {
            open.service = Service::COPY;
        }
        open.unknown = numbers.into_iter().map(|(number, (mutable, value))| UnknownOption { kind: number | if mutable { 0x4000 } else { 0 }, value }).collect();
        open.sign(&key(), signed_at).unwrap();
        open
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// What is encoded decodes to itself, verifies, and encodes to the same bytes, however it was cut up.
    #[test]
    fn encode_and_decode_are_inverse(open in any_open(), cut in any::<prop::sample::Index>()) {
        let sent = bytes(&open);
        let (first, second) = sent.split_at(cut.index(sent.len()));
        let mut decoder = OpenDecoder::new();
        prop_assert_eq!(decoder.feed(first).unwrap(), None);
        let (found, used) = decoder.feed(second).unwrap().unwrap();
        prop_assert_eq!(used, second.len());
        prop_assert_eq!(&found, &open);
        prop_assert_eq!(found.verify(), Ok(()));
        prop_assert_eq!(bytes(&found), sent);
    }

    /// Damage behind a valid CRC never panics, and what still decodes is in canonical form.
    #[test]
    fn damaged_options_never_panic(open in any_open(), edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut frame = bytes(&open);
        for (at, byte) in edits {
            let at = 12 + at.index(frame.len() - 12);
            frame[at] = byte;
        }
        let frame = resealed(frame);
        if let Ok(Some((found, _))) = decode(&frame) {
            prop_assert_eq!(bytes(&found), frame);
        }
    }

    /// No bytes at all make the decoder panic or hold more than they are.
    #[test]
    fn arbitrary_bytes_never_panic(tail in prop::collection::vec(any::<u8>(), 0..600), head in 0..3) {
        let mut input = match head { 0 => vec![], 1 => vec![0xf1, b'L', b'H', b'O'], _ => vec![0xf1, b'L', b'H', b'O', 1, 1, 2, 0] };
        input.extend(tail);
        let mut decoder = OpenDecoder::new();
        let _ = decoder.feed(&input);
        prop_assert!(decoder.held() <= input.len().min(MAX_OPEN));
    }
}
