//! Seed OPENs, statuses and texts: valid ones, and ones with a single fault.

use std::time::Duration;

use bytes::BytesMut;

use super::Seed;
use crate::{
    CircuitGrant, DelegatedAction, Delegation, Endpoint, HopDetails, Open, PublicKey, ResumeAnswer,
    ResumeOffer, ResumeRequest, Route, ServiceName, SessionId, SigningKey, Status, StatusCode,
    TraceContext, Transport, UnknownOption, VersionRange, Voucher,
};

/// Size of the frame header before the options, in bytes.
const HEADER: usize = 12;

fn key(number: u8) -> SigningKey {
    // RFC 8410, section 7, with this number in every byte of the secret.
    const PREFIX: [u8; 16] = [
        0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04,
        0x20,
    ];
    SigningKey::from_pkcs8(&[&PREFIX[..], &[number; 32]].concat()).unwrap()
}

fn signed_open(route: &str, change: impl FnOnce(&mut Open)) -> Vec<u8> {
    let mut open = Open::new(
        SessionId::from_bytes([1; 16]),
        ServiceName::COPY,
        route.parse().unwrap(),
        "server.example:7511".parse::<Endpoint>().unwrap(),
        Duration::from_secs(20),
    );
    change(&mut open);
    open.sign(&key(1), 1_700_000_000_000).unwrap();
    let mut bytes = BytesMut::new();
    open.for_first_hop().encode(&mut bytes).unwrap();
    bytes.to_vec()
}

fn set_every_option(open: &mut Open) {
    open.service = "a-service-of-thirty-two-letters-".parse().unwrap();
    open.cursor = 1;
    open.passed = vec![key(2).public()];
    open.hop_limit = 3;
    open.size = Some(u64::MAX);
    open.purpose = Some("backup of Tuesday".to_owned());
    open.rate = Some(u64::MAX);
    open.duration = Some(1);
    open.padding = Some(11_920);
    open.destination_transport = Some(Transport::Quic);
    open.circuit = Some(b"circuit-7".to_vec());
    open.trace = Some(TraceContext {
        trace_id: [7; 16],
        parent_id: [8; 8],
        flags: 1,
    });
    open.unknown = unknown_options();
}

fn set_server(open: &mut Open) {
    open.service = ServiceName::TCP;
    open.onward = Some("[2001:db8::7]:443".parse().unwrap());
    open.resume_offer = Some(ResumeOffer {
        within: Duration::from_secs(60),
    });
    open.rate = Some(10_000_000_000);
    open.duration = Some(3600);
}

fn set_resume(open: &mut Open) {
    open.service = ServiceName::RESUME;
    open.resume = Some(Box::new(ResumeRequest {
        session: SessionId::from_bytes([9; 16]),
        epoch: 2,
        received: 1 << 40,
        proof: [10; 32],
    }));
}

fn read_delegation() -> Delegation {
    let mut delegation = Delegation {
        id: [4; 16],
        action: DelegatedAction::Read,
        principal: key(3).public(),
        delegate: key(1).public(),
        audience: Some(key(2).public()),
        from: "request".to_owned(),
        to: "b.example:7511".to_owned(),
        both_ways: false,
        max_rate: 1,
        start_unix_ms: 1_700_000_000_000,
        end_unix_ms: 1_700_003_600_000,
        signature: [0; 64],
    };
    delegation.sign(&key(3)).unwrap();
    delegation
}

fn unknown_options() -> Vec<UnknownOption> {
    [(1000, &b"later"[..]), (0x4000 | 1001, b"")]
        .map(|(kind, value)| UnknownOption {
            kind,
            value: value.to_vec(),
        })
        .to_vec()
}

/// Encodes an option: kind, length, value.
fn encode_option(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).unwrap();
    [&kind.to_be_bytes()[..], &length.to_be_bytes(), value].concat()
}

/// Returns the options after the header, with one of them replaced or left out.
fn with_option(whole: &[u8], kind: u16, replaced: Option<&[u8]>) -> Vec<u8> {
    let (mut body, mut out) = (&whole[HEADER..], Vec::new());
    while let [a, b, c, d, ..] = *body {
        let (one, rest) = body.split_at(4 + usize::from(u16::from_be_bytes([c, d])));
        if u16::from_be_bytes([a, b]) == kind {
            out.extend(
                replaced
                    .map(|value| encode_option(kind, value))
                    .unwrap_or_default(),
            );
        } else {
            out.extend_from_slice(one);
        }
        body = rest;
    }
    out
}

