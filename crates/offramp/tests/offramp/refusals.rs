//! Refusals reported to an initiator: before anything else, and with the error number that its
//! program's connect returns.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use longhaul_hop::unix_ms;
use longhaul_policy::Policy;
use longhaul_proto::{Endpoint, FailureKind, Open, SessionId, Status, StatusCode, StatusDecoder};
use longhaul_session::{
    ConnectOptions, Error, Identity, ListenOptions, Listener, ServerTrust, ServiceName, Session,
    connect,
};
use rustix::io::Errno;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::bed::*;

fn refused(result: Result<Session, Error>) -> (StatusCode, i32, Error) {
    let error = result.expect_err("no session");
    let code = match &error {
        Error::Hop(failure) => match failure.kind {
            FailureKind::Acceptor(code) => code,
            other => panic!("{other:?}: {error}"),
        },
        other => panic!("{other}"),
    };
    (code, error.errno(), error)
}

async fn assert_refused(
    offramp: &RunningOfframp,
    me: &Arc<Identity>,
    server: impl Into<Endpoint>,
    code: StatusCode,
    errno: Errno,
) {
    let server = server.into();
    let (reported, number, error) = refused(offramp.connect(me, server.clone()).await);
    assert_eq!(
        (reported, number),
        (code, errno.raw_os_error()),
        "{server}: {error}"
    );
    // LH-FALLBACK-2.
    assert!(!error.nothing_forwarded(), "{error}");
}

/// Sends an OPEN by hand, and returns the first answer.
async fn ask(to: SocketAddr, open: &Open) -> Status {
    let mut bytes = bytes::BytesMut::new();
    open.encode(&mut bytes).unwrap();
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(&bytes).await.unwrap();
    let mut decoder = StatusDecoder::new();
    loop {
        let byte = with_timeout(stream.read_u8())
            .await
            .expect("a status before the end");
        if let Some((status, _)) = decoder.feed(&[byte]).expect("status") {
            return status;
        }
    }
}

/// LH-OFFRAMP-2.
#[tokio::test]
async fn a_failed_connect_has_the_kernels_errno() {
    let me = me();
    let names = policy(me.public(), "[\"127.0.0.0/8\", \"*.invalid\"]", "");
    let offramp = offramp_with(names, |config| {
        config.timeouts.dial = Duration::from_millis(500)
    });
    // A port at which nobody listens, and which nobody else can take.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(ANY.parse().unwrap()).unwrap();
    let closed = socket.local_addr().unwrap();
    assert_refused(
        &offramp,
        &me,
        closed,
        StatusCode::DialRefused,
        Errno::CONNREFUSED,
    )
    .await;
    // Reserved never to resolve (RFC 6761).
    let nowhere: Endpoint = "nobody.invalid:80".parse().unwrap();
    let (code, number, error) = refused(offramp.connect(&me, nowhere).await);
    // A machine without a name server gets no answer at all.
    let expected = match code {
        StatusCode::NameNotFound => Errno::HOSTUNREACH,
        _ => Errno::TIMEDOUT,
    };
    assert_eq!(number, expected.raw_os_error(), "{error}");
    assert!(error.to_string().starts_with("the off-ramp ("), "{error}");
    // A server that accepts no more connections does not answer.
    let silent = full().await;
    assert_refused(
        &offramp,
        &me,
        silent.1,
        StatusCode::DialTimeout,
        Errno::TIMEDOUT,
    )
    .await;
}

/// Returns a listener whose queue is full, so that its kernel leaves further connections waiting.
async fn full() -> (Vec<TcpStream>, SocketAddr, TcpListener) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(ANY.parse().unwrap()).unwrap();
    let listener = socket.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(Ok(stream)) =
        tokio::time::timeout(Duration::from_secs(1), TcpStream::connect(address)).await
    {
        waiting.push(stream);
    }
    (waiting, address, listener)
}

