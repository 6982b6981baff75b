//! The acceptor's resumable sessions: a bounded table, and requests to continue one of them.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use longhaul_hop::{Conn, HeldPermit, Payer, SharedPermits};
use longhaul_proto::{
    Open, PublicKey, ResumeAnswer, ResumeOffer, ResumeRequest, SessionId, StatusCode,
};
use longhaul_resume::{AttachError, ResumeSecret};
use parking_lot::Mutex;

use super::link::Link;
use super::{ResumableStream, ResumeMemory, ResumeObserver, SessionMemory};
use crate::SessionRefusal;

/// Settings by which an acceptor lets sessions resume.
#[derive(Clone)]
pub struct ResumeAcceptance {
    /// Maximum time without a connection. The initiator may ask for less.
    pub within: Duration,
    /// Maximum number of resumable sessions, of which one payer may have half, two a third each,
    /// and so on. Others are not resumable.
    pub sessions: usize,
    /// Memory of the sessions.
    pub memory: Arc<ResumeMemory>,
    /// Observer of lost and replaced connections.
    pub observer: ResumeObserver,
}

/// Table of the sessions that can be resumed.
pub(crate) struct ResumableSessions {
    options: ResumeAcceptance,
    permits: Arc<SharedPermits<Payer>>,
    entries: Arc<Entries>,
}

/// By principal as well, so that a session id that another key uses again replaces nothing.
type Entries = Mutex<HashMap<(PublicKey, SessionId), Entry>>;

struct Entry {
    link: Weak<Mutex<Link>>,
    secret: ResumeSecret,
}

/// Permit for one resumable session, and its memory.
pub(crate) struct ResumePermit {
    permit: HeldPermit<Payer>,
    memory: SessionMemory,
    pub(crate) offer: ResumeOffer,
}

/// Removes a session from the table when it is over.
struct TableEntry {
    entries: Arc<Entries>,
    key: (PublicKey, SessionId),
    _permit: HeldPermit<Payer>,
}

impl ResumableSessions {
    pub(crate) fn new(options: ResumeAcceptance) -> Self {
        Self {
            permits: SharedPermits::new(options.sessions),
            entries: Arc::default(),
            options,
        }
    }

    /// Takes what a resumable session needs, if the initiator offers one and there is room
    /// (LH-RESUME-2).
    pub(crate) fn reserve(&self, open: &Open, payer: Payer) -> Option<ResumePermit> {
        let offer = open.resume_offer?;
        let permit = self.permits.take(payer).ok()?;
        let memory = self.options.memory.reserve(payer)?;
        Some(ResumePermit {
            permit,
            memory,
            offer: ResumeOffer {
                within: offer.within.min(self.options.within),
            },
        })
    }

    /// Makes an established session resumable. `ahead` are bytes that were read from its connection
    /// already.
    pub(crate) fn start(
        &self,
        open: &Open,
        conn: Conn,
        ahead: &[u8],
        secret: ResumeSecret,
        permit: ResumePermit,
    ) -> Conn {
        let session = open.session_id;
        let entry = TableEntry {
            entries: Arc::clone(&self.entries),
            key: (open.principal, session),
            _permit: permit.permit,
        };
        let observer = self.options.observer.clone();
        // The entry lives as long as the session's link, which owns the observer.
        let observer = ResumeObserver::new(move |session, payer, event| {
            let _alive = &entry;
            observer.notify(session, payer, event);
        });
        let stream = ResumableStream::new(
            session,
            conn,
            ahead,
            permit.offer.within,
            permit.memory,
            None,
            observer,
        );
        let entry = Entry {
            link: Arc::downgrade(stream.link()),
            secret,
        };
        self.entries.lock().insert((open.principal, session), entry);
        Conn::Stream(Box::new(stream))
    }

    /// Continues a session over the connection of `open`, whose signature is verified
    /// (LH-RESUME-5). `answer` encodes the acceptor's answer; the connection carries it first.
    ///
    /// # Errors
    /// The refusal, and the connection to report it on.
    pub(crate) fn resume(
        &self,
        open: &Open,
        request: &ResumeRequest,
        conn: Conn,
        ahead: &[u8],
        answer: impl FnOnce(ResumeAnswer) -> Bytes,
    ) -> Result<(), (Conn, SessionRefusal)> {
        // The reply is the same whatever is wrong, so that it tells nothing about sessions of
        // others.
        let refuse = |conn, detail: String| {
            let code = StatusCode::NotResumable;
            Err((conn, SessionRefusal { code, detail }))
        };
        let key = (open.principal, request.session);
        let found = self.entries.lock().get(&key).and_then(|entry| {
            let is_proven = entry.secret.verify_request(
                &request.proof,
                request.session.as_bytes(),
                request.epoch,
                request.received,
                open.session_id.as_bytes(),
            );
            // Not dropped here: the last owner removes the entry.
            is_proven.then(|| entry.link.upgrade()).flatten()
        });
        let Some(shared) = found else {
            return refuse(conn, String::new());
        };
        let mut link = shared.lock();
        let now = link.now();
        if let Err(error) = link.end.attach(now, request.epoch, request.received) {
            link.wakers.wake_all();
            return match error {
                // The later connection is the session's.
                AttachError::Stale => {
                    let code = StatusCode::Replay;
                    let detail = error.to_string();
                    Err((conn, SessionRefusal { code, detail }))
                }
                AttachError::Closed | AttachError::Contradiction => refuse(conn, error.to_string()),
            };
        }
        let received = link.end.received();
        let proof = self
            .entries
            .lock()
            .get(&key)
            .map(|entry| entry.secret.prove_answer(received, &open.signature));
        let Some(proof) = proof else {
            return refuse(conn, String::new());
        };
        let answer = answer(ResumeAnswer { received, proof });
        link.accept(conn, ahead, answer);
        Ok(())
    }
}

impl Drop for TableEntry {
    fn drop(&mut self) {
        self.entries.lock().remove(&self.key);
    }
}

impl fmt::Debug for ResumeAcceptance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResumeAcceptance")
            .field("within", &self.within)
            .field("sessions", &self.sessions)
            .finish_non_exhaustive()
    }
}
