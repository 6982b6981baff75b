//! Who may go where: through a depot, and by an off-ramp. What no rule allows is denied.
//!
//! ```toml
//! controllers = ["lhk1:..."]                 # keys of controllers whose grants of circuits count; none when left out
//! probes = ["lhk1:..."]                      # keys of depots that may measure the path to this one; none when left out
//!
//! [[allow]]
//! name = "campus to archive"                 # no other rule has it; "rule 1" and so on when left out
//! principals = ["lhk1:..."]                  # keys of initiators; "*" is anybody with a key, so beware
//! to = ["192.0.2.0/24", "*.archive.example"] # where sessions may end
//! ports = [7511, "8000-8100"]                # at which ports; [7511] when left out
//! next_hops = ["direct", "depot.example"]    # whom this depot may dial; ["direct"] when left out
//! max_rate = "2 Gbit/s"                      # for all its sessions together, each way; no cap when left out
//! max_sessions = 100                         # at a time; no bound but the depot's own when left out
//! max_size = "10 TiB"                        # what a session may carry each way, and must state; no bound when left out
//! max_wished_rate = "1 Gbit/s"               # the rate that a session may wish for, and must state
//! max_duration = "12h"                       # how long a session may say that it lasts, and must
//! purposes = ["nightly copy"]                # what a session must say that it is for
//!
//! [[allow]]
//! principals = ["lhk1:..."]
//! servers = ["127.0.0.1", "db.example"]      # in place of `to`: ordinary servers that an off-ramp may connect to
//! ports = [443]                              # at which ports; must be said
//! ```
//!
//! Addresses are checked, not names: a name is resolved once, each address is held against the
//! rule, and the connection goes to an address that passed. See [`HostPattern`] for what a pattern
//! grants.
//!
//! The [`Policy`] is pure but for [`Policy::load`]: what the machine's own addresses are is passed
//! in. Around it stand what asks for them and for names, the [`Finder`], and what counts sessions
//! and rates by the names of rules, [`Live`].
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing)]

mod file;
mod find;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod in_force;
mod live;
mod network;
mod own;
mod pattern;
mod reach;
mod wishes;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_hop::read_trusted_file;
use longhaul_proto::{ACCEPTOR_PORT, Endpoint, Host, Next, Open, PublicKey};

pub use file::PolicyError;
pub use find::{Finder, NoWay, Way};
pub use in_force::{InForce, Reloaded};
pub use live::{Live, NoPlace, RateLimits, RuleSession};
pub use network::Network;
pub use own::OwnAddressReader;
pub use pattern::HostPattern;
pub use reach::{OwnAddresses, is_local};
pub use wishes::{Unmet, Wishes};

/// The rules of a depot, of an off-ramp, or of both, from a file in the form above.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    rules: Vec<Arc<Rule>>,
    /// Who may measure the path to here.
    probers: Arc<HashSet<PublicKey>>,
    /// Whose grants of circuits count.
    controllers: Arc<HashSet<PublicKey>>,
    file: Option<PathBuf>,
}

/// One rule.
#[derive(Debug)]
pub struct Rule {
    /// No other rule of the policy has it.
    pub(crate) name: Arc<str>,
    principals: Principals,
    ports: Ports,
    leads: Leads,
    /// For all its sessions together, each way, in bits a second; no cap when `None`.
    pub(crate) max_rate: Option<u64>,
    /// At a time; no bound but that of who asks when `None`.
    pub(crate) max_sessions: Option<NonZeroUsize>,
    /// What its sessions must state.
    pub(crate) bounds: wishes::Bounds,
}

/// Where a rule leads. No list is ever empty.
#[derive(Debug)]
enum Leads {
    /// Through a depot.
    Relay {
        /// Where sessions end.
        to: Vec<HostPattern>,
        /// Whom the depot dials.
        next_hops: Vec<NextHop>,
    },
    /// From an off-ramp to ordinary servers.
    Servers(Vec<HostPattern>),
}

