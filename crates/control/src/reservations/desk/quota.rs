//! How much of the books one key may have.

use longhaul_control_api::principals::Permission;

use super::{Desk, DeskError};
use crate::authority::Subject;
use crate::reservations::asker::Asker;

/// A key asks for more of the books than its role allows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "this key has {has} {what} and asks for {asked} more, and its role allows {most}: cancel or abort some, or have the operator raise {what} in the limits of its role"
)]
pub struct QuotaFault {
    /// `holds` or `reservations`, as the limits of a role name it.
    pub what: &'static str,
    /// How many it has.
    pub has: usize,
    /// How many more it asks for.
    pub asked: usize,
    /// How many its role allows.
    pub most: usize,
}

impl Desk {
    /// Checks that a key may have so many more reservations and holds. Decided before anything is
    /// planned, so that a key that has its share costs the others nothing.
    ///
    /// # Errors
    /// [`QuotaFault`].
    pub(super) fn check_quota(
        &self,
        asker: &Asker,
        permission: Permission,
        subject: &Subject,
        reservations: usize,
        holds: usize,
    ) -> Result<(), DeskError> {
        let Some(quota) = asker.quota(permission, subject) else {
            return Ok(());
        };
        let within = |what, has: usize, asked: usize, most: Option<usize>| match most {
            Some(most) if asked > 0 && has.saturating_add(asked) > most => Err(QuotaFault {
                what,
                has,
                asked,
                most,
            }),
            _ => Ok(()),
        };
        let owner = &asker.owner;
        within(
            "reservations",
            self.owned.active(owner),
            reservations,
            quota.reservations,
        )?;
        within("holds", self.owned.held(owner), holds, quota.holds)?;
        Ok(())
    }
}
