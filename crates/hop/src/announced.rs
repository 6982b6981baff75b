//! Reads of as many bytes as a peer has announced.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// Reads `length` bytes, and no byte behind them. Memory is taken as they arrive, so a number alone
/// allocates nothing.
///
/// # Errors
/// Those of the stream, and [`io::ErrorKind::UnexpectedEof`] if it ends before.
pub async fn read_announced(
    stream: &mut (impl AsyncRead + Unpin),
    length: usize,
) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.take(length as u64).read_to_end(&mut bytes).await?;
    match bytes.len() == length {
        true => Ok(bytes),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
