//! Standard input and output of an ssh connection, as lines and later as bytes.

use std::os::fd::OwnedFd;

use longhaul_hop::Conn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::message::{Answer, Ask, MAX_LINE};

/// Read at once.
const READ_BYTES: usize = 64 << 10;

/// The near end.
#[derive(Debug)]
pub(crate) struct Channel {
    stream: UnixStream,
    /// Came in and is not taken yet.
    behind: Vec<u8>,
}

impl Channel {
    /// The near end, and the far one for ssh's standard input and output.
    pub(crate) fn pair() -> std::io::Result<(Self, OwnedFd)> {
        let (near, far) = std::os::unix::net::UnixStream::pair()?;
        near.set_nonblocking(true)?;
        let stream = UnixStream::from_std(near)?;
        let behind = Vec::new();
        Ok((Self { stream, behind }, far.into()))
    }

    /// The next line, without its end; `None` at the end of all.
    pub(crate) async fn line(&mut self) -> std::io::Result<Option<String>> {
        let mut looked_at = 0;
        loop {
            let fresh = self.behind.get(looked_at..).unwrap_or_default();
            if let Some(length) = fresh.iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = self.behind.drain(..=looked_at + length).collect();
                let text = String::from_utf8_lossy(&line);
                return Ok(Some(text.trim_end_matches(['\n', '\r']).to_owned()));
            }
            looked_at = self.behind.len();
            if looked_at > MAX_LINE {
                return Err(std::io::Error::other("a line without end"));
            }
            self.behind.reserve(READ_BYTES);
            if self.stream.read_buf(&mut self.behind).await? == 0 {
                return Ok(None);
            }
        }
    }

    /// The next answer; `None` at the end of all or after a line that is none.
    pub(crate) async fn answer(&mut self) -> Option<Answer> {
        let line = self.line().await.ok()??;
        serde_json::from_str(&line).ok()
    }

    pub(crate) async fn ask(&mut self, ask: &Ask) -> std::io::Result<()> {
        let mut line = serde_json::to_string(ask)?;
        line.push('\n');
        self.write(line.as_bytes()).await
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Nothing more is asked: the far side ends.
    pub(crate) async fn end(&mut self) {
        let _ = self.stream.shutdown().await;
    }

    /// From here on a session's bytes.
    pub(crate) fn into_conn(self) -> std::io::Result<Conn> {
        Conn::new(self.stream.into_std()?.into())
    }
}