/// LH-OFFRAMP-1: a server without a rule is refused, and is not dialled.
#[tokio::test]
async fn no_rule_no_connection() {
    let me = me();
    let (listener, address) = server().await;
    for servers in [
        "[\"192.0.2.0/24\"]",
        // All networks do not include this machine.
        "[\"0.0.0.0/0\", \"::/0\"]",
        // Names do not give access to local addresses.
        "[\"*\", \"localhost\"]",
        "[\"127.0.0.2\"]",
    ] {
        let offramp = offramp_with(policy(me.public(), servers, ""), |_| {});
        let port = address.port();
        let mut asked: Vec<Endpoint> =
            vec![address.into(), format!("localhost:{port}").parse().unwrap()];
        asked.extend(
            [
                "169.254.169.254",
                "[fe80::1]",
                "0.0.0.0",
                "[::1]",
                "[::ffff:127.0.0.1]",
                "[64:ff9b::7f00:1]",
                "[2002:7f00:1::1]",
            ]
            .map(|host| format!("{host}:{port}").parse().unwrap()),
        );
        for server in asked {
            let (code, number, error) = refused(offramp.connect(&me, server.clone()).await);
            assert_eq!(
                (code, number),
                (StatusCode::Refused, Errno::ACCESS.raw_os_error()),
                "{servers}, {server}: {error}"
            );
        }
    }
    let one_port = format!(
        "[[allow]]\nprincipals = [\"{}\"]\nservers = [\"127.0.0.1\"]\nports = [1]\n",
        me.public()
    );
    let one_port = Policy::parse(&one_port, std::path::Path::new("test.toml")).unwrap();
    let offramp = offramp_with(one_port, |_| {});
    assert_refused(&offramp, &me, address, StatusCode::Refused, Errno::ACCESS).await;
    // Nobody has connected: the first connection is this one.
    let (mine, came) = tokio::join!(TcpStream::connect(address), listener.accept());
    assert_eq!(mine.unwrap().local_addr().unwrap(), came.unwrap().1);
}

/// A rule for depots grants no server, and a rule for servers grants no relaying.
#[tokio::test]
async fn rules_of_depots_are_not_for_servers() {
    let (me, other) = (me(), me());
    let (_listener, address) = server().await;
    let text = format!(
        "[[allow]]\nprincipals = [\"{}\"]\nto = [\"127.0.0.0/8\"]\nports = [\"any\"]\n\
         [[allow]]\nprincipals = [\"{}\"]\nservers = [\"127.0.0.0/8\"]\nports = [\"any\"]\n",
        me.public(),
        other.public()
    );
    let both = Policy::parse(&text, std::path::Path::new("test.toml")).unwrap();
    let offramp = offramp_with(both, |_| {});
    assert_refused(
        &offramp,
        &me,
        address,
        StatusCode::Unauthorised,
        Errno::ACCESS,
    )
    .await;
    offramp.connect(&other, address).await.expect("a session");
}

#[tokio::test]
async fn false_and_repeated_opens_reach_nobody() {
    let (me, stranger) = (me(), me());
    let offramp = offramp(&me);
    let (listener, address) = server().await;
    let asked = async |open: Open| ask(offramp.address, &open).await.code;
    assert_eq!(
        asked(open(&stranger, offramp.address, address)).await,
        StatusCode::Unauthorised
    );
    let mut forged = open(&stranger, offramp.address, address);
    forged.principal = me.public();
    assert_eq!(asked(forged).await, StatusCode::BadSignature);
    // The signature covers the server.
    let mut bent = open(&me, offramp.address, SocketAddr::from(([127, 0, 0, 9], 1)));
    bent.onward = Some(address.into());
    assert_eq!(asked(bent).await, StatusCode::BadSignature);
    let mut old = open(&me, offramp.address, address);
    old.sign(me.signing_key(), unix_ms() - 130_000).unwrap();
    assert_eq!(asked(old).await, StatusCode::Expired);
    let mut depots = open(&me, offramp.address, address);
    depots.cursor = 0;
    assert_eq!(asked(depots).await, StatusCode::Misrouted);
    let mut copy = open(&me, offramp.address, address);
    (copy.service, copy.onward) = (ServiceName::COPY, None);
    copy.sign(me.signing_key(), unix_ms()).unwrap();
    assert_eq!(asked(copy).await, StatusCode::NoService);

    let good = open(&me, offramp.address, address);
    assert_eq!(asked(good.clone()).await, StatusCode::Ok);
    listener.accept().await.unwrap();
    assert_eq!(asked(good).await, StatusCode::Replay);
    // None of the others has connected.
    let (mine, came) = tokio::join!(TcpStream::connect(address), listener.accept());
    assert_eq!(mine.unwrap().local_addr().unwrap(), came.unwrap().1);
}

