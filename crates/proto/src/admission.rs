//! Checks that a receiver makes of an OPEN, in order (LH-ADMIT-1), up to and including the
//! signature.
//!
//! The checks need no shared state, so any number of OPENs can be checked concurrently. The caller
//! supplies the policy and the time. Later checks and the replay memory belong to the receiver: see
//! [`ReplayMemory`](crate::ReplayMemory).

use crate::{
    DelegationFault, MAX_PASSED_DEPOTS, NextReceiver, Open, OpenError, PublicKey, ReplayError,
    ServiceName, StatusCode, VoucherFault, check_time,
};

/// Stateless checks that a depot or an acceptor applies to an OPEN.
///
/// The order matters: cheap checks come first, and nothing is remembered for an unknown key. No
/// name is resolved and no connection is opened before all checks have passed (LH-ADMIT-2).
#[derive(Debug, Clone, Copy)]
pub struct Admission {
    me: PublicKey,
    /// If true, the acceptor lets delegates read for its principals (LH-DELEGATION-7).
    accepts_delegates: bool,
}

impl Admission {
    /// Returns the checks for the depot or acceptor whose key is `me`.
    #[must_use]
    pub const fn new(me: PublicKey) -> Self {
        Self {
            me,
            accepts_delegates: false,
        }
    }

    /// Returns these checks for an acceptor that lets delegates read for its principals, if
    /// `accepts_delegates` is true (LH-DELEGATION-7).
    #[must_use]
    pub const fn with_delegates(self, accepts_delegates: bool) -> Self {
        Self {
            accepts_delegates,
            ..self
        }
    }

    /// Checks an OPEN at a depot: route, time, principal (`knows`), signature.
    ///
    /// The caller then checks the policy for the destination and the next hop, the session quota,
    /// and replay.
    ///
    /// # Errors
    /// The first [`OpenRefusal`].
    pub fn check_at_depot(
        &self,
        open: &Open,
        now_unix_ms: u64,
        knows: impl FnOnce(&PublicKey) -> bool,
    ) -> Result<(), OpenRefusal> {
        if open.next_receiver() == NextReceiver::Here {
            return Err(OpenRefusal::Misrouted(
                "this is a depot, and the request is for a server: check the destination's host \
                 and port",
            ));
        }
        if !self.is_named_by_route(open) {
            return Err(OpenRefusal::Misrouted(
                "the route names another key for this depot",
            ));
        }
        // Forwarding would push the list over its bound, so the OPEN is refused before any dial.
        if open.hop_limit == 0 || open.passed.len() >= MAX_PASSED_DEPOTS {
            return Err(OpenRefusal::HopLimit);
        }
        if open.passed.contains(&self.me) {
            return Err(OpenRefusal::Loop);
        }
        check_time_of(open, now_unix_ms)?;
        check_principal(open, knows)
    }

    /// Checks an OPEN at the acceptor: destination, time, principal (`knows`), delegation,
    /// signature, service (`offers`).
    ///
    /// The principal is [`Open::acting_for`]. The caller then checks for replay.
    ///
    /// # Errors
    /// The first [`OpenRefusal`].
    pub fn check_at_acceptor(
        &self,
        open: &Open,
        now_unix_ms: u64,
        knows: impl FnOnce(&PublicKey) -> bool,
        offers: impl FnOnce(&ServiceName) -> bool,
    ) -> Result<(), OpenRefusal> {
        if open.next_receiver() != NextReceiver::Here {
            return Err(OpenRefusal::Misrouted(
                "this is a server, and the request is for a depot: check the host and port in \
                 --route",
            ));
        }
        check_time_of(open, now_unix_ms)?;
        if let Some(delegation) = &open.delegation {
            if !self.accepts_delegates {
                return Err(OpenRefusal::NoDelegates);
            }
            // Only the signature of a known principal is worth verifying.
            if !knows(&delegation.principal) {
                return Err(OpenRefusal::Unauthorised(delegation.principal));
            }
            delegation.check_read(&open.principal, &self.me, now_unix_ms)?;
            open.verify()?;
        } else {
            check_principal(open, knows)?;
        }
        if !offers(&open.service) {
            return Err(OpenRefusal::NoService);
        }
        Ok(())
    }