fn with_bytes_changed(bytes: &[u8], at: usize, to: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.splice(at..at + to.len(), to.iter().copied());
    bytes
}

fn grant() -> CircuitGrant {
    let mut grant = CircuitGrant {
        circuit: b"12".to_vec(),
        holder: key(1).public(),
        from: "dtn1".to_owned(),
        to: "archive".to_owned(),
        start_unix_ms: 1,
        end_unix_ms: u64::MAX,
        rate: 1_000_000_000,
        sessions: 8,
        depots: vec![key(2).public()],
        issuer: key(3).public(),
        signature: [0; 64],
    };
    grant.sign(&key(3)).unwrap();
    grant
}

pub(super) fn circuit_grant_seeds() -> Vec<Seed> {
    let whole = grant().to_bytes().unwrap();
    [
        ("whole", whole.clone()),
        ("cut-short", whole[..50].to_vec()),
        ("another-version", with_bytes_changed(&whole, 0, &[2])),
        ("no-circuit", with_bytes_changed(&whole, 1, &[0])),
        ("empty", Vec::new()),
    ]
    .map(|(name, bytes)| (name.to_owned(), bytes))
    .into()
}

/// Returns vouchers whose certificates are not parsed here.
pub(super) fn voucher_seeds() -> Vec<Seed> {
    let voucher = Voucher {
        key: PublicKey::from_bytes([1; 32]),
        start_unix_ms: 1_000,
        end_unix_ms: 2_000,
        certificates: vec![vec![2; 20], vec![3; 10]],
        scheme: 0x0403,
        signature: vec![4; 64],
    };
    let whole = voucher.to_bytes().unwrap();
    [
        ("whole", whole.clone()),
        ("cut-short", whole[..50].to_vec()),
        ("another-version", with_bytes_changed(&whole, 0, &[2])),
        ("no-certificate", with_bytes_changed(&whole, 49, &[0])),
        ("empty", Vec::new()),
    ]
    .map(|(name, bytes)| (name.to_owned(), bytes))
    .into()
}

