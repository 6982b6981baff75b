//! Callers of reservations, and their rights.

use longhaul_circuits::network::LinkShare;
use longhaul_circuits::policy::RequestLimits;
use longhaul_control_api::principals::{
    PathOptionSet, Permission, ReservationLimits, Resource, Right,
};

use crate::authority::{AccessDenied, Subject, decide, limits};

/// Milliseconds in a second.
const SECOND_MS: u64 = 1_000;
/// Millionths in one per cent.
const PER_CENT: u32 = 10_000;

/// Caller of a request about reservations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservationCaller {
    /// Key as text, or `operator`.
    pub owner: String,
    /// Display name.
    pub name: String,
    /// Rights of the caller; `None` for the operator, who may do everything.
    pub rights: Option<Vec<Right>>,
}

impl ReservationCaller {
    /// Checks that the caller has this permission for such a reservation.
    ///
    /// # Errors
    /// The caller has not.
    pub fn may(&self, permission: Permission, subject: &Subject) -> Result<(), AccessDenied> {
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
    /// request must be within one of them. Rights that do not allow the path options of the request
    /// do not count.
    ///
    /// # Errors
    /// The caller does not have the permission at all, or not for these path options.
    pub fn limits(
        &self,
        permission: Permission,
        subject: &Subject,
        options: PathOptionSet,
    ) -> Result<Vec<RequestLimits>, AccessDenied> {
        self.may(permission, subject)?;
        let Some(rights) = &self.rights else {
            return Ok(vec![RequestLimits::default()]);
        };
        let covering = limits(rights, Resource::Reservations, permission, subject);
        let denied = |limits: &ReservationLimits| {
            let allowed = limits.path_options;
            options.without(allowed.unwrap_or_else(PathOptionSet::default_allowed))
        };
        let found = covering.iter().filter(|limits| denied(limits).is_empty());
        let mut found: Vec<RequestLimits> = found.map(to_limits).collect();
        let closest = covering
            .iter()
            .map(denied)
            .min_by_key(|denied| denied.iter().count());
        if let Some(denied) = closest.filter(|denied| !denied.is_empty()) {
            return Err(AccessDenied::PathOptions {
                who: self.name.clone(),
                options: denied.to_string(),
            });
        }
        found.sort_by_key(|limits| std::cmp::Reverse(limits.share.unwrap_or(LinkShare::WHOLE)));
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
    pub fn limits_of_change(
        &self,
        subject: &Subject,
        options: PathOptionSet,
    ) -> Result<Vec<RequestLimits>, AccessDenied> {
        let of_change = self.limits(Permission::Modify, subject, options)?;
        let of_new = match self.limits(Permission::Create, subject, options) {
            Ok(of_new) => of_new,
            Err(denied @ AccessDenied::PathOptions { .. }) => return Err(denied),
            Err(_) => return Ok(of_change),
        };
        let both = of_change
            .iter()
            .flat_map(|change| of_new.iter().map(|new| intersect_limits(change, new)));
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
fn intersect_limits(one: &RequestLimits, other: &RequestLimits) -> RequestLimits {
    fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
        one.into_iter().chain(other).min()
    }
    RequestLimits {
        rate: least(one.rate, other.rate),
        duration: least(one.duration, other.duration),
        ahead: least(one.ahead, other.ahead),
        paths: least(one.paths, other.paths),
        share: least(one.share, other.share),
    }
}

fn to_limits(limits: &ReservationLimits) -> RequestLimits {
    let milliseconds = |seconds: u64| seconds.saturating_mul(SECOND_MS);
    let share = |per_cent: u8| LinkShare::millionths(u32::from(per_cent).saturating_mul(PER_CENT));
    RequestLimits {
        rate: limits.rate_bps,
        duration: limits.duration_s.map(milliseconds),
        ahead: limits.ahead_s.map(milliseconds),
        paths: limits
            .paths
            .map(|paths| usize::try_from(paths).unwrap_or(usize::MAX)),
        share: limits
            .link_share_percent
            .map(|per_cent| share(per_cent).unwrap_or(LinkShare::WHOLE)),
    }
}
