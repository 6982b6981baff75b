//! Refusing an OPEN: the status, and the line in the log.

use std::net::SocketAddr;

use longhaul_hop::{Conn, answer_and_linger};
use longhaul_proto::{Open, Status, StatusCode};

use crate::metrics::StatusLabel;
use crate::refusal::DepotRefusal;
use crate::state::DepotState;

/// Answers with the reason (LH-DEPOT-4), and ensures that it can be read (LH-STATUS-6). `open` is
/// `None` if no OPEN could be read.
pub(crate) async fn refuse(
    shared: &DepotState,
    upstream: Conn,
    peer: SocketAddr,
    open: Option<&Open>,
    why: DepotRefusal,
) {
    let DepotRefusal {
        code,
        detail,
        forwarded,
        tried,
        payer,
    } = why;
    shared
        .metrics
        .opens_refused
        .get_or_create(&StatusLabel::new(code.word()))
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
    status.at = tried.or_else(|| open?.next_receiver().endpoint().cloned());
    status.payload_forwarded = forwarded;
    status.detail = detail;
    if code == StatusCode::Expired {
        // LH-STATUS-10.
        status.clock_unix_ms = Some(longhaul_hop::unix_ms());
    }
    let answer = status.into_answer(&shared.key, open);
    answer_and_linger(upstream, &answer, shared.timeouts.refusal).await;
}
