//! The grants in use at a depot, for the task that asks a controller if they are still valid.

use std::sync::Arc;

use longhaul_hop::Payer;
use longhaul_proto::text::{printable, printable_within};
use longhaul_proto::{CircuitGrant, GrantFault, PublicKey};

use super::ClockReading;
use crate::serve::DepotState;

/// Maximum length of a withdrawal's reason in the log, in bytes.
const MAX_REASON_BYTES: usize = 300;

/// The grants in use at a depot. Cheap to clone.
#[derive(Debug, Clone)]
pub struct GrantsInUse(pub(crate) Arc<DepotState>);

/// A grant in use.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GrantInUse {
    /// The controller that issued it.
    pub issuer: PublicKey,
    /// Name of the circuit, assigned by that controller.
    pub circuit: Vec<u8>,
    /// The key whose sessions may use it.
    pub holder: PublicKey,
}

impl GrantsInUse {
    /// Returns the grants to ask a controller about: those in force, those of current sessions, and
    /// those withdrawn recently.
    #[must_use]
    pub fn list(&self) -> Vec<GrantInUse> {
        let listed = self.0.grants.list(ClockReading::read()).into_iter();
        let in_use = listed.map(|((issuer, circuit), holder)| GrantInUse {
            issuer,
            circuit,
            holder,
        });
        in_use.collect()
    }

    /// Waits until a grant is used that no controller was asked about.
    pub async fn wait_unqueried(&self) {
        self.0.grants.unqueried.notified().await;
    }

    /// Applies the renewal of a grant in use: sessions continue at the rate of the renewal.
    ///
    /// # Errors
    /// [`GrantFault`]: the renewal would be rejected in an OPEN too (LH-GRANT-2).
    pub fn renew(&self, in_use: &GrantInUse, renewed: &CircuitGrant) -> Result<(), GrantFault> {
        let (now, policy) = (ClockReading::read(), self.0.policy.policy());
        let me = self.0.key.public();
        let trusts = |issuer: &PublicKey| policy.trusts(issuer);
        renewed.check(&in_use.holder, &me, now.unix_ms, trusts)?;
        if renewed.circuit == in_use.circuit {
            self.0.grants.renew(in_use.issuer, renewed, now);
        }
        Ok(())
    }

    /// Ends a grant at once. Its sessions continue without it, and it is refused until it is
    /// renewed.
    pub fn withdraw(&self, in_use: &GrantInUse, why: &str) {
        let key = (in_use.issuer, in_use.circuit.clone());
        if !self
            .0
            .grants
            .withdraw(&key, &in_use.holder, ClockReading::read())
        {
            return;
        }
        let payer = Payer::Key(in_use.holder);
        self.0.events.log(Some(payer), |left_out| {
            tracing::info!(
                principal = %in_use.holder,
                circuit = printable(&in_use.circuit),
                why = printable_within(why.as_bytes(), MAX_REASON_BYTES),
                left_out,
                "the grant of a circuit was withdrawn: its sessions continue as best effort"
            );
        });
    }
}
