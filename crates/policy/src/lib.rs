//! Access rules of depots and off-ramps. Whatever no rule allows is denied.
//!
//! ```toml
//! controllers = ["lhk1:..."]                 # controllers with valid circuit grants
//! probes = ["lhk1:..."]                      # depots that may measure the path to this one
//!
//! [[allow]]
//! name = "campus to archive"                 # unique name; default: "rule 1" and so on
//! principals = ["lhk1:..."]                  # keys of initiators; "*" is anybody with a key
//! to = ["192.0.2.0/24", "*.archive.example"] # destinations of sessions
//! ports = [7511, "8000-8100"]                # ports of the destinations; default: [7511]
//! next_hops = ["direct", "depot.example"]    # what this depot may dial; default: ["direct"]
//! max_rate = "2 Gbit/s"                      # of all its sessions together, per direction
//! max_sessions = 100                         # sessions at a time
//! max_size = "10 TiB"                        # size per direction that a session must state
//! max_wished_rate = "1 Gbit/s"               # rate that a session must state
//! max_duration = "12h"                       # duration that a session must state
//! purposes = ["nightly copy"]                # purposes; a session must state one of them
//!
//! [[allow]]
//! principals = ["lhk1:..."]
//! servers = ["127.0.0.1", "db.example"]      # instead of `to`: servers of an off-ramp
//! ports = [443]                              # ports of the servers; required
//! ```
//!
//! Bounds that are left out do not apply, and neither do `purposes`. A depot also has a bound of
//! its own on sessions.
//!
//! Rules are checked against addresses, not names. A name is resolved once, each address is
//! checked, and the connection goes to an address that passed. [`HostPattern`] documents what a
//! pattern grants.
//!
//! A depot may also have a [`ForwardingTable`], which names the depots that it adds before loose
//! hops.
//!
//! The [`Policy`] is pure except for [`Policy::load`]: the machine's own addresses are passed in.
//! The [`Finder`] reads those and resolves names. [`RuleUsage`] counts sessions and rates by the
//! names of rules.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing)]

mod file;
mod find;
mod forwarding;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod host_rule;
mod in_force;
mod live;
mod network;
mod own;
mod pattern;
mod position;
mod principal_watch;
mod reach;
mod wishes;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_hop::read_trusted_file;
use longhaul_identity::{Identities, Principal, PrincipalSet};
use longhaul_proto::{ACCEPTOR_PORT, Endpoint, Host, NextReceiver, Open, PublicKey};

pub use file::PolicyError;
pub use find::{Finder, ResolvedTarget, Unreachable};
pub use forwarding::{ForwardingError, ForwardingTable};
pub use host_rule::HostRule;
pub use in_force::{ActivePolicy, ReloadResult};
pub use live::{NoPermit, RuleSession, RuleUsage};
pub use network::Network;
pub use own::OwnAddressReader;
pub use pattern::HostPattern;
pub use principal_watch::PrincipalWatch;
pub use reach::{OwnAddresses, is_local};
pub use wishes::{StatedWishes, UnmetBound};

/// Rules of a depot, an off-ramp, or both, from a file in the form above.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    rules: Vec<Arc<Rule>>,
    /// Keys that may measure the path to this machine.
    probers: Arc<HashSet<PublicKey>>,
    /// Keys of controllers whose circuit grants are accepted.
    controllers: Arc<HashSet<PublicKey>>,
    file: Option<PathBuf>,
    /// Names and groups of keys.
    identities: Arc<Identities>,
}

/// Rule of a policy.
#[derive(Debug)]
pub struct Rule {
    /// Name, unique within the policy.
    pub(crate) name: Arc<str>,
    principals: PrincipalSet,
    ports: Ports,
    leads: RuleTarget,
    /// Cap on the rate of all its sessions together, in each direction, in bit/s. `None` is no cap.
    pub(crate) max_rate: Option<u64>,
    /// Maximum rate in bit/s that a depot reserves for a session in its principal's name.
    pub(crate) max_reserved_rate: Option<u64>,
    /// Maximum number of concurrent sessions. `None` is no bound of its own.
    pub(crate) max_sessions: Option<NonZeroUsize>,
    /// Bounds on what its sessions state.
    pub(crate) bounds: wishes::Bounds,
}

/// Destinations of a rule. No list is ever empty.
#[derive(Debug)]
enum RuleTarget {
    /// Through a depot.
    Relay {
        /// Destinations of sessions.
        to: Vec<HostPattern>,
        /// Next hops that the depot may dial.
        next_hops: Vec<NextHop>,
    },
    /// Ordinary servers that an off-ramp may connect to.
    Servers(Vec<HostPattern>),
}

