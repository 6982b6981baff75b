//! TLS 1.3 over a connection: rustls performs the handshake and derives the keys (LH-TLS-1 to
//! LH-TLS-4). The records after it are sealed and opened here.
//!
//! rustls's own record layer reads 4 KiB from a connection at a time and moves received data
//! through three buffers. This one reads up to 128 KiB at a time and opens a record directly into
//! the reader's memory. The bytes on the wire are standard TLS 1.3.
//!
//! rustls's unbuffered API (0.23) does not replace it: it copies each received record into memory
//! of its own, from which the caller copies it again, and no range of a stream can stay in
//! plaintext.
//!
//! `cargo bench -p longhaul-session --bench records` compares the processor time. Measured on two
//! cores, five rounds: rustls's unbuffered API needs 1.20 times that of this module (1.01 to 1.29),
//! tokio-rustls 1.34 times (1.28 to 1.60).

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use longhaul_resume::ResumeSecret;
use rustls::{AlertDescription, ExtractedSecrets};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

mod handshake;
mod incoming;
mod record;
#[cfg(test)]
mod tests;

use crate::clear::PlaintextRanges;
use crate::hop_stream::HopStream;
pub(crate) use handshake::HandshakeConnection;
use handshake::Keys;
use incoming::{InputBuffer, READ_AHEAD_BYTES};
use record::{
    Content, HEADER_BYTES, MAX_BODY_BYTES, MAX_DATA_BYTES, Opener, OutgoingRecords, RecordError,
    Sealer,
};

/// Maximum bytes of data sealed into records before they are written.
const MAX_SEALED_BYTES: usize = 8 * MAX_DATA_BYTES;
/// Memory of a session in bytes: data read ahead, data without a reader yet, and unwritten records.
pub const SESSION_BYTES: usize =
    READ_AHEAD_BYTES + MAX_BODY_BYTES + 8 * (HEADER_BYTES + MAX_BODY_BYTES);
const _: () = assert!(MAX_SEALED_BYTES <= 8 * MAX_DATA_BYTES);
/// Maximum number of consecutive records without data. A peer has no reason to send more.
const MAX_EMPTY_RECORDS: u32 = 32;

/// Handshake message types; the three bytes after the type are the length (RFC 8446, section 4).
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;
/// KeyUpdate that requests one from the peer, and this end's own without a request (section 4.6.3).
const KEY_UPDATE_REQUESTED: u8 = 1;
const OWN_KEY_UPDATE: [u8; 5] = [KEY_UPDATE, 0, 0, 1, 0];
/// Alert levels (section 6).
const WARNING: u8 = 1;
const FATAL: u8 = 2;

/// A byte stream under TLS.
pub(crate) struct TlsStream<S> {
    io: HopStream<S>,
    keys: Keys,
    sealer: Sealer,
    opener: Opener,
    incoming: InputBuffer,
    /// Data of a record for which the reader had no room, and how much of it was consumed.
    rest: Vec<u8>,
    rest_taken: usize,
    outgoing: OutgoingRecords,
    /// The peer requested a key update that has not been sent yet.
    owes_key_update: bool,
    empty_records: u32,
    reading: ReadState,
    close_notify_sent: bool,
    clear: Arc<PlaintextRanges>,
    /// Secret of a session that can be resumed, until it is taken.
    resume_secret: Option<ResumeSecret>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadState {
    Open,
    /// close_notify was received.
    Ended,
    /// The input cannot be trusted any more.
    Failed,
}

impl<S> fmt::Debug for TlsStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secured")
            .field("reading", &self.reading)
            .finish_non_exhaustive()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream<S> {
    /// Performs the handshake. `check` then examines the connection.
    ///
    /// # Errors
    /// Errors of the connection unchanged; TLS errors as [`io::ErrorKind::InvalidData`].
    pub(crate) async fn establish<C: HandshakeConnection>(
        mut io: HopStream<S>,
        mut connection: C,
        check: impl FnOnce(&rustls::CommonState) -> bool,
    ) -> io::Result<Self> {
        Self::handshake(&mut io, &mut connection, check)
            .await
            .and_then(|incoming| Self::new(io, connection, incoming))
    }

    /// Performs the handshake like [`Self::establish`], for callers that examine `io` after a
    /// timeout.
    pub(crate) async fn handshake<C: HandshakeConnection>(
        io: &mut HopStream<S>,
        connection: &mut C,
        check: impl FnOnce(&rustls::CommonState) -> bool,
    ) -> io::Result<CompletedHandshake> {
        let incoming = handshake::handshake(io, connection).await?;
        match check(connection.state()) {
            true => Ok(CompletedHandshake(incoming)),
            false => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the TLS handshake is not bound to the OPEN",
            )),
        }
    }

    /// Creates the stream once the handshake is complete.
    pub(crate) fn new<C: HandshakeConnection>(
        io: HopStream<S>,
        connection: C,
        CompletedHandshake(incoming): CompletedHandshake,
    ) -> io::Result<Self> {
        let (ExtractedSecrets { tx, rx }, keys) = connection.into_keys().map_err(invalid)?;
        let resume_secret = Some(keys.resume_secret(&tx.1, &rx.1));
        let sealer = Sealer::new(tx, keys.records_per_key()).map_err(invalid)?;
        let opener = Opener::new(rx).map_err(invalid)?;
        Ok(Self {
            io,
            keys,
            sealer,
            opener,
            incoming,
            rest: Vec::new(),
            rest_taken: 0,
            outgoing: OutgoingRecords::default(),
            owes_key_update: false,
            empty_records: 0,
            reading: ReadState::Open,
            close_notify_sent: false,
            clear: Arc::default(),
            resume_secret,
        })
    }
}

