//! A Unix socket for messages: lines of JSON, with descriptors attached to some.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;
use std::time::Duration;

use longhaul_platform::net::{RECEIVE_FLAGS, SEND_FLAGS};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, SendAncillaryBuffer, SendAncillaryMessage, Shutdown,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// Maximum length of a message of the front, in bytes.
const MAX_MESSAGE_BYTES: usize = 8 << 20;
/// Maximum length of a message of a worker, in bytes.
const MAX_REPORT_BYTES: usize = 64 << 10;
/// Maximum number of descriptors of a message.
const MAX_SENT_DESCRIPTORS: usize = 2;
/// Maximum number of received descriptors that nobody has taken.
const MAX_DESCRIPTORS: usize = 64;
/// Bytes per read.
const READ_BYTES: usize = 16 << 10;
/// Time for a peer to accept a message.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);

/// Sending half. Clones share the socket.
#[derive(Debug, Clone)]
pub(super) struct MessageSender {
    socket: Arc<UnixStream>,
    sending: Arc<Mutex<()>>,
}

/// Receiving half.
#[derive(Debug)]
pub(super) struct MessageReceiver {
    socket: Arc<UnixStream>,
    received: Vec<u8>,
    /// Number of received bytes without a newline.
    searched: usize,
    descriptors: VecDeque<OwnedFd>,
    peer: ChannelPeer,
}

/// Process at the other end of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChannelPeer {
    /// The front, which sends descriptors.
    Front,
    /// A worker, which its user may control. What it attaches is closed by the system.
    Worker,
}

/// Returns the halves of a socket that leads to `peer`. Must be called within a runtime.
pub(super) fn open(
    socket: StdUnixStream,
    peer: ChannelPeer,
) -> io::Result<(MessageSender, MessageReceiver)> {
    socket.set_nonblocking(true)?;
    let socket = Arc::new(UnixStream::from_std(socket)?);
    let sender = MessageSender {
        socket: socket.clone(),
        sending: Arc::default(),
    };
    let receiver = MessageReceiver {
        socket,
        received: Vec::new(),
        searched: 0,
        descriptors: VecDeque::new(),
        peer,
    };
    Ok((sender, receiver))
}

impl MessageSender {
    /// Sends a message, and up to [`MAX_SENT_DESCRIPTORS`] descriptors with it. After an error,
    /// nothing can be sent any more.
    pub(super) async fn send(
        &self,
        message: &impl Serialize,
        with: Vec<OwnedFd>,
    ) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        if line.len() > MAX_MESSAGE_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let _one_at_a_time = self.sending.lock().await;
        let sent = timeout(SEND_TIMEOUT, self.send_line(&line, with)).await;
        let sent = sent.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        if sent.is_err() {
            self.close();
        }
        sent
    }

    async fn send_line(&self, line: &[u8], with: Vec<OwnedFd>) -> io::Result<()> {
        let mut sent = 0;
        while let Some(rest) = line.get(sent..).filter(|rest| !rest.is_empty()) {
            // Descriptors travel with the first byte.
            let with = with.iter().filter(|_| sent == 0).map(AsFd::as_fd);
            let with: Vec<BorrowedFd<'_>> = with.collect();
            let part = || send_part(&self.socket, rest, &with);
            sent += self.socket.async_io(Interest::WRITABLE, part).await?;
        }
        Ok(())
    }

    /// Ends the sending direction. The peer finds the end behind the last message.
    pub(super) fn close(&self) {
        // It may have ended already.
        let _ = rustix::net::shutdown(&*self.socket, Shutdown::Write);
    }
}

