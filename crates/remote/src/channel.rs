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
    /// Bytes of it that hold no end of a line.
    searched: usize,
}

impl Channel {
    /// The near end, and the far one for ssh's standard input and output.
    pub(crate) fn pair() -> std::io::Result<(Self, OwnedFd)> {
        let (near, far) = std::os::unix::net::UnixStream::pair()?;
        near.set_nonblocking(true)?;
        let stream = UnixStream::from_std(near)?;
        let near = Self {
            stream,
            behind: Vec::new(),
            searched: 0,
        };
        Ok((near, far.into()))
    }

    /// Waits for bytes, and returns how many came: 0 at the end of all.
    pub(crate) async fn fill(&mut self) -> std::io::Result<usize> {
        self.behind.reserve(READ_BYTES);
        self.stream.read_buf(&mut self.behind).await
    }

    /// Takes the next whole line of what has come, without its newline.
    pub(crate) fn next_line(&mut self) -> Option<Vec<u8>> {
        let fresh = self.behind.get(self.searched..).unwrap_or_default();
        let Some(length) = fresh.iter().position(|&b| b == b'\n') else {
            self.searched = self.behind.len();
            return None;
        };
        let mut line: Vec<u8> = self.behind.drain(..=self.searched + length).collect();
        line.pop();
        self.searched = 0;
        Some(line)
    }

    /// Returns what has come behind the last line that was taken.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.behind
    }

    /// The next answer; `None` at the end of all or after a line that is none.
    pub(crate) async fn answer(&mut self) -> Option<Answer> {
        loop {
            if let Some(line) = self.next_line() {
                return serde_json::from_slice(&line).ok();
            }
            if self.behind.len() > MAX_LINE || self.fill().await.ok()? == 0 {
                return None;
            }
        }
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
