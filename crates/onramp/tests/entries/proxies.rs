//! Entries for clients that are unaware of the on-ramp: SOCKS and forwards, direct and through an
//! off-ramp.

use std::net::SocketAddr;
use std::time::Duration;

use longhaul_onramp::{Forward, GuestPolicy, Onramp, OnrampConfig, ProxyLogin, SessionWish};
use rustix::net::sockopt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::world::{User, assert_carries, bytes, echo_server, offramp, refusing_address};

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn socks(user: &User) -> (Onramp, SocketAddr) {
    let onramp = Onramp::start(OnrampConfig {
        socks: vec![loopback()],
        socket: None,
        ..user.config()
    });
    let onramp = onramp.unwrap();
    let at = onramp.addresses().socks[0];
    (onramp, at)
}

/// Sends `say`, and receives `N` bytes.
async fn talk<const N: usize>(stream: &mut TcpStream, say: &[u8]) -> [u8; N] {
    stream.write_all(say).await.unwrap();
    let mut received = [0; N];
    stream.read_exact(&mut received).await.unwrap();
    received
}

/// Returns a SOCKS5 request to connect to an address.
fn request(to: SocketAddr) -> Vec<u8> {
    let SocketAddr::V4(to) = to else {
        panic!("an IPv4 address")
    };
    [
        &[5, 1, 0, 1][..],
        &to.ip().octets(),
        &to.port().to_be_bytes(),
    ]
    .concat()
}

/// Returns the reply to a request for this address, and the connection.
async fn asked(proxy: SocketAddr, to: SocketAddr) -> (u8, TcpStream) {
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    assert_eq!(talk(&mut stream, &[5, 1, 0]).await, [5, 0]);
    let reply: [u8; 10] = talk(&mut stream, &request(to)).await;
    (reply[1], stream)
}

