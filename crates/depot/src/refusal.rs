//! Refusing an OPEN: the status, and the line in the log.

use std::net::SocketAddr;

use longhaul_hop::{Conn, NoRoom, Payer, answer_and_linger};
use longhaul_policy::NoWay;
use longhaul_proto::{Open, Refusal, Status, StatusCode};

use crate::metrics::RefusedWith;
use crate::serve::Shared;

/// Reason why an OPEN is not forwarded: the code and the detail of the status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) code: StatusCode,
    pub(crate) detail: String,
    /// True if early data may have been forwarded (LH-FALLBACK-1).
    pub(crate) forwarded: bool,
    /// Payer to whom the log line is charged; `None` until the OPEN is verified.
    pub(crate) payer: Option<Payer>,
}

impl Refused {
    pub(crate) fn new(code: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            forwarded: false,
            payer: None,
        }
    }

    pub(crate) fn on_account_of(self, payer: Payer) -> Self {
        Self {
            payer: Some(payer),
            ..self
        }
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.code(), refusal.to_string())
    }
}

impl From<NoWay> for Refused {
    fn from(no: NoWay) -> Self {
        Self::new(no.code, no.detail)
    }
}

impl From<NoRoom> for Refused {
    fn from(full: NoRoom) -> Self {
        Self::new(StatusCode::Overloaded, full.to_string())
    }
}

/// Answers with the reason (LH-DEPOT-4), and ensures that it can be read (LH-STATUS-6). `open` is
/// `None` if no OPEN could be read.
pub(crate) async fn refuse(
    shared: &Shared,
    upstream: Conn,
    peer: SocketAddr,
    open: Option<&Open>,
    why: Refused,
) {
    let Refused {
        code,
        detail,
        forwarded,
        payer,
    } = why;
    shared
        .metrics
        .opens_refused
        .get_or_create(&RefusedWith::new(code.word()))
        .inc();
    shared.events.log(payer, |left_out| {
        tracing::info!(
            session = open.map(|open| tracing::field::display(open.session_id)),
            principal = open.map(|open| tracing::field::display(open.principal)),
            destination = open.map(|open| tracing::field::display(&open.destination)),
            from = %peer,
            status = code.word(),
            detail,
            left_out,
            "OPEN refused"
        );
    });
    // A depot that could not read the OPEN does not know its position and reports 0 (LH-CHAIN-2).
    let mut status = Status::new(code, open.map_or(0, Open::position));
    status.at = open.and_then(|open| open.next().endpoint().cloned());
    status.payload_forwarded = forwarded;
    status.detail = detail;
    if code == StatusCode::Expired {
        // LH-STATUS-10.
        status.clock_unix_ms = Some(longhaul_hop::unix_ms());
    }
    let answer = status.into_answer(&shared.key, open);
    answer_and_linger(upstream, &answer, shared.timeouts.refusal).await;
}
