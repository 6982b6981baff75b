//! Both ends of a set-up over an in-memory pipe, in virtual time.

use std::time::Duration;

use longhaul_identity::Identities;
use longhaul_proto::{
    Chain, ChainProgress, Endpoint, FailureKind, MAX_VOUCHER_BYTES, Route, SessionId, Voucher,
};
use tokio::{
    io::{AsyncReadExt, duplex},
    time::Instant,
};

use bytes::BytesMut;
use longhaul_proto::{MAX_PADDING_BYTES, OpenDecoder, StatusDecoder};

use super::*;
use crate::connect::{self, OpenExtras};
use crate::{ConnectOptions, ServerTrust};

fn destination() -> Endpoint {
    "server.example:7511".parse().unwrap()
}

fn acceptor(welcome: PublicKey) -> Acceptor {
    let identity = Arc::new(Identity::generate().unwrap());
    Acceptor {
        admission: OpenAdmission::new(identity.public(), Arc::default()),
        services: vec![ServiceName::COPY],
        identity,
        accept: Arc::new(move |key| *key == welcome),
        open_services: Vec::new(),
        clock_ahead_ms: 0,
        handshake_timeout: Duration::from_secs(20),
        server_voucher: Arc::default(),
        resumable: None,
    }
}

/// Sets up a session with a limit of 10 s for the OPEN, and room for every principal.
async fn set_up<S: AsyncRead + AsyncWrite + Unpin>(
    server: &Acceptor,
    stream: S,
) -> Result<(TlsStream<S>, Open), Error> {
    server
        .set_up(stream, Duration::from_secs(10), |key| Ok(Payer::Key(key)))
        .await
}

fn options(identity: Identity, server: &Acceptor, route: &str) -> ConnectOptions {
    let trust = ServerTrust::Pinned(server.identity.public());
    ConnectOptions::new(
        ServiceName::COPY,
        route.parse().unwrap(),
        destination(),
        Arc::new(identity),
        trust,
    )
}

fn open_of(identity: &Identity, change: impl FnOnce(&mut Open)) -> Vec<u8> {
    open_signed_at(unix_ms(), identity, change)
}

fn open_signed_at(signed_at: u64, identity: &Identity, change: impl FnOnce(&mut Open)) -> Vec<u8> {
    let id = SessionId::random().unwrap();
    let mut open = Open::new(
        id,
        ServiceName::COPY,
        Route::direct(),
        destination(),
        Duration::from_secs(20),
    )
    .for_first_hop();
    change(&mut open);
    open.sign(identity.signing_key(), signed_at).unwrap();
    let mut bytes = BytesMut::new();
    open.encode(&mut bytes).unwrap();
    bytes.to_vec()
}

/// Returns an initiator's verdict on the answer, on a direct route, after it sent `sent`.
async fn verdict(
    mut near: impl AsyncRead + Unpin,
    sent: &[u8],
) -> Result<ChainProgress, FailureKind> {
    let mut answer = Vec::new();
    near.read_to_end(&mut answer).await.unwrap();
    let readable = OpenDecoder::new()
        .feed(sent)
        .ok()
        .flatten()
        .map(|(open, _)| open);
    let id = SessionId::from_bytes([0; 16]);
    let any = || {
        Open::new(
            id,
            ServiceName::COPY,
            Route::direct(),
            destination(),
            Duration::ZERO,
        )
    };
    Chain::new(&readable.unwrap_or_else(any), None)
        .feed(&answer)
        .map_err(|failure| failure.kind)
}

/// LH-CHAIN-3: OPEN and the TLS hello leave together, before any answer.
#[tokio::test(start_paused = true)]
async fn the_first_flight_carries_the_hello() {
    let server = acceptor(PublicKey::from_bytes([0; 32]));
    let options = options(Identity::generate().unwrap(), &server, "depot.example");
    let (near, mut far) = duplex(1 << 16);
    let deadline = Instant::now() + Duration::from_secs(20);
    let connecting = connect::secure(
        near,
        &options,
        &options.route,
        deadline,
        unix_ms(),
        OpenExtras::default(),
    );
    let hearing = async {
        let (open, _, early) = receive_open(&mut far).await.unwrap();
        assert_eq!(
            (open.cursor, open.principal),
            (1, options.identity.public())
        );
        assert_eq!(open.verify(), Ok(()));
        // A TLS record with a handshake message (RFC 8446, section 5.1).
        assert_eq!(early.first(), Some(&0x16));
        drop(far);
    };
    let (connected, ()) = tokio::join!(connecting, hearing);
    let Err(Error::Hop(failure)) = connected else {
        panic!("the chain fails")
    };
    assert_eq!((failure.kind, failure.hop), (FailureKind::Closed, 1));
}

