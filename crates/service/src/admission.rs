//! Checks of OPENs, and the memory that admits none twice.

use longhaul_hop::{ConnectionPermit, Payer, QuotaExceeded};
use longhaul_proto::{Admission, Open, OpenRefusal, PublicKey, ReplayMemory};
use parking_lot::Mutex;

/// Admission of the OPENs that one key receives.
#[derive(Debug)]
pub struct OpenAdmission {
    checks: Admission,
    replays: Mutex<ReplayMemory<Payer>>,
}

impl OpenAdmission {
    /// Creates the admission at the end or depot with this key.
    #[must_use]
    pub fn new(key: PublicKey) -> Self {
        Self {
            checks: Admission::new(key),
            replays: Mutex::new(ReplayMemory::new()),
        }
    }

    /// Returns the checks that need no memory.
    #[must_use]
    pub const fn checks(&self) -> &Admission {
        &self.checks
    }

    /// Returns true if no OPEN is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.replays.lock().is_empty()
    }

    /// Returns the number of OPENs that are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.replays.lock().len()
    }

    /// Takes what all sessions share, for an OPEN that passed all other checks (LH-ADMIT-1): a
    /// permit on the account of `payer`, and an entry in its replay memory.
    ///
    /// # Errors
    /// There is no permit, or [`OpenAdmission::remember`] fails.
    pub fn admit<E: From<QuotaExceeded> + From<OpenRefusal>>(
        &self,
        open: &Open,
        permit: &mut ConnectionPermit,
        payer: Payer,
        now_unix_ms: u64,
    ) -> Result<(), E> {
        permit.charge_to(payer)?;
        self.remember(open, &payer, now_unix_ms)?;
        Ok(())
    }

    /// Remembers an OPEN that passed all other checks, on the account of `payer` (LH-ADMIT-1).
    ///
    /// # Errors
    /// The OPEN was admitted before, is too old, or the payer's memory is full.
    pub fn remember(
        &self,
        open: &Open,
        payer: &Payer,
        now_unix_ms: u64,
    ) -> Result<(), OpenRefusal> {
        let (id, signed_at) = (open.session_id, open.signed_at_unix_ms);
        let mut replays = self.replays.lock();
        let admitted = match payer {
            Payer::Key(_) => replays.admit(payer, id, signed_at, now_unix_ms),
            Payer::Source(_) => replays.admit_unlisted(payer, id, signed_at, now_unix_ms),
        };
        admitted.map_err(OpenRefusal::from)
    }
}
