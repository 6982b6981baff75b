//! The acceptor's side of a session set-up: reads the OPEN, checks it, answers, and completes the
//! TLS handshake.

use std::{io, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use longhaul_hop::{Conn, NoOpen, NoRoom, Payer, answer_and_linger, receive_open, unix_ms};
use longhaul_proto::{
    Admission, Open, PublicKey, Refusal, ReplayMemory, Service, Status, StatusCode,
};
use parking_lot::Mutex;
use rustls::server::UnbufferedServerConnection;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    time::{Instant, timeout},
};

use crate::{
    Error, Identity, ListenOptions, Session, SessionInfo, hop_stream::HopStream, secured::Secured,
    tls,
};

/// Time for which input of a refused initiator is still read, so that no reset overtakes the answer
/// (LH-STATUS-6).
const LINGER_TIME: Duration = Duration::from_secs(2);

/// Position reported if the OPEN could not be read (LH-CHAIN-2).
const UNPLACED: u8 = 0;

/// Predicate that returns true if a key may have sessions here.
pub(crate) type Predicate = Arc<dyn Fn(&PublicKey) -> bool + Send + Sync>;

/// The acceptor's side of sessions: the state shared by all set-ups of a listener.
///
/// Used alone, it accepts sessions over connections that this end dialled itself, or that are not
/// TCP connections of their own.
pub struct Acceptor {
    pub(crate) identity: Arc<Identity>,
    pub(crate) accept: Predicate,
    pub(crate) clock_ahead_ms: i64,
    pub(crate) handshake_timeout: Duration,
    pub(crate) services: Vec<Service>,
    pub(crate) admission: Admission,
    pub(crate) replays: Mutex<ReplayMemory<Payer>>,
}

impl Acceptor {
    /// Creates the acceptor described by `options`. Their address, congestion control and gate only
    /// apply to a listener.
    #[must_use]
    pub fn new(options: ListenOptions) -> Self {
        Self {
            admission: Admission::new(options.identity.public()),
            replays: Mutex::new(ReplayMemory::new()),
            services: options.services,
            clock_ahead_ms: options.clock_ahead_ms,
            identity: options.identity,
            accept: options.accept as Predicate,
            handshake_timeout: options.handshake_timeout,
        }
    }

    /// Accepts a session over an established connection, whichever end dialled it. The time limit
    /// for the OPEN is the default of [`ListenOptions::gate`].
    ///
    /// # Errors
    /// [`Error::Refused`] and [`Error::Peer`].
    pub async fn accept(&self, conn: Conn) -> Result<Session, Error> {
        let first_hop = conn.peer().ok();
        let header = longhaul_hop::GateLimits::default().header;
        let (tls, open) = self.set_up(conn, header, |_| Ok(())).await?;
        Ok(Session::new(tls, SessionInfo::accepted(open, first_hop)))
    }

