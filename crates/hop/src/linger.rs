//! Answering a refused peer so that it can read the answer (LH-STATUS-6).

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// Maximum bytes read from a refused initiator that has not read the answer: a ClientHello and
/// more.
const MAX_LINGER_BYTES: u64 = 64 * 1024;

/// Sends `answer`, ends this direction, and discards what the peer still sends.
///
/// Unread bytes would turn the close into a reset, which could destroy the answer in transit. A
/// peer that does not read the answer, or keeps sending, is dropped after `time`.
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
    // Errors are ignored: a peer that is gone or does not read needs no report.
    let _ = timeout(time, answered).await;
}
