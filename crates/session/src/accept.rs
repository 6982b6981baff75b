//! The acceptor's side of a session set-up: reads the OPEN, checks it, answers, and completes the
//! TLS handshake.

use std::{io, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use longhaul_hop::{
    Conn, Payer, QuotaExceeded, ReceiveOpenError, answer_and_linger, receive_open, unix_ms,
};
use longhaul_proto::{
    Open, OpenRefusal, PublicKey, ResumeAnswer, ResumeOffer, ServiceName, Status, StatusCode,
    VoucherFault,
};
use longhaul_service::{OpenAdmission, is_registration};
use rustls::server::UnbufferedServerConnection;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    time::{Instant, timeout},
};

use crate::{
    Error, Identity, ListenOptions, ServerVoucher, Session, SessionInfo, hop_stream::HopStream,
    resumable::ResumableSessions, secured::TlsStream, tls,
};

mod registration;

/// Time for which input of a refused initiator is still read, so that no reset overtakes the answer
/// (LH-STATUS-6).
const LINGER_TIME: Duration = Duration::from_secs(2);

/// Position reported if the OPEN could not be read (LH-CHAIN-2).
const UNKNOWN_POSITION: u8 = 0;

/// Predicate that returns true if a key may have sessions here.
pub(crate) type KeyPredicate = Arc<dyn Fn(&PublicKey) -> bool + Send + Sync>;

/// The acceptor's side of sessions: the state shared by all set-ups of a listener.
///
/// Used alone, it accepts sessions over connections that this end dialled itself, or that are not
/// TCP connections of their own.
pub struct Acceptor {
    pub(crate) identity: Arc<Identity>,
    pub(crate) accept: KeyPredicate,
    /// Services that any key may open.
    pub(crate) open_services: Vec<ServiceName>,
    pub(crate) clock_ahead_ms: i64,
    pub(crate) handshake_timeout: Duration,
    pub(crate) services: Vec<ServiceName>,
    pub(crate) admission: OpenAdmission,
    pub(crate) server_voucher: Arc<ServerVoucher>,
    /// Sessions that can be resumed; `None` if none can.
    pub(crate) resumable: Option<ResumableSessions>,
}

impl Acceptor {
    /// Creates the acceptor described by `options`. Their address, congestion control and gate only
    /// apply to a listener.
    #[must_use]
    pub fn new(options: ListenOptions) -> Self {
        Self {
            admission: OpenAdmission::new(options.identity.public(), options.identities)
                .with_delegates(options.accepts_delegates),
            services: options.services,
            open_services: options.open_services,
            clock_ahead_ms: options.clock_ahead_ms,
            identity: options.identity,
            accept: options.accept as KeyPredicate,
            handshake_timeout: options.handshake_timeout,
            server_voucher: options.server_voucher,
            resumable: options.resume.map(ResumableSessions::new),
        }
    }

    /// Accepts a session over an established connection, whichever end dialled it. The time limit
    /// for the OPEN is the default of [`ListenOptions::gate`].
    ///
    /// # Errors
    /// [`Error::Refused`] and [`Error::Peer`].
    pub async fn accept(&self, conn: Conn) -> Result<Session, Error> {
        let first_hop = conn.peer_addr().ok();
        let header = longhaul_hop::GateLimits::default().header;
        let (tls, open) = self.set_up(conn, header, |key| Ok(Payer::Key(key))).await?;
        Ok(Session::new(tls, SessionInfo::accepted(open, first_hop)))
    }

