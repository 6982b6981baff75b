//! Who may do what: rights of the form (resource, permission, constraint), as OSCARS had them.
//! Pure: no I/O, no clock.
//!
//! A principal has roles, a role has rights, and a request is allowed if one right of one role
//! covers it. Nothing is ever forbidden by a right, so the order of roles and rights does not
//! matter, and what no right covers is refused.

use std::collections::BTreeSet;

use longhaul_control_api::principals::{
    Constraint, Permission, ReservationLimits, Resource, Right, Role,
};

/// What a request is about, as constraints see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subject {
    /// Whether it is the asker's own.
    pub own: bool,
    /// The sites that all of it belongs to; of a reservation, those at its ends.
    pub sites: BTreeSet<String>,
}

impl Subject {
    /// The asker's own.
    #[must_use]
    pub fn own() -> Self {
        Self {
            own: true,
            sites: BTreeSet::new(),
        }
    }

    /// The asker's own if that is so.
    #[must_use]
    pub fn own_if(own: bool) -> Self {
        Self {
            own,
            sites: BTreeSet::new(),
        }
    }

    /// Everybody's.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No role of the asker's has anything to do with it.
    #[error(
        "no role of {who} may {permission} {resource}: longhaul control grant gives it one that may"
    )]
    NoRight {
        /// The asker.
        who: String,
        /// What was to be done.
        permission: &'static str,
        /// To what.
        resource: &'static str,
    },
    /// Some role allows it, but not for this.
    #[error("{who} may {permission} {resource} only {limits}")]
    Limited {
        /// The asker.
        who: String,
        /// What was to be done.
        permission: &'static str,
        /// To what.
        resource: &'static str,
        /// For what it would be allowed.
        limits: String,
    },
}

/// Whether one of `rights` covers the request.
///
/// # Errors
/// [`Refused`]: none does.
pub fn decide(
    who: &str,
    rights: &[Right],
    resource: Resource,
    permission: Permission,
    subject: &Subject,
) -> Result<(), Refused> {
    let of_it = |right: &&Right| concerns(right, resource, permission);
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
        return Err(Refused::NoRight {
            who,
            permission,
            resource,
        });
    }
    let mut limits: Vec<String> = constraints.into_iter().map(limit).collect();
    limits.sort();
    limits.dedup();
    Err(Refused::Limited {
        who,
        permission,
        resource,
        limits: limits.join(" or "),
    })
}

/// Returns whether these rights let a key register itself as a depot.
#[must_use]
pub fn may_register(rights: &[Right]) -> bool {
    let subject = Subject::own();
    let mut concerned = rights
        .iter()
        .filter(|right| concerns(right, Resource::Registrations, Permission::Write));
    concerned.any(|right| covers(&right.constraint, &subject))
}

/// How far ahead a window may end where a role does not say, in seconds: 400 days.
pub const USUAL_AHEAD_S: u64 = 400 * 86_400;
/// Reservations of one key where its role does not say.
pub const USUAL_RESERVATIONS: u32 = 2_000;
/// Holds of one key where its role does not say: a recurrence of each day of a year, and some.
pub const USUAL_HOLDS: u32 = 500;

/// The limits of a right, with the usual ones where it has none. A right to write all reservations
/// is an operator's.
fn limits_of(right: &Right) -> ReservationLimits {
    let is_operators = right.permission == Permission::Write && right.constraint == Constraint::Any;
    let limits = match right.limits {
        None if is_operators => return ReservationLimits::default(),
        limits => limits.unwrap_or_default(),
    };
    ReservationLimits {
        ahead_s: limits.ahead_s.or(Some(USUAL_AHEAD_S)),
        reservations: limits.reservations.or(Some(USUAL_RESERVATIONS)),
        holds: limits.holds.or(Some(USUAL_HOLDS)),
        ..limits
    }
}

/// How much the rights that cover a request allow: what is within one of these is allowed. None
/// where no right covers it.
#[must_use]
pub fn limits(
    rights: &[Right],
    resource: Resource,
    permission: Permission,
    subject: &Subject,
) -> BTreeSet<ReservationLimits> {
    let covering = rights.iter().filter(|right| {
        concerns(right, resource, permission) && covers(&right.constraint, subject)
    });
    covering.map(limits_of).collect()
}

/// Whether a right is about that. Whoever may write reservations may do all to them.
fn concerns(right: &Right, resource: Resource, permission: Permission) -> bool {
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

/// The role of whoever runs the controller.
pub const OPERATOR: &str = "operator";

/// The roles that are always there.
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
                // What it is called, and its release; not what it counts.
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
