//! Access control: a principal has roles, and a role is a list of rights of the form (resource,
//! permission, constraint), as in OSCARS.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Key, Moment};

/// Kind of resource that a right covers.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Resource {
    /// Principals and roles.
    Principals,
    /// The map.
    Map,
    /// Registrations of depots.
    Registrations,
    /// Measurements.
    Measurements,
    /// Forecasts.
    Forecasts,
    /// Route questions and route tables.
    Routes,
    /// Transfer reports.
    Transfers,
    /// Measurements that depots are asked to take.
    Probes,
    /// Bandwidth reservations.
    Reservations,
    /// The controller's own state: its name, release and counters.
    Controller,
}

impl Resource {
    /// All resources.
    pub const ALL: [Self; 10] = [
        Self::Principals,
        Self::Map,
        Self::Registrations,
        Self::Measurements,
        Self::Forecasts,
        Self::Routes,
        Self::Transfers,
        Self::Probes,
        Self::Reservations,
        Self::Controller,
    ];
}

/// Action that a right permits.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Permission {
    /// Read without changing anything.
    Read,
    /// Add, change or remove. For reservations, this includes all permissions below.
    Write,
    /// Request, commit or abort a reservation.
    Create,
    /// Change or cancel a reservation.
    Modify,
    /// Set up or tear down the paths of a reservation.
    Signal,
}

impl Permission {
    /// All permissions.
    pub const ALL: [Self; 5] = [
        Self::Read,
        Self::Write,
        Self::Create,
        Self::Modify,
        Self::Signal,
    ];
}

/// Subset of a resource to which a right is limited.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Constraint {
    /// The whole resource.
    Any,
    /// Items of the caller's own: its registration, hops that it is an end of, its transfers, and
    /// routes that begin at it. Of reservations, those that it requested; it may request those that
    /// it is an end of.
    Own,
    /// Items that belong to one site of the map. Of reservations, those that begin or end there.
    Site(String),
}

/// Option of a reservation by which its requester chooses paths or packets. The words are those of
/// `longhaul reserve`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum PathOption {
    /// Sites that paths avoid.
    AvoidSite,
    /// Links that paths avoid.
    AvoidLink,
    /// The path to prefer if one is enough.
    Prefer,
    /// Paths that share no link or site.
    Disjoint,
    /// Sites that each path passes.
    Via,
    /// Links that paths may use.
    OnlyLinks,
    /// Maximum number of hops.
    MaxHops,
    /// Maximum latency.
    MaxLatency,
    /// Site at which the paths begin, instead of that of the source.
    Ingress,
    /// Site at which the paths end, instead of that of the destination.
    Egress,
    /// Paths named by their sites, with rates.
    Path,
    /// Source ports of the packets.
    Ports,
    /// Differentiated services code point of the packets.
    Dscp,
}

impl PathOption {
    /// All options.
    pub const ALL: [Self; 13] = [
        Self::AvoidSite,
        Self::AvoidLink,
        Self::Prefer,
        Self::Disjoint,
        Self::Via,
        Self::OnlyLinks,
        Self::MaxHops,
        Self::MaxLatency,
        Self::Ingress,
        Self::Egress,
        Self::Path,
        Self::Ports,
        Self::Dscp,
    ];

    /// Returns the word of the option.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::AvoidSite => "avoid-site",
            Self::AvoidLink => "avoid-link",
            Self::Prefer => "prefer",
            Self::Disjoint => "disjoint",
            Self::Via => "via",
            Self::OnlyLinks => "only-links",
            Self::MaxHops => "max-hops",
            Self::MaxLatency => "max-latency",
            Self::Ingress => "ingress",
            Self::Egress => "egress",
            Self::Path => "path",
            Self::Ports => "ports",
            Self::Dscp => "dscp",
        }
    }

    /// Returns true if the option narrows the choice of paths, which named paths leave none of.
    #[must_use]
    pub const fn chooses_paths(self) -> bool {
        matches!(
            self,
            Self::AvoidSite
                | Self::AvoidLink
                | Self::Prefer
                | Self::Disjoint
                | Self::Via
                | Self::OnlyLinks
                | Self::MaxHops
                | Self::MaxLatency
        )
    }
}

impl fmt::Display for PathOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Set of path options, as a list in JSON.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(from = "Vec<PathOption>", into = "Vec<PathOption>")]
pub struct PathOptionSet(u16);

