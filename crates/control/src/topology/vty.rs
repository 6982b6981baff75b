//! Requests over the Unix socket of an FRR daemon, as `vtysh` makes them: a command that ends with
//! a zero byte, answered by text, three zero bytes and a status.

use std::io;
use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// Number of bytes between the end of the text and the end of the answer: three zeros and a status.
const TRAILER_BYTES: usize = 4;
/// Number of bytes that are read at a time.
const READ_BYTES: usize = 64 << 10;

/// Answer of a daemon.
#[derive(Debug)]
pub(super) struct VtyAnswer {
    /// Text, which may be invalid UTF-8.
    pub text: Vec<u8>,
    /// Status; 0 is success.
    pub status: u8,
}

/// Reason why there is no answer.
#[derive(Debug)]
pub(super) enum VtyError {
    /// The connection failed or ended.
    Lost(io::Error),
    /// The answer is longer than allowed.
    TooLong,
}

impl From<io::Error> for VtyError {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

/// Connection to a daemon.
#[derive(Debug)]
pub(super) struct VtyConnection(UnixStream);

impl VtyConnection {
    /// Connects to the socket of a daemon.
    pub(super) async fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(UnixStream::connect(path).await?))
    }

    /// Sends a command and reads its answer, of at most `most` bytes of text. After an error, or if
    /// this is cancelled, the connection is unusable.
    pub(super) async fn ask(&mut self, command: &str, most: usize) -> Result<VtyAnswer, VtyError> {
        self.0.write_all(command.as_bytes()).await?;
        self.0.write_all(&[0]).await?;
        let mut answer = Vec::new();
        let mut scanned = 0;
        loop {
            answer.reserve(READ_BYTES);
            if self.0.read_buf(&mut answer).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            let fresh = answer.get(scanned..).unwrap_or_default();
            let end = fresh.iter().position(|byte| *byte == 0);
            match end.map(|end| scanned.saturating_add(end)) {
                Some(end) => {
                    let last = end.saturating_add(TRAILER_BYTES).saturating_sub(1);
                    if let Some(status) = answer.get(last).copied() {
                        answer.truncate(end);
                        let is_short = answer.len() <= most;
                        let whole = VtyAnswer {
                            text: answer,
                            status,
                        };
                        return is_short.then_some(whole).ok_or(VtyError::TooLong);
                    }
                    scanned = end;
                }
                None => scanned = answer.len(),
            }
            if answer.len() > most.saturating_add(TRAILER_BYTES) {
                return Err(VtyError::TooLong);
            }
        }
    }
}
