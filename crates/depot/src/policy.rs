//! Who may go where through a depot. What no rule allows is denied.
//!
//! ```toml
//! [[allow]]
//! name = "campus to archive"                 # no other rule has it; "rule 1" and so on when left out
//! principals = ["lhk1:..."]                  # keys of initiators; "*" is anybody with a key, so beware
//! to = ["192.0.2.0/24", "*.archive.example"] # where sessions may end
//! ports = [7511, "8000-8100"]                # at which ports; [7511] when left out
//! next_hops = ["direct", "depot.example"]    # whom this depot may dial; ["direct"] when left out
//! max_rate = "2 Gbit/s"                      # for all its sessions together, each way; no cap when left out
//! max_sessions = 100                         # at a time; no bound but the depot's own when left out
//! ```
//!
//! Addresses are checked, not names: a name is resolved once, each address is held against the rule, and the connection
//! goes to an address that passed. See [`HostPattern`] for what a pattern grants.
//!
//! This is pure but for [`Policy::load`]: what the machine's own addresses are is passed in, and the sessions and rates of a
//! rule are counted by its name in [`crate::live`].
#![deny(clippy::indexing_slicing)]

mod file;
mod network;
mod pattern;
mod reach;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_proto::{ACCEPTOR_PORT, Endpoint, Host, Next, PublicKey};

pub use file::PolicyError;
pub use network::Network;
pub use pattern::HostPattern;
pub(crate) use reach::OwnAddresses;

/// The rules of a depot, from a file in the form above.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    rules: Vec<Arc<Rule>>,
    file: Option<PathBuf>,
}

/// One rule.
#[derive(Debug)]
pub(crate) struct Rule {
    /// No other rule of the policy has it.
    pub(crate) name: Arc<str>,
    principals: Principals,
    /// Never empty.
    to: Vec<HostPattern>,
    ports: Ports,
    /// Never empty.
    next_hops: Vec<NextHop>,
    /// For all its sessions together, each way, in bits a second; no cap when `None`.
    pub(crate) max_rate: Option<u64>,
    /// At a time; no bound but the depot's own when `None`.
    pub(crate) max_sessions: Option<NonZeroUsize>,
}

/// What a policy admits as it is written, before any name is looked up.
#[derive(Debug)]
pub(crate) struct Candidates {
    /// The rules that might grant what is asked for, in the order of the file. When there are none it is refused.
    pub(crate) rules: Vec<Arc<Rule>>,
    /// Whether at least one of these rules lists the principal's key. Keys that are listed are few: what they use is
    /// accounted by key. A key that is admitted only by `"*"` costs its owner nothing, so that what it uses must be
    /// accounted by the source address.
    pub(crate) listed: bool,
}

/// Whom a rule is for.
#[derive(Debug)]
struct Principals {
    /// `"*"` is among them.
    anybody: bool,
    keys: HashSet<PublicKey>,
}

/// The destination's ports that a rule is for.
#[derive(Debug)]
enum Ports {
    /// None is named: that of acceptors.
    Default,
    /// `"any"` is among them.
    Any,
    /// Those that are named, of which there is at least one.
    Ranges(PortRange, Vec<PortRange>),
}

type PortRange = RangeInclusive<u16>;

#[derive(Debug)]
enum NextHop {
    /// The destination itself.
    Direct,
    /// A depot: where, and at which port (any when `None`).
    Depot(HostPattern, Option<u16>),
}

impl Policy {
    /// The policy that allows nothing.
    #[must_use]
    pub fn deny_all() -> Self {
        Self::default()
    }

    /// Reads a policy file.
    ///
    /// # Errors
    /// [`PolicyError`], which names the file, the line and the field.
    pub fn load(path: &Path) -> Result<Self, PolicyError> {
        let text = std::fs::read_to_string(path).map_err(|source| PolicyError::Unreadable {
            file: path.to_owned(),
            source,
        })?;
        let mut policy = Self::parse(&text, path)?;
        policy.file = Some(path.to_owned());
        Ok(policy)
    }