/// Service that applies the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A depot, to which rules with `to` apply.
    Depot,
    /// An off-ramp, to which rules with `servers` apply.
    Offramp,
}

/// Connection that an OPEN requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessRequest<'a> {
    /// A depot is to forward the session.
    Relay {
        /// Destination of the session.
        destination: &'a Endpoint,
        /// Next hop to dial.
        next: NextReceiver<'a>,
    },
    /// An off-ramp is to connect to this server.
    Server(&'a Endpoint),
}

/// Rules that may allow a request, before any name is resolved.
#[derive(Debug)]
pub struct Candidates {
    /// Rules that might allow the request, in the order of the file. If empty, it is refused.
    pub rules: Vec<Arc<Rule>>,
    /// If true, at least one of these rules lists the principal. Listed keys are few, so their
    /// usage is accounted by key. A key that only `"*"` admits costs nothing to create, so its
    /// usage must be accounted by source address.
    pub listed: bool,
    /// The principal, with its names and groups at the time of the request.
    pub(crate) principal: Principal,
}

/// Destination ports that a rule applies to.
#[derive(Debug)]
enum Ports {
    /// The default port of acceptors; the rule names no port.
    Default,
    /// Any port; the rule names `"any"`.
    Any,
    /// The ranges that the rule names, at least one.
    Ranges(PortRange, Vec<PortRange>),
}

type PortRange = RangeInclusive<u16>;

#[derive(Debug)]
enum NextHop {
    /// The destination itself.
    Direct,
    /// A depot that matches the pattern, at this port or, if `None`, at any.
    Depot(HostPattern, Option<u16>),
}

impl Policy {
    /// Creates a policy that allows nothing.
    #[must_use]
    pub fn deny_all() -> Self {
        Self::default()
    }

    /// Loads a policy file.
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

    /// Parses a policy; `file` is its name in errors.
    ///
    /// # Errors
    /// [`PolicyError`], which names the line and the field. It is one line without control
    /// characters, whatever the text contains.
    pub fn parse(text: &str, file: &Path) -> Result<Self, PolicyError> {
        let read = file::parse_rules(text, file)?;
        Ok(Self {
            rules: read.rules.into_iter().map(Arc::new).collect(),
            probers: Arc::new(read.probers),
            controllers: Arc::new(read.controllers),
            file: None,
            identities: Arc::default(),
        })
    }

    /// Takes the names and groups of keys from `identities`.
    #[must_use]
    pub fn with_identities(mut self, identities: Arc<Identities>) -> Self {
        self.identities = identities;
        self
    }

    /// Returns the names and groups of keys.
    #[must_use]
    pub const fn identities(&self) -> &Arc<Identities> {
        &self.identities
    }

    /// Returns true if the file lists this key under `probes`, so that it may measure the path to
    /// this machine (LH-PROBE-1).
    #[must_use]
    pub fn may_probe(&self, principal: &PublicKey) -> bool {
        self.probers.contains(principal)
    }

    /// Returns true if the file lists any `controllers`, so that circuit grants are examined
    /// (LH-GRANT-2).
    #[must_use]
    pub fn has_controllers(&self) -> bool {
        !self.controllers.is_empty()
    }

    /// Returns true if the file lists this key under `controllers`, so that its circuit grants are
    /// accepted.
    #[must_use]
    pub fn trusts(&self, controller: &PublicKey) -> bool {
        self.controllers.contains(controller)
    }

    /// Returns the number of rules.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Returns true if nothing is allowed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the file that the policy was loaded from, if any. It is reloaded on SIGHUP.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Returns true if any rule for this role applies to the principal. Called before its signature
    /// is verified.
    #[must_use]
    pub fn has_rules_for(&self, principal: &PublicKey, role: Role) -> bool {
        let principal = self.identities.principal(principal);
        self.rules_for_role(role)
            .any(|rule| rule.principals.includes(&principal))
    }

    /// Returns true if a rule for this role lists the principal, and does not only admit anybody.
    #[must_use]
    pub fn lists_key(&self, principal: &PublicKey, role: Role) -> bool {
        let principal = self.identities.principal(principal);
        self.rules_for_role(role).any(|rule| rule.lists(&principal))
    }

    /// Returns the number of rules for this role.
    #[must_use]
    pub fn count_rules(&self, role: Role) -> usize {
        self.rules_for_role(role).count()
    }

    fn rules_for_role(&self, role: Role) -> impl Iterator<Item = &Arc<Rule>> {
        self.rules.iter().filter(move |rule| rule.role() == role)
    }