#[tokio::test(start_paused = true)]
async fn both_ends_establish_a_session() {
    let identity = Identity::generate().unwrap();
    let server = acceptor(identity.public());
    let options = options(identity, &server, "direct");
    // The pipe needs to hold only one status: TLS does not read while it still has its hello to
    // send.
    for capacity in [1 << 16, 256] {
        let (near, far) = duplex(capacity);
        let deadline = Instant::now() + Duration::from_secs(20);
        let connecting = connect::secure(
            near,
            &options,
            &options.route,
            deadline,
            unix_ms(),
            OpenExtras::default(),
        );
        let (connected, accepted) = tokio::join!(connecting, set_up(&server, far));
        let (mut near, id, peer) = connected.unwrap();
        let (mut far, open) = accepted.unwrap();
        assert_eq!((id, peer), (open.session_id, server.identity.public()));
        let words = async {
            near.write_all(b"words").await.unwrap();
            near.shutdown().await.unwrap();
        };
        let mut received = Vec::new();
        let (_, read) = tokio::join!(words, far.read_to_end(&mut received));
        read.unwrap();
        assert_eq!(received, b"words");
    }
}

/// LH-STATUS-9: only the STATUS that accepts the session is padded, by the requested amount. The
/// initiator's own reader sees none of the padding.
#[tokio::test(start_paused = true)]
async fn only_the_accepting_status_is_padded() {
    let identity = Identity::generate().unwrap();
    for (known, padding) in [
        (identity.public(), 11_920),
        (PublicKey::from_bytes([0; 32]), 0),
    ] {
        let server = acceptor(known);
        let sent = open_of(&identity, |open| open.padding = Some(11_920));
        let (mut near, far) = duplex(1 << 16);
        near.write_all(&sent).await.unwrap();
        near.shutdown().await.unwrap();
        let mut answer = Vec::new();
        let (_, read) = tokio::join!(set_up(&server, far), near.read_to_end(&mut answer));
        read.unwrap();
        let (status, _) = StatusDecoder::with_padding(11_920)
            .feed(&answer)
            .unwrap()
            .unwrap();
        assert_eq!((status.acceptor, status.padding), (true, padding));
    }
    let server = acceptor(identity.public());
    let options = options(identity, &server, "direct");
    let (near, far) = duplex(1 << 16);
    let deadline = Instant::now() + Duration::from_secs(20);
    let connecting = connect::secure(
        near,
        &options,
        &options.route,
        deadline,
        unix_ms(),
        OpenExtras {
            padding: Some(MAX_PADDING_BYTES),
            offer: None,
        },
    );
    let (connected, accepted) = tokio::join!(connecting, set_up(&server, far));
    let ((mut near, ..), (mut far, open)) = (connected.unwrap(), accepted.unwrap());
    assert_eq!(open.padding, Some(MAX_PADDING_BYTES));
    far.write_all(b"words").await.unwrap();
    far.flush().await.unwrap();
    let mut words = [0; 5];
    near.read_exact(&mut words).await.unwrap();
    assert_eq!(&words, b"words");
}

/// LH-ACCEPT-1: a silent or trickling peer is cut off when the time for the OPEN is over, counted
/// from the connection on.
#[tokio::test(start_paused = true)]
async fn a_late_open_is_refused() {
    let identity = Identity::generate().unwrap();
    let server = acceptor(identity.public());
    let open = open_of(&identity, |_| ());
    for trickle in [false, true] {
        let (mut near, far) = duplex(1 << 16);
        let began = Instant::now();
        let trickling = async {
            for byte in open.iter().filter(|_| trickle) {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if near.write_all(&[*byte]).await.is_err()
                    || began.elapsed() > Duration::from_secs(12)
                {
                    break;
                }
            }
            let verdict = verdict(&mut near, &open).await;
            drop(near);
            verdict
        };
        let (set_up, verdict) = tokio::join!(set_up(&server, far), trickling);
        assert!(
            matches!(set_up, Err(Error::Peer(error)) if error.kind() == io::ErrorKind::TimedOut)
        );
        assert_eq!(
            verdict,
            Err(FailureKind::Acceptor(StatusCode::HeaderTimeout))
        );
        assert!(
            began.elapsed() <= Duration::from_secs(13),
            "{:?}",
            began.elapsed()
        );
    }
}

