//! Reading an OPEN off a connection.

use std::io;

use longhaul_proto::{Open, OpenDecoder, OpenError};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;

/// Read at once while the OPEN is awaited, in bytes; also the most early data that may come with it.
const MAX_READ: usize = 4096;

/// Why there is no OPEN.
#[derive(Debug)]
pub enum NoOpen {
    /// The peer left without a byte: a port check.
    Nothing,
    /// The peer died, or ended, within its OPEN.
    Lost(io::Error),
    /// What came is none.
    Malformed(OpenError),
}

/// Reads up to the end of the OPEN: it, when its first byte came, and what came behind it (LH-OPEN-12).
///
/// # Errors
/// [`NoOpen`].
pub async fn receive_open(stream: &mut (impl AsyncRead + Unpin)) -> Result<(Open, Instant, Vec<u8>), NoOpen> {
    let mut decoder = OpenDecoder::new();
    let mut chunk = [0u8; MAX_READ];
    let mut first_byte = None;
    loop {
        let length = stream.read(&mut chunk).await.map_err(NoOpen::Lost)?;
        let began = match first_byte {
            None if length == 0 => return Err(NoOpen::Nothing),
            Some(_) if length == 0 => return Err(NoOpen::Lost(io::ErrorKind::UnexpectedEof.into())),
            began => *first_byte.insert(began.unwrap_or_else(Instant::now)),
        };
        let received = chunk.get(..length).unwrap_or_default();
        match decoder.feed(received) {
            Ok(None) => {}
            Ok(Some((open, used))) => {
                let early = received.get(used..).unwrap_or_default().to_vec();
                return Ok((open, began, early));
            }
            Err(error) => return Err(NoOpen::Malformed(error)),
        }
    }
}
