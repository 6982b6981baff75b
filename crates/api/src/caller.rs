//! The caller that a request proves to be from.

use longhaul_proto::PublicKey;

/// Authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Name of the user.
    pub user: String,
    /// Key that signed the request. `None` for the user that the service runs as, who needs none.
    pub key: Option<PublicKey>,
}