impl PathOptionSet {
    /// Returns the set of all options.
    #[must_use]
    pub fn all() -> Self {
        PathOption::ALL.into_iter().collect()
    }

    /// Returns the options that a right allows if it lists none: all but those that move a path
    /// away from the sites of its ends.
    #[must_use]
    pub fn default_allowed() -> Self {
        let moves_end =
            |option: &PathOption| matches!(option, PathOption::Ingress | PathOption::Egress);
        let all = PathOption::ALL.into_iter();
        all.filter(|option| !moves_end(option)).collect()
    }

    /// Returns true if the set has an option.
    #[must_use]
    pub const fn contains(self, option: PathOption) -> bool {
        self.0 & (1 << option as u16) != 0
    }

    /// Returns the options of the set that another set does not have.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns true if the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the options in order.
    pub fn iter(self) -> impl Iterator<Item = PathOption> {
        let all = PathOption::ALL.into_iter();
        all.filter(move |option| self.contains(*option))
    }
}

impl FromIterator<PathOption> for PathOptionSet {
    fn from_iter<I: IntoIterator<Item = PathOption>>(options: I) -> Self {
        let bits = options.into_iter().map(|option| 1 << option as u16);
        Self(bits.fold(0, |all, bit: u16| all | bit))
    }
}

impl From<Vec<PathOption>> for PathOptionSet {
    fn from(options: Vec<PathOption>) -> Self {
        options.into_iter().collect()
    }
}

impl From<PathOptionSet> for Vec<PathOption> {
    fn from(set: PathOptionSet) -> Self {
        set.iter().collect()
    }
}

/// Options in words, separated by commas.
impl fmt::Display for PathOptionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.iter().map(PathOption::word).collect();
        f.write_str(&words.join(", "))
    }
}

/// Limits of a right to create or modify reservations. A limit that is left out has its stated
/// default, or does not apply. A right to write any reservation, without limits, is an operator's,
/// and none of these defaults apply to it.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    ToSchema,
)]
#[serde(default, deny_unknown_fields)]
pub struct ReservationLimits {
    /// Maximum rate of one reservation, in bit/s. A volume is also sent no faster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// Maximum length of a window, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<u64>,
    /// Maximum time from now to the end of a window, in seconds; 400 days if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ahead_s: Option<u64>,
    /// Maximum number of unfinished reservations per key, where each window of a recurrence counts;
    /// 2,000 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservations: Option<u32>,
    /// Maximum number of these that are held but not committed; 500 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds: Option<u32>,
    /// Maximum number of paths at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 8)]
    pub paths: Option<u32>,
    /// Share of a link's capacity that all reservations together may use when this one is granted,
    /// in per cent. It can only lower what the map allows for the link, which is half by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 100)]
    pub link_share_percent: Option<u8>,
    /// Path options that requests may use; all but `ingress` and `egress` if left out. An empty
    /// list allows none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<PathOption>>)]
    pub path_options: Option<PathOptionSet>,
}

/// One right of a role.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Right {
    /// Resource that the right covers.
    pub resource: Resource,
    /// Permitted action.
    pub permission: Permission,
    /// Subset of the resource.
    pub constraint: Constraint,
    /// Limits, for rights to create or modify reservations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<ReservationLimits>,
}

/// Named list of rights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Role {
    /// Name of the role.
    #[serde(default)]
    pub name: String,
    /// Rights of the role.
    #[schema(max_items = 100)]
    pub rights: Vec<Right>,
    /// If true, the role always exists and cannot be changed.
    #[serde(default)]
    pub builtin: bool,
}

/// All roles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RoleList {
    /// The roles, in alphabetical order.
    pub items: Vec<Role>,
}

/// A key with roles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Principal {
    /// Key of the principal.
    #[schema(value_type = String)]
    pub key: Key,
    /// Display name.
    pub name: String,
    /// Names of the principal's roles.
    pub roles: Vec<String>,
    /// Time when the principal was first granted a role.
    #[schema(value_type = u64)]
    pub created_ms: Moment,
}

/// All principals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PrincipalList {
    /// The principals, in alphabetical order.
    pub items: Vec<Principal>,
}

/// Body of `PUT /principals/{key}/roles/{role}`, which grants a role.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// Display name of the principal. If left out, the name stays as it is; a new principal is
    /// named by the end of its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._@-]+$")]
    pub name: Option<String>,
}
