//! Who may ask for what: a principal has roles, and a role is a list of rights of the form
//! (resource, permission, constraint), as OSCARS had it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Key, Moment};

/// What is asked about.
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
    /// Questions for routes, and tables of routes.
    Routes,
    /// Reports of transfers.
    Transfers,
    /// What depots are to measure.
    Probes,
    /// Reservations of bandwidth.
    Reservations,
    /// The controller's own state: its name, release and counters.
    Controller,
}

impl Resource {
    /// All of them.
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

/// What is done to it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Permission {
    /// Nothing changes.
    Read,
    /// Something is added, changed or removed; of reservations, all that follows.
    Write,
    /// A reservation is asked for, committed or aborted.
    Create,
    /// A reservation is changed or cancelled.
    Modify,
    /// The paths of a reservation are set up or torn down.
    Signal,
}

impl Permission {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Read,
        Self::Write,
        Self::Create,
        Self::Modify,
        Self::Signal,
    ];
}

/// To which of them a right is limited.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Constraint {
    /// To none: all.
    Any,
    /// To what is the asker's own: its registration, hops that it is an end of, its transfers,
    /// routes that begin at it; of reservations, those that it asked for, and to ask for some,
    /// those that it is an end of.
    Own,
    /// To what belongs to one site of the map; of reservations, to those that begin or end there.
    Site(String),
}

/// How much may be reserved by a right to create or modify reservations. What is left out is not
/// capped, but where a usual limit is stated. A right to write any reservations, without limits, is
/// an operator's and has none of these either.
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
    /// The highest rate of one reservation, in bit/s. A volume goes no faster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// The longest window, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<u64>,
    /// How far ahead a window may end, in seconds; 400 days if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ahead_s: Option<u64>,
    /// Number of reservations of one key that are not over, each window of a recurrence one; 2,000
    /// if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservations: Option<u32>,
    /// Number of those that are held and not committed; 500 if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds: Option<u32>,
    /// How many paths at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 8)]
    pub paths: Option<u32>,
    /// The part of what a link carries that may be reserved by all together when this is granted,
    /// in per cent. It can only be less than what the map allows for the link: half, where the map
    /// does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 100)]
    pub link_share_percent: Option<u8>,
}

/// One right of a role.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Right {
    /// About what.
    pub resource: Resource,
    /// To do what.
    pub permission: Permission,
    /// To which of them.
    pub constraint: Constraint,
    /// How much of it, where it is to create or modify reservations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<ReservationLimits>,
}

/// A role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Role {
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// What it allows.
    #[schema(max_items = 100)]
    pub rights: Vec<Right>,
    /// Whether it is always there, and cannot be changed.
    #[serde(default)]
    pub builtin: bool,
}

/// All roles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RoleList {
    /// By their names.
    pub items: Vec<Role>,
}

/// Whoever may ask: a key with roles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Principal {
    /// Its key.
    #[schema(value_type = String)]
    pub key: Key,
    /// What people call it.
    pub name: String,
    /// The names of its roles.
    pub roles: Vec<String>,
    /// When it was first let in.
    #[schema(value_type = u64)]
    pub created_ms: Moment,
}

/// All principals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PrincipalList {
    /// By their names.
    pub items: Vec<Principal>,
}

/// What a role is granted with: `PUT /principals/{key}/roles/{role}`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// What people call the principal; if left out, it stays as it was, or is the end of its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._@-]+$")]
    pub name: Option<String>,
}
