//! The checks a receiver makes of an OPEN, in their order (LH-ADMIT-1). Policy is asked from outside, time is passed in.

use crate::{Next, Open, OpenError, PublicKey, ReplayCache, ReplayError, StatusCode};

/// What a depot or an acceptor holds an OPEN against.
///
/// The order matters: what costs nothing comes first, nothing is remembered for a stranger, and no name is resolved
/// and nobody dialled before all of it has passed (LH-ADMIT-2).
#[derive(Debug, Clone)]
pub struct Admission {
    me: PublicKey,
    replay: ReplayCache,
}

impl Admission {
    /// The checks of the depot or acceptor with key `me`.
    #[must_use]
    pub fn new(me: PublicKey) -> Self {
        Self::with_replay(me, ReplayCache::new())
    }

    /// The same with a replay cache of another size or window.
    #[must_use]
    pub const fn with_replay(me: PublicKey, replay: ReplayCache) -> Self {
        Self { me, replay }
    }

    /// The checks of a depot: route, time, principal (`knows`), signature, replay. What the policy says of the
    /// destination and the next hop comes after, by the caller.
    ///
    /// # Errors
    /// The first [`Refusal`].
    pub fn depot(
        &mut self,
        open: &Open,
        now_unix_ms: u64,
        knows: impl FnOnce(&PublicKey) -> bool,
    ) -> Result<(), Refusal> {
        if open.next() == Next::Here {
            return Err(Refusal::Misrouted("an OPEN for the acceptor came to a depot"));
        }
        if open.hop_limit == 0 {
            return Err(Refusal::HopLimit);
        }
        if open.passed.contains(&self.me) {
            return Err(Refusal::Loop);
        }
        self.principal(open, now_unix_ms, knows)
    }

    /// The checks of the acceptor: destination, time, principal (`knows`), signature, replay.
    ///
    /// # Errors
    /// The first [`Refusal`].
    pub fn acceptor(
        &mut self,
        open: &Open,
        now_unix_ms: u64,
        knows: impl FnOnce(&PublicKey) -> bool,
    ) -> Result<(), Refusal> {
        if open.next() != Next::Here {
            return Err(Refusal::Misrouted("an OPEN for a depot came to the acceptor"));
        }
        self.principal(open, now_unix_ms, knows)
    }

    fn principal(
        &mut self,
        open: &Open,
        now_unix_ms: u64,
        knows: impl FnOnce(&PublicKey) -> bool,
    ) -> Result<(), Refusal> {
        if open.cursor == 0 {
            return Err(Refusal::Misrouted("the cursor has not left the initiator"));
        }
        self.replay.check_time(open.signed_at_unix_ms, now_unix_ms)?;
        if !knows(&open.principal) {
            return Err(Refusal::Unauthorised(open.principal));
        }
        open.verify()?;
        Ok(self
            .replay
            .check(open.session_id, open.signed_at_unix_ms, now_unix_ms)?)
    }
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
    /// It is not fresh.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The time for set-up is used up.
    #[error("the set-up budget is used up")]
    SetupTimeout,
}

impl Refusal {
    /// The code that tells the initiator.
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
            Self::Replay(ReplayError::Expired { .. } | ReplayError::Future { .. }) => StatusCode::Expired,
            Self::Replay(ReplayError::Replay) => StatusCode::Replay,
            Self::Replay(ReplayError::Full) => StatusCode::Overloaded,
            Self::SetupTimeout => StatusCode::SetupTimeout,
        }
    }
}
