//! Callers of reservations, and their rights.

use longhaul_circuits::network::Share;
use longhaul_circuits::policy::Limits;
use longhaul_control_api::principals::{Permission, ReservationLimits, Resource, Right};

use crate::authority::{Refused, Subject, decide, limits};

/// Milliseconds in a second.
const SECOND_MS: u64 = 1_000;
/// Millionths in one per cent.
const PER_CENT: u32 = 10_000;

/// Caller of a request about reservations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    /// Key as text, or `operator`.
    pub owner: String,
    /// Display name.
    pub name: String,
    /// Rights of the caller; `None` for the operator, who may do everything.
    pub rights: Option<Vec<Right>>,
}

impl Asker {
    /// Checks that the caller has this permission for such a reservation.
    ///
    /// # Errors
    /// The caller has not.
    pub fn may(&self, permission: Permission, subject: &Subject) -> Result<(), Refused> {
        match &self.rights {
            None => Ok(()),
            Some(rights) => decide(
                &self.name,
                rights,
                Resource::Reservations,
                permission,
                subject,
            ),
        }
    }

    /// Returns alternative limits for this permission, the one with the largest share first. A
    /// request must be within one of them.
    ///
    /// # Errors
    /// The caller does not have the permission at all.
    pub fn limits(
        &self,
        permission: Permission,
        subject: &Subject,
    ) -> Result<Vec<Limits>, Refused> {
        self.may(permission, subject)?;
        let Some(rights) = &self.rights else {
            return Ok(vec![Limits::default()]);
        };
        let found = limits(rights, Resource::Reservations, permission, subject);
        let mut found: Vec<Limits> = found.iter().map(of_right).collect();
        found.sort_by_key(|limits| std::cmp::Reverse(limits.share.unwrap_or(Share::WHOLE)));
        Ok(found)
    }

    /// Returns the maximum numbers of reservations and holds under this permission; `None` for the
    /// operator.
    #[must_use]
    pub fn quota(&self, permission: Permission, subject: &Subject) -> Option<Quota> {
        let found = limits(
            self.rights.as_ref()?,
            Resource::Reservations,
            permission,
            subject,
        );
        // Of several rights, the largest number counts.
        let widest = |of: fn(&ReservationLimits) -> Option<u32>| {
            let all: Option<Vec<u32>> = found.iter().map(of).collect();
            let most = all?.into_iter().max()?;
            Some(usize::try_from(most).unwrap_or(usize::MAX))
        };
        Some(Quota {
            reservations: widest(|limits| limits.reservations),
            holds: widest(|limits| limits.holds),
        })
    }

    /// Returns the limits for a change of a reservation. If the caller may also request
    /// reservations, the changed one must be within those limits, too.
    ///
    /// # Errors
    /// The caller may not change it.
    pub fn limits_of_change(&self, subject: &Subject) -> Result<Vec<Limits>, Refused> {
        let of_change = self.limits(Permission::Modify, subject)?;
        let Ok(of_new) = self.limits(Permission::Create, subject) else {
            return Ok(of_change);
        };
        let both = of_change
            .iter()
            .flat_map(|change| of_new.iter().map(|new| narrower(change, new)));
        Ok(both.collect())
    }
}

/// Maximum numbers of a key's reservations. `None` is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Unfinished reservations.
    pub reservations: Option<usize>,
    /// Those that are held and not committed.
    pub holds: Option<usize>,
}

/// Returns limits that include only what both include.
fn narrower(one: &Limits, other: &Limits) -> Limits {
    fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
        one.into_iter().chain(other).min()
    }
    Limits {
        rate: least(one.rate, other.rate),
        duration: least(one.duration, other.duration),
        ahead: least(one.ahead, other.ahead),
        paths: least(one.paths, other.paths),
        share: least(one.share, other.share),
    }
}

fn of_right(limits: &ReservationLimits) -> Limits {
    let milliseconds = |seconds: u64| seconds.saturating_mul(SECOND_MS);
    let share = |per_cent: u8| Share::millionths(u32::from(per_cent).saturating_mul(PER_CENT));
    Limits {
        rate: limits.rate_bps,
        duration: limits.duration_s.map(milliseconds),
        ahead: limits.ahead_s.map(milliseconds),
        paths: limits
            .paths
            .map(|paths| usize::try_from(paths).unwrap_or(usize::MAX)),
        share: limits
            .link_share_percent
            .map(|per_cent| share(per_cent).unwrap_or(Share::WHOLE)),
    }
}
