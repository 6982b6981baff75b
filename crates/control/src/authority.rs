//! Access control: rights of the form (resource, permission, constraint), as in OSCARS. Pure: no
//! I/O, no clock.
//!
//! A principal has roles, a role has rights, and a request is allowed if one right of one role
//! covers it. Rights only allow and never forbid, so the order of roles and rights does not matter.
//! A request that no right covers is refused.

use std::collections::BTreeSet;

use longhaul_control_api::principals::{
    Constraint, PathOptionSet, Permission, ReservationLimits, Resource, Right, Role,
};

/// Subject of a request, as constraints see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subject {
    /// If true, it is the caller's own.
    pub own: bool,
    /// Sites that all of it belongs to; of a reservation, those at its ends.
    pub sites: BTreeSet<String>,
}

impl Subject {
    /// Creates the subject of something of the caller's own.
    #[must_use]
    pub fn own() -> Self {
        Self {
            own: true,
            sites: BTreeSet::new(),
        }
    }

    /// Creates a subject that is the caller's own if `own` is true.
    #[must_use]
    pub fn own_if(own: bool) -> Self {
        Self {
            own,
            sites: BTreeSet::new(),
        }
    }

    /// Creates a subject that is neither the caller's own nor part of any site.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }
}

/// Reason why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessDenied {
    /// The caller's roles do not include this permission at all.
    #[error(
        "no role of {who} may {permission} {resource}: grant one that may with longhaul control \
         grant"
    )]
    NoRight {
        /// Name of the caller.
        who: String,
        /// Requested action.
        permission: &'static str,
        /// Requested resource.
        resource: &'static str,
    },
    /// A role includes this permission, but not for this subject. A depot reports its own hops, and
    /// a client its own paths and transfers. The operator can give a principal the name of a host.
    #[error("{who} may {permission} {resource} only {limits}")]
    Limited {
        /// Name of the caller.
        who: String,
        /// Requested action.
        permission: &'static str,
        /// Requested resource.
        resource: &'static str,
        /// Subjects for which it would be allowed.
        limits: String,
    },
    /// No role allows these path options for such a reservation. Leave them out, or have the
    /// operator add them to `path_options` in the limits of a right.
    #[error(
        "no role of {who} allows {options} for such a reservation: leave it out, or have the \
         operator add it to path_options in the limits of its role"
    )]
    PathOptions {
        /// Name of the caller.
        who: String,
        /// The options.
        options: String,
    },
}

/// Checks that one of `rights` covers the request.
///
/// # Errors
/// [`AccessDenied`] if none does.
pub fn decide(
    who: &str,
    rights: &[Right],
    resource: Resource,
    permission: Permission,
    subject: &Subject,
) -> Result<(), AccessDenied> {
    let of_it = |right: &&Right| covers_permission(right, resource, permission);
    let constraints: Vec<&Constraint> = rights
        .iter()
        .filter(of_it)
        .map(|right| &right.constraint)
        .collect();
    if constraints
        .iter()
        .any(|constraint| covers(constraint, subject))
    {
        return Ok(());
    }
    let (who, permission, resource) = (
        who.to_owned(),
        permission_word(permission),
        resource_word(resource),
    );
    if constraints.is_empty() {
        return Err(AccessDenied::NoRight {
            who,
            permission,
            resource,
        });
    }
    let mut limits: Vec<String> = constraints.into_iter().map(limit).collect();
    limits.sort();
    limits.dedup();
    Err(AccessDenied::Limited {
        who,
        permission,
        resource,
        limits: limits.join(" or "),
    })
}

/// Returns true if these rights let a key register itself as a depot.
#[must_use]
pub fn may_register(rights: &[Right]) -> bool {
    let subject = Subject::own();
    let mut concerned = rights
        .iter()
        .filter(|right| covers_permission(right, Resource::Registrations, Permission::Write));
    concerned.any(|right| covers(&right.constraint, &subject))
}

/// Default maximum time from now to the end of a window, in seconds: 400 days.
pub const DEFAULT_AHEAD_S: u64 = 400 * 86_400;
/// Default maximum number of reservations of one key.
pub const DEFAULT_RESERVATIONS: u32 = 2_000;
/// Default maximum number of holds of one key: a recurrence on each day of a year, and some more.
pub const DEFAULT_HOLDS: u32 = 500;

/// Returns the limits of a right, with defaults for those it has not. A right to write all
/// reservations is an operator's and has no limits.
fn limits_of(right: &Right) -> ReservationLimits {
    let is_operators = right.permission == Permission::Write && right.constraint == Constraint::Any;
    let limits = match right.limits {
        None if is_operators => {
            return ReservationLimits {
                path_options: Some(PathOptionSet::all()),
                ..ReservationLimits::default()
            };
        }
        limits => limits.unwrap_or_default(),
    };
    ReservationLimits {
        ahead_s: limits.ahead_s.or(Some(DEFAULT_AHEAD_S)),
        reservations: limits.reservations.or(Some(DEFAULT_RESERVATIONS)),
        holds: limits.holds.or(Some(DEFAULT_HOLDS)),
        ..limits
    }
}