/// A completed handshake, and the input that followed it.
pub(crate) struct CompletedHandshake(InputBuffer);

impl<S> TlsStream<S> {
    /// Replaces the connection right after the handshake by what `replace` makes of it, of the
    /// bytes read ahead, and of the secret of the two ends.
    pub(crate) fn replace_conn(self, replace: impl FnOnce(S, &[u8], ResumeSecret) -> S) -> Self {
        let Self {
            io,
            keys,
            sealer,
            opener,
            incoming,
            rest,
            rest_taken,
            outgoing,
            owes_key_update,
            empty_records,
            reading,
            close_notify_sent,
            clear,
            resume_secret,
        } = self;
        let (io, incoming) = match resume_secret {
            Some(secret) => {
                let io = io.replace(|conn, behind| {
                    let ahead = [incoming.bytes(), &behind].concat();
                    replace(conn, &ahead, secret)
                });
                (io, InputBuffer::default())
            }
            None => (io, incoming),
        };
        Self {
            io,
            keys,
            sealer,
            opener,
            incoming,
            rest,
            rest_taken,
            outgoing,
            owes_key_update,
            empty_records,
            reading,
            close_notify_sent,
            clear,
            resume_secret: None,
        }
    }

    /// Returns the connection.
    pub(crate) const fn hop(&self) -> &HopStream<S> {
        &self.io
    }

    pub(crate) const fn hop_mut(&mut self) -> &mut HopStream<S> {
        &mut self.io
    }

    /// Returns the handle that marks the next bytes as plaintext.
    pub(crate) const fn plaintext_ranges(&self) -> &Arc<PlaintextRanges> {
        &self.clear
    }

