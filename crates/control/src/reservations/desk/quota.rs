//! Quota of each key.

use longhaul_control_api::principals::Permission;

use super::{Desk, DeskError};
use crate::authority::Subject;
use crate::reservations::asker::Asker;

/// A request exceeds the key's quota.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "this key has {has} {what} and asks for {asked} more, and its role allows {most}: cancel or \
    abort some, or have the operator raise {what} in the limits of its role"
)]
pub struct QuotaFault {
    /// Name of the exceeded limit, as in a role: `holds` or `reservations`.
    pub what: &'static str,
    /// Number that the key has.
    pub has: usize,
    /// Number that it requests in addition.
    pub asked: usize,
    /// Number that its role allows.
    pub most: usize,
}

impl Desk {
    /// Checks that a key may have these additional reservations and holds. It is checked before any
    /// planning, so a key at its limit costs others nothing.
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