/// LH-OFFRAMP-3: an acceptor that is not an off-ramp does not offer this service.
#[tokio::test]
async fn an_acceptor_without_the_service_refuses() {
    let (me, identity) = (me(), me());
    let trust = ServerTrust::Pinned(identity.public());
    let options = ListenOptions::new(
        ANY.parse().unwrap(),
        identity,
        Arc::new(|_| true),
        vec![ServiceName::COPY],
    );
    let listener = Listener::bind(options).await.unwrap();
    let server: Endpoint = "127.0.0.1:9".parse().unwrap();
    let to = ConnectOptions::through_offramp(
        server,
        "direct".parse().unwrap(),
        listener.local_addr().into(),
        me,
        trust,
    );
    let error = with_timeout(connect(&to)).await.unwrap_err();
    assert!(error.is_missing_service(), "{error}");
    assert_eq!(error.errno(), Errno::NETUNREACH.raw_os_error());
}

/// An initiator that disconnects while its server is dialled leaves no state behind.
#[tokio::test]
async fn an_initiator_that_leaves_during_the_dial_is_dropped() {
    let me = me();
    let offramp = offramp(&me);
    let silent = full().await;
    let mut bytes = bytes::BytesMut::new();
    open(&me, offramp.address, silent.1)
        .encode(&mut bytes)
        .unwrap();
    let mut stream = TcpStream::connect(offramp.address).await.unwrap();
    stream.write_all(&bytes).await.unwrap();
    offramp
        .wait_for_metric("longhaul_offramp_sessions_setting_up", 1.0)
        .await;
    stream.set_zero_linger().unwrap();
    drop(stream);
    offramp
        .wait_for_metric("longhaul_offramp_sessions_setting_up", 0.0)
        .await;
    offramp
        .wait_for_metric(
            "longhaul_offramp_opens_refused_total{status=\"abandoned\"}",
            1.0,
        )
        .await;
}

/// A key that takes all it can leaves room for others, and a rule has a limit of its own.
#[tokio::test]
async fn sessions_are_bounded_and_shared() {
    let (me, other) = (me(), me());
    let (listener, address) = server().await;
    let keep = tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            kept.push(stream);
        }
    });
    let text = format!(
        "[[allow]]\nprincipals = [\"{}\", \"{}\"]\nservers = [\"127.0.0.0/8\"]\n\
         ports = [\"any\"]\n",
        me.public(),
        other.public()
    );
    let two = Policy::parse(&text, std::path::Path::new("test.toml")).unwrap();
    let offramp = offramp_with(two, |config| config.limits.sessions = 4);
    let mut mine = Vec::new();
    let full = loop {
        match offramp.connect(&me, address).await {
            Ok(session) => mine.push(session),
            Err(error) => break refused(Err(error)),
        }
    };
    assert_eq!(full.0, StatusCode::Overloaded, "{}", full.2);
    assert_eq!(mine.len(), 2, "half of the room");
    offramp
        .connect(&other, address)
        .await
        .expect("room for another");

    let bounded = offramp_with(
        policy(me.public(), "[\"127.0.0.1\"]", "max_sessions = 1"),
        |_| {},
    );
    let _one = bounded.connect(&me, address).await.expect("a session");
    assert_refused(
        &bounded,
        &me,
        address,
        StatusCode::Overloaded,
        Errno::NETUNREACH,
    )
    .await;
    keep.abort();
}

