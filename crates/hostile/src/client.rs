//! A client of `longhaul serve`: an honest session that carries hand-written frames.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use longhaul_session::{
    ConnectOptions, Error, Identity, PublicKey, Route, ServerTrust, Service, Session, connect,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use crate::frames;

/// Maximum number of bytes per read.
const READ_BYTES: usize = 64 * 1024;
/// Maximum number of a server's bytes that are kept.
const MAX_KEPT_BYTES: usize = 8 << 20;

/// Server under attack, and the identity of the attacker.
#[derive(Clone, Debug)]
pub struct Target {
    /// Address on which the server listens.
    pub address: SocketAddr,
    /// Key of the server.
    pub server: PublicKey,
    /// Identity of the attacker, a key that the server knows.
    pub identity: Arc<Identity>,
}

impl Target {
    /// Returns the server at `address` with key `server`, attacked with the default key of the
    /// folder `home`.
    ///
    /// # Errors
    /// There is no key in `home`.
    pub fn of(address: SocketAddr, server: PublicKey, home: &Path) -> Result<Self, Error> {
        let identity = Arc::new(Identity::load(&home.join("identity"))?);
        Ok(Self {
            address,
            server,
            identity,
        })
    }

    /// Opens a session with the server.
    ///
    /// # Errors
    /// As [`connect`].
    pub async fn connect(&self) -> Result<Stream, Error> {
        self.connect_over(Route::direct()).await
    }

    /// Opens a session with the server over depots.
    ///
    /// # Errors
    /// As [`connect`].
    pub async fn connect_over(&self, route: Route) -> Result<Stream, Error> {
        self.connect_for(Service::COPY, route).await
    }

    /// Opens a session for questions about files.
    ///
    /// # Errors
    /// As [`connect`].
    pub async fn connect_for_files(&self) -> Result<Stream, Error> {
        self.connect_for(Service::FILES, Route::direct()).await
    }

    async fn connect_for(&self, service: Service, route: Route) -> Result<Stream, Error> {
        let trust = ServerTrust::Pinned(self.server);
        let options = ConnectOptions::new(
            service,
            route,
            self.address.into(),
            Arc::clone(&self.identity),
            trust,
        );
        let (from, to) = tokio::io::split(connect(&options).await?);
        Ok(Stream { from, to })
    }
}

/// A stream of a copy, for sending and receiving arbitrary bytes.
#[derive(Debug)]
pub struct Stream {
    from: ReadHalf<Session>,
    to: WriteHalf<Session>,
}

/// Result of an exchange with the server.
#[derive(Debug, Default)]
pub struct Received {
    /// Bytes that the server sent, up to 8 MiB.
    pub bytes: Vec<u8>,
    /// Number of bytes that it sent.
    pub total: u64,
    /// Number of bytes that it accepted.
    pub sent: u64,
    /// If true, it closed the stream.
    pub closed: bool,
}

impl Received {
    /// Returns true if the server sent a frame of this type.
    #[must_use]
    pub fn has(&self, kind: u8) -> bool {
        self.count(kind) > 0
    }

    /// Returns the number of frames of this type that it sent.
    #[must_use]
    pub fn count(&self, kind: u8) -> usize {
        frames::split(&self.bytes)
            .iter()
            .filter(|(found, _)| *found == kind)
            .count()
    }
}

impl Stream {
    /// Sends all of `pieces` while receiving what comes back. Then receives until `enough` returns
    /// true or the server closes, within `limit` altogether.
    pub async fn say(
        &mut self,
        parts: impl Iterator<Item = Vec<u8>>,
        limit: Duration,
        enough: impl Fn(&Received) -> bool,
    ) -> Received {
        let deadline = Instant::now() + limit;
        let mut sent = 0;
        let mut received = Received::default();
        let to = &mut self.to;
        let saying = async {
            let mut batch = Vec::with_capacity(READ_BYTES);
            for part in parts {
                batch.extend_from_slice(&part);
                if batch.len() >= READ_BYTES {
                    to.write_all(&batch).await?;
                    sent += batch.len() as u64;
                    batch.clear();
                }
            }
            to.write_all(&batch).await?;
            sent += batch.len() as u64;
            to.flush().await
        };
        let saying = async {
            // A server that has received enough has closed; what it sent is still received.
            let _ = timeout_at(deadline, saying).await;
        };
        let from = &mut self.from;
        let hearing = async {
            let mut part = vec![0; READ_BYTES];
            while !enough(&received) {
                match timeout_at(deadline, from.read(&mut part)).await {
                    Ok(Ok(length)) if length > 0 => {
                        received.total += length as u64;
                        let room = MAX_KEPT_BYTES
                            .saturating_sub(received.bytes.len())
                            .min(length);
                        received.bytes.extend_from_slice(&part[..room]);
                    }
                    Ok(_) => {
                        received.closed = true;
                        return;
                    }
                    Err(_) => return,
                }
            }
        };
        tokio::join!(saying, hearing);
        received.sent = sent;
        received
    }

