//! Standard input and output of an ssh connection, first as lines and later as bytes.

use std::os::fd::OwnedFd;

use longhaul_hop::Conn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::message::{FarAnswer, FarQuestion, MAX_LINE_BYTES};

/// Bytes per read.
const READ_BYTES: usize = 64 << 10;

/// This side's end of the connection.
#[derive(Debug)]
pub(crate) struct Channel {
    stream: UnixStream,
    /// Received bytes that were not taken yet.
    behind: Vec<u8>,
    /// Number of these bytes already searched for a newline.
    searched: usize,
}

impl Channel {
    /// Returns this side's end, and the other end for ssh's standard input and output.
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

    /// Waits for bytes. Returns their number, or 0 at the end.
    pub(crate) async fn fill(&mut self) -> std::io::Result<usize> {
        self.behind.reserve(READ_BYTES);
        self.stream.read_buf(&mut self.behind).await
    }

    /// Takes the next complete line received, without its newline.
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

    /// Returns the received bytes after the last line that was taken.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.behind
    }

    /// Receives the next answer. Returns `None` at the end, or after an invalid line.
    pub(crate) async fn answer(&mut self) -> Option<FarAnswer> {
        loop {
            if let Some(line) = self.next_line() {
                return serde_json::from_slice(&line).ok();
            }
            if self.behind.len() > MAX_LINE_BYTES || self.fill().await.ok()? == 0 {
                return None;
            }
        }
    }

    pub(crate) async fn ask(&mut self, ask: &FarQuestion) -> std::io::Result<()> {
        let mut line = serde_json::to_string(ask)?;
        line.push('\n');
        self.write(line.as_bytes()).await
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Closes the questions, so that the far side ends.
    pub(crate) async fn end(&mut self) {
        let _ = self.stream.shutdown().await;
    }

    /// Turns it into a connection for the bytes of a session.
    pub(crate) fn into_connection(self) -> std::io::Result<Conn> {
        Conn::new(self.stream.into_std()?.into())
    }
}