/// The STATUS is sent only once the server has been reached: until then the initiator receives
/// nothing.
#[tokio::test]
async fn the_answer_waits_for_the_server() {
    let me = me();
    let offramp = offramp_with(loopback(me.public()), |config| {
        config.timeouts.dial = Duration::from_secs(60);
    });
    let silent = full().await;
    let mut bytes = bytes::BytesMut::new();
    let mut patient = open(&me, offramp.address, silent.1);
    patient.session_id = SessionId::random().unwrap();
    patient.sign(me.signing_key(), unix_ms()).unwrap();
    patient.encode(&mut bytes).unwrap();
    let mut stream = TcpStream::connect(offramp.address).await.unwrap();
    stream.write_all(&bytes).await.unwrap();
    offramp
        .wait_for_metric("longhaul_offramp_sessions_setting_up", 1.0)
        .await;
    let mut nothing = [0];
    assert_eq!(
        stream.try_read(&mut nothing).unwrap_err().kind(),
        std::io::ErrorKind::WouldBlock
    );
    // Makes room in the queue: its kernel answers the next attempt.
    let (waiting, _, listener) = silent;
    drop(waiting);
    let taking = async { while listener.accept().await.is_ok() {} };
    let answer = async {
        let mut decoder = StatusDecoder::new();
        loop {
            let byte = stream.read_u8().await.unwrap();
            if let Some((status, _)) = decoder.feed(&[byte]).unwrap() {
                return status.code;
            }
        }
    };
    tokio::select! {
        code = with_timeout(answer) => assert_eq!(code, StatusCode::Ok),
        () = taking => panic!("the listener ended"),
    }
}

/// LH-WISH-1, LH-WISH-2.
#[tokio::test]
async fn stated_wishes_are_bounded_and_enforced() {
    let me = me();
    let bounds = "max_size = \"1 MB\"\nmax_duration = \"1h\"";
    let offramp = offramp_with(policy(me.public(), "[\"127.0.0.0/8\"]", bounds), |_| {});
    let (listener, address) = server().await;
    assert_refused(
        &offramp,
        &me,
        address,
        StatusCode::WishRefused,
        Errno::ACCESS,
    )
    .await;
    let stating = |size, duration| ConnectOptions {
        size: Some(size),
        duration: Some(duration),
        ..offramp.connect_options(&me, address, "direct")
    };
    let (code, _, error) = refused(with_timeout(connect(&stating(1, 7200))).await);
    assert_eq!(code, StatusCode::WishRefused);
    assert!(
        error.to_string().contains("(max_duration), not 2 h"),
        "{error}"
    );
    let (session, accepted) = tokio::join!(connect_to(stating(1, 3600)), listener.accept());
    let (mut session, mut stream) = (session, accepted.unwrap().0);
    let sending = async {
        // Sends until the session is reset.
        while session.write_all(&[7; 65536]).await.is_ok() && session.flush().await.is_ok() {}
    };
    let receiving = async { stream.read_to_end(&mut Vec::new()).await };
    let ((), received) = with_timeout(async { tokio::join!(sending, receiving) }).await;
    received.expect_err("a reset, not an end");
    offramp
        .wait_for_metric(
            "longhaul_offramp_sessions_ended_total{ending=\"more than stated\"}",
            1.0,
        )
        .await;
}

async fn connect_to(options: ConnectOptions) -> Session {
    with_timeout(connect(&options)).await.expect("a session")
}