fn send_part(socket: &UnixStream, bytes: &[u8], with: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SENT_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !with.is_empty() && !control.push(SendAncillaryMessage::ScmRights(with)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let parts = [IoSlice::new(bytes)];
    Ok(rustix::net::sendmsg(
        socket,
        &parts,
        &mut control,
        SEND_FLAGS,
    )?)
}

impl MessageReceiver {
    /// Receives the next message. Returns `None` at the end.
    ///
    /// # Errors
    /// The socket failed, or its peer sent something else than messages.
    pub(super) async fn receive<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        loop {
            let fresh = self.received.get(self.searched..).unwrap_or_default();
            if let Some(length) = fresh.iter().position(|&byte| byte == b'\n') {
                let end = self.searched + length;
                let line: Vec<u8> = self.received.drain(..=end).collect();
                self.searched = 0;
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            self.searched = self.received.len();
            let max_bytes = match self.peer {
                ChannelPeer::Front => MAX_MESSAGE_BYTES,
                ChannelPeer::Worker => MAX_REPORT_BYTES,
            };
            if self.received.len() > max_bytes || self.descriptors.len() > MAX_DESCRIPTORS {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            let received = &mut self.received;
            let mut descriptors = match self.peer {
                ChannelPeer::Front => Some(&mut self.descriptors),
                ChannelPeer::Worker => None,
            };
            let part = || receive_part(&self.socket, received, descriptors.as_deref_mut());
            if self.socket.async_io(Interest::READABLE, part).await? == 0 {
                return Ok(None);
            }
        }
    }

    /// Returns the descriptor that came with a message that was received.
    pub(super) fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptors.pop_front()
    }
}

/// Reads once. Returns the number of bytes, or 0 at the end. Without room for descriptors, the
/// system closes those that arrive.
fn receive_part(
    socket: &UnixStream,
    all: &mut Vec<u8>,
    descriptors: Option<&mut VecDeque<OwnedFd>>,
) -> io::Result<usize> {
    let mut piece = [0; READ_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = match descriptors {
        Some(_) => RecvAncillaryBuffer::new(&mut space),
        None => RecvAncillaryBuffer::default(),
    };
    let parts = &mut [IoSliceMut::new(&mut piece)];
    let received = rustix::net::recvmsg(socket, parts, &mut control, RECEIVE_FLAGS)?;
    if let Some(descriptors) = descriptors {
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(sockets) = message {
                descriptors.extend(sockets);
            }
        }
    }
    all.extend_from_slice(piece.get(..received.bytes).unwrap_or_default());
    Ok(received.bytes)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[tokio::test]
    async fn messages_keep_their_order_and_their_descriptors() {
        let (ours, theirs) = StdUnixStream::pair().unwrap();
        let (sender, _) = open(ours, ChannelPeer::Worker).unwrap();
        let (_keep, mut receiver) = open(theirs, ChannelPeer::Front).unwrap();
        let long = "x".repeat(1 << 20);
        let sending = tokio::spawn({
            let long = long.clone();
            async move {
                let (near, far) = StdUnixStream::pair().unwrap();
                sender.send(&long, vec![]).await.unwrap();
                sender.send(&"with", vec![far.into()]).await.unwrap();
                sender.send(&"last", vec![]).await.unwrap();
                sender.close();
                near
            }
        });
        assert_eq!(receiver.receive::<String>().await.unwrap(), Some(long));
        assert_eq!(
            receiver.receive::<String>().await.unwrap().as_deref(),
            Some("with")
        );
        let socket = receiver.take_descriptor().unwrap();
        assert_eq!(
            receiver.receive::<String>().await.unwrap().as_deref(),
            Some("last")
        );
        assert_eq!(receiver.receive::<String>().await.unwrap(), None);
        assert!(receiver.take_descriptor().is_none());
        let mut near = sending.await.unwrap();
        StdUnixStream::from(socket).write_all(b"hello").unwrap();
        let mut read = [0; 5];
        near.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"hello");
    }

    #[tokio::test]
    async fn other_bytes_are_errors() {
        let (mut ours, theirs) = StdUnixStream::pair().unwrap();
        let (_sender, mut receiver) = open(theirs, ChannelPeer::Worker).unwrap();
        ours.write_all(b"{\n").unwrap();
        assert!(receiver.receive::<String>().await.is_err());
    }

    #[tokio::test]
    async fn worker_cannot_fill_the_front() {
        let (ours, theirs) = StdUnixStream::pair().unwrap();
        let (sender, _) = open(ours, ChannelPeer::Front).unwrap();
        let (_keep, mut receiver) = open(theirs, ChannelPeer::Worker).unwrap();
        let (mut near, far) = StdUnixStream::pair().unwrap();
        sender.send(&"with", vec![far.into()]).await.unwrap();
        assert!(receiver.receive::<String>().await.unwrap().is_some());
        assert!(receiver.take_descriptor().is_none());
        assert_eq!(near.read(&mut [0]).unwrap(), 0, "its other end is closed");
        let long = "x".repeat(MAX_REPORT_BYTES * 2);
        let sending = tokio::spawn(async move { sender.send(&long, vec![]).await });
        assert!(receiver.receive::<String>().await.is_err());
        sending.abort();
    }
}