    /// Returns the rules, in the order of the file.
    pub(crate) fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().map(Arc::as_ref)
    }

    /// Returns the rules that might allow what `principal` has `asked`, on a machine with the
    /// addresses `own`. No name is resolved yet, and none need be if no rule is found. An address
    /// is granted by every rule found. The addresses of a name are checked with [`Rule::allowed`]
    /// once they are known.
    #[must_use]
    pub fn candidates(
        &self,
        principal: &PublicKey,
        asked: AccessRequest<'_>,
        own: &OwnAddresses,
    ) -> Candidates {
        let principal = self.identities.principal(principal);
        let might = |rule: &&Arc<Rule>| {
            rule.principals.includes(&principal)
                && rule.ports.include(asked.destination().port)
                && rule.might_lead(asked, own)
        };
        let rules: Vec<Arc<Rule>> = self.rules.iter().filter(might).cloned().collect();
        let listed = rules.iter().any(|rule| rule.lists(&principal));
        Candidates {
            rules,
            listed,
            principal,
        }
    }
}

impl<'a> AccessRequest<'a> {
    /// Returns what `open` requests from its receiver. `None` if the session ends at the receiver
    /// and has no ordinary server as its target.
    #[must_use]
    pub fn from_open(open: &'a Open) -> Option<Self> {
        match open.next_receiver() {
            NextReceiver::Here => open.onward.as_ref().map(Self::Server),
            next => Some(Self::Relay {
                destination: &open.destination,
                next,
            }),
        }
    }

    /// Returns the destination of the session, or the server to connect to.
    const fn destination(&self) -> &'a Endpoint {
        match self {
            Self::Relay { destination, .. } => destination,
            Self::Server(server) => server,
        }
    }

    /// Returns the endpoint to dial.
    pub(crate) const fn dialled(&self) -> Option<&'a Endpoint> {
        match self {
            Self::Relay { next, .. } => match next {
                NextReceiver::Hop(hop) => Some(&hop.endpoint),
                NextReceiver::Destination(endpoint) => Some(endpoint),
                NextReceiver::Here => None,
            },
            Self::Server(server) => Some(server),
        }
    }
}

impl std::fmt::Display for AccessRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Relay {
                destination,
                next: NextReceiver::Hop(hop),
            } => write!(f, "{destination} by way of {}", hop.endpoint),
            _ => self.destination().fmt(f),
        }
    }
}

impl Rule {
    /// Returns the rule's name, which is unique within the policy.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns true if the rule lists `principal`.
    pub(crate) fn lists(&self, principal: &Principal) -> bool {
        self.principals.lists(principal)
    }

    /// Returns true if the rule still applies to a session that it allowed, after the names of
    /// its principal have changed.
    #[must_use]
    pub fn applies_to(&self, principal: &Principal) -> bool {
        self.principals.includes(principal)
    }

    const fn role(&self) -> Role {
        match self.leads {
            RuleTarget::Relay { .. } => Role::Depot,
            RuleTarget::Servers(_) => Role::Offramp,
        }
    }

    fn might_lead(&self, asked: AccessRequest<'_>, own: &OwnAddresses) -> bool {
        match (asked, &self.leads) {
            (AccessRequest::Server(server), RuleTarget::Servers(servers)) => servers
                .iter()
                .any(|pattern| pattern.might_grant(&server.host, own)),
            (AccessRequest::Relay { destination, next }, RuleTarget::Relay { to, next_hops }) => {
                match next {
                    NextReceiver::Here => false,
                    NextReceiver::Destination(destination) => {
                        next_hops.iter().any(|hop| matches!(hop, NextHop::Direct))
                            && to.iter().any(|to| to.might_grant(&destination.host, own))
                    }
                    // The next depot resolves the destination by its own policy. Here, only its
                    // written form is checked.
                    NextReceiver::Hop(hop) => {
                        to.iter()
                            .any(|to| to.grants_as_written(&destination.host, own))
                            && depots(next_hops, hop.endpoint.port)
                                .any(|depot| depot.might_grant(&hop.endpoint.host, own))
                    }
                }
            }
            _ => false,
        }
    }

    /// Returns those of `addresses`, to which the dialled endpoint resolved, that this rule allows.
    #[must_use]
    pub fn allowed(
        &self,
        asked: AccessRequest<'_>,
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
                (AccessRequest::Server(_), RuleTarget::Servers(servers)) => {
                    servers.iter().any(grants)
                }
                (
                    AccessRequest::Relay {
                        next: NextReceiver::Hop(_),
                        ..
                    },
                    RuleTarget::Relay { next_hops, .. },
                ) => depots(next_hops, endpoint.port).any(grants),
                (AccessRequest::Relay { .. }, RuleTarget::Relay { to, .. }) => {
                    to.iter().any(grants)
                }
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
