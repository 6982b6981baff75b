//! Reading an OPEN from a connection.

use std::io;

use longhaul_proto::{Open, OpenDecoder, OpenError};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;

/// Size of a read while the OPEN is awaited, in bytes; also the maximum early data that may arrive
/// with it.
const MAX_READ: usize = 4096;

/// Reason why no OPEN was received.
#[derive(Debug)]
pub enum NoOpen {
    /// The peer closed without sending a byte: a port check.
    Nothing,
    /// The peer died or ended its stream within the OPEN.
    Lost(io::Error),
    /// The bytes are not an OPEN.
    Malformed(OpenError),
}

/// Reads up to the end of the OPEN. Returns it, the arrival time of its first byte, and the early
/// data after it (LH-OPEN-12).
///
/// # Errors
/// [`NoOpen`].
pub async fn receive_open(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<(Open, Instant, Vec<u8>), NoOpen> {
    let mut decoder = OpenDecoder::new();
    let mut chunk = [0u8; MAX_READ];
    let mut first_byte = None;
    loop {
        let length = stream.read(&mut chunk).await.map_err(NoOpen::Lost)?;
        let began = match first_byte {
            None if length == 0 => return Err(NoOpen::Nothing),
            Some(_) if length == 0 => {
                return Err(NoOpen::Lost(io::ErrorKind::UnexpectedEof.into()));
            }
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::BytesMut;
    use longhaul_proto::{Route, Service, SessionId, SigningKey};
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn an_open_is_received_whole_with_its_early_data() {
        let id = SessionId::from_bytes([1; 16]);
        let destination = "server.example:7511".parse().unwrap();
        let mut open = Open::new(
            id,
            Service::COPY,
            Route::direct(),
            destination,
            Duration::from_secs(1),
        )
        .departing();
        open.sign(&SigningKey::generate().unwrap(), 1).unwrap();
        let mut bytes = BytesMut::new();
        open.encode(&mut bytes).unwrap();
        let whole = bytes.len();
        bytes.extend_from_slice(b"early");
        let received = async |bytes: &[u8], at_once: usize| {
            let (mut near, mut far) = tokio::io::duplex(1 << 16);
            for part in bytes.chunks(at_once) {
                near.write_all(part).await.unwrap();
            }
            drop(near);
            receive_open(&mut far).await
        };
        let (found, _, early) = received(&bytes, usize::MAX).await.unwrap();
        assert_eq!((found, early.as_slice()), (open, &b"early"[..]));
        assert!(matches!(received(b"", 1).await, Err(NoOpen::Nothing)));
        assert!(matches!(
            received(&bytes[..whole - 1], 7).await,
            Err(NoOpen::Lost(_))
        ));
        assert!(matches!(
            received(b"GET / HTTP/1.1", 1).await,
            Err(NoOpen::Malformed(OpenError::Magic))
        ));
    }
}
