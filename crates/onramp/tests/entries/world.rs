//! Test environment: an on-ramp with its own directory, servers to connect to, and a program that
//! asks over its socket.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use longhaul_offramp::{ListenerConfig, Offramp, OfframpConfig};
use longhaul_onramp::{Onramp, OnrampConfig};
use longhaul_policy::Policy;
use longhaul_ramp_protocol::{MAX_MESSAGE_BYTES, RampReply, RampRequest, RouteQuery};
use longhaul_session::Identity;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_seqpacket::UnixSeqpacket;

/// A user of a machine.
pub struct User {
    pub dir: TempDir,
    pub identity: Arc<Identity>,
}

impl User {
    pub fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            identity: Arc::new(Identity::generate().unwrap()),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// Returns the configuration before any test changes it: with the socket only.
    pub fn config(&self) -> OnrampConfig {
        let identity = Arc::clone(&self.identity);
        let files = ["routes.toml", "known_hosts", "authorized_keys"].map(|name| self.path(name));
        let [routes, known, authorized] = files;
        OnrampConfig {
            socket: Some(self.path("onramp/socket")),
            ..OnrampConfig::new(identity, routes, known, authorized)
        }
    }

    pub fn start(&self) -> Onramp {
        Onramp::start(self.config()).unwrap()
    }

    pub fn key(&self) -> String {
        self.identity.public().to_string()
    }
}

/// A program's connection to the on-ramp's socket.
pub struct Program(UnixSeqpacket);

/// A reply, owned.
#[derive(Debug, PartialEq, Eq)]
pub enum OwnedReply {
    Direct,
    DirectFrom(SocketAddr),
    /// Time to remember the answer, in milliseconds.
    Remember(u64),
    Forget,
    Refuse(i32, String),
    Via(SocketAddr, u64),
    Done(i32, String),
    Peer(SocketAddr),
    Listening(SocketAddr),
    Accepted(SocketAddr, [u8; 32]),
}

impl From<RampReply<'_>> for OwnedReply {
    fn from(reply: RampReply<'_>) -> Self {
        match reply {
            RampReply::Direct {
                remember: Some(time),
                ..
            } => Self::Remember(time),
            RampReply::Direct { .. } => Self::Direct,
            RampReply::DirectFrom { source, .. } => Self::DirectFrom(source),
            RampReply::Forget => Self::Forget,
            RampReply::Refuse { errno, reason } => Self::Refuse(errno, reason.to_owned()),
            RampReply::Via {
                listener, ticket, ..
            } => Self::Via(listener, ticket),
            RampReply::Done { errno, reason } => Self::Done(errno, reason.to_owned()),
            RampReply::Peer { address } => Self::Peer(address),
            RampReply::Listening { at } => Self::Listening(at),
            RampReply::Accepted { peer, key, .. } => Self::Accepted(peer, key),
            RampReply::Status { .. } => panic!("nobody asked for it"),
        }
    }
}

impl Program {
    pub async fn connect_to(user: &User) -> Self {
        Self(
            UnixSeqpacket::connect(user.path("onramp/socket"))
                .await
                .unwrap(),
        )
    }

    pub async fn say(&self, request: &RampRequest<'_>) {
        self.0
            .send(request.encode().finish().unwrap())
            .await
            .unwrap();
    }

    pub async fn raw(&self, bytes: &[u8]) {
        self.0.send(bytes).await.unwrap();
    }

    /// Returns the next reply; `None` when the on-ramp has closed the socket.
    pub async fn received(&self) -> Option<OwnedReply> {
        let mut packet = [0; MAX_MESSAGE_BYTES];
        let read = self.0.recv(&mut packet).await.ok()?.bytes_read();
        (read > 0).then(|| RampReply::decode(&packet[..read]).unwrap().into())
    }

    /// Returns the next reply, which carries a descriptor.
    pub async fn accepted(&self) -> (OwnedReply, TcpStream) {
        let mut packet = [0; MAX_MESSAGE_BYTES];
        let mut room = [0; 64];
        let mut buffers = [io::IoSliceMut::new(&mut packet)];
        let (read, ancillary) = self
            .0
            .recv_vectored_with_ancillary(&mut buffers, &mut room)
            .await
            .unwrap();
        let read = read.bytes_read();
        let mut descriptors = Vec::new();
        for message in ancillary.into_messages() {
            if let tokio_seqpacket::ancillary::OwnedAncillaryMessage::FileDescriptors(given) =
                message
            {
                descriptors.extend(given);
            }
        }
        assert_eq!(descriptors.len(), 1);
        let stream = std::net::TcpStream::from(descriptors.remove(0));
        stream.set_nonblocking(true).unwrap();
        let said = RampReply::decode(&packet[..read]).unwrap().into();
        (said, TcpStream::from_std(stream).unwrap())
    }

