//! The checks a receiver makes of an OPEN, in their order (LH-ADMIT-1), up to the signature. They
//! need nothing that receivers share, so any number of OPENs can be checked at a time. Policy is
//! asked from outside, time is passed in; what comes after, and the memory for replays, is the
//! receiver's: [`ReplayMemory`](crate::ReplayMemory).

use crate::{
    MAX_PASSED, Next, Open, OpenError, PublicKey, ReplayError, Service, StatusCode, check_time,
};

/// What a depot or an acceptor holds an OPEN against.
///
/// The order matters: what costs nothing comes first, nothing is remembered for a stranger, and no
/// name is resolved and nobody dialled before all of it has passed (LH-ADMIT-2).
#[derive(Debug, Clone, Copy)]
pub struct Admission {
    me: PublicKey,
}

impl Admission {
    /// The checks of the depot or acceptor with key `me`.
    #[must_use]
    pub const fn new(me: PublicKey) -> Self {
        Self { me }
    }

    /// The checks of a depot: route, time, principal (`knows`), signature. What the policy says of
    /// the destination and the next hop, the room for sessions, and replay come after, by the
    /// caller.
    ///
    /// # Errors
    /// The first [`Refusal`].
    pub fn depot(
        &self,
        open: &Open,
        now_unix_ms: u64,
        knows: impl FnOnce(&PublicKey) -> bool,
    ) -> Result<(), Refusal> {
        if open.next() == Next::Here {
            return Err(Refusal::Misrouted(
                "an OPEN for the acceptor came to a depot",
            ));
        }
        if !self.is_named(open) {
            return Err(Refusal::Misrouted(
                "the route names another key for this depot",
            ));
        }
        // The list would outgrow its bound when passed on, so it is refused before anybody is
        // dialled.
        if open.hop_limit == 0 || open.passed.len() >= MAX_PASSED {
            return Err(Refusal::HopLimit);
        }
        if open.passed.contains(&self.me) {
            return Err(Refusal::Loop);
        }
        principal(open, now_unix_ms, knows)
    }

    /// The checks of the acceptor: destination, time, principal (`knows`), signature, service
    /// (`offers`). Replay comes after, by the caller.
    ///
    /// # Errors
    /// The first [`Refusal`].
    pub fn acceptor(
        &self,
        open: &Open,
        now_unix_ms: u64,
        knows: impl FnOnce(&PublicKey) -> bool,
        offers: impl FnOnce(&Service) -> bool,
    ) -> Result<(), Refusal> {
        if open.next() != Next::Here {
            return Err(Refusal::Misrouted(
                "an OPEN for a depot came to the acceptor",
            ));
        }
        principal(open, now_unix_ms, knows)?;
        if !offers(&open.service) {
            return Err(Refusal::NoService);
        }
        Ok(())
    }

    /// LH-ROUTE-8.
    fn is_named(&self, open: &Open) -> bool {
        let added = || matches!(open.next(), Next::Hop(hop) if !hop.strict);
        open.named_key()
            .is_none_or(|key| key == self.me || (added() && open.passed.contains(&key)))
    }
}

fn principal(
    open: &Open,
    now_unix_ms: u64,
    knows: impl FnOnce(&PublicKey) -> bool,
) -> Result<(), Refusal> {
    if open.cursor == 0 {
        return Err(Refusal::Misrouted("the cursor has not left the initiator"));
    }
    check_time(open.signed_at_unix_ms, now_unix_ms)?;
    if !knows(&open.principal) {
        return Err(Refusal::Unauthorised(open.principal));
    }
    open.verify()
}

/// Why an OPEN is not admitted; [`Refusal::code`] is what to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is malformed, of another version, or demands the unknown.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It came to the wrong kind of place: check the route and the ports.
    #[error("misrouted: {0}")]
    Misrouted(&'static str),
    /// It may not be passed on: raise the limit or shorten the route.
    #[error("the hop limit is used up")]
    HopLimit,
    /// It was here before: mend the route.
    #[error("this depot had already been passed")]
    Loop,
    /// The key is not listed: ask the operator to add it.
    #[error("{0} is not listed: ask the operator to add it")]
    Unauthorised(PublicKey),
    /// The signature is not the principal's.
    #[error("the signature is not the principal's")]
    BadSignature,
    /// The acceptor does not offer what is asked for: check the address and the port, or what is
    /// served there.
    #[error("the service asked for is not offered here")]
    NoService,
    /// It is not fresh.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The time for set-up is used up.
    #[error("the set-up budget is used up")]
    SetupTimeout,
}

impl Refusal {
    /// The code that is reported to the initiator.
    #[must_use]
    pub const fn code(&self) -> StatusCode {
        match self {
            Self::Open(OpenError::Version(_)) => StatusCode::NoVersion,
            Self::Open(OpenError::UnknownCritical(_)) => StatusCode::UnknownOption,
            Self::Open(_) => StatusCode::BadOpen,
            Self::Misrouted(_) => StatusCode::Misrouted,
            Self::HopLimit => StatusCode::HopLimit,
            Self::Loop => StatusCode::Loop,
            Self::Unauthorised(_) => StatusCode::Unauthorised,
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
