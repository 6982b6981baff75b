//! The server's ends of sessions, and the exchange of a block.
//!
//! The server answers every block of [`BLOCK_BYTES`] with one byte, so both ends of a session know
//! that it works in both directions.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use longhaul_proto::OpenDecoder;
use tokio::net::{TcpListener, TcpStream};

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 16 << 10;
/// Most bytes of one read.
const READ_BYTES: usize = 64 << 10;

static BLOCK: [u8; BLOCK_BYTES] = [7; BLOCK_BYTES];

thread_local! {
    /// Room for one read, of all sessions: no session needs its own while it waits.
    static ROOM: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// A server of blocks, which runs as tasks of the current runtime.
pub struct BlockServer {
    /// Address of its listener.
    pub address: SocketAddr,
    accepted: Arc<AtomicUsize>,
}

impl BlockServer {
    /// Serves on loopback. If `reads_open`, each connection begins with an OPEN.
    ///
    /// # Errors
    /// There is no free port.
    pub async fn start(reads_open: bool) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .context("cannot listen")?;
        let address = listener.local_addr()?;
        let accepted = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&accepted);
        tokio::spawn(async move {
            // Accepting fails only for lack of descriptors, which then shows as missing sessions.
            while let Ok((stream, _)) = listener.accept().await {
                counter.fetch_add(1, Ordering::Relaxed);
                let decoder = reads_open.then(OpenDecoder::new);
                tokio::spawn(answer_blocks(stream, decoder));
            }
        });
        Ok(Self { address, accepted })
    }

    /// Returns the number of connections so far.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }
}

/// Answers blocks until the client ends or fails.
async fn answer_blocks(stream: TcpStream, mut decoder: Option<OpenDecoder>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut received = 0;
    loop {
        let payload = read_some(&stream, |bytes| {
            let Some(open) = &mut decoder else {
                return Ok(bytes.len());
            };
            let done = open.feed(bytes).map_err(io::Error::other)?;
            Ok::<_, io::Error>(done.map_or(0, |(_, used)| {
                decoder = None;
                bytes.len() - used
            }))
        });
        received += payload.await??;
        while received >= BLOCK_BYTES {
            write_all(&stream, &[1]).await?;
            received -= BLOCK_BYTES;
        }
    }
}

/// Sends a block, and waits for its answer.
///
/// # Errors
/// The session ended or failed.
pub async fn exchange_block(stream: &TcpStream) -> io::Result<()> {
    write_all(stream, &BLOCK).await?;
    read_some(stream, |_| ()).await
}

/// Reads what has arrived, at least one byte, and returns what `take` makes of it.
///
/// # Errors
/// The stream ended ([`io::ErrorKind::UnexpectedEof`]) or failed.
pub async fn read_some<T>(stream: &TcpStream, mut take: impl FnMut(&[u8]) -> T) -> io::Result<T> {
    loop {
        stream.readable().await?;
        let read = ROOM.with_borrow_mut(|room| match stream.try_read(room) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => Ok(take(&room[..count])),
            Err(error) => Err(error),
        });
        match read {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => return other,
        }
    }
}

/// Writes all of `bytes`.
///
/// # Errors
/// The stream failed.
pub async fn write_all(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_block_has_one_answer() {
        let server = BlockServer::start(false).await.unwrap();
        let client = TcpStream::connect(server.address).await.unwrap();
        for _ in 0..3 {
            exchange_block(&client).await.unwrap();
        }
        assert_eq!(server.accepted(), 1);
        // Half a block has none.
        write_all(&client, &BLOCK[..BLOCK_BYTES / 2]).await.unwrap();
        write_all(&client, &BLOCK[BLOCK_BYTES / 2..]).await.unwrap();
        let answer = read_some(&client, <[u8]>::len).await.unwrap();
        assert_eq!(answer, 1);
    }
}
