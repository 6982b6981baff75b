//! The tasks of a connection: one writes requests, another one reads answers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use openssh_sftp_client_lowlevel::Error as LibraryError;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;

use super::{AnswerClock, Answers, UnreadableAnswers};
use crate::packets::{AnsweredRequests, RequestQueue};

/// Requests up to this size are written together, in bytes.
const MAX_JOINED_BYTES: usize = 16 << 10;

/// Reader of a connection's answers.
pub(super) struct AnswerReader {
    pub answers: Answers,
    pub answered: Arc<AnsweredRequests>,
    pub unreadable: Arc<UnreadableAnswers>,
    pub clock: Arc<AnswerClock>,
}

impl AnswerReader {
    /// Reads until the connection ends. Returns the reason, which may be empty.
    pub(super) async fn read(mut self) -> String {
        loop {
            let read = self.answers.read_in_one_packet().await;
            let request = self.answered.take();
            match read {
                Ok(()) => {
                    self.clock.answers.fetch_add(1, Ordering::Relaxed);
                }
                // The packet has been taken as a whole: the next one is whole, too.
                Err(LibraryError::FormatError(_)) => {
                    self.unreadable.requests.lock().extend(request);
                    self.unreadable.added.notify_waiters();
                }
                // An answer to a request that is no longer waited for.
                Err(LibraryError::InvalidResponseId { .. } | LibraryError::AwaitableError(_)) => {}
                Err(LibraryError::IOError(error))
                    if error.kind() == std::io::ErrorKind::UnexpectedEof =>
                {
                    return String::new();
                }
                Err(error) => return error.to_string(),
            }
        }
    }
}

/// Notes the end of a connection. The first reason stays.
pub(super) fn end_with(end: &watch::Sender<Option<String>>, reason: String) {
    end.send_if_modified(|known| {
        let is_first = known.is_none();
        if is_first {
            *known = Some(reason);
        }
        is_first
    });
}

/// Writes requests until the connection ends.
pub(super) async fn write_requests(
    mut writer: impl AsyncWrite + Unpin,
    queue: &RequestQueue,
) -> std::io::Result<()> {
    let mut joined = Vec::new();
    loop {
        for packet in queue.take().await {
            if joined.len() + packet.len() <= MAX_JOINED_BYTES {
                joined.extend_from_slice(&packet);
                continue;
            }
            writer.write_all(&joined).await?;
            joined.clear();
            match packet.len() <= MAX_JOINED_BYTES {
                true => joined.extend_from_slice(&packet),
                false => writer.write_all(&packet).await?,
            }
        }
        writer.write_all(&joined).await?;
        joined.clear();
        writer.flush().await?;
    }
}
