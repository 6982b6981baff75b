//! Lines of bounded length from streams.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// Returns the next line without its newline. Returns `None` at the end of the stream, even within
/// a line.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if the line is longer than `most` bytes; otherwise the stream's
/// error.
pub async fn next_line<R>(reader: &mut R, most: usize) -> io::Result<Option<Vec<u8>>>
where
    R: AsyncBufRead + Unpin,
{
    let mut line = Vec::new();
    let mut bounded = reader.take(u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1));
    bounded.read_until(b'\n', &mut line).await?;
    if line.pop_if(|last| *last == b'\n').is_some() {
        return Ok(Some(line));
    }
    if line.len() > most {
        let text = format!("a line of more than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(None)
}
