//! The acceptor's side of one set-up: read the OPEN, check it, answer, and complete the TLS handshake.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use longhaul_proto::{
    Admission, Open, OpenDecoder, PublicKey, Refusal, ReplayMemory, Service, Status, StatusCode,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::{Error, Identity, hop_stream::HopStream, session::unix_ms, tls};

/// Read at once while the OPEN is awaited; also the most early data held here.
const PIECE: usize = 4096;
/// How long, and for how many bytes, a refused initiator is heard out, lest a reset overtake the answer (LH-STATUS-6).
const HEAR_OUT: Duration = Duration::from_secs(2);
const HEAR_OUT_BYTES: u64 = 64 * 1024;

/// Who could not read the OPEN does not know its place (LH-CHAIN-2).
const UNPLACED: u8 = 0;

/// Whether a key may have sessions here.
pub(crate) type Predicate = Arc<dyn Fn(&PublicKey) -> bool + Send + Sync>;

/// What all set-ups of a listener share.
pub(crate) struct Acceptor {
    pub(crate) identity: Arc<Identity>,
    pub(crate) accept: Predicate,
    pub(crate) header_timeout: Duration,
    pub(crate) handshake_timeout: Duration,
    pub(crate) services: Vec<Service>,
    pub(crate) admission: Admission,
    pub(crate) replays: Mutex<ReplayMemory<PublicKey>>,
}

impl Acceptor {
    /// Takes one connection from its first byte to a secure session. Every wait is bounded (LH-ACCEPT-1).
    pub(crate) async fn set_up<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mut stream: S,
    ) -> Result<(TlsStream<HopStream<S>>, Open), Error> {
        let (open, early) = match timeout(self.header_timeout, receive_open(&mut stream)).await {
            Ok(Ok(received)) => received,
            Ok(Err(Error::Refused(refusal))) => {
                self.refuse(stream, None, refusal.code(), String::new()).await;
                return Err(Error::Refused(refusal));
            }
            Ok(Err(error)) => return Err(error),
            Err(_) => {
                self.refuse(stream, None, StatusCode::HeaderTimeout, String::new())
                    .await;
                return Err(Error::Peer(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "no OPEN in time",
                )));
            }
        };
        if let Err(refusal) = self.admit(&open) {
            let detail = match refusal {
                Refusal::NoService => self.not_offered(&open.service),
                refusal => refusal.to_string(),
            };
            self.refuse(stream, Some(&open), refusal.code(), detail).await;
            return Err(Error::Refused(refusal));
        }
        match timeout(self.handshake_timeout, self.secure(stream, &open, early)).await {
            Ok(Ok(tls)) => Ok((tls, open)),
            Ok(Err(error)) => Err(Error::Peer(error)),
            Err(_) => Err(Error::Peer(io::Error::new(
                io::ErrorKind::TimedOut,
                "no TLS handshake in time",
            ))),
        }
    }

    fn admit(&self, open: &Open) -> Result<(), Refusal> {
        let known = (self.accept)(&open.principal);
        let now = unix_ms();
        self.admission
            .acceptor(open, now, |_| known, |service| self.services.contains(service))?;
        let mut replays = self.replays.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(replays.admit(&open.principal, open.session_id, open.signed_at_unix_ms, now)?)
    }

    fn not_offered(&self, service: &Service) -> String {
        let offered: Vec<_> = self.services.iter().map(Service::as_str).collect();
        format!("{service}; this one offers: {}", offered.join(", "))
    }

    async fn secure<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mut stream: S,
        open: &Open,
        early: Bytes,
    ) -> io::Result<TlsStream<HopStream<S>>> {
        // At once, not with the handshake: an initiator may wait for it before it says anything.
        stream
            .write_all(&self.answer(Some(open), StatusCode::Ok, String::new()))
            .await?;
        stream.flush().await?;
        let binding = open.binding();
        let config = tls::server_config(&self.identity, open.principal, &binding)?;
        let stream = TlsAcceptor::from(Arc::new(config))
            .accept(HopStream::accepted(stream, early))
            .await?;
        if tls::is_bound(stream.get_ref().1, &binding) {
            Ok(stream)
        } else {
            Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the TLS handshake is not bound to the OPEN",
            ))
        }
    }

    /// LH-STATUS-6: says why, and hears the initiator out for a moment.
    async fn refuse<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mut stream: S,
        open: Option<&Open>,
        code: StatusCode,
        detail: String,
    ) {
        let told = async {
            stream.write_all(&self.answer(open, code, detail)).await?;
            stream.shutdown().await?;
            tokio::io::copy(&mut (&mut stream).take(HEAR_OUT_BYTES), &mut tokio::io::sink()).await
        };
        // Whoever does not even take the answer is let go.
        let _ = timeout(HEAR_OUT, told).await;
    }

    /// The STATUS, signed if there is an OPEN to answer (LH-STATUS-7).
    fn answer(&self, open: Option<&Open>, code: StatusCode, detail: String) -> BytesMut {
        let mut status = Status::of_acceptor(code, open.map_or(UNPLACED, Open::position));
        status.detail = detail;
        match open {
            // A key that cannot sign leaves an answer that nobody takes, which is as good as none.
            Some(open) => drop(status.sign(self.identity.signing_key(), open)),
            None => status.reporter = Some(self.identity.public()),
        }
        let mut bytes = BytesMut::new();
        status.encode(&mut bytes);
        bytes
    }
}

/// Reads up to the end of the OPEN; what came behind it is returned with it.
async fn receive_open<S: AsyncRead + Unpin>(stream: &mut S) -> Result<(Open, Bytes), Error> {
    let mut decoder = OpenDecoder::new();
    let mut piece = BytesMut::zeroed(PIECE);
    loop {
        let length = stream.read(&mut piece).await.map_err(Error::Peer)?;
        if length == 0 {
            return Err(Error::Peer(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "closed before its OPEN was complete",
            )));
        }
        let received = piece.get(..length).unwrap_or_default();
        if let Some((open, used)) = decoder.feed(received).map_err(Refusal::from)? {
            let early = Bytes::copy_from_slice(received.get(used..).unwrap_or_default());
            return Ok((open, early));
        }
    }
}

#[cfg(test)]
mod tests;