async fn echoes(mut stream: TcpStream, length: usize) {
    let data = bytes(length);
    let (mut reader, mut writer) = stream.split();
    let there = async {
        writer.write_all(&data).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    let mut back = Vec::new();
    let (read, ()) = tokio::join!(reader.read_to_end(&mut back), there);
    read.unwrap();
    assert!(
        back == data,
        "{} bytes of {length} came back, or others",
        back.len()
    );
}

#[tokio::test]
async fn socks_connects_directly_and_through_an_offramp() {
    let user = User::new();
    let (server, (gateway, key, _offramp)) = (echo_server().await, offramp(&user).await);
    let (onramp, proxy) = socks(&user);
    let (reply, stream) = asked(proxy, server).await;
    assert_eq!(reply, 0);
    echoes(stream, 3_000_000).await;
    let rule = format!(
        "[[route]]\nto = [\"127.0.0.1\"]\nofframp = \"{key}@{gateway}\"\nalways = true\n\
         fall_back = false\n"
    );
    user.write("routes.toml", &rule);
    onramp.reload();
    let (reply, stream) = asked(proxy, server).await;
    assert_eq!(reply, 0);
    echoes(stream, 3_000_000).await;
    let (reply, _) = asked(proxy, refusing_address()).await;
    assert_eq!(
        reply, 5,
        "what the off-ramp says of the server is what the client receives"
    );
    let other = format!(
        "[[route]]\nto = [\"127.0.0.1\"]\nofframp = \"{key}@{}\"\nalways = true\n\
         fall_back = false\n",
        refusing_address()
    );
    user.write("routes.toml", &other);
    onramp.reload();
    assert_eq!(asked(proxy, server).await.0, 3);
    user.write("routes.toml", &other.replace("fall_back = false", ""));
    onramp.reload();
    let (reply, stream) = asked(proxy, server).await;
    assert_eq!(
        reply, 0,
        "nothing was sent, so a direct connection takes its place"
    );
    echoes(stream, 100_000).await;
}

#[tokio::test]
async fn socks_reports_the_reason_of_a_failure() {
    let user = User::new();
    let (_onramp, proxy) = socks(&user);
    assert_eq!(asked(proxy, refusing_address()).await.0, 5);
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    talk::<2>(&mut stream, &[5, 1, 0]).await;
    let name = [&[5, 1, 0, 3, 12][..], b"none.invalid", &[0, 80]].concat();
    assert_eq!(talk::<10>(&mut stream, &name).await[1], 4);
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    talk::<2>(&mut stream, &[5, 1, 0]).await;
    assert_eq!(talk::<10>(&mut stream, &[5, 2, 0, 1]).await[1], 7, "BIND");
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert!(
        stream.read(&mut [0]).await.is_err(),
        "another language is reset"
    );
}

#[tokio::test]
async fn data_sent_before_the_answer_is_not_lost() {
    let user = User::new();
    let server = echo_server().await;
    let (_onramp, proxy) = socks(&user);
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    let all = [&[5, 1, 0][..], &request(server), b"early"].concat();
    let received: [u8; 17] = talk(&mut stream, &all).await;
    assert_eq!(
        (&received[..2], received[3], &received[12..]),
        (&[5, 0][..], 0, &b"early"[..])
    );
    // The same in version 4.
    let SocketAddr::V4(to) = server else {
        panic!("an IPv4 address")
    };
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    let all = [
        &[4, 1][..],
        &to.port().to_be_bytes(),
        &to.ip().octets(),
        b"me\0early",
    ]
    .concat();
    let received: [u8; 13] = talk(&mut stream, &all).await;
    assert_eq!((received[1], &received[8..]), (90, &b"early"[..]));
}

#[tokio::test]
async fn a_wrong_password_is_refused() {
    let user = User::new();
    let server = echo_server().await;
    let onramp = Onramp::start(OnrampConfig {
        socks: vec![loopback()],
        guests: GuestPolicy {
            login: Some(ProxyLogin {
                user: "me".into(),
                password: "word".into(),
            }),
            networks: Vec::new(),
        },
        ..user.config()
    });
    let onramp = onramp.unwrap();
    let proxy = onramp.addresses().socks[0];
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    assert_eq!(talk(&mut stream, &[5, 1, 0]).await, [5, 0xff]);
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    assert_eq!(talk(&mut stream, &[5, 2, 0, 2]).await, [5, 2]);
    assert_eq!(talk(&mut stream, b"\x01\x02me\x04wort").await, [1, 1]);
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    assert_eq!(talk(&mut stream, &[5, 2, 0, 2]).await, [5, 2]);
    assert_eq!(talk(&mut stream, b"\x01\x02me\x04word").await, [1, 0]);
    assert_eq!(talk::<10>(&mut stream, &request(server)).await[1], 0);
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    let four = [&[4, 1, 0, 80, 127, 0, 0, 1][..], b"me\0"].concat();
    assert_eq!(
        talk::<8>(&mut stream, &four).await[1],
        91,
        "version 4 has no password"
    );
}

#[tokio::test]
async fn an_open_proxy_does_not_start() {
    let user = User::new();
    let anywhere: SocketAddr = "0.0.0.0:0".parse().unwrap();
    let open = OnrampConfig {
        socks: vec![anywhere],
        ..user.config()
    };
    let error = Onramp::start(open.clone()).unwrap_err().to_string();
    assert_eq!(
        error,
        "socks at 0.0.0.0:0 would be open to everyone who can reach it: name the permitted \
         networks with --allow-from"
    );
    let guests = GuestPolicy {
        login: None,
        networks: vec!["192.0.2.0/24".parse().unwrap()],
    };
    drop(Onramp::start(OnrampConfig { guests, ..open }).unwrap());
}

#[tokio::test]
async fn a_forward_leads_to_one_destination() {
    let user = User::new();
    let server = TcpListener::bind(loopback()).await.unwrap();
    let onramp = Onramp::start(OnrampConfig {
        forwards: vec![Forward {
            listen: loopback(),
            to: server.local_addr().unwrap().into(),
            wish: SessionWish::default(),
        }],
        socket: None,
        ..user.config()
    });
    let onramp = onramp.unwrap();
    let connected = TcpStream::connect(onramp.addresses().forwards[0])
        .await
        .unwrap();
    let (accepted, _) = server.accept().await.unwrap();
    assert_carries(connected, accepted, 2_000_000).await;
    for client_resets in [true, false] {
        let connected = TcpStream::connect(onramp.addresses().forwards[0])
            .await
            .unwrap();
        let (accepted, _) = server.accept().await.unwrap();
        let (gone, mut left) = match client_resets {
            true => (connected, accepted),
            false => (accepted, connected),
        };
        sockopt::set_socket_linger(&gone, Some(Duration::ZERO)).unwrap();
        drop(gone);
        assert!(left.read(&mut [0]).await.is_err(), "a reset is a reset");
    }
    drop(server);
    let mut refused = TcpStream::connect(onramp.addresses().forwards[0])
        .await
        .unwrap();
    assert!(refused.read(&mut [0]).await.is_err());
}

/// Starts a server that answers one request per connection with the request itself.
async fn web_server() -> SocketAddr {
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut received = Vec::new();
            while !received.ends_with(b"\r\n\r\n") {
                if stream.read_buf(&mut received).await.unwrap() == 0 {
                    return;
                }
            }
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nKeep-Alive: 5\r\n\r\n",
                received.len()
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.write_all(&received).await.unwrap();
        }
    });
    at
}

