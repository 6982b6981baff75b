//! A key with its names and groups.

use std::collections::BTreeSet;

use longhaul_proto::PublicKey;

/// A party that requests sessions: its key, and the names and groups that this machine believes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// Key of its sessions.
    pub key: PublicKey,
    /// Names: of the file of principals, of a certificate, or of a token.
    pub names: BTreeSet<String>,
    /// Groups that it belongs to.
    pub groups: BTreeSet<String>,
    /// Time from which some of the names and groups are no longer believed, in milliseconds since
    /// 1970-01-01 UTC; they have no end if `None`.
    pub expires_unix_ms: Option<u64>,
}

impl Principal {
    /// Returns the principal of a key about which nothing else is known.
    #[must_use]
    pub const fn from_key(key: PublicKey) -> Self {
        Self {
            key,
            names: BTreeSet::new(),
            groups: BTreeSet::new(),
            expires_unix_ms: None,
        }
    }

    /// Returns the shortest name, for logs.
    #[must_use]
    pub fn short_name(&self) -> Option<&str> {
        let shortest = self.names.iter().min_by_key(|name| name.len());
        shortest.map(String::as_str)
    }

    /// Adds names and groups that are believed until `expires_unix_ms`.
    pub fn extend(
        &mut self,
        names: impl IntoIterator<Item = String>,
        groups: impl IntoIterator<Item = String>,
        expires_unix_ms: Option<u64>,
    ) {
        self.names.extend(names);
        self.groups.extend(groups);
        self.expires_unix_ms = match (self.expires_unix_ms, expires_unix_ms) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }
}