    /// Takes one connection from its first byte to a secure session. Every wait is bounded
    /// (LH-ACCEPT-1).
    ///
    /// `header` is the time limit for the OPEN. Once the OPEN is valid, `verified` decides if there
    /// is room for one more session of its principal.
    pub(crate) async fn set_up<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        header: Duration,
        verified: impl FnOnce(PublicKey) -> Result<(), NoRoom>,
    ) -> Result<(Secured<S>, Open), Error> {
        let decide = |open: &Open| {
            verified(open.principal).map_err(NotAdmitted::NoRoom)?;
            Ok(Payer::Key(open.principal))
        };
        match self.admitted(stream, header, decide).await {
            Ok(incoming) => incoming.establish().await,
            Err(away) => Err(away.report().await),
        }
    }

    /// Takes one connection from its first byte to a valid OPEN, for a service that decides before
    /// it answers. `header` is the time limit for the OPEN.
    ///
    /// `decide` is called when only the replay check is left. It returns the payer of the session,
    /// or refuses it if the service can tell at once (LH-ADMIT-1).
    ///
    /// # Errors
    /// [`TurnedAway`], with the OPEN if one could be read. The initiator has not been answered yet.
    pub async fn receive<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        header: Duration,
        decide: impl FnOnce(&Open) -> Result<Payer, Declined>,
    ) -> Result<Incoming<'_, S>, TurnedAway<'_, S>> {
        let decide = |open: &Open| decide(open).map_err(NotAdmitted::Declined);
        self.admitted(stream, header, decide).await
    }

    async fn admitted<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mut stream: S,
        header: Duration,
        decide: impl FnOnce(&Open) -> Result<Payer, NotAdmitted>,
    ) -> Result<Incoming<'_, S>, TurnedAway<'_, S>> {
        let away = |open, error, unreported: Option<(S, Declined)>| TurnedAway {
            acceptor: self,
            open,
            error,
            unreported,
        };
        let (open, began, early) = match timeout(header, receive_open(&mut stream)).await {
            Ok(Ok(received)) => received,
            Ok(Err(NoOpen::Malformed(error))) => {
                let refusal = Refusal::from(error);
                let why = refusal.code().into();
                return Err(away(None, Error::Refused(refusal), Some((stream, why))));
            }
            Ok(Err(NoOpen::Nothing)) => {
                let nothing = io::ErrorKind::UnexpectedEof.into();
                return Err(away(None, Error::Peer(nothing), None));
            }
            Ok(Err(NoOpen::Lost(error))) => return Err(away(None, Error::Peer(error), None)),
            Err(_) => {
                let late = io::Error::new(io::ErrorKind::TimedOut, "no OPEN in time");
                let why = StatusCode::HeaderTimeout.into();
                return Err(away(None, Error::Peer(late), Some((stream, why))));
            }
        };
        if let Err(refusal) = self.admit(&open, decide) {
            let reported = refusal.reported(|| self.not_offered(&open.service));
            return Err(away(
                Some(Box::new(open)),
                refusal.into(),
                Some((stream, reported)),
            ));
        }
        Ok(Incoming {
            acceptor: self,
            stream,
            open,
            early: early.into(),
            began,
        })
    }

    /// Checks an OPEN (LH-ADMIT-1). Checks of state shared among principals come last.
    fn admit(
        &self,
        open: &Open,
        decide: impl FnOnce(&Open) -> Result<Payer, NotAdmitted>,
    ) -> Result<(), NotAdmitted> {
        let known = (self.accept)(&open.principal);
        let now = self.initiators_now();
        self.admission
            .acceptor(
                open,
                now,
                |_| known,
                |service| self.services.contains(service),
            )
            .map_err(NotAdmitted::Refused)?;
        let payer = decide(open)?;
        let mut replays = self.replays.lock();
        replays
            .admit(&payer, open.session_id, open.signed_at_unix_ms, now)
            .map_err(|error| NotAdmitted::Refused(error.into()))
    }

    /// Returns the current time by the initiators' clock, as far as it is known. That clock decides
    /// (LH-SIGN-2).
    fn initiators_now(&self) -> u64 {
        unix_ms().saturating_add_signed(self.clock_ahead_ms)
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
        // Sent at once and not with the handshake, as an initiator may wait for it before it sends
        // more.
        stream
            .write_all(&self.answer(Some(open), StatusCode::Ok.into()))
            .await?;
        stream.flush().await?;
        let binding = open.binding();
        let config = tls::server_config(&self.identity, open.principal, &binding)?;
        let connection =
            UnbufferedServerConnection::new(Arc::new(config)).map_err(io::Error::other)?;
        let hop = HopStream::accepted(stream, early);
        Secured::establish(hop, connection, |state| tls::is_bound(state, &binding)).await
    }

    /// Answers with the reason, and reads the initiator's input for a moment (LH-STATUS-6).
    async fn refuse<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        open: Option<&Open>,
        why: Declined,
    ) {
        answer_and_linger(stream, &self.answer(open, why), LINGER_TIME).await;
    }

    /// Encodes the STATUS, signed if there is an OPEN to answer (LH-STATUS-7).
    fn answer(&self, open: Option<&Open>, why: Declined) -> BytesMut {
        let mut status = Status::of_acceptor(why.code, open.map_or(UNPLACED, Open::position));
        status.detail = why.detail;
        if why.code == StatusCode::Ok {
            // LH-STATUS-9: nothing waits for the padding, and nothing else is sent in this round
            // trip.
            status.padding = open.and_then(|open| open.padding).unwrap_or(0);
        }
        if why.code == StatusCode::Expired {
            // LH-STATUS-10.
            status.clock_unix_ms = Some(self.initiators_now());
        }
        if why.code.is_dial() {
            // The server that the off-ramp could not reach.
            status.at = open.and_then(|open| open.onward.clone());
        }
        status.into_answer(self.identity.signing_key(), open)
    }
}