    pub async fn ask(&self, ask: RouteQuery<'_>) -> OwnedReply {
        self.say(&RampRequest::Ask(ask)).await;
        self.received().await.unwrap()
    }

    /// Asks for an acceptor, and connects a socket to the returned listener.
    pub async fn connected(&self, ask: RouteQuery<'_>) -> (TcpStream, u64) {
        let OwnedReply::Via(listener, ticket) = self.ask(ask).await else {
            panic!("a way by the on-ramp")
        };
        let socket = match listener.is_ipv4() {
            true => TcpSocket::new_v4(),
            false => TcpSocket::new_v6(),
        };
        (socket.unwrap().connect(listener).await.unwrap(), ticket)
    }

    pub async fn begin(&self, stream: &TcpStream, ticket: u64, fill: u32) {
        let local = stream.local_addr().unwrap();
        self.say(&RampRequest::Begin {
            ticket,
            local,
            fill,
        })
        .await;
    }

    /// Connects as a program with blocking sockets does. Returns the error number on failure.
    pub async fn connect(&self, ask: RouteQuery<'_>) -> Result<TcpStream, i32> {
        let (stream, ticket) = self.connected(ask).await;
        self.begin(&stream, ticket, 0).await;
        match self.received().await.unwrap() {
            OwnedReply::Done(0, _) => Ok(stream),
            OwnedReply::Done(errno, _) => Err(errno),
            other => panic!("{other:?}"),
        }
    }
}

/// Returns the question for an acceptor at an address.
pub fn acceptor(at: SocketAddr) -> RouteQuery<'static> {
    RouteQuery {
        address: Some(at.ip()),
        port: at.port(),
        acceptor: true,
        v6: at.is_ipv6(),
        ..RouteQuery::default()
    }
}

/// Returns a program that listens through its user's on-ramp. `friend` may connect to it, and knows
/// its key.
pub async fn listening(user: &User, friend: &User) -> (Program, SocketAddr) {
    user.write("authorized_keys", &format!("{}\n", friend.key()));
    let program = Program::connect_to(user).await;
    let at = "127.0.0.1:0".parse().unwrap();
    program.say(&RampRequest::Listen { at }).await;
    let Some(OwnedReply::Listening(at)) = program.received().await else {
        panic!("it listens")
    };
    friend.write("known_hosts", &format!("{at} {}\n", user.key()));
    (program, at)
}

/// Returns bytes whose values depend on their position.
pub fn bytes(length: usize) -> Vec<u8> {
    (0..length as u32)
        .map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

/// Sends bytes from `near` to `far` and back; then both end.
pub async fn assert_carries(mut near: TcpStream, mut far: TcpStream, length: usize) {
    let data = bytes(length);
    let there = async {
        near.write_all(&data).await.unwrap();
        near.shutdown().await.unwrap();
        let mut back = Vec::new();
        near.read_to_end(&mut back).await.unwrap();
        back
    };
    let back = async {
        let mut received = Vec::new();
        far.read_to_end(&mut received).await.unwrap();
        far.write_all(&received).await.unwrap();
        far.shutdown().await.unwrap();
    };
    let (back, ()) = tokio::join!(there, back);
    assert!(
        back == data,
        "{} bytes of {length} came back, or others",
        back.len()
    );
}

/// Starts an off-ramp that lets one user connect to loopback. Returns its address, its key and its
/// task.
pub async fn offramp(friend: &User) -> (SocketAddr, String, tokio::task::JoinHandle<()>) {
    let identity = Arc::new(Identity::generate().unwrap());
    let key = identity.public().to_string();
    let text = format!(
        "[[allow]]\nprincipals = [\"{}\"]\nservers = [\"127.0.0.0/8\"]\nports = [\"1-65535\"]\n",
        friend.key()
    );
    let file = friend.path("policy.toml");
    std::fs::write(&file, text).unwrap();
    let mut config = OfframpConfig::new(identity, Policy::load(&file).unwrap());
    config.listen = vec![ListenerConfig::new("127.0.0.1:0".parse().unwrap())];
    config.reload_on_hangup = false;
    let offramp = Offramp::bind(config).unwrap();
    let at = offramp.local_addresses()[0];
    (at, key, tokio::spawn(offramp.run(std::future::pending())))
}

/// Returns an address that refuses connections. Its socket stays bound until the program ends, so
/// that nobody else can listen there.
pub fn refusing_address() -> SocketAddr {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    std::mem::forget(socket);
    address
}

/// Returns an address with a free port. The kernel gives no connection a port this low
/// (`ip_local_port_range` in ip(7)), so it stays free.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        // Programs that run at the same time have neighbouring numbers.
        let first = std::process::id().wrapping_mul(16);
        let number = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 10_000 + (number % 20_000) as u16;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if std::net::TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

/// Starts a server that echoes its input on any number of connections.
pub async fn echo_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut reader, mut writer) = stream.split();
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
                let _ = writer.shutdown().await;
            });
        }
    });
    at
}