    /// Receives the first bytes that come within `limit`, at most one frame's head and a few bytes.
    pub async fn receive_a_little(&mut self, limit: Duration) -> Vec<u8> {
        let mut part = [0; 9];
        match timeout(limit, self.from.read(&mut part)).await {
            Ok(Ok(length)) => part[..length].to_vec(),
            _ => Vec::new(),
        }
    }

    /// Sends `bytes`, and nothing more.
    ///
    /// # Errors
    /// The server does not accept them.
    pub async fn hold(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to.write_all(bytes).await?;
        self.to.flush().await
    }
}

/// Opens a session for each of `hellos`, in which that is sent and then nothing more. Returns the
/// sessions that stand once each has been answered, within `limit`. Without a HELLO there is no
/// answer.
pub async fn hold_sessions(
    target: &Target,
    hellos: impl IntoIterator<Item = Vec<u8>>,
    limit: Duration,
) -> Vec<Stream> {
    hold(target, Service::COPY, hellos, limit).await
}

/// Like [`hold_sessions`], for questions about files.
pub async fn hold_files_sessions(
    target: &Target,
    hellos: impl IntoIterator<Item = Vec<u8>>,
    limit: Duration,
) -> Vec<Stream> {
    hold(target, Service::FILES, hellos, limit).await
}

async fn hold(
    target: &Target,
    service: Service,
    hellos: impl IntoIterator<Item = Vec<u8>>,
    limit: Duration,
) -> Vec<Stream> {
    let mut set = JoinSet::new();
    for hello in hellos {
        let (target, service) = (target.clone(), service.clone());
        set.spawn(async move {
            let mut stream = target.connect_for(service, Route::direct()).await.ok()?;
            stream.hold(&hello).await.ok()?;
            if !hello.is_empty() {
                stream.receive_a_little(limit).await;
            }
            Some(stream)
        });
    }
    set.join_all().await.into_iter().flatten().collect()
}

/// Starts parallel copies that each begin `files` files and end none, within `limit`. Returns their
/// streams.
pub async fn hold_open_files(
    target: &Target,
    copies: usize,
    files: u64,
    limit: Duration,
) -> Vec<Stream> {
    let mut set = JoinSet::new();
    for copy in 0..copies {
        let target = target.clone();
        set.spawn(async move {
            let mut stream = target.connect().await.ok()?;
            let hello = frames::push_hello(format!("d{copy}").as_bytes(), &[b"s"]);
            let said = [hello, frames::directory(0xffff, b"")]
                .into_iter()
                .chain(open_files(files));
            // An ACK for each file has 21 bytes.
            stream
                .say(said, limit, |received| received.total >= files * 21)
                .await;
            Some(stream)
        });
    }
    set.join_all().await.into_iter().flatten().collect()
}

/// Returns the frames of `files` files, each with one block that is a hole, some 80 bytes on the
/// wire. Each file opens a descriptor.
fn open_files(files: u64) -> impl Iterator<Item = Vec<u8>> {
    (0..files).map(|id| {
        [
            frames::file_in_blocks(id, format!("f{id}").as_bytes(), 1 << 20, 16),
            frames::block(id, 0, 1 << 16, b""),
        ]
        .concat()
    })
}

/// Returns FAILED frames, each with a reason of 512 bytes.
pub fn failures(count: u64) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(|id| frames::failed(id, format!("f{id}").as_bytes(), 1, &[b'x'; 512]))
}

/// Returns one file with all its blocks of 1 MiB, each of which is a hole: 27 bytes on the wire.
pub fn holes(blocks: u64) -> impl Iterator<Item = Vec<u8>> {
    std::iter::once(frames::file_in_blocks(0, b"holes", blocks << 20, 20))
        .chain((0..blocks).map(|block| frames::block(0, block << 20, 1 << 20, b"")))
}

/// Returns blocks of 64 KiB, each a hole and none adjacent to another, of `files` files in turn.
pub fn scattered(files: u64, blocks_of_each: u64) -> impl Iterator<Item = Vec<u8>> {
    let described =
        (0..files).map(|id| frames::file_in_blocks(id, format!("s{id}").as_bytes(), 1 << 40, 16));
    let blocks = (0..files).flat_map(move |id| {
        (0..blocks_of_each).map(move |n| frames::block(id, n << 17, 1 << 16, b""))
    });
    described.chain(blocks)
}
