//! Forwarding tables: the depots that a depot adds before loose hops (LH-ROUTE-3).
//!
//! ```toml
//! [[forward]]
//! to = ["192.0.2.0/24", "*.archive.example"]  # loose hops; the most specific pattern applies
//! next_hops = ["lhk1:...@depot.example"]      # depots to add, in order of preference
//!
//! [[forward]]
//! to = ["near.archive.example"]
//! next_hops = ["direct"]                      # add none
//! ```
//!
//! The table is pure except for [`ForwardingTable::load`]. It decides by the OPEN alone: it
//! resolves no name, and a network matches only hops that the route names by their address.
#![deny(clippy::indexing_slicing)]

mod file;

use std::path::{Path, PathBuf};

use longhaul_hop::read_trusted_file;
use longhaul_proto::{Endpoint, Hop, Host, MAX_PASSED_DEPOTS, NextReceiver, Open, PublicKey};

use crate::HostPattern;
use file::Entry;

pub use file::ForwardingError;

/// Depots that a depot adds before loose hops, by patterns of those hops.
#[derive(Debug, Clone, Default)]
pub struct ForwardingTable {
    entries: Vec<Entry>,
    file: Option<PathBuf>,
}

impl ForwardingTable {
    /// Loads a table.
    ///
    /// # Errors
    /// [`ForwardingError`], which names the file, the line and the field.
    pub fn load(path: &Path) -> Result<Self, ForwardingError> {
        let text = read_trusted_file(path).map_err(|source| ForwardingError::Unreadable {
            file: path.to_owned(),
            source,
        })?;
        let mut table = Self::parse(&text, path)?;
        table.file = Some(path.to_owned());
        Ok(table)
    }

    /// Parses a table; `file` is its name in errors.
    ///
    /// # Errors
    /// [`ForwardingError`], which names the line and the field. It is one line without control
    /// characters, whatever the text contains.
    pub fn parse(text: &str, file: &Path) -> Result<Self, ForwardingError> {
        Ok(Self {
            entries: file::parse_entries(text, file)?,
            file: None,
        })
    }

    /// Returns the number of patterns.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if the table has no pattern, so that no depot is ever added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the file that the table was loaded from, if any. It is reloaded on SIGHUP.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Returns true if the table names a depot at `endpoint`.
    #[must_use]
    pub fn names(&self, endpoint: &Endpoint) -> bool {
        let mut hops = self.entries.iter().flat_map(|entry| &entry.next_hops);
        hops.any(|hop| hop.endpoint == *endpoint)
    }

    /// Returns the depot to add to `open` at the depot whose key is `me`: the first of
    /// [`ForwardingTable::next_hops`].
    #[must_use]
    pub fn next_hop(&self, open: &Open, me: &PublicKey) -> Option<&Hop> {
        self.next_hops(open, me).next()
    }

    /// Iterates over the depots that may be added to `open` at the depot whose key is `me`, in
    /// order of preference. There are none unless the next hop is loose.
    ///
    /// None of them makes the route a loop or leaves too few depots for its listed hops
    /// (LH-ROUTE-9).
    pub fn next_hops(&self, open: &Open, me: &PublicKey) -> impl Iterator<Item = &Hop> {
        let loose = match open.next_receiver() {
            NextReceiver::Hop(hop) if !hop.strict && has_room(open) => Some(hop),
            _ => None,
        };
        let entry = loose.and_then(|hop| self.most_specific(&hop.endpoint.host));
        let hops = entry.map_or(&[][..], |entry| &entry.next_hops);
        hops.iter().filter(|hop| may_be_added(hop, open, me))
    }

    /// Returns the entry with the most specific pattern that matches `host`: the name itself, else
    /// the longest suffix or prefix, else `*`.
    fn most_specific(&self, host: &Host) -> Option<&Entry> {
        self.entries
            .iter()
            .filter_map(|entry| Some((specificity(&entry.to, host)?, entry)))
            .max_by_key(|(specificity, _)| *specificity)
            .map(|(_, entry)| entry)
    }
}

/// Returns how specific a pattern that matches `host` is, or `None` if it does not match. No two
/// patterns that match one host are equally specific.
fn specificity(pattern: &HostPattern, host: &Host) -> Option<usize> {
    match (pattern, host) {
        (HostPattern::Network(network), Host::Ip(address)) => network
            .contains(address.to_canonical())
            .then(|| usize::from(network.prefix()).saturating_add(1)),
        (HostPattern::Suffix(suffix), Host::Ip(_)) => suffix.is_empty().then_some(0),
        (HostPattern::Suffix(suffix), Host::Name(name)) => {
            pattern.matches_name(name).then_some(suffix.len())
        }
        (HostPattern::Name(_), Host::Name(name)) => {
            pattern.matches_name(name).then_some(usize::MAX)
        }
        (HostPattern::Network(_), Host::Name(_)) | (HostPattern::Name(_), Host::Ip(_)) => None,
    }
}

/// Returns true if a depot can be added and the listed hops still be passed, by the hop limit
/// (LH-ROUTE-6) and by the number of depots (LH-ROUTE-4).
fn has_room(open: &Open) -> bool {
    let listed = open.route.hops().len();
    let ahead = listed.saturating_sub(usize::from(open.cursor));
    // The depot itself and the added one pass the OPEN on, and so does every hop ahead.
    let passing = ahead.saturating_add(2);
    passing <= usize::from(open.hop_limit)
        && passing.saturating_add(open.passed.len()) <= MAX_PASSED_DEPOTS
}

/// Returns true if `hop` was not passed, is not `me`, and does not come anyway (LH-ROUTE-9).
fn may_be_added(hop: &Hop, open: &Open, me: &PublicKey) -> bool {
    let listed = |other: &Hop| {
        is_same(&other.endpoint, &hop.endpoint) || (hop.key.is_some() && other.key == hop.key)
    };
    if open.route.hops().iter().any(listed) || is_same(&open.destination, &hop.endpoint) {
        return false;
    }
    // A circuit is reserved through its own depots.
    let granted = |key: Option<PublicKey>| match &open.grant {
        Some(grant) => key.is_some_and(|key| grant.depots.contains(&key)),
        None => true,
    };
    granted(hop.key)
        && match &hop.key {
            Some(key) => key != me && !open.passed.contains(key),
            // The OPEN does not name the endpoints of added depots, so this may be one of them.
            None => !has_added_depots(open),
        }
}

/// Returns true if `open` has passed depots that the route does not list, the holder included.
fn has_added_depots(open: &Open) -> bool {
    open.passed.len().saturating_add(1) > usize::from(open.cursor)
}

/// Returns true if the endpoints are written alike, up to case and a name's final dot.
fn is_same(one: &Endpoint, other: &Endpoint) -> bool {
    let host = match (&one.host, &other.host) {
        (Host::Name(one), Host::Name(other)) => {
            let bare = |name: &str| name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
            bare(one) == bare(other)
        }
        (Host::Ip(one), Host::Ip(other)) => one.to_canonical() == other.to_canonical(),
        _ => false,
    };
    host && one.port == other.port
}

#[cfg(test)]
mod tests;