/// What a policy is asked as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A depot: its rules are those with `to`.
    Depot,
    /// An off-ramp: its rules are those with `servers`.
    Offramp,
}

/// What an OPEN asks of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked<'a> {
    /// Of a depot: to pass it on.
    Relay {
        /// Where the session is to end.
        destination: &'a Endpoint,
        /// Whom to dial.
        next: Next<'a>,
    },
    /// Of an off-ramp: to connect to this server.
    Server(&'a Endpoint),
}

/// What a policy admits as it is written, before any name is looked up.
#[derive(Debug)]
pub struct Candidates {
    /// The rules that might grant what is asked for, in the order of the file. When there are none
    /// it is refused.
    pub rules: Vec<Arc<Rule>>,
    /// Whether at least one of these rules lists the principal's key. Keys that are listed are few:
    /// what they use is accounted by key. A key that is admitted only by `"*"` costs its owner
    /// nothing, so that what it uses must be accounted by the source address.
    pub listed: bool,
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
        let text = read_trusted_file(path).map_err(|source| PolicyError::Unreadable {
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
    /// [`PolicyError`], which names the line and the field: one line without control characters,
    /// whatever the text.
    pub fn parse(text: &str, file: &Path) -> Result<Self, PolicyError> {
        let read = file::read(text, file)?;
        Ok(Self {
            rules: read.rules.into_iter().map(Arc::new).collect(),
            probers: Arc::new(read.probers),
            controllers: Arc::new(read.controllers),
            file: None,
        })
    }

    /// Whether the file names this key under `probes`: it may measure the path to here
    /// (LH-PROBE-1).
    #[must_use]
    pub fn may_probe(&self, principal: &PublicKey) -> bool {
        self.probers.contains(principal)
    }

    /// Whether the file names any `controllers`: then grants of circuits are looked at
    /// (LH-GRANT-2).
    #[must_use]
    pub fn has_controllers(&self) -> bool {
        !self.controllers.is_empty()
    }

    /// Whether the file names this key under `controllers`: its grants of circuits count here.
    #[must_use]
    pub fn trusts(&self, controller: &PublicKey) -> bool {
        self.controllers.contains(controller)
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

    /// Whether any rule for this role is for this principal. Asked before its signature is even
    /// looked at.
    #[must_use]
    pub fn knows(&self, principal: &PublicKey, role: Role) -> bool {
        self.of(role).any(|rule| rule.principals.include(principal))
    }

    /// How many rules there are for this role.
    #[must_use]
    pub fn count(&self, role: Role) -> usize {
        self.of(role).count()
    }

    fn of(&self, role: Role) -> impl Iterator<Item = &Arc<Rule>> {
        self.rules.iter().filter(move |rule| rule.role() == role)
    }

    /// Its rules, in the order of the file.
    pub(crate) fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().map(Arc::as_ref)
    }

    /// What the policy admits as it is written: what `principal` has `asked`, at a machine with the
    /// addresses `own`. No name has been looked up yet, and none is when no rule is found. An
    /// address is granted by every rule found; what a name leads to is held against
    /// [`Rule::allowed`] once it is known.
    #[must_use]
    pub fn candidates(
        &self,
        principal: &PublicKey,
        asked: Asked<'_>,
        own: &OwnAddresses,
    ) -> Candidates {
        let might = |rule: &&Arc<Rule>| {
            rule.principals.include(principal)
                && rule.ports.include(asked.destination().port)
                && rule.might_lead(asked, own)
        };
        let rules: Vec<Arc<Rule>> = self.rules.iter().filter(might).cloned().collect();
        let listed = rules.iter().any(|rule| rule.lists(principal));
        Candidates { rules, listed }
    }
}

impl<'a> Asked<'a> {
    /// What `open` asks of whoever holds it; nothing, when it ends there in another way than at an
    /// ordinary server.
    #[must_use]
    pub fn of(open: &'a Open) -> Option<Self> {
        match open.next() {
            Next::Here => open.onward.as_ref().map(Self::Server),
            next => Some(Self::Relay {
                destination: &open.destination,
                next,
            }),
        }
    }

    /// Where the session is to end, or the server to connect to.
    const fn destination(&self) -> &'a Endpoint {
        match self {
            Self::Relay { destination, .. } => destination,
            Self::Server(server) => server,
        }
    }

    /// Whom to dial.
    pub(crate) const fn dialled(&self) -> Option<&'a Endpoint> {
        match self {
            Self::Relay { next, .. } => match next {
                Next::Hop(hop) => Some(&hop.endpoint),
                Next::Destination(endpoint) => Some(endpoint),
                Next::Here => None,
            },
            Self::Server(server) => Some(server),
        }
    }
}