    /// Takes one connection from its first byte to a secure session. Every wait is bounded
    /// (LH-ACCEPT-1).
    ///
    /// `header` is the time limit for the OPEN. Once the OPEN is valid, `verified` decides if there
    /// is room for one more session of its principal, and who pays for it.
    pub(crate) async fn set_up<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        header: Duration,
        verified: impl FnOnce(PublicKey) -> Result<Payer, QuotaExceeded>,
    ) -> Result<(TlsStream<S>, Open), Error> {
        // Delegates cost nothing to make, so their principal pays.
        let decide =
            |open: &Open| verified(open.acting_for()).map_err(AdmissionError::QuotaExceeded);
        match self.receive_admitted(stream, header, decide).await {
            Ok(incoming) => incoming.establish(None).await,
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
    /// [`RejectedConnection`], with the OPEN if one could be read. The initiator has not been
    /// answered yet.
    pub async fn receive_open<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        header: Duration,
        decide: impl FnOnce(&Open) -> Result<Payer, SessionRefusal>,
    ) -> Result<IncomingSession<'_, S>, RejectedConnection<'_, S>> {
        let decide = |open: &Open| decide(open).map_err(AdmissionError::Declined);
        self.receive_admitted(stream, header, decide).await
    }

    async fn receive_admitted<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mut stream: S,
        header: Duration,
        decide: impl FnOnce(&Open) -> Result<Payer, AdmissionError>,
    ) -> Result<IncomingSession<'_, S>, RejectedConnection<'_, S>> {
        let away = |open, error, pending_answer: Option<(S, SessionRefusal)>| RejectedConnection {
            acceptor: self,
            open,
            error,
            unreported: pending_answer,
        };
        let (open, began, early) = match timeout(header, receive_open(&mut stream)).await {
            Ok(Ok(received)) => received,
            Ok(Err(ReceiveOpenError::Malformed(error))) => {
                let refusal = OpenRefusal::from(error);
                let why = refusal.code().into();
                return Err(away(None, Error::Refused(refusal), Some((stream, why))));
            }
            Ok(Err(ReceiveOpenError::Empty)) => {
                let nothing = io::ErrorKind::UnexpectedEof.into();
                return Err(away(None, Error::Peer(nothing), None));
            }
            Ok(Err(ReceiveOpenError::Lost(error))) => {
                return Err(away(None, Error::Peer(error), None));
            }
            Err(_) => {
                let late = io::Error::new(io::ErrorKind::TimedOut, "no request arrived in time");
                let why = StatusCode::HeaderTimeout.into();
                return Err(away(None, Error::Peer(late), Some((stream, why))));
            }
        };
        if is_registration(&open) {
            // Boxed, as few connections need the room.
            let registered = Box::pin(self.register(&open, &early, &mut stream, header)).await;
            let (end, answer) = registered;
            let unreported = answer.map(|answer| (stream, answer));
            return Err(away(Some(Box::new(open)), end, unreported));
        }
        let now = self.initiator_clock_ms();
        let fault = self.admission.read_voucher(&open, now).await;
        let payer = match self.admit(&open, fault, decide) {
            Ok(payer) => payer,
            Err(refusal) => {
                let reported = refusal.to_refusal(|| self.not_offered_detail(&open.service));
                return Err(away(
                    Some(Box::new(open)),
                    refusal.into(),
                    Some((stream, reported)),
                ));
            }
        };
        Ok(IncomingSession {
            acceptor: self,
            stream,
            open,
            payer,
            early: early.into(),
            began,
        })
    }

    /// Checks an OPEN (LH-ADMIT-1), whose voucher has this fault. Checks of state shared among
    /// principals come last.
    fn admit(
        &self,
        open: &Open,
        fault: Option<VoucherFault>,
        decide: impl FnOnce(&Open) -> Result<Payer, AdmissionError>,
    ) -> Result<Payer, AdmissionError> {
        let now = self.initiator_clock_ms();
        let offers = |service: &ServiceName| self.offers(service);
        // Delegates act for principals that are known themselves.
        let is_open = open.delegation.is_none() && self.open_services.contains(&open.service);
        self.admission
            .check_at_acceptor(open, fault, now, |key| self.knows(key) || is_open, offers)
            .map_err(AdmissionError::Refused)?;
        let payer = decide(open)?;
        self.admission
            .remember(open, &payer, now)
            .map_err(AdmissionError::Refused)?;
        Ok(payer)
    }

    /// Returns true if `key` may open every service.
    pub(crate) fn knows(&self, key: &PublicKey) -> bool {
        (self.accept)(key)
    }

    fn offers(&self, service: &ServiceName) -> bool {
        let resumes = self.resumable.is_some() && *service == ServiceName::RESUME;
        resumes || self.services.contains(service)
    }

    /// Returns the current time by the initiators' clock, as far as it is known. That clock decides
    /// (LH-SIGN-2).
    fn initiator_clock_ms(&self) -> u64 {
        unix_ms().saturating_add_signed(self.clock_ahead_ms)
    }

    fn not_offered_detail(&self, service: &ServiceName) -> String {
        let offered: Vec<_> = self.services.iter().map(ServiceName::as_str).collect();
        format!("{service}; this one offers: {}", offered.join(", "))
    }

    async fn perform_handshake<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mut stream: S,
        open: &Open,
        early: Bytes,
        consent: Option<ResumeOffer>,
    ) -> io::Result<TlsStream<S>> {
        // Sent at once and not with the handshake, as an initiator may wait for it before it sends
        // more.
        let extras = AnswerExtras {
            resume_offer: consent,
            resumed: None,
        };
        stream
            .write_all(&self.encode_answer(Some(open), StatusCode::Ok.into(), extras))
            .await?;
        stream.flush().await?;
        let binding = open.binding();
        let config = tls::server_config(&self.identity, open.principal, &binding)?;
        let connection =
            UnbufferedServerConnection::new(Arc::new(config)).map_err(io::Error::other)?;
        let hop = HopStream::accepted(stream, early);
        TlsStream::establish(hop, connection, |state| tls::is_bound(state, &binding)).await
    }

    /// Answers with the reason, and reads the initiator's input for a moment (LH-STATUS-6).
    async fn refuse<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        open: Option<&Open>,
        why: SessionRefusal,
    ) {
        let answer = self.encode_answer(open, why, AnswerExtras::default());
        answer_and_linger(stream, &answer, LINGER_TIME).await;
    }

    /// Encodes the STATUS, signed if there is an OPEN to answer (LH-STATUS-7).
    fn encode_answer(
        &self,
        open: Option<&Open>,
        why: SessionRefusal,
        extras: AnswerExtras,
    ) -> BytesMut {
        let mut status =
            Status::from_acceptor(why.code, open.map_or(UNKNOWN_POSITION, Open::position));
        status.resume_offer = extras.resume_offer;
        status.resumed = extras.resumed;
        status.detail = why.detail;
        if why.code == StatusCode::Ok {
            // LH-STATUS-9: nothing waits for the padding, and nothing else is sent in this round
            // trip.
            status.padding = open.and_then(|open| open.padding).unwrap_or(0);
            // LH-VOUCHER-6.
            if let (Some(open), Some(voucher)) = (open, self.server_voucher.current(unix_ms())) {
                status.add_server_voucher(&voucher, open);
            }
        }
        if why.code == StatusCode::Expired {
            // LH-STATUS-10.
            status.clock_unix_ms = Some(self.initiator_clock_ms());
        }
        if why.code.is_dial_failure() {
            // The server that the off-ramp could not reach.
            status.at = open.and_then(|open| open.onward.clone());
        }
        status.into_answer(self.identity.signing_key(), open)
    }
}