pub(super) fn open_seeds() -> Vec<Seed> {
    let depot = key(2).public();
    let direct = signed_open("direct", |_| {});
    let three = signed_open(
        &format!("{depot}@d1.example,~192.0.2.1:99,~{depot}@[2001:db8::1]"),
        |_| {},
    );
    let full = signed_open(&format!("{depot}@d1.example,~d2.example"), set_every_option);
    let server = signed_open("d1.example", set_server);
    let delegated = signed_open("direct", |open| {
        open.delegation = Some(Box::new(read_delegation()));
    });
    let granted = signed_open("d1.example", |open| open.grant = Some(Box::new(grant())));
    let other_versions = |min, max| {
        let mut bytes = signed_open("direct", |open| {
            open.versions = VersionRange { min: 1, max }
        });
        bytes[4] = min;
        bytes
    };
    let mut bad_crc = direct.clone();
    bad_crc[8] ^= 1;
    [
        ("direct", direct.clone()),
        ("three-hops", three.clone()),
        (
            "sixteen-hops",
            signed_open(&vec!["h"; 16].join(","), |_| {}),
        ),
        ("every-option", full.clone()),
        (
            "many-passed",
            signed_open("~h", |open| {
                open.passed = (0..32).map(|n| PublicKey::from_bytes([n; 32])).collect()
            }),
        ),
        (
            "unknown-options",
            signed_open("direct", |open| open.unknown = unknown_options()),
        ),
        ("resume", signed_open("d1.example", set_resume)),
        ("hop-limit-0", signed_open("h", |open| open.hop_limit = 0)),
        (
            "budget-0",
            signed_open("h", |open| open.setup_budget = Duration::ZERO),
        ),
        (
            "early-data-behind",
            [&direct[..], b"\x16\x03\x01\x02\x00"].concat(),
        ),
        ("cut-short", direct[..40].to_vec()),
        ("header-only", direct[..HEADER].to_vec()),
        ("wrong-crc", bad_crc),
        ("length-3", with_bytes_changed(&direct, 6, &[0, 3])),
        (
            "length-65535",
            with_bytes_changed(&direct, 6, &[0xff, 0xff]),
        ),
        ("versions-1-to-9", other_versions(1, 9)),
        ("versions-2-to-3", other_versions(2, 3)),
        ("another-protocol", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        (
            "tls-hello",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        ),
        ("body-empty", vec![]),
        ("body-direct", direct[HEADER..].to_vec()),
        ("body-three-hops", three[HEADER..].to_vec()),
        ("body-every-option", full[HEADER..].to_vec()),
        ("to-a-server", server.clone()),
        ("body-to-a-server", server[HEADER..].to_vec()),
        (
            "body-without-onward",
            with_option(&server, 0x8000 | 18, None),
        ),
        (
            "body-onward-for-copy",
            with_option(&server, 0x8000 | 15, Some(b"copy")),
        ),
        ("with-a-grant", granted.clone()),
        ("body-with-a-grant", granted[HEADER..].to_vec()),
        (
            "body-grant-cut-short",
            with_option(&granted, 19, Some(&grant().to_bytes().unwrap()[..90])),
        ),
        ("by-a-delegate", delegated.clone()),
        ("body-by-a-delegate", delegated[HEADER..].to_vec()),
        (
            "body-delegate-for-files",
            with_option(&delegated, 0x8000 | 15, Some(b"files")),
        ),
        (
            "body-delegation-cut-short",
            with_option(
                &delegated,
                0x8000 | 35,
                Some(&read_delegation().to_bytes().unwrap()[..90]),
            ),
        ),
        ("body-padding-0", with_option(&full, 20, Some(&[0; 2]))),
        ("body-padding-short", with_option(&full, 20, Some(&[9]))),
        (
            "body-transports-none",
            with_option(&full, 21, Some(&[0; 3])),
        ),
        ("body-transports-few", with_option(&full, 21, Some(&[2]))),
        (
            "body-transports-odd",
            with_option(&full, 21, Some(&[0, 0, 9])),
        ),
        ("body-rate-0", with_option(&server, 16, Some(&[0; 8]))),
        (
            "body-duration-short",
            with_option(&server, 17, Some(&[0; 4])),
        ),
        (
            "body-without-service",
            with_option(&direct, 0x8000 | 15, None),
        ),
        (
            "body-service-empty",
            with_option(&direct, 0x8000 | 15, Some(b"")),
        ),
        (
            "body-service-upper-case",
            with_option(&direct, 0x8000 | 15, Some(b"COPY")),
        ),
        (
            "body-255-hops",
            with_option(&direct, 0x8000 | 3, Some(&[255, 1, 1, 1, 104, 0, 80])),
        ),
        (
            "body-hop-without-its-key",
            with_option(&direct, 0x8000 | 3, Some(&[1, 3, 0, 1, 104, 0, 80])),
        ),
        (
            "body-hop-with-unknown-flags",
            with_option(&direct, 0x8000 | 3, Some(&[1, 255, 0, 1, 104, 0, 80])),
        ),
        (
            "body-empty-name",
            with_option(&direct, 0x8000 | 2, Some(&[0, 0, 0, 80])),
        ),
        (
            "body-name-past-the-end",
            with_option(&direct, 0x8000 | 2, Some(&[0, 200, 104, 0, 80])),
        ),
        (
            "body-purpose-that-steers",
            with_option(&full, 9, Some("\u{202e}\u{2028}".as_bytes())),
        ),
        ("body-trailing-byte", [&direct[HEADER..], b"\0"].concat()),
        (
            "body-repeated-option",
            [&direct[HEADER..], &direct[HEADER..]].concat(),
        ),
        (
            "body-option-past-the-end",
            [&direct[HEADER..], &[0x03, 0xe8, 0xff, 0xff]].concat(),
        ),
        (
            "body-unknown-critical",
            [&direct[HEADER..], &encode_option(0x8000 | 1000, b"x")].concat(),
        ),
        ("body-option-0", encode_option(0, b"")),
    ]
    .map(|(name, bytes)| (name.to_owned(), bytes))
    .to_vec()
}

pub(super) fn status_seeds() -> Vec<Seed> {
    let mut open = Open::new(
        SessionId::from_bytes([1; 16]),
        ServiceName::COPY,
        "d1.example,d2.example".parse::<Route>().unwrap(),
        "server.example:7511".parse().unwrap(),
        Duration::from_secs(1),
    );
    open.sign(&key(1), 1_700_000_000_000).unwrap();
    let encoded = |status: &Status| {
        let mut bytes = BytesMut::new();
        status.encode(&mut bytes);
        bytes.to_vec()
    };
    let signed = |mut status: Status, number| {
        status.sign(&key(number), &open).unwrap();
        encoded(&status)
    };
    let all = |number| Status::new(StatusCode::Ok, number);
    let mut failed = Status::new(StatusCode::DialRefused, 2);
    failed.at = Some("server.example:7511".parse().unwrap());
    failed.payload_forwarded = true;
    failed.detail = "connection refused".to_owned();
    failed.unknown = unknown_options().into_iter().take(1).collect();
    let mut steering = failed.clone();
    steering.detail = "\u{1b}[2J\u{202e}\u{2028}\u{200b}".repeat(20);
    let detailed = Status {
        dialled: Some(HopDetails {
            transport: Transport::Tcp,
            round_trip: Some(Duration::from_micros(88_000)),
            congestion: Some("cubic".to_owned()),
        }),
        ..all(1)
    };
    let offered = Status {
        resume_offer: Some(ResumeOffer {
            within: Duration::from_secs(60),
        }),
        ..Status::from_acceptor(StatusCode::Ok, 1)
    };
    let resumed = Status {
        resumed: Some(ResumeAnswer {
            received: 1 << 40,
            proof: [11; 32],
        }),
        ..Status::from_acceptor(StatusCode::Ok, 2)
    };
    let established = signed(all(1), 2);
    let chain = [
        established.clone(),
        signed(all(2), 3),
        signed(Status::from_acceptor(StatusCode::Ok, 3), 4),
    ]
    .concat();
    let full = signed(failed.clone(), 2);
    let padded = signed(
        Status {
            padding: 600,
            ..Status::from_acceptor(StatusCode::Ok, 1)
        },
        4,
    );
    [
        ("established", established.clone()),
        ("unsigned", encoded(&all(1))),
        ("details-of-a-hop", signed(detailed, 2)),
        ("resumable", signed(offered, 4)),
        ("resumed", signed(resumed, 4)),
        ("a-whole-chain", chain),
        ("failed", full.clone()),
        ("detail-that-steers", signed(steering, 2)),
        (
            "place-unknown",
            encoded(&Status::new(StatusCode::Unknown(200), 0)),
        ),
        (
            "of-the-acceptor",
            signed(Status::from_acceptor(StatusCode::Unauthorised, 1), 4),
        ),
        (
            "tls-behind",
            [
                &signed(Status::from_acceptor(StatusCode::Ok, 1), 4)[..],
                b"\x16\x03\x03\0\x7a",
            ]
            .concat(),
        ),
        ("cut-short", established[..20].to_vec()),
        (
            "length-65535",
            with_bytes_changed(&established, 6, &[0xff, 0xff]),
        ),
        ("another-protocol", b"SSH-2.0-OpenSSH_9\r\n".to_vec()),
        (
            "body-established",
            [&[0][..], &established[HEADER..]].concat(),
        ),
        ("padded", padded.clone()),
        ("body-padded", padded[HEADER..].to_vec()),
        ("body-padding-cut-short", padded[HEADER..300].to_vec()),
        ("body-failed", full[HEADER..].to_vec()),
        ("body-empty", vec![]),
        (
            "body-repeated-option",
            [&full[HEADER..], &full[HEADER..]].concat(),
        ),
        (
            "body-unknown-critical",
            [&full[HEADER..], &encode_option(0x8000 | 1001, b"x")].concat(),
        ),
    ]
    .map(|(name, bytes)| (name.to_owned(), bytes))
    .to_vec()
}

pub(super) fn typed_text_seeds() -> Vec<Seed> {
    let key = key(2).public();
    let keyed = format!("{key}@d1.example,~{key}@[2001:db8::1]:99");
    super::text_seeds(&[
        ("direct", "direct"),
        ("hops", "d1.example,~192.0.2.1:99,[::1]"),
        ("keyed-hops", &keyed),
        ("key", &key.to_string()),
        ("endpoint", "server.example:7511"),
        ("address", "2001:db8::1"),
        ("scoped-address", "[fe80::1%eth0]:80"),
        ("service", "copy"),
        ("port-0", "h:0"),
        ("port-with-sign", "h:+80"),
        ("empty-hop", "h1,,h2"),
        ("steering", "h\u{202e}\u{2028}\u{1b}[2J:80"),
        ("blank-letters", "h\u{3164}\u{115f}\u{2800}:80"),
        ("seventeen-hops", &vec!["h"; 17].join(",")),
    ])
}