impl std::fmt::Display for Asked<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Relay {
                destination,
                next: Next::Hop(hop),
            } => write!(f, "{destination} by way of {}", hop.endpoint),
            _ => self.destination().fmt(f),
        }
    }
}

impl Rule {
    /// Its name, which no other rule of the policy has.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the key of `principal` is in its list.
    pub(crate) fn lists(&self, principal: &PublicKey) -> bool {
        self.principals.keys.contains(principal)
    }

    const fn role(&self) -> Role {
        match self.leads {
            Leads::Relay { .. } => Role::Depot,
            Leads::Servers(_) => Role::Offramp,
        }
    }

    fn might_lead(&self, asked: Asked<'_>, own: &OwnAddresses) -> bool {
        match (asked, &self.leads) {
            (Asked::Server(server), Leads::Servers(servers)) => servers
                .iter()
                .any(|pattern| pattern.might_grant(&server.host, own)),
            (Asked::Relay { destination, next }, Leads::Relay { to, next_hops }) => match next {
                Next::Here => false,
                Next::Destination(destination) => {
                    next_hops.iter().any(|hop| matches!(hop, NextHop::Direct))
                        && to.iter().any(|to| to.might_grant(&destination.host, own))
                }
                // Another depot will resolve the destination, by its own policy; here it is held to
                // what is written.
                Next::Hop(hop) => {
                    to.iter()
                        .any(|to| to.grants_as_written(&destination.host, own))
                        && depots(next_hops, hop.endpoint.port)
                            .any(|depot| depot.might_grant(&hop.endpoint.host, own))
                }
            },
            _ => false,
        }
    }

    /// Those of `addresses`, which whom to dial resolved to, that this rule lets be dialled.
    #[must_use]
    pub fn allowed(
        &self,
        asked: Asked<'_>,
        addresses: &[SocketAddr],
        own: &OwnAddresses,
    ) -> Vec<SocketAddr> {
        let Some(endpoint) = asked.dialled() else {
            return Vec::new();
        };
        let name = match &endpoint.host {
            Host::Name(name) => Some(name.as_str()),
            Host::Ip(_) => None,
        };
        let allows = |address: &&SocketAddr| {
            let grants = |pattern: &HostPattern| pattern.grants(address.ip(), name, own);
            match (asked, &self.leads) {
                (Asked::Server(_), Leads::Servers(servers)) => servers.iter().any(grants),
                (
                    Asked::Relay {
                        next: Next::Hop(_), ..
                    },
                    Leads::Relay { next_hops, .. },
                ) => depots(next_hops, endpoint.port).any(grants),
                (Asked::Relay { .. }, Leads::Relay { to, .. }) => to.iter().any(grants),
                _ => false,
            }
        };
        addresses.iter().filter(allows).copied().collect()
    }
}

fn depots(next_hops: &[NextHop], port: u16) -> impl Iterator<Item = &HostPattern> {
    next_hops.iter().filter_map(move |hop| match hop {
        NextHop::Depot(pattern, at) if at.is_none_or(|at| at == port) => Some(pattern),
        _ => None,
    })
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
