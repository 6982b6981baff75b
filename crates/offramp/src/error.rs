//! Errors that prevent an off-ramp from running. An error of one session is a status for its
//! initiator instead.

use std::io;

/// Reason why an off-ramp does not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something that every service needs is not available, as the message says.
    #[error(transparent)]
    Service(#[from] longhaul_service::Error),
    /// The policy allows connections to no server: add a rule with `servers`.
    #[error(
        "the policy has no rule with servers, so the off-ramp may connect to none: add one with \
         servers and ports"
    )]
    NoServers,
    /// The kernel does not report this machine's addresses, which the policy needs: check that
    /// descriptors are left.
    #[error("cannot read this machine's addresses: {0}")]
    OwnAddresses(io::Error),
}
