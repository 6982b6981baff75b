//! Registration of a voucher for which OPENs have no room, with the receiver that refused its key
//! (LH-VOUCHER-8).

use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use longhaul_hop::unix_ms;
use longhaul_proto::{
    Chain, ChainFailure, FailureKind, MAX_PADDING_BYTES, Open, PublicKey, ResumeOffer, Route,
    ServiceName, StatusCode, Voucher,
};
use tokio::time::{Instant, timeout_at};

use crate::{
    ConnectOptions, Error, KeyVerdict, ServerTrust,
    first_hop::{MAX_SERVER_VOUCHER_BYTES, dial_first_hop, new_open},
    hop_stream::HopStream,
};

/// A voucher that may make a receiver of a refused OPEN admit it.
pub(crate) struct Registration {
    /// The voucher, encoded.
    voucher: Vec<u8>,
    /// Route to the receiver, which is the destination.
    options: ConnectOptions,
    /// Key that the receiver must prove to refuse; any if `None`.
    key: Option<PublicKey>,
}

impl Registration {
    /// Returns the registration that may help after `failure` of a session along `route`.
    ///
    /// Returns `None` if the failure has another cause, if there is no valid voucher, if the OPEN
    /// carried it, or if the receiver is a depot that the route does not name.
    pub(crate) fn after(
        failure: &ChainFailure,
        options: &ConnectOptions,
        route: &Route,
        deadline: Instant,
    ) -> Option<Self> {
        let (FailureKind::Depot(code) | FailureKind::Acceptor(code)) = failure.kind else {
            return None;
        };
        let is_refused = matches!(code, StatusCode::Unauthorised | StatusCode::Refused);
        // A delegate has the rights of its principal, whose voucher it does not have.
        if !is_refused || options.delegation.is_some() {
            return None;
        }
        let voucher = options.identity.voucher()?;
        voucher.check_time(unix_ms()).ok()?;
        let mut open = new_open(options, route, deadline).ok()?;
        if may_carry(&mut open, voucher) {
            return None;
        }
        let options = ConnectOptions {
            service: ServiceName::VOUCHER,
            purpose: None,
            size: None,
            duration: None,
            onward: None,
            grant: None,
            delegations: Vec::new(),
            is_fetch: false,
            resume: None,
            setup_observer: None,
            ..options.clone()
        };
        let options = match failure.kind {
            FailureKind::Acceptor(_) => ConnectOptions {
                route: route.clone(),
                ..options
            },
            _ => {
                let index = usize::from(failure.hop).checked_sub(1)?;
                let (before, rest) = route.hops().split_at_checked(index)?;
                let depot = rest.first()?;
                if failure.endpoint.as_ref() != Some(&depot.endpoint) {
                    return None;
                }
                ConnectOptions {
                    route: Route::new(before.to_vec()).ok()?,
                    destination: depot.endpoint.clone(),
                    destination_transport: depot.transport,
                    destination_filter: None,
                    server: match depot.key {
                        Some(key) => ServerTrust::Pinned(key),
                        // Nothing secret is sent, and no handshake asks it.
                        None => ServerTrust::Callback(Arc::new(|_, _| KeyVerdict::Unknown)),
                    },
                    ..options
                }
            }
        };
        Some(Self {
            voucher: voucher.to_bytes().ok()?,
            key: options.server.pinned(),
            options,
        })
    }

    /// Sends the voucher, and waits until the receiver has judged it.
    ///
    /// # Errors
    /// The receiver does not believe the voucher or registers none, or a hop failed.
    pub(crate) async fn send(&self, deadline: Instant) -> Result<(), Error> {
        let options = &self.options;
        let conn = dial_first_hop(options, &options.route, deadline)
            .await?
            .conn;
        let mut open = new_open(options, &options.route, deadline)?;
        open.sign(options.identity.signing_key(), unix_ms())?;
        let chain = Chain::new(&open, self.key);
        let mut bytes = BytesMut::new();
        open.for_first_hop().encode(&mut bytes)?;
        // A voucher has at most 16 KiB.
        bytes.put_u16(u16::try_from(self.voucher.len()).unwrap_or(u16::MAX));
        bytes.put_slice(&self.voucher);
        let mut hop = HopStream::initiating(conn, bytes.freeze(), chain, None, None);
        let established = timeout_at(deadline, hop.establish()).await;
        let failure = match established {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => match error.downcast::<ChainFailure>() {
                Ok(failure) => Some(failure),
                Err(_) => hop.pending_chain().map(Chain::closed),
            },
            Err(_) => hop.pending_chain().map(Chain::timed_out),
        };
        failure.map_or(Ok(()), |failure| Err(Error::Hop(Box::new(failure))))
    }
}

/// Returns true if the OPEN has room for the voucher, whatever else its set-up adds to it.
fn may_carry(open: &mut Open, voucher: &Voucher) -> bool {
    open.padding = Some(MAX_PADDING_BYTES);
    open.resume_offer = Some(ResumeOffer {
        within: open.setup_budget,
    });
    open.request_server_voucher(MAX_SERVER_VOUCHER_BYTES);
    open.add_voucher(voucher) == Ok(true)
}

/// Returns the failure of a session after its voucher was not registered for the reason `why`.
pub(crate) fn after_unregistered(mut failure: Box<ChainFailure>, why: Error) -> Box<ChainFailure> {
    match why {
        Error::Hop(reported)
            if matches!(
                reported.kind,
                FailureKind::Depot(StatusCode::Unauthorised)
                    | FailureKind::Acceptor(StatusCode::Unauthorised)
            ) =>
        {
            failure.detail = reported.detail;
        }
        error => tracing::warn!(
            %error,
            "the certificate was not shown: its chain is too long for a request, and could not be \
             registered"
        ),
    }
    failure
}