/// LH-ACCEPT-1: the handshake has its own limit.
#[tokio::test(start_paused = true)]
async fn a_late_handshake_is_given_up() {
    let identity = Identity::generate().unwrap();
    let server = acceptor(identity.public());
    let (mut near, far) = duplex(1 << 16);
    let open = open_of(&identity, |_| ());
    near.write_all(&open).await.unwrap();
    let began = Instant::now();
    let set_up = set_up(&server, far).await;
    assert!(matches!(set_up, Err(Error::Peer(error)) if error.kind() == io::ErrorKind::TimedOut));
    assert_eq!(began.elapsed(), Duration::from_secs(20));
    assert!(
        matches!(
            verdict(near, &open).await,
            Ok(ChainProgress::Established { .. })
        ),
        "the OPEN itself was in order"
    );
}

/// LH-STATUS-6: an initiator that neither reads nor ends its stream does not block the acceptor.
#[tokio::test(start_paused = true)]
async fn a_refused_peer_is_read_for_a_limited_time() {
    let server = acceptor(PublicKey::from_bytes([0; 32]));
    let (mut near, far) = duplex(1);
    let began = Instant::now();
    let sending = async { near.write_all(&[0; 1000]).await };
    let (set_up, _) = tokio::join!(set_up(&server, far), sending);
    assert!(matches!(set_up, Err(Error::Refused(OpenRefusal::Open(_)))));
    assert!(began.elapsed() <= LINGER_TIME);
}

/// LH-ADMIT-1 at the acceptor: each violation has its own code.
#[tokio::test(start_paused = true)]
async fn invalid_opens_are_refused_with_their_code() {
    let identity = Identity::generate().unwrap();
    let server = acceptor(identity.public());
    let stranger = Identity::generate().unwrap();
    let good = open_of(&identity, |_| ());
    let mut decoded = OpenDecoder::new().feed(&good).unwrap().unwrap().0;
    decoded.destination.port += 1;
    let mut forged = BytesMut::new();
    decoded.encode(&mut forged).unwrap();
    let cases = [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), StatusCode::BadOpen),
        (
            open_of(&identity, |open| open.cursor = 0),
            StatusCode::Misrouted,
        ),
        (open_of(&stranger, |_| ()), StatusCode::Unauthorised),
        (forged.to_vec(), StatusCode::BadSignature),
        (good.clone(), StatusCode::Ok),
        (good, StatusCode::Replay),
    ];
    for (bytes, code) in cases {
        let (mut near, far) = duplex(1 << 16);
        near.write_all(&bytes).await.unwrap();
        near.shutdown().await.unwrap();
        let (set_up, verdict) = tokio::join!(set_up(&server, far), verdict(near, &bytes));
        assert!(set_up.is_err());
        match code {
            StatusCode::Ok => assert!(matches!(verdict, Ok(ChainProgress::Established { .. }))),
            code => assert_eq!(verdict, Err(FailureKind::Acceptor(code))),
        }
    }
}

/// A stranger may open a service that authorises its clients itself, and no other.
#[tokio::test(start_paused = true)]
async fn open_service_accepts_any_key() {
    let identity = Identity::generate().unwrap();
    for (open_services, code) in [
        (vec![ServiceName::COPY], StatusCode::Ok),
        (vec![ServiceName::FILES], StatusCode::Unauthorised),
    ] {
        let server = Acceptor {
            open_services,
            ..acceptor(identity.public())
        };
        let open = open_of(&Identity::generate().unwrap(), |_| ());
        let (mut near, far) = duplex(1 << 16);
        near.write_all(&open).await.unwrap();
        near.shutdown().await.unwrap();
        let (_, verdict) = tokio::join!(set_up(&server, far), verdict(near, &open));
        match code {
            StatusCode::Ok => assert!(matches!(verdict, Ok(ChainProgress::Established { .. }))),
            code => assert_eq!(verdict, Err(FailureKind::Acceptor(code))),
        }
    }
}

