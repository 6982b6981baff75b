//! Connections that register a voucher and ask for no session (LH-VOUCHER-8).

use std::{io, time::Duration};

use longhaul_proto::{Open, StatusCode};
use longhaul_service::RegistrationError;
use tokio::{io::AsyncRead, time::timeout};

use super::{Acceptor, SessionRefusal};
use crate::Error;

impl Acceptor {
    /// Reads the voucher behind `open` within `limit`, and registers it. Returns how the set-up
    /// ends, and the answer; `None` if nobody is left to answer.
    pub(super) async fn register(
        &self,
        open: &Open,
        early: &[u8],
        stream: &mut (impl AsyncRead + Unpin),
        limit: Duration,
    ) -> (Error, Option<SessionRefusal>) {
        let now = self.initiator_clock_ms();
        let registered = self.admission.register(open, early, stream, now);
        match timeout(limit, registered).await {
            Ok(Ok(())) => (Error::Registered, Some(StatusCode::Ok.into())),
            Ok(Err(RegistrationError::Refused(refusal))) => {
                let why = SessionRefusal {
                    code: refusal.code(),
                    detail: refusal.to_string(),
                };
                (Error::Refused(refusal), Some(why))
            }
            Ok(Err(RegistrationError::Lost(error))) => (Error::Peer(error), None),
            Err(_) => {
                let late = io::Error::new(io::ErrorKind::TimedOut, "no voucher arrived in time");
                (Error::Peer(late), Some(StatusCode::HeaderTimeout.into()))
            }
        }
    }
}