    /// Reads a policy from any text; `file` is what errors call it.
    ///
    /// # Errors
    /// [`PolicyError`], which names the line and the field: one line without control characters, whatever the text.
    pub fn parse(text: &str, file: &Path) -> Result<Self, PolicyError> {
        let rules = file::rules(text, file)?.into_iter().map(Arc::new).collect();
        Ok(Self { rules, file: None })
    }

    /// How many rules there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether nothing is allowed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The file it came from, if it came from one: read again on SIGHUP.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Whether any rule is for this principal. Asked before its signature is even looked at.
    pub(crate) fn knows(&self, principal: &PublicKey) -> bool {
        self.rules.iter().any(|rule| rule.principals.include(principal))
    }

    /// Its rules, in the order of the file.
    pub(crate) fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().map(Arc::as_ref)
    }

    /// What the policy admits as it is written: an OPEN of `principal` for `destination` that goes on to `next`, at a depot
    /// whose machine has the addresses `own`. No name has been looked up yet, and none is when no rule is found. An
    /// address is granted by every rule found; what a name leads to is held against [`Rule::allowed`] once it is known.
    pub(crate) fn candidates(
        &self,
        principal: &PublicKey,
        destination: &Endpoint,
        next: Next<'_>,
        own: &OwnAddresses,
    ) -> Candidates {
        let might = |rule: &&Arc<Rule>| {
            rule.principals.include(principal)
                && rule.ports.include(destination.port)
                && rule.might_lead(destination, next, own)
        };
        let rules: Vec<Arc<Rule>> = self.rules.iter().filter(might).cloned().collect();
        let listed = rules.iter().any(|rule| rule.principals.keys.contains(principal));
        Candidates { rules, listed }
    }
}

impl Rule {
    fn might_lead(&self, destination: &Endpoint, next: Next<'_>, own: &OwnAddresses) -> bool {
        match next {
            Next::Here => false,
            Next::Destination(destination) => {
                self.next_hops.iter().any(|hop| matches!(hop, NextHop::Direct))
                    && self.to.iter().any(|to| to.might_grant(&destination.host, own))
            }
            // Another depot will resolve the destination, by its own policy; here it is held to what is written.
            Next::Hop(hop) => {
                self.to
                    .iter()
                    .any(|to| to.grants_as_written(&destination.host, own))
                    && self
                        .depots(hop.endpoint.port)
                        .any(|depot| depot.might_grant(&hop.endpoint.host, own))
            }
        }
    }

    fn depots(&self, port: u16) -> impl Iterator<Item = &HostPattern> {
        self.next_hops.iter().filter_map(move |hop| match hop {
            NextHop::Depot(pattern, at) if at.is_none_or(|at| at == port) => Some(pattern),
            _ => None,
        })
    }

    /// Those of `addresses`, which `next` resolved to, that this rule lets the depot dial.
    pub(crate) fn allowed(
        &self,
        next: Next<'_>,
        addresses: &[SocketAddr],
        own: &OwnAddresses,
    ) -> Vec<SocketAddr> {
        let Some(endpoint) = next.endpoint() else {
            return Vec::new();
        };
        let name = match &endpoint.host {
            Host::Name(name) => Some(name.as_str()),
            Host::Ip(_) => None,
        };
        let allows = |address: &&SocketAddr| {
            let grants = |pattern: &HostPattern| pattern.grants(address.ip(), name, own);
            match next {
                Next::Hop(_) => self.depots(endpoint.port).any(grants),
                _ => self.to.iter().any(grants),
            }
        };
        addresses.iter().filter(allows).copied().collect()
    }
}

impl Principals {
    fn include(&self, principal: &PublicKey) -> bool {
        self.anybody || self.keys.contains(principal)
    }
}

impl Ports {
    fn include(&self, port: u16) -> bool {
        match self {
            Self::Default => port == ACCEPTOR_PORT,
            Self::Any => true,
            Self::Ranges(first, others) => {
                first.contains(&port) || others.iter().any(|range| range.contains(&port))
            }
        }
    }
}

#[cfg(test)]
mod tests;