/// Options of an answer about resuming.
#[derive(Debug, Clone, Copy, Default)]
struct AnswerExtras {
    /// Consent to make the session resumable (LH-RESUME-2).
    resume_offer: Option<ResumeOffer>,
    /// Proof that the session continues (LH-RESUME-5).
    resumed: Option<ResumeAnswer>,
}

/// A valid OPEN that has not been answered yet; its initiator waits.
pub struct IncomingSession<'a, S = Conn> {
    acceptor: &'a Acceptor,
    stream: S,
    open: Open,
    payer: Payer,
    early: Bytes,
    /// Arrival time of its first byte.
    began: Instant,
}

impl<S> IncomingSession<'_, S> {
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

impl<S: AsyncRead + AsyncWrite + Unpin> IncomingSession<'_, S> {
    /// Accepts the session: answers `Ok`, with the consent to resume it, and performs the
    /// handshake.
    async fn establish(self, consent: Option<ResumeOffer>) -> Result<(TlsStream<S>, Open), Error> {
        let Self {
            acceptor,
            stream,
            open,
            early,
            ..
        } = self;
        match timeout(
            acceptor.handshake_timeout,
            acceptor.perform_handshake(stream, &open, early, consent),
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
    pub async fn decline(self, why: SessionRefusal) {
        self.acceptor
            .refuse(self.stream, Some(&self.open), why)
            .await;
    }
}

impl IncomingSession<'_> {
    /// Accepts the session: answers `Ok`, and performs the handshake. The session can be resumed if
    /// the initiator offers it and there is room (LH-RESUME-2).
    ///
    /// # Errors
    /// [`Error::Peer`] when the initiator does not complete the handshake.
    pub async fn accept(self) -> Result<Session, Error> {
        let first_hop = self.stream.peer_addr().ok();
        let table = self.acceptor.resumable.as_ref();
        let permit = table.and_then(|table| table.reserve(&self.open, self.payer));
        let consent = permit.as_ref().map(|permit| permit.offer);
        let (tls, open) = self.establish(consent).await?;
        let tls = match (table, permit) {
            (Some(table), Some(permit)) => tls.replace_conn(|conn, ahead, secret| {
                table.start(&open, conn, ahead, secret, permit)
            }),
            _ => tls,
        };
        let mut info = SessionInfo::accepted(open, first_hop);
        info.resumable = consent.map(|consent| consent.within);
        Ok(Session::new(tls, info))
    }

    /// Continues the session that the OPEN names over this connection (LH-RESUME-5). The OPEN's
    /// service is [`ServiceName::RESUME`].
    ///
    /// # Errors
    /// The refusal, which has been reported to the initiator.
    pub async fn resume(self) -> Result<(), SessionRefusal> {
        let Self {
            acceptor,
            stream,
            open,
            early,
            ..
        } = self;
        let (Some(table), Some(request)) = (&acceptor.resumable, &open.resume) else {
            let why = SessionRefusal::from(StatusCode::NoService);
            acceptor.refuse(stream, Some(&open), why.clone()).await;
            return Err(why);
        };
        let answer = |resumed| {
            let extras = AnswerExtras {
                resume_offer: None,
                resumed: Some(resumed),
            };
            let encoded = acceptor.encode_answer(Some(&open), StatusCode::Ok.into(), extras);
            encoded.freeze()
        };
        match table.resume(&open, request, stream, &early, answer) {
            Ok(()) => Ok(()),
            Err((stream, why)) => {
                acceptor.refuse(stream, Some(&open), why.clone()).await;
                Err(why)
            }
        }
    }

    /// Completes when the initiator disconnects.
    pub async fn disconnected(&self) -> io::Error {
        self.stream.broken().await
    }
}