/// Returns the limits of the rights that cover a request: what is within one of them is allowed.
/// Empty if no right covers it.
#[must_use]
pub fn limits(
    rights: &[Right],
    resource: Resource,
    permission: Permission,
    subject: &Subject,
) -> BTreeSet<ReservationLimits> {
    let covering = rights.iter().filter(|right| {
        covers_permission(right, resource, permission) && covers(&right.constraint, subject)
    });
    covering.map(limits_of).collect()
}

/// Returns true if a right covers that permission. The permission to write reservations includes
/// all.
fn covers_permission(right: &Right, resource: Resource, permission: Permission) -> bool {
    let of_write = matches!(
        permission,
        Permission::Create | Permission::Modify | Permission::Signal
    );
    right.resource == resource
        && (right.permission == permission || (of_write && right.permission == Permission::Write))
}

fn covers(constraint: &Constraint, subject: &Subject) -> bool {
    match constraint {
        Constraint::Any => true,
        Constraint::Own => subject.own,
        Constraint::Site(site) => subject.sites.contains(site),
    }
}

fn limit(constraint: &Constraint) -> String {
    match constraint {
        Constraint::Any => "of anybody".to_owned(),
        Constraint::Own => "of its own".to_owned(),
        Constraint::Site(site) => format!("at site {site}"),
    }
}

const fn permission_word(permission: Permission) -> &'static str {
    match permission {
        Permission::Read => "read",
        Permission::Write => "change",
        Permission::Create => "create",
        Permission::Modify => "modify",
        Permission::Signal => "set up or tear down",
    }
}

const fn resource_word(resource: Resource) -> &'static str {
    match resource {
        Resource::Principals => "principals",
        Resource::Map => "the map",
        Resource::Registrations => "registrations",
        Resource::Measurements => "measurements",
        Resource::Forecasts => "forecasts",
        Resource::Routes => "routes",
        Resource::Transfers => "transfers",
        Resource::Probes => "probes",
        Resource::Reservations => "reservations",
        Resource::Controller => "the controller's state",
    }
}

/// Name of the operator's role.
pub const OPERATOR: &str = "operator";

/// Returns the roles that always exist.
#[must_use]
pub fn builtin_roles() -> Vec<Role> {
    use Constraint::{Any, Own};
    use Permission::{Create, Modify, Read, Signal, Write};
    let role = |name: &str, rights: Vec<(Resource, Permission, Constraint)>| Role {
        name: name.to_owned(),
        rights: rights
            .into_iter()
            .map(|(resource, permission, constraint)| Right {
                resource,
                permission,
                constraint,
                limits: None,
            })
            .collect(),
        builtin: true,
    };
    let everything = Resource::ALL
        .into_iter()
        .flat_map(|resource| [(resource, Read, Any), (resource, Write, Any)]);
    let readable = Resource::ALL
        .into_iter()
        .filter(|resource| *resource != Resource::Principals);
    vec![
        role(
            "client",
            vec![
                (Resource::Map, Read, Any),
                (Resource::Forecasts, Read, Any),
                (Resource::Routes, Read, Own),
                (Resource::Measurements, Read, Own),
                (Resource::Measurements, Write, Own),
                (Resource::Transfers, Read, Own),
                (Resource::Transfers, Write, Own),
                // The controller's name and release, but not its counters.
                (Resource::Controller, Read, Own),
            ],
        ),
        role(
            "depot",
            vec![
                (Resource::Map, Read, Any),
                (Resource::Registrations, Read, Any),
                (Resource::Registrations, Write, Own),
                (Resource::Forecasts, Read, Any),
                (Resource::Routes, Read, Own),
                (Resource::Measurements, Read, Own),
                (Resource::Measurements, Write, Own),
                (Resource::Probes, Read, Own),
                (Resource::Probes, Write, Own),
                (Resource::Controller, Read, Own),
            ],
        ),
        role(OPERATOR, everything.collect()),
        role(
            "peer",
            vec![
                (Resource::Reservations, Read, Own),
                (Resource::Reservations, Create, Any),
                (Resource::Reservations, Modify, Own),
                (Resource::Reservations, Signal, Own),
                (Resource::Controller, Read, Own),
            ],
        ),
        role(
            "reader",
            readable.map(|resource| (resource, Read, Any)).collect(),
        ),
        role(
            "reserver",
            vec![
                (Resource::Map, Read, Any),
                (Resource::Reservations, Read, Own),
                (Resource::Reservations, Create, Any),
                (Resource::Reservations, Modify, Own),
                (Resource::Reservations, Signal, Own),
                (Resource::Controller, Read, Own),
            ],
        ),
    ]
}

#[cfg(test)]
mod tests;
