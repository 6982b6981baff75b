//! Reasons for which copies end, as results of the accounts.

use longhaul_accounts::CopyResult;
use longhaul_accounts::record::bounded;

use crate::error::Error;

/// Reason why a copy ends although its client is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EarlyEnd {
    /// Its grant was withdrawn.
    Revoked,
    /// Its client was presumed gone, and another copy of the same request took over its files.
    Superseded,
    /// The path of the server's root leads elsewhere. The client learns of it when it opens its
    /// next stream.
    RootDisplaced,
    /// The token that allowed it has expired.
    TokenExpired,
    /// The token that allowed it is not accepted any more.
    TokenRevoked,
}

/// Reason why a server forgets a copy that has not concluded.
#[derive(Debug, Clone)]
pub(super) enum CopyEnd {
    /// Its last stream closed in an orderly manner.
    Left,
    /// It could not begin, or its last stream ended with an error.
    Failed(CopyResult, String),
    /// All streams were lost, and none came back in time.
    Lost,
    /// The server ended it.
    Early(EarlyEnd),
    /// The server stops.
    Stopped,
}

impl CopyEnd {
    /// Returns the end of a copy that cannot begin or whose streams end because of `error`.
    pub(super) fn for_error(error: &Error) -> Self {
        Self::Failed(result_of(error), error.to_string())
    }

    /// Returns the result of a copy that ends so without a conclusion, and more about it.
    pub(super) fn result(&self) -> (CopyResult, Option<String>) {
        let (result, reason) = match self {
            Self::Failed(result, reason) => (*result, reason.as_str()),
            Self::Left => (CopyResult::Abandoned, "the client left before the end"),
            Self::Lost => (
                CopyResult::ClientLost,
                "the client did not come back in time",
            ),
            Self::Early(EarlyEnd::Revoked) => (CopyResult::Revoked, "the grant was withdrawn"),
            Self::Early(EarlyEnd::TokenExpired) => (CopyResult::Revoked, "the token has expired"),
            Self::Early(EarlyEnd::TokenRevoked) => {
                (CopyResult::Revoked, "the token is not accepted any more")
            }
            Self::Early(EarlyEnd::Superseded) => {
                let reason = "another copy of the same files replaced it";
                (CopyResult::Superseded, reason)
            }
            Self::Early(EarlyEnd::RootDisplaced) => {
                let reason = "the served directory was moved, replaced or mounted over";
                (CopyResult::RootDisplaced, reason)
            }
            Self::Stopped => (CopyResult::Stopped, "the server stopped"),
        };
        (result, Some(bounded(reason)))
    }
}

fn result_of(error: &Error) -> CopyResult {
    match error {
        Error::Protocol(_) => CopyResult::ProtocolError,
        Error::Limit(_) => CopyResult::Limit,
        Error::Disagreement => CopyResult::Disagreement,
        _ => CopyResult::Refused,
    }
}
