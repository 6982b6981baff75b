//! Reservations that delegates requested.

use longhaul_circuits::ledger::ReservationId;

use super::{ReservationError, ReservationStore};
use crate::reservations::delegated::RecordedDelegation;

impl ReservationStore {
    /// Checks that a delegation has no reservation that is not over (LH-DELEGATION-4).
    ///
    /// # Errors
    /// [`ReservationError::DelegationUsed`].
    pub(super) fn check_unused(
        &self,
        delegation: Option<&RecordedDelegation>,
    ) -> Result<(), ReservationError> {
        let Some(given) = delegation else {
            return Ok(());
        };
        let mut using = self.details.iter().filter(|(id, detail)| {
            let used = detail.delegation.as_ref();
            used.is_some_and(|used| used.text == given.text) && !self.over.contains_key(id)
        });
        match using.next() {
            Some((id, _)) => Err(ReservationError::DelegationUsed(id.0)),
            None => Ok(()),
        }
    }

    /// Returns the owner of a reservation that this key requested as its delegate.
    #[must_use]
    pub fn delegating_owner(&self, delegate: &str, id: ReservationId) -> Option<&str> {
        let detail = self.details.get(&id)?;
        let given = detail.delegation.as_ref()?;
        (given.delegate == delegate).then_some(&*detail.owner)
    }
}