/// LH-VOUCHER-8.
#[tokio::test(start_paused = true)]
async fn registration_is_signed_and_bounded_in_size_and_time() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("principals.toml");
    std::fs::write(&file, "").unwrap();
    let stranger = Identity::generate().unwrap();
    let nobody = PublicKey::from_bytes([0; 32]);
    let unnamed = acceptor(nobody);
    let named = Acceptor {
        admission: OpenAdmission::new(nobody, Identities::load(&file).unwrap()),
        ..acceptor(nobody)
    };
    let open = open_of(&stranger, |open| open.service = ServiceName::VOUCHER);
    let mut forged = OpenDecoder::new().feed(&open).unwrap().unwrap().0;
    forged.destination.port += 1;
    let mut bytes = BytesMut::new();
    forged.encode(&mut bytes).unwrap();
    let forged = bytes.to_vec();
    let voucher = Voucher {
        key: stranger.public(),
        start_unix_ms: 0,
        end_unix_ms: 1,
        certificates: vec![vec![1; 9_000]],
        scheme: 1,
        signature: vec![1],
    };
    let voucher = voucher.to_bytes().unwrap();
    let length = |bytes: usize| u16::try_from(bytes).unwrap().to_be_bytes();
    let whole = [&length(voucher.len())[..], &voucher[..]].concat();
    let too_many = vec![1; MAX_VOUCHER_BYTES + 1];
    let long = [&length(too_many.len())[..], &too_many[..]].concat();
    for (what, server, open, behind, code) in [
        (
            "no names",
            &unnamed,
            &open,
            &whole[..],
            Some(StatusCode::NoService),
        ),
        (
            "no authority",
            &named,
            &open,
            &whole,
            Some(StatusCode::Unauthorised),
        ),
        (
            "forged",
            &named,
            &forged,
            &whole,
            Some(StatusCode::BadSignature),
        ),
        ("too long", &named, &open, &long, None),
        ("cut off", &named, &open, &whole[..5_000], None),
        ("only an OPEN", &named, &open, &[], None),
    ] {
        let (mut near, far) = duplex(1 << 16);
        near.write_all(&[&open[..], behind].concat()).await.unwrap();
        near.shutdown().await.unwrap();
        let (set_up, verdict) = tokio::join!(set_up(server, far), verdict(near, open));
        assert!(set_up.is_err(), "{what}");
        match code {
            Some(code) => assert_eq!(verdict, Err(FailureKind::Acceptor(code)), "{what}"),
            None => assert_eq!(verdict, Ok(ChainProgress::Waiting), "{what}"),
        }
    }
    let (mut near, far) = duplex(1 << 16);
    near.write_all(&open).await.unwrap();
    let began = Instant::now();
    let (_, verdict) = tokio::join!(set_up(&named, far), verdict(near, &open));
    let late = FailureKind::Acceptor(StatusCode::HeaderTimeout);
    assert_eq!(verdict, Err(late));
    assert!(began.elapsed() <= Duration::from_secs(10) + LINGER_TIME);
}

/// LH-SIGN-2: a known initiator's clock decides, and the window keeps its width.
#[tokio::test(start_paused = true)]
async fn a_measured_clock_moves_the_window_unwidened() {
    let identity = Identity::generate().unwrap();
    for ahead_ms in [-172_800_000, 0, 172_800_000_i64] {
        let mut server = acceptor(identity.public());
        server.clock_ahead_ms = ahead_ms;
        for (age_ms, code) in [
            (0, StatusCode::Ok),
            (90_000, StatusCode::Ok),
            (125_000, StatusCode::Expired),
            (-5_000, StatusCode::Ok),
            (-45_000, StatusCode::Expired),
        ] {
            let signed_at = unix_ms().saturating_add_signed(ahead_ms - age_ms);
            let bytes = open_signed_at(signed_at, &identity, |_| ());
            let (mut near, far) = duplex(1 << 16);
            near.write_all(&bytes).await.unwrap();
            near.shutdown().await.unwrap();
            let (_, verdict) = tokio::join!(set_up(&server, far), verdict(near, &bytes));
            match code {
                StatusCode::Ok => assert!(matches!(verdict, Ok(ChainProgress::Established { .. }))),
                code => assert_eq!(
                    verdict,
                    Err(FailureKind::Acceptor(code)),
                    "{ahead_ms} {age_ms}"
                ),
            }
        }
    }
}

/// LH-TLS-3: an OPEN of one principal cannot carry the TLS of another.
#[tokio::test(start_paused = true)]
async fn the_tls_client_must_be_the_principal() {
    let principal = Identity::generate().unwrap();
    let server = acceptor(principal.public());
    let mixed = principal.with_certificate_of(&Identity::generate().unwrap());
    let options = options(mixed, &server, "direct");
    let (near, far) = duplex(1 << 16);
    let deadline = Instant::now() + Duration::from_secs(20);
    let connecting = async {
        // The client learns of it at its first read: its own part of the handshake is already
        // complete (RFC 8446, section 2).
        let (mut stream, ..) = connect::secure(
            near,
            &options,
            &options.route,
            deadline,
            unix_ms(),
            OpenExtras::default(),
        )
        .await?;
        stream.read_u8().await.map_err(Error::Peer)
    };
    let (connected, accepted) = tokio::join!(connecting, set_up(&server, far));
    assert!(connected.is_err());
    assert!(matches!(accepted, Err(Error::Peer(_))));
}

