//! The acceptor's side of one set-up: read the OPEN, check it, answer, and complete the TLS handshake.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use longhaul_hop::{Conn, NoOpen, NoRoom, answer_and_linger, receive_open, unix_ms};
use longhaul_proto::{Admission, Open, PublicKey, Refusal, ReplayMemory, Service, Status, StatusCode};
use rustls::server::UnbufferedServerConnection;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    time::timeout,
};

use crate::{
    Error, Identity, ListenOptions, Session, SessionInfo, hop_stream::HopStream, secured::Secured, tls,
};

/// How long a refused initiator is heard out, lest a reset overtake the answer (LH-STATUS-6).
const LINGER_TIME: Duration = Duration::from_secs(2);

/// Who could not read the OPEN does not know its place (LH-CHAIN-2).
const UNPLACED: u8 = 0;

/// Whether a key may have sessions here.
pub(crate) type Predicate = Arc<dyn Fn(&PublicKey) -> bool + Send + Sync>;

/// The acceptor's side of sessions: what all set-ups of a listener share. By itself it takes sessions over connections that this end
/// has not accepted but dialled, or that are no TCP connection of its own.
pub struct Acceptor {
    pub(crate) identity: Arc<Identity>,
    pub(crate) accept: Predicate,
    pub(crate) handshake_timeout: Duration,
    pub(crate) services: Vec<Service>,
    pub(crate) admission: Admission,
    pub(crate) replays: Mutex<ReplayMemory<PublicKey>>,
}

impl Acceptor {
    /// The acceptor that `options` describe; their address, congestion control and gate are a listener's alone.
    #[must_use]
    pub fn new(options: ListenOptions) -> Self {
        Self {
            admission: Admission::new(options.identity.public()),
            replays: Mutex::new(ReplayMemory::new()),
            services: options.services,
            identity: options.identity,
            accept: options.accept as Predicate,
            handshake_timeout: options.handshake_timeout,
        }
    }

    /// Takes a session over a connection that stands already, whichever end dialled it. The OPEN has the time of
    /// [`ListenOptions::gate`]'s default.
    ///
    /// # Errors
    /// [`Error::Refused`] and [`Error::Peer`].
    pub async fn accept(&self, conn: Conn) -> Result<Session, Error> {
        let first_hop = conn.peer().ok();
        let header = longhaul_hop::GateLimits::default().header;
        let (tls, open) = self.set_up(conn, header, |_| Ok(())).await?;
        Ok(Session::new(tls, SessionInfo::accepted(open, first_hop)))
    }

    /// Takes one connection from its first byte to a secure session. Every wait is bounded (LH-ACCEPT-1). `header` is the time for the
    /// OPEN; once that is in order, `verified` is asked whether there is room for one more session of its principal.
    pub(crate) async fn set_up<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mut stream: S,
        header: Duration,
        verified: impl FnOnce(PublicKey) -> Result<(), NoRoom>,
    ) -> Result<(Secured<S>, Open), Error> {
        let (open, early) = match timeout(header, receive_open(&mut stream)).await {
            Ok(Ok((open, _, early))) => (open, early),
            Ok(Err(NoOpen::Malformed(error))) => {
                let refusal = Refusal::from(error);
                self.refuse(stream, None, refusal.code(), String::new()).await;
                return Err(Error::Refused(refusal));
            }
            Ok(Err(NoOpen::Nothing)) => return Err(Error::Peer(io::ErrorKind::UnexpectedEof.into())),
            Ok(Err(NoOpen::Lost(error))) => return Err(Error::Peer(error)),
            Err(_) => {
                self.refuse(stream, None, StatusCode::HeaderTimeout, String::new())
                    .await;
                return Err(Error::Peer(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "no OPEN in time",
                )));
            }
        };
        if let Err(refusal) = self.admit(&open, verified) {
            let (code, detail) = refusal.told(|| self.not_offered(&open.service));
            self.refuse(stream, Some(&open), code, detail).await;
            return Err(refusal.into());
        }
        match timeout(self.handshake_timeout, self.secure(stream, &open, early.into())).await {
            Ok(Ok(tls)) => Ok((tls, open)),
            Ok(Err(error)) => Err(Error::Peer(error)),
            Err(_) => Err(Error::Peer(io::Error::new(
                io::ErrorKind::TimedOut,
                "no TLS handshake in time",
            ))),
        }
    }

    /// LH-ADMIT-1. What is shared among principals comes last.
    fn admit(
        &self,
        open: &Open,
        verified: impl FnOnce(PublicKey) -> Result<(), NoRoom>,
    ) -> Result<(), NotAdmitted> {
        let known = (self.accept)(&open.principal);
        let now = unix_ms();
        self.admission
            .acceptor(open, now, |_| known, |service| self.services.contains(service))
            .map_err(NotAdmitted::Refused)?;
        verified(open.principal).map_err(NotAdmitted::NoRoom)?;
        let mut replays = self.replays.lock().unwrap_or_else(PoisonError::into_inner);
        replays
            .admit(&open.principal, open.session_id, open.signed_at_unix_ms, now)
            .map_err(|error| NotAdmitted::Refused(error.into()))
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
    ) -> io::Result<Secured<S>> {
        // At once, not with the handshake: an initiator may wait for it before it says anything.
        stream
            .write_all(&self.answer(Some(open), StatusCode::Ok, String::new()))
            .await?;
        stream.flush().await?;
        let binding = open.binding();
        let config = tls::server_config(&self.identity, open.principal, &binding)?;
        let connection = UnbufferedServerConnection::new(Arc::new(config)).map_err(io::Error::other)?;
        let hop = HopStream::accepted(stream, early);
        Secured::establish(hop, connection, |state| tls::is_bound(state, &binding)).await
    }

    /// LH-STATUS-6: says why, and hears the initiator out for a moment.
    async fn refuse<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        open: Option<&Open>,
        code: StatusCode,
        detail: String,
    ) {
        answer_and_linger(stream, &self.answer(open, code, detail), LINGER_TIME).await;
    }

    /// The STATUS, signed if there is an OPEN to answer (LH-STATUS-7).
    fn answer(&self, open: Option<&Open>, code: StatusCode, detail: String) -> BytesMut {
        let mut status = Status::of_acceptor(code, open.map_or(UNPLACED, Open::position));
        status.detail = detail;
        status.into_answer(self.identity.signing_key(), open)
    }
}

/// Why an OPEN gets no session.
enum NotAdmitted {
    Refused(Refusal),
    NoRoom(NoRoom),
}

impl NotAdmitted {
    /// What the initiator is told.
    fn told(&self, not_offered: impl FnOnce() -> String) -> (StatusCode, String) {
        match self {
            Self::Refused(Refusal::NoService) => (StatusCode::NoService, not_offered()),
            Self::Refused(refusal) => (refusal.code(), refusal.to_string()),
            Self::NoRoom(full) => (StatusCode::Overloaded, full.to_string()),
        }
    }
}

impl From<NotAdmitted> for Error {
    fn from(refusal: NotAdmitted) -> Self {
        match refusal {
            NotAdmitted::Refused(refusal) => Self::Refused(refusal),
            NotAdmitted::NoRoom(full) => Self::NoRoom(full),
        }
    }
}

#[cfg(test)]
mod tests;