    fn leftover(&self) -> &[u8] {
        self.rest.get(self.rest_taken..).unwrap_or_default()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream<S> {
    /// Reads plaintext bytes; bytes that were read ahead come first.
    pub(crate) fn poll_read_plaintext(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let ahead = self.incoming.bytes();
        if ahead.is_empty() {
            return Pin::new(&mut self.io).poll_read(cx, buffer);
        }
        let len = ahead.len().min(buffer.remaining());
        buffer.put_slice(ahead.get(..len).unwrap_or_default());
        self.incoming.consume(len);
        Poll::Ready(Ok(()))
    }

    /// Writes plaintext bytes after all pending records.
    pub(crate) fn poll_write_plaintext(
        &mut self,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_write_records(cx))?;
        Pin::new(&mut self.io).poll_write(cx, data)
    }

    /// Ends this direction of the connection without close_notify.
    pub(crate) fn poll_shutdown_plaintext(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_records(cx))?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    /// Writes the pending records.
    fn poll_write_records(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.owes_key_update {
            self.owes_key_update = false;
            self.update_key()?;
        }
        while !self.outgoing.unwritten().is_empty() {
            let written = ready!(Pin::new(&mut self.io).poll_write(cx, self.outgoing.unwritten()))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.outgoing.consume(written);
        }
        Poll::Ready(Ok(()))
    }

    /// Announces the next key and switches to it.
    fn update_key(&mut self) -> io::Result<()> {
        self.sealer
            .seal(Content::Handshake, &OWN_KEY_UPDATE, &mut self.outgoing)
            .map_err(invalid)?;
        let next = self.keys.next_sending().map_err(invalid)?;
        self.sealer = Sealer::new(next, self.keys.records_per_key()).map_err(invalid)?;
        Ok(())
    }

    /// Seals a record, after a switch of keys if the current one has reached its limit.
    fn seal(&mut self, content: Content, data: &[u8]) -> io::Result<()> {
        if self.sealer.is_nearly_exhausted() {
            self.update_key()?;
        }
        self.sealer
            .seal(content, data, &mut self.outgoing)
            .map_err(invalid)
    }

    /// Reads data of records into `buffer` until there is some, or the end of stream. Then opens
    /// further records that were read ahead and fit.
    fn poll_read_records(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        loop {
            let rest = self.leftover();
            if !rest.is_empty() {
                let len = rest.len().min(buffer.remaining());
                buffer.put_slice(rest.get(..len).unwrap_or_default());
                self.rest_taken += len;
            }
            let has_some = buffer.filled().len() > before;
            match self.reading {
                ReadState::Ended => return Poll::Ready(Ok(())),
                ReadState::Failed if !has_some => {
                    return Poll::Ready(Err(invalid(RecordError::Forged)));
                }
                ReadState::Failed => return Poll::Ready(Ok(())),
                ReadState::Open if buffer.remaining() == 0 => return Poll::Ready(Ok(())),
                ReadState::Open if has_some && self.clear.is_expected() => {
                    return Poll::Ready(Ok(()));
                }
                ReadState::Open => {}
            }
            match self.incoming.record_len() {
                // Opens further records only directly into the buffer: leftover data would have to
                // be copied.
                Ok(Some(len))
                    if has_some
                        && record::open_buffer_len(len - HEADER_BYTES) > buffer.remaining() =>
                {
                    return Poll::Ready(Ok(()));
                }
                Ok(Some(len)) => {
                    let opened = self.open(len, buffer);
                    if let Err(error) = opened {
                        return Poll::Ready(Err(self.fail(cx, error)));
                    }
                }
                Ok(None) if has_some => return Poll::Ready(Ok(())),
                Ok(None) => {
                    if ready!(self.incoming.poll_fill(cx, &mut self.io))? == 0 {
                        return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                    }
                }
                Err(error) => return Poll::Ready(Err(self.fail(cx, ReadFault::Record(error)))),
            }
        }
    }

    /// Opens the first record, of `len` bytes, into `buffer`, or into `rest` if `buffer` has no
    /// room.
    fn open(&mut self, len: usize, buffer: &mut ReadBuf<'_>) -> Result<(), ReadFault> {
        let needed = record::open_buffer_len(len - HEADER_BYTES);
        let direct = buffer.remaining() >= needed;
        let record = self.incoming.bytes().get(..len).unwrap_or_default();
        let (content, data_len) = if direct {
            self.opener
                .open(record, buffer.initialize_unfilled_to(needed))?
        } else {
            if self.rest.len() < needed {
                self.rest.resize(MAX_BODY_BYTES, 0);
            }
            let opened = self.opener.open(record, &mut self.rest)?;
            self.rest.truncate(opened.1);
            self.rest_taken = 0;
            opened
        };
        self.incoming.consume(len);
        if content == Content::Data {
            if data_len > 0 {
                self.empty_records = 0;
            } else {
                self.count_empty_record()?;
            }
            if direct {
                buffer.advance(data_len);
            }
            return Ok(());
        }
        self.count_empty_record()?;
        let message = match direct {
            true => buffer.initialize_unfilled_to(data_len).to_vec(),
            false => std::mem::take(&mut self.rest),
        };
        self.rest.clear();
        match content {
            Content::Alert => self.alert(&message),
            _ => self.handshake_messages(&message),
        }
    }

    fn count_empty_record(&mut self) -> Result<(), ReadFault> {
        self.empty_records += 1;
        match self.empty_records > MAX_EMPTY_RECORDS {
            true => Err(RecordError::Unexpected.into()),
            false => Ok(()),
        }
    }

    fn alert(&mut self, message: &[u8]) -> Result<(), ReadFault> {
        let &[_, description] = message else {
            return Err(RecordError::Unexpected.into());
        };
        match AlertDescription::from(description) {
            AlertDescription::CloseNotify => self.reading = ReadState::Ended,
            AlertDescription::UserCanceled => {}
            alert => return Err(ReadFault::Alert(alert)),
        }
        Ok(())
    }

    /// Handles whole handshake messages that may follow the handshake (RFC 8446, section 4.6).
    fn handshake_messages(&mut self, mut messages: &[u8]) -> Result<(), ReadFault> {
        while !messages.is_empty() {
            let (&[kind, high, middle, low], behind) = messages
                .split_first_chunk()
                .ok_or(RecordError::Unexpected)?;
            let len = u32::from_be_bytes([0, high, middle, low]) as usize;
            let (body, behind) = behind
                .split_at_checked(len)
                .ok_or(RecordError::Unexpected)?;
            match (kind, body) {
                // Sessions are not resumed (LH-TLS-2).
                (NEW_SESSION_TICKET, _) => {}
                // Section 5.1: no message under the old key follows it in its record.
                (KEY_UPDATE, &[request]) if behind.is_empty() => {
                    let next = self
                        .keys
                        .next_receiving()
                        .map_err(|_| RecordError::Unexpected)?;
                    self.opener = Opener::new(next)?;
                    self.owes_key_update |= request == KEY_UPDATE_REQUESTED;
                }
                _ => return Err(RecordError::Unexpected.into()),
            }
            messages = behind;
        }
        Ok(())
    }

    /// Stops reading, and reports the reason to the peer if that can be written at once.
    fn fail(&mut self, cx: &mut Context<'_>, fault: ReadFault) -> io::Error {
        self.reading = ReadState::Failed;
        self.rest.clear();
        let error = match fault {
            ReadFault::Alert(alert) => return invalid(rustls::Error::AlertReceived(alert)),
            ReadFault::Record(error) => error,
        };
        let description = match error {
            RecordError::Forged => AlertDescription::BadRecordMac,
            RecordError::Malformed => AlertDescription::DecodeError,
            RecordError::Unexpected | RecordError::Exhausted => AlertDescription::UnexpectedMessage,
        };
        if !self.close_notify_sent
            && self
                .seal(Content::Alert, &[FATAL, description.into()])
                .is_ok()
        {
            self.close_notify_sent = true;
            let _ = self.poll_write_records(cx);
        }
        invalid(error)
    }
}

/// Reason why reading stopped.
#[derive(Debug)]
enum ReadFault {
    Record(RecordError),
    /// The peer reported a fault.
    Alert(AlertDescription),
}

impl From<RecordError> for ReadFault {
    fn from(error: RecordError) -> Self {
        Self::Record(error)
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let clear = this.clear.unread_bytes();
        if clear == 0 {
            return this.poll_read_records(cx, buffer);
        }
        // Reads no more than the plaintext: a record follows.
        let room = clear.min(buffer.remaining());
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(room));
        ready!(this.poll_read_plaintext(cx, &mut part))?;
        let len = part.filled().len();
        if len == 0 {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        buffer.advance(len);
        this.clear.consume_read(len);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.close_notify_sent {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let clear = this.clear.unwritten_bytes();
        if clear > 0 {
            let part = data.get(..data.len().min(clear)).unwrap_or(data);
            let written = ready!(this.poll_write_plaintext(cx, part))?;
            this.clear.consume_written(written);
            return Poll::Ready(Ok(written));
        }
        // Earlier data is written first, which bounds the pending records.
        ready!(this.poll_write_records(cx))?;
        let taken = data.get(..data.len().min(MAX_SEALED_BYTES)).unwrap_or(data);
        for part in taken.chunks(MAX_DATA_BYTES) {
            this.seal(Content::Data, part)?;
        }
        match this.poll_write_records(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            // The remainder is written by the next write or flush.
            _ => Poll::Ready(Ok(taken.len())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_write_records(cx))?;
        Pin::new(&mut this.io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.close_notify_sent {
            this.close_notify_sent = true;
            this.seal(
                Content::Alert,
                &[WARNING, AlertDescription::CloseNotify.into()],
            )?;
        }
        ready!(this.poll_write_records(cx))?;
        match ready!(Pin::new(&mut this.io).poll_shutdown(cx)) {
            // Both directions have ended already.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            other => Poll::Ready(other),
        }
    }
}
