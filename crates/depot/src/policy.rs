//! Who may go where through a depot. What no rule allows is denied.
//!
//! ```toml
//! [[allow]]
//! name = "campus to archive"                 # for the log; "rule 1" and so on when left out
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

mod file;
mod pattern;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longhaul_proto::{Endpoint, Host, Next, PublicKey};

use crate::relay::rate::RateLimit;
pub use file::PolicyError;
pub use pattern::{HostPattern, Network};

/// The rules of a depot, from a file in the form above.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    rules: Vec<Arc<Rule>>,
    file: Option<PathBuf>,
}

/// One rule, with what its sessions share.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) name: String,
    principals: Principals,
    to: Vec<HostPattern>,
    ports: Ports,
    next_hops: Vec<NextHop>,
    max_sessions: Option<usize>,
    sessions: AtomicUsize,
    /// Towards the acceptor, and back.
    pub(crate) limits: Option<(Arc<RateLimit>, Arc<RateLimit>)>,
}

#[derive(Debug)]
enum Principals {
    Anybody,
    These(HashSet<PublicKey>),
}

/// Port ranges, both ends included; empty means any.
#[derive(Debug)]
struct Ports(Vec<(u16, u16)>);

#[derive(Debug)]
enum NextHop {
    /// The destination itself.
    Direct,
    /// A depot: where, and at which port (any when `None`).
    Depot(HostPattern, Option<u16>),
}

/// One session's place under its rule; given back when dropped.
#[derive(Debug)]
pub(crate) struct RuleSession(Arc<Rule>);

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

    /// Reads a policy from text; `file` is what errors call it.
    ///
    /// # Errors
    /// [`PolicyError`], which names the line and the field.
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

    /// The rules that might allow this; no name has been resolved yet, and none is when there are no such rules.
    pub(crate) fn candidates(
        &self,
        principal: &PublicKey,
        destination: &Endpoint,
        next: Next<'_>,
    ) -> Vec<Arc<Rule>> {
        let might = |rule: &&Arc<Rule>| {
            rule.principals.include(principal)
                && rule.ports.include(destination.port)
                && rule.might_lead(destination, next)
        };
        self.rules.iter().filter(might).cloned().collect()
    }
}

impl Rule {
    fn might_lead(&self, destination: &Endpoint, next: Next<'_>) -> bool {
        match next {
            Next::Here => false,
            Next::Destination(destination) => {
                self.next_hops.iter().any(|hop| matches!(hop, NextHop::Direct))
                    && self
                        .to
                        .iter()
                        .any(|pattern| might_grant(pattern, &destination.host))
            }
            // Another depot will resolve the destination, by its own policy; here it is held to what is written.
            Next::Hop(hop) => {
                self.to
                    .iter()
                    .any(|pattern| grants_as_written(pattern, &destination.host))
                    && self
                        .depots(hop.endpoint.port)
                        .any(|pattern| might_grant(pattern, &hop.endpoint.host))
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
    pub(crate) fn allowed(&self, next: Next<'_>, addresses: &[SocketAddr]) -> Vec<SocketAddr> {
        let Some(endpoint) = next.endpoint() else {
            return Vec::new();
        };
        let name = match &endpoint.host {
            Host::Name(name) => Some(name.as_str()),
            Host::Ip(_) => None,
        };
        let allows = |address: &&SocketAddr| match next {
            Next::Hop(_) => self
                .depots(endpoint.port)
                .any(|pattern| pattern.grants(address.ip(), name)),
            _ => self.to.iter().any(|pattern| pattern.grants(address.ip(), name)),
        };
        addresses.iter().filter(allows).copied().collect()
    }

    /// A place for one more session, if the rule has one.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<RuleSession> {
        let max = self.max_sessions.unwrap_or(usize::MAX);
        self.sessions
            .try_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
                (now < max).then_some(now + 1)
            })
            .ok()
            .map(|_| RuleSession(Arc::clone(self)))
    }
}

impl RuleSession {
    pub(crate) fn rule(&self) -> &Rule {
        &self.0
    }
}

impl Drop for RuleSession {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Principals {
    fn include(&self, principal: &PublicKey) -> bool {
        match self {
            Self::Anybody => true,
            Self::These(keys) => keys.contains(principal),
        }
    }
}

impl Ports {
    fn include(&self, port: u16) -> bool {
        self.0.is_empty() || self.0.iter().any(|(low, high)| (*low..=*high).contains(&port))
    }
}

fn might_grant(pattern: &HostPattern, host: &Host) -> bool {
    match host {
        Host::Ip(address) => pattern.grants(*address, None),
        Host::Name(name) => pattern.might_grant(name),
    }
}

fn grants_as_written(pattern: &HostPattern, host: &Host) -> bool {
    match host {
        Host::Ip(address) => pattern.grants(*address, None),
        Host::Name(name) => pattern.names(name),
    }
}

#[cfg(test)]
mod tests;
