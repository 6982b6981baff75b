//! Saying no, and the care that it is read (LH-STATUS-6).

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// Bytes that a refused initiator may still send while it has not read why: a ClientHello and more.
const MAX_LINGER_BYTES: u64 = 64 * 1024;

/// Sends `answer`, ends this direction, and reads and discards what the peer still sends: bytes
/// that nobody has read would turn the close into a reset, which could destroy the answer on its
/// way. Whoever does not take the answer, or sends on, within `time` is let go.
pub async fn answer_and_linger(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: &[u8],
    time: Duration,
) {
    let answered = async {
        stream.write_all(answer).await?;
        stream.shutdown().await?;
        tokio::io::copy(
            &mut (&mut stream).take(MAX_LINGER_BYTES),
            &mut tokio::io::sink(),
        )
        .await
    };
    // A peer that is gone or does not read needs no report.
    let _ = timeout(time, answered).await;
}