fn http(user: &User, guests: GuestPolicy) -> (Onramp, SocketAddr) {
    let onramp = Onramp::start(OnrampConfig {
        http: vec![loopback()],
        guests,
        socket: None,
        ..user.config()
    });
    let onramp = onramp.unwrap();
    let at = onramp.addresses().http[0];
    (onramp, at)
}

/// Returns the head of the answer as text, and the connection after it.
async fn head(proxy: SocketAddr, request: &str) -> (String, TcpStream) {
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut received = Vec::new();
    while !received.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).await.unwrap();
        received.extend(byte);
    }
    (String::from_utf8(received).unwrap(), stream)
}

#[tokio::test]
async fn http_opens_tunnels_and_reports_failures() {
    let user = User::new();
    let server = echo_server().await;
    let (_onramp, proxy) = http(&user, GuestPolicy::default());
    let connect = |to: &str| format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n");
    let (answer, stream) = head(proxy, &connect(&server.to_string())).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    echoes(stream, 3_000_000).await;
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    stream
        .write_all((connect(&server.to_string()) + "early").as_bytes())
        .await
        .unwrap();
    stream.shutdown().await.unwrap();
    let mut all = String::new();
    stream.read_to_string(&mut all).await.unwrap();
    assert!(
        all.starts_with("HTTP/1.1 200 ") && all.ends_with("\r\n\r\nearly"),
        "{all}"
    );
    let (answer, _) = head(proxy, &connect(&refusing_address().to_string())).await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert!(
        answer.contains("proxy-status: longhaul; error=connection_refused"),
        "{answer}"
    );
    for (request, status) in [
        (connect("h.example"), "400"),
        ("GET / HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(), "404"),
        (
            "GET https://h.example/ HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(),
            "501",
        ),
    ] {
        let (answer, _) = head(proxy, &request).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
    }
    let (answer, _) = head(proxy, "GET /proxy.pac HTTP/1.1\r\nHost: h\r\n\r\n").await;
    assert!(
        answer.contains("content-type: application/x-ns-proxy-autoconfig"),
        "{answer}"
    );
}

#[tokio::test]
async fn http_relays_requests_without_hop_by_hop_fields() {
    let user = User::new();
    let server = web_server().await;
    let (_onramp, proxy) = http(&user, GuestPolicy::default());
    let request = format!(
        "GET http://{server}/a?b=c HTTP/1.1\r\nHost: other\r\nX-Own: kept\r\nX-Hop: gone\r\n\
         Connection: x-hop\r\nProxy-Connection: keep-alive\r\n\r\n"
    );
    let (answer, mut stream) = head(proxy, &request).await;
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.contains("via: 1.1 longhaul"),
        "{answer}"
    );
    assert!(!answer.contains("keep-alive: 5"), "{answer}");
    let length: usize = answer
        .split("content-length: ")
        .nth(1)
        .unwrap()
        .lines()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    let seen = String::from_utf8(body).unwrap();
    assert!(seen.starts_with("GET /a?b=c HTTP/1.1\r\n"), "{seen}");
    assert!(
        seen.contains(&format!("host: {server}\r\n")) && seen.contains("x-own: kept"),
        "{seen}"
    );
    assert!(
        !seen.contains("gone") && !seen.contains("proxy-connection"),
        "{seen}"
    );
    let request = format!(
        "GET http://{}/ HTTP/1.1\r\nHost: h\r\n\r\n",
        refusing_address()
    );
    let (answer, _) = head(proxy, &request).await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
}

#[tokio::test]
async fn http_asks_for_the_password() {
    let user = User::new();
    let server = echo_server().await;
    let login = ProxyLogin {
        user: "me".into(),
        password: "word".into(),
    };
    let guests = GuestPolicy {
        login: Some(login),
        networks: Vec::new(),
    };
    let (_onramp, proxy) = http(&user, guests);
    let connect = |more: &str| format!("CONNECT {server} HTTP/1.1\r\nHost: h\r\n{more}\r\n");
    for wrong in ["", "Proxy-Authorization: Basic bWU6d29ydA==\r\n"] {
        let (answer, _) = head(proxy, &connect(wrong)).await;
        assert!(
            answer.starts_with("HTTP/1.1 407 ")
                && answer.contains("proxy-authenticate: Basic realm="),
            "{answer}"
        );
    }
    let (answer, _) = head(
        proxy,
        &connect("Proxy-Authorization: Basic bWU6d29yZA==\r\n"),
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}
