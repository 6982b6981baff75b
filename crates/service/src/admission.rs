//! Checks of OPENs, and the memory that admits none twice.

use std::sync::Arc;

use longhaul_hop::{ConnectionPermit, Payer, QuotaExceeded};
use longhaul_identity::Identities;
use longhaul_proto::{
    Admission, Open, OpenRefusal, PublicKey, ReplayMemory, ServiceName, VoucherFault, check_time,
};
use parking_lot::Mutex;

mod registration;

pub use registration::{RegistrationError, is_registration};

/// Admission of the OPENs that one key receives.
#[derive(Debug)]
pub struct OpenAdmission {
    checks: Admission,
    identities: Arc<Identities>,
    replays: Mutex<ReplayMemory<Payer>>,
}

impl OpenAdmission {
    /// Creates the admission at the end or depot with this key. `identities` remember the vouchers
    /// of the OPENs.
    #[must_use]
    pub fn new(key: PublicKey, identities: Arc<Identities>) -> Self {
        Self {
            checks: Admission::new(key),
            identities,
            replays: Mutex::new(ReplayMemory::new()),
        }
    }

    /// Returns this admission for an acceptor that lets delegates read for its principals, if
    /// `accepts_delegates` is true (LH-DELEGATION-7).
    #[must_use]
    pub fn with_delegates(self, accepts_delegates: bool) -> Self {
        Self {
            checks: self.checks.with_delegates(accepts_delegates),
            ..self
        }
    }

    /// Reads the voucher of an OPEN, before the OPEN is checked (LH-VOUCHER-5). Returns the fault
    /// for which it is not believed.
    pub async fn read_voucher(&self, open: &Open, now_unix_ms: u64) -> Option<VoucherFault> {
        // The check fails for the same reason.
        check_time(open.signed_at_unix_ms, now_unix_ms).ok()?;
        self.identities.introduce(open).await.err()
    }

    /// Checks an OPEN at a depot, as [`Admission::check_at_depot`] does. `fault` is that of its
    /// voucher.
    ///
    /// # Errors
    /// The first [`OpenRefusal`].
    pub fn check_at_depot(
        &self,
        open: &Open,
        fault: Option<VoucherFault>,
        now_unix_ms: u64,
        knows: impl FnOnce(&PublicKey) -> bool,
    ) -> Result<(), OpenRefusal> {
        let checked = self.checks.check_at_depot(open, now_unix_ms, knows);
        self.conclude(open, fault, checked)
    }

    /// Checks an OPEN at the acceptor, as [`Admission::check_at_acceptor`] does. `fault` is that of
    /// its voucher.
    ///
    /// # Errors
    /// The first [`OpenRefusal`].
    pub fn check_at_acceptor(
        &self,
        open: &Open,
        fault: Option<VoucherFault>,
        now_unix_ms: u64,
        knows: impl FnOnce(&PublicKey) -> bool,
        offers: impl FnOnce(&ServiceName) -> bool,
    ) -> Result<(), OpenRefusal> {
        let checked = self
            .checks
            .check_at_acceptor(open, now_unix_ms, knows, offers);
        self.conclude(open, fault, checked)
    }

    fn conclude(
        &self,
        open: &Open,
        fault: Option<VoucherFault>,
        checked: Result<(), OpenRefusal>,
    ) -> Result<(), OpenRefusal> {
        // Its voucher may have been registered before (LH-VOUCHER-8).
        if checked.is_ok() {
            self.identities.mark_admitted(&open.principal);
        }
        checked.map_err(|refusal| explain(refusal, fault))
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

/// Returns the reason why a key is unknown: the fault of its voucher, if it has one.
fn explain(refusal: OpenRefusal, fault: Option<VoucherFault>) -> OpenRefusal {
    match (refusal, fault) {
        (OpenRefusal::Unauthorised(_), Some(fault)) => fault.into(),
        (refusal, _) => refusal,
    }
}