    /// Returns true if the route names this key or no key here, or if this depot was added before a
    /// loose hop (LH-ROUTE-8).
    fn is_named_by_route(&self, open: &Open) -> bool {
        let added = || matches!(open.next_receiver(), NextReceiver::Hop(hop) if !hop.strict);
        open.named_key()
            .is_none_or(|key| key == self.me || (added() && open.passed.contains(&key)))
    }
}

fn check_time_of(open: &Open, now_unix_ms: u64) -> Result<(), OpenRefusal> {
    if open.cursor == 0 {
        return Err(OpenRefusal::Misrouted(
            "the cursor has not left the initiator",
        ));
    }
    Ok(check_time(open.signed_at_unix_ms, now_unix_ms)?)
}

fn check_principal(open: &Open, knows: impl FnOnce(&PublicKey) -> bool) -> Result<(), OpenRefusal> {
    if !knows(&open.principal) {
        return Err(OpenRefusal::Unauthorised(open.principal));
    }
    open.verify()
}

/// Reason why an OPEN is not admitted. [`OpenRefusal::code`] returns the status code to answer
/// with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenRefusal {
    /// The OPEN is malformed, of another version, or has an unknown critical option.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The OPEN reached the wrong kind of receiver: check the route and the ports.
    #[error("misrouted: {0}")]
    Misrouted(&'static str),
    /// The OPEN may not be forwarded: raise the hop limit or shorten the route.
    #[error("the hop limit is used up")]
    HopLimit,
    /// The OPEN has passed this depot before: fix the route.
    #[error("the route passes this depot twice: name each depot once")]
    Loop,
    /// The key is not listed: ask the operator to add it. Send what `longhaul keys show` prints, or
    /// choose another key with `--identity`.
    #[error("{0} is not listed: ask the operator to add it")]
    Unauthorised(PublicKey),
    /// The key is not listed, and the certificate that vouches for it is not believed.
    #[error(transparent)]
    Voucher(#[from] VoucherFault),
    /// The signature is not the principal's.
    #[error("the request's signature does not match its key")]
    BadSignature,
    /// The delegation under which the OPEN was made does not permit it. The text says why; the
    /// client signs a new one with each copy.
    #[error(transparent)]
    Delegation(#[from] DelegationFault),
    /// The OPEN was made under a delegation, which this receiver accepts for nothing: copy from a
    /// server (`longhaul serve`).
    #[error("no key may act for another one here")]
    NoDelegates,
    /// The acceptor does not offer the requested service: check the address, the port and the
    /// services that run there.
    #[error("the requested service is not offered here")]
    NoService,
    /// The OPEN is not fresh.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The set-up budget is used up.
    #[error("the time allowed for connecting is used up")]
    SetupTimeout,
}

impl OpenRefusal {
    /// Returns the code that is reported to the initiator.
    #[must_use]
    pub const fn code(&self) -> StatusCode {
        match self {
            Self::Open(OpenError::Version(_)) => StatusCode::NoVersion,
            Self::Open(OpenError::UnknownCritical(_)) => StatusCode::UnknownOption,
            Self::Open(_) => StatusCode::BadOpen,
            Self::Misrouted(_) => StatusCode::Misrouted,
            Self::HopLimit => StatusCode::HopLimit,
            Self::Loop => StatusCode::Loop,
            Self::Unauthorised(_) | Self::Voucher(_) | Self::Delegation(_) | Self::NoDelegates => {
                StatusCode::Unauthorised
            }
            Self::BadSignature => StatusCode::BadSignature,
            Self::NoService => StatusCode::NoService,
            Self::Replay(ReplayError::Expired { .. } | ReplayError::Future { .. }) => {
                StatusCode::Expired
            }
            Self::Replay(ReplayError::Replay) => StatusCode::Replay,
            Self::Replay(ReplayError::Full) => StatusCode::Overloaded,
            Self::SetupTimeout => StatusCode::SetupTimeout,
        }
    }
}
