//! Who asks, and what that one may do.

use longhaul_circuits::network::Share;
use longhaul_circuits::policy::Limits;
use longhaul_control_api::principals::{Permission, ReservationLimits, Resource, Right};

use crate::authority::{Refused, Subject, decide, limits};

/// Milliseconds of a second.
const SECOND_MS: u64 = 1_000;
/// Millionths of a per cent.
const PER_CENT: u32 = 10_000;

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    /// Its key as text, or `operator` for whoever runs the controller.
    pub owner: String,
    /// What people call it.
    pub name: String,
    /// Its rights; none of whoever runs the controller, who may do all.
    pub rights: Option<Vec<Right>>,
}

impl Asker {
    /// Whether it may do that to such a reservation.
    ///
    /// # Errors
    /// It may not.
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

    /// The limits within one of which it may do that, the widest share first.
    ///
    /// # Errors
    /// It may not do that at all.
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

    /// Reservations and holds that it may have by rights to do that; `None` for the user who runs
    /// the controller.
    #[must_use]
    pub fn quota(&self, permission: Permission, subject: &Subject) -> Option<Quota> {
        let found = limits(
            self.rights.as_ref()?,
            Resource::Reservations,
            permission,
            subject,
        );
        // Of several rights the widest counts.
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

    /// The limits for a change of a reservation: what is left of it must be within those for asking
    /// for it anew, if the asker may do that.
    ///
    /// # Errors
    /// It may not change it.
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

/// How much of the books a key may have; what is left out is not bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Reservations that are not over.
    pub reservations: Option<usize>,
    /// Those that are held and not committed.
    pub holds: Option<usize>,
}

/// What is within both.
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