/// LH-CHAIN-4: when time runs out, the error names the hop that has not answered.
#[tokio::test(start_paused = true)]
async fn a_silent_chain_times_out_at_its_hop() {
    let server = acceptor(PublicKey::from_bytes([0; 32]));
    let options = options(
        Identity::generate().unwrap(),
        &server,
        "d1.example,d2.example",
    );
    for answered in 0..=3u8 {
        let (near, mut far) = duplex(1 << 16);
        let depot = Identity::generate().unwrap();
        let answering = async {
            let (open, ..) = receive_open(&mut far).await.unwrap();
            for hop in 1..=answered {
                let mut bytes = BytesMut::new();
                let (mut status, signer) = if hop == 3 {
                    (Status::from_acceptor(StatusCode::Ok, 3), &*server.identity)
                } else {
                    (Status::new(StatusCode::Ok, hop), &depot)
                };
                status.sign(signer.signing_key(), &open).unwrap();
                status.encode(&mut bytes);
                far.write_all(&bytes).await.unwrap();
            }
        };
        let began = Instant::now();
        let deadline = began + Duration::from_secs(20);
        let (connected, ()) = tokio::join!(
            connect::secure(
                near,
                &options,
                &options.route,
                deadline,
                unix_ms(),
                OpenExtras::default()
            ),
            answering
        );
        let error = connected.unwrap_err();
        assert_eq!(began.elapsed(), Duration::from_secs(20));
        let silent = [
            "d1.example:7510",
            "d2.example:7510",
            "server.example:7511",
            "server.example:7511",
        ];
        assert_eq!(
            error.endpoint().unwrap().to_string(),
            silent[usize::from(answered)]
        );
        assert_eq!(matches!(error, Error::Tls { .. }), answered == 3, "{error}");
        assert!(!error.nothing_forwarded(), "nobody can know");
    }
}

/// LH-TLS-4: if the OPENs of two sessions of one principal are swapped in transit, both handshakes
/// fail.
#[tokio::test(start_paused = true)]
async fn a_handshake_belongs_to_its_own_open() {
    let identity = Identity::generate().unwrap();
    let server = acceptor(identity.public());
    let options = options(identity, &server, "direct");
    let deadline = Instant::now() + Duration::from_secs(20);
    let ((one, mut from_one), (two, mut from_two)) = (duplex(1 << 16), duplex(1 << 16));
    let ((mut to_first, first), (mut to_second, second)) = (duplex(1 << 16), duplex(1 << 16));
    let exchanged = async {
        let (one, _, early_one) = receive_open(&mut from_one).await.unwrap();
        let (two, _, early_two) = receive_open(&mut from_two).await.unwrap();
        for (to, open, early) in [
            (&mut to_first, two, early_one),
            (&mut to_second, one, early_two),
        ] {
            let mut bytes = BytesMut::new();
            open.encode(&mut bytes).unwrap();
            bytes.extend_from_slice(&early);
            to.write_all(&bytes).await.unwrap();
        }
        let _ = tokio::join!(
            tokio::io::copy_bidirectional(&mut from_one, &mut to_first),
            tokio::io::copy_bidirectional(&mut from_two, &mut to_second)
        );
    };
    let connecting = |near| {
        connect::secure(
            near,
            &options,
            &options.route,
            deadline,
            unix_ms(),
            OpenExtras::default(),
        )
    };
    let (one, two, first, second, ()) = tokio::join!(
        connecting(one),
        connecting(two),
        set_up(&server, first),
        set_up(&server, second),
        exchanged
    );
    assert!(first.is_err() && second.is_err());
    assert!(one.is_err() && two.is_err());
}

/// LH-ACCEPT-1: a principal at its limit of pending set-ups is told so, and its OPEN is not
/// remembered.
#[tokio::test(start_paused = true)]
async fn without_room_the_principal_is_informed() {
    let identity = Identity::generate().unwrap();
    let server = acceptor(identity.public());
    let open = open_of(&identity, |_| ());
    let (mut near, far) = duplex(1 << 16);
    near.write_all(&open).await.unwrap();
    near.shutdown().await.unwrap();
    let no_room = server.set_up(far, Duration::from_secs(10), |_| Err(QuotaExceeded::Share));
    let (set_up, verdict) = tokio::join!(no_room, verdict(near, &open));
    assert!(matches!(
        set_up,
        Err(Error::QuotaExceeded(QuotaExceeded::Share))
    ));
    assert_eq!(verdict, Err(FailureKind::Acceptor(StatusCode::Overloaded)));
    assert!(server.admission.is_empty());
}