/// Reason why a service refuses a session, as reported to the initiator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRefusal {
    /// Status code.
    pub code: StatusCode,
    /// Details in words; at most 256 bytes are sent.
    pub detail: String,
}

impl From<StatusCode> for SessionRefusal {
    fn from(code: StatusCode) -> Self {
        Self {
            code,
            detail: String::new(),
        }
    }
}

/// A connection that does not become a session.
pub struct RejectedConnection<'a, S = Conn> {
    acceptor: &'a Acceptor,
    /// OPEN of the connection, if it could be read.
    pub open: Option<Box<Open>>,
    /// Reason of the refusal.
    pub error: Error,
    /// Stream to answer on, and the answer, until it is reported.
    unreported: Option<(S, SessionRefusal)>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> RejectedConnection<'_, S> {
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
enum AdmissionError {
    Refused(OpenRefusal),
    QuotaExceeded(QuotaExceeded),
    Declined(SessionRefusal),
}

impl AdmissionError {
    /// Returns the answer to the initiator.
    fn to_refusal(&self, not_offered: impl FnOnce() -> String) -> SessionRefusal {
        let (code, detail) = match self {
            Self::Refused(OpenRefusal::NoService) => (StatusCode::NoService, not_offered()),
            Self::Refused(refusal) => (refusal.code(), refusal.to_string()),
            Self::QuotaExceeded(full) => (StatusCode::Overloaded, full.to_string()),
            Self::Declined(why) => (why.code, why.detail.clone()),
        };
        SessionRefusal { code, detail }
    }
}

impl From<AdmissionError> for Error {
    fn from(refusal: AdmissionError) -> Self {
        match refusal {
            AdmissionError::Refused(refusal) => Self::Refused(refusal),
            AdmissionError::QuotaExceeded(full) => Self::QuotaExceeded(full),
            AdmissionError::Declined(SessionRefusal { code, detail }) => {
                Self::Declined { code, detail }
            }
        }
    }
}

#[cfg(test)]
mod tests;