/// A valid OPEN that has not been answered yet; its initiator waits.
pub struct Incoming<'a, S = Conn> {
    acceptor: &'a Acceptor,
    stream: S,
    open: Open,
    early: Bytes,
    /// Arrival time of its first byte.
    began: Instant,
}

impl<S> Incoming<'_, S> {
    /// Returns the OPEN.
    #[must_use]
    pub const fn open(&self) -> &Open {
        &self.open
    }

    /// Returns the time at which the initiator gives up (LH-ROUTE-7).
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.began + self.open.setup_budget
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Incoming<'_, S> {
    /// Accepts the session: answers `Ok`, and performs the handshake.
    async fn establish(self) -> Result<(Secured<S>, Open), Error> {
        let Self {
            acceptor,
            stream,
            open,
            early,
            ..
        } = self;
        match timeout(
            acceptor.handshake_timeout,
            acceptor.secure(stream, &open, early),
        )
        .await
        {
            Ok(Ok(tls)) => Ok((tls, open)),
            Ok(Err(error)) => Err(Error::Peer(error)),
            Err(_) => Err(Error::Peer(io::Error::new(
                io::ErrorKind::TimedOut,
                "no TLS handshake in time",
            ))),
        }
    }

    /// Refuses the session: reports the reason, and ensures that it can be read (LH-STATUS-6).
    pub async fn decline(self, why: Declined) {
        self.acceptor
            .refuse(self.stream, Some(&self.open), why)
            .await;
    }
}

impl Incoming<'_> {
    /// Accepts the session: answers `Ok`, and performs the handshake.
    ///
    /// # Errors
    /// [`Error::Peer`] when the initiator does not complete the handshake.
    pub async fn accept(self) -> Result<Session, Error> {
        let first_hop = self.stream.peer().ok();
        let (tls, open) = self.establish().await?;
        Ok(Session::new(tls, SessionInfo::accepted(open, first_hop)))
    }

    /// Completes when the initiator disconnects.
    pub async fn abandoned(&self) -> io::Error {
        self.stream.broken().await
    }
}

/// Reason why a service refuses a session, as reported to the initiator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declined {
    /// Status code.
    pub code: StatusCode,
    /// Details in words; at most 256 bytes are sent.
    pub detail: String,
}

impl From<StatusCode> for Declined {
    fn from(code: StatusCode) -> Self {
        Self {
            code,
            detail: String::new(),
        }
    }
}

/// A connection that does not become a session.
pub struct TurnedAway<'a, S = Conn> {
    acceptor: &'a Acceptor,
    /// OPEN of the connection, if it could be read.
    pub open: Option<Box<Open>>,
    /// Reason of the refusal.
    pub error: Error,
    /// Stream to answer on, and the answer, until it is reported.
    unreported: Option<(S, Declined)>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> TurnedAway<'_, S> {
    /// Reports the reason to the initiator, if it is still connected, and ensures that it can be
    /// read (LH-STATUS-6).
    pub async fn report(self) -> Error {
        if let Some((stream, why)) = self.unreported {
            self.acceptor
                .refuse(stream, self.open.as_deref(), why)
                .await;
        }
        self.error
    }
}

/// Reason why an OPEN gets no session.
enum NotAdmitted {
    Refused(Refusal),
    NoRoom(NoRoom),
    Declined(Declined),
}

impl NotAdmitted {
    /// Returns the answer to the initiator.
    fn reported(&self, not_offered: impl FnOnce() -> String) -> Declined {
        let (code, detail) = match self {
            Self::Refused(Refusal::NoService) => (StatusCode::NoService, not_offered()),
            Self::Refused(refusal) => (refusal.code(), refusal.to_string()),
            Self::NoRoom(full) => (StatusCode::Overloaded, full.to_string()),
            Self::Declined(why) => (why.code, why.detail.clone()),
        };
        Declined { code, detail }
    }
}

impl From<NotAdmitted> for Error {
    fn from(refusal: NotAdmitted) -> Self {
        match refusal {
            NotAdmitted::Refused(refusal) => Self::Refused(refusal),
            NotAdmitted::NoRoom(full) => Self::NoRoom(full),
            NotAdmitted::Declined(Declined { code, detail }) => Self::Declined { code, detail },
        }
    }
}

#[cfg(test)]
mod tests;
