//! Quotas of local accounts: the bytes and regular files that each may own beneath its root.
//!
//! [`QuotaLedger`] is pure. [`Quota`] puts it behind a lock, and a [`QuotaCharge`] is what one
//! unfinished file holds of it. Directories and links are not counted. What other programs change
//! is found by counting again ([`count_owned`]).

use std::sync::Arc;
use std::time::Duration;

use longhaul_platform::fs::Stat;
use parking_lot::{Condvar, Mutex};
use quantities::ByteCount;
use serde::{Deserialize, Serialize};

use crate::error::{Failure, FailureKind};
use crate::store::confine::{NodeKind, kind_of};

mod count;

pub use count::count_owned;

/// Time for which a file waits until it is known what its account uses.
const COUNT_PATIENCE: Duration = Duration::from_secs(30);

/// Maximum use of an account. `None` is unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaLimits {
    /// Maximum number of bytes in files.
    pub bytes: Option<u64>,
    /// Maximum number of regular files.
    pub files: Option<u64>,
}

impl QuotaLimits {
    /// Returns true if something is limited.
    #[must_use]
    pub const fn is_some(&self) -> bool {
        self.bytes.is_some() || self.files.is_some()
    }
}

/// Use of an account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaUse {
    /// Bytes in files.
    pub bytes: u64,
    /// Regular files.
    pub files: u64,
}

impl QuotaUse {
    /// Returns the use of one file of this size.
    const fn file(bytes: u64) -> Self {
        Self { bytes, files: 1 }
    }
}

/// A quota that a file would exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuotaExceeded {
    /// The account may not have as many bytes. Remove files of it, or ask the server's operator for
    /// a larger quota.
    #[error(
        "its quota is {}, and {} of it are left; remove files, or ask the server's operator",
        ByteCount(*limit),
        ByteCount(*left)
    )]
    Bytes {
        /// Maximum number of bytes.
        limit: u64,
        /// Bytes that are left.
        left: u64,
    },
    /// The account may not have another file. Remove files of it, or ask the server's operator for
    /// a larger quota.
    #[error(
        "its quota is {limit} files, and none is left; remove files, or ask the server's operator"
    )]
    Files {
        /// Maximum number of files.
        limit: u64,
    },
}

/// Use of an account, and its limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuotaLedger {
    limits: QuotaLimits,
    used: QuotaUse,
}

impl QuotaLedger {
    /// Creates the ledger of an account that already uses this much.
    #[must_use]
    pub const fn new(limits: QuotaLimits, used: QuotaUse) -> Self {
        Self { limits, used }
    }

    /// Takes what a file needs, or nothing.
    ///
    /// # Errors
    /// [`QuotaExceeded`].
    pub fn take(&mut self, wanted: QuotaUse) -> Result<(), QuotaExceeded> {
        let bytes = self.used.bytes.saturating_add(wanted.bytes);
        let files = self.used.files.saturating_add(wanted.files);
        // What needs nothing more is admitted, even beyond a limit that was lowered.
        if let Some(limit) = self.limits.bytes
            && wanted.bytes > 0
            && bytes > limit
        {
            let left = limit.saturating_sub(self.used.bytes);
            return Err(QuotaExceeded::Bytes { limit, left });
        }
        if let Some(limit) = self.limits.files
            && wanted.files > 0
            && files > limit
        {
            return Err(QuotaExceeded::Files { limit });
        }
        self.used = QuotaUse { bytes, files };
        Ok(())
    }

    /// Gives back what is not used any more.
    pub const fn give_back(&mut self, freed: QuotaUse) {
        self.used.bytes = self.used.bytes.saturating_sub(freed.bytes);
        self.used.files = self.used.files.saturating_sub(freed.files);
    }

    /// Returns the use.
    #[must_use]
    pub const fn used(&self) -> QuotaUse {
        self.used
    }

    /// Replaces the limits. What is used stays, even if it is more.
    pub const fn set_limits(&mut self, limits: QuotaLimits) {
        self.limits = limits;
    }
}

/// Quota of one local account.
#[derive(Debug)]
pub struct Quota {
    account: String,
    /// Number of the user, whose files are counted.
    owner: u32,
    /// Time for which a file waits for the count.
    patience: Duration,
    ledger: Mutex<QuotaLedger>,
    /// True once it is known what the account uses.
    is_counted: Mutex<bool>,
    /// Notified when that is known.
    counted: Condvar,
}

impl Quota {
    /// Creates the quota of `account`, which is the user with the number `owner` and uses `used`.
    /// If that is not known, files wait until [`Self::set_used`] is called.
    #[must_use]
    pub fn new(
        account: String,
        owner: u32,
        limits: QuotaLimits,
        used: Option<QuotaUse>,
    ) -> Arc<Self> {
        Arc::new(Self {
            account,
            owner,
            patience: COUNT_PATIENCE,
            ledger: Mutex::new(QuotaLedger::new(limits, used.unwrap_or_default())),
            is_counted: Mutex::new(used.is_some()),
            counted: Condvar::new(),
        })
    }

    /// Sets what the account uses, as it has been counted.
    pub fn set_used(&self, used: QuotaUse) {
        self.ledger.lock().used = used;
        *self.is_counted.lock() = true;
        self.counted.notify_all();
    }

    /// Returns the use, or `None` until it is known.
    #[must_use]
    pub fn used(&self) -> Option<QuotaUse> {
        let is_counted = *self.is_counted.lock();
        is_counted.then(|| self.ledger.lock().used())
    }

    /// Replaces the limits.
    pub fn set_limits(&self, limits: QuotaLimits) {
        self.ledger.lock().set_limits(limits);
    }

    /// Charges a file of `size` bytes, of which `counted` bytes on disk are part of the use
    /// already. Blocking until the use is known, or for [`COUNT_PATIENCE`].
    pub(crate) fn charge(
        self: &Arc<Self>,
        size: u64,
        counted: Option<u64>,
    ) -> Result<QuotaCharge, Failure> {
        let wanted = match counted {
            Some(bytes) => QuotaUse {
                bytes: size.saturating_sub(bytes),
                files: 0,
            },
            None => QuotaUse::file(size),
        };
        let mut is_counted = self.is_counted.lock();
        let waited =
            self.counted
                .wait_while_for(&mut is_counted, |counted| !*counted, self.patience);
        if waited.timed_out() && !*is_counted {
            let account = &self.account;
            let detail = format!(
                "account {account}: its files are being counted for its quota; repeat the command \
                 later"
            );
            return Err(Failure::with_detail(FailureKind::DiskFull, detail));
        }
        drop(is_counted);
        let taken = self.ledger.lock().take(wanted);
        taken.map_err(|exceeded| self.failure(exceeded))?;
        Ok(QuotaCharge {
            quota: self.clone(),
            held: QuotaUse::file(size),
        })
    }

    /// Gives back what an entry used that is gone. Only the account's own regular files count, and
    /// only with their last name.
    pub(crate) fn removed(&self, gone: &Stat) {
        if kind_of(gone) == NodeKind::File && gone.st_uid == self.owner && gone.st_nlink == 1 {
            let bytes = u64::try_from(gone.st_size).unwrap_or(0);
            self.ledger.lock().give_back(QuotaUse::file(bytes));
        }
    }

    /// Gives back the bytes on disk of an unfinished file that was removed. They may include a few
    /// of its journal's.
    pub(crate) fn removed_leftover(&self, disk_bytes: u64) {
        if disk_bytes == 0 {
            // It was not charged.
            return;
        }
        self.ledger.lock().give_back(QuotaUse::file(disk_bytes));
    }

    fn failure(&self, exceeded: QuotaExceeded) -> Failure {
        let detail = format!("account {}: {exceeded}", self.account);
        Failure::with_detail(FailureKind::DiskFull, detail)
    }
}

/// Part of a quota that an unfinished file holds. It is given back on drop, unless it is kept.
#[derive(Debug)]
pub(crate) struct QuotaCharge {
    quota: Arc<Quota>,
    held: QuotaUse,
}

impl QuotaCharge {
    /// Keeps the charge, as the file has its name now. It took the place of `replaced`.
    pub(crate) fn keep(mut self, replaced: Option<&Stat>) {
        self.held = QuotaUse::default();
        if let Some(replaced) = replaced {
            self.quota.removed(replaced);
        }
    }

    /// Keeps the charge of an unfinished file that stays, with the bytes that it has on disk.
    pub(crate) fn keep_unfinished(mut self, disk_bytes: u64) {
        self.held.files = 0;
        self.held.bytes = self.held.bytes.saturating_sub(disk_bytes);
    }
}

impl Drop for QuotaCharge {
    fn drop(&mut self) {
        self.quota.ledger.lock().give_back(self.held);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn quota(bytes: u64, files: u64) -> Arc<Quota> {
        let limits = QuotaLimits {
            bytes: Some(bytes),
            files: Some(files),
        };
        Quota::new("ana".into(), 1, limits, Some(QuotaUse::default()))
    }

    #[test]
    fn refusal_names_the_account_and_what_is_left() {
        let quota = quota(10 << 20, 2);
        quota.charge(8 << 20, None).unwrap().keep(None);
        let failure = quota.charge(3 << 20, None).unwrap_err();
        assert_eq!(failure.kind, FailureKind::DiskFull);
        assert!(
            failure
                .detail
                .starts_with("account ana: its quota is 10 MiB, and 2 MiB of it are left;"),
            "{failure}"
        );
        quota.charge(1, None).unwrap().keep(None);
        let failure = quota.charge(0, None).unwrap_err();
        assert!(failure.detail.contains("is 2 files, and none"), "{failure}");
    }

    #[test]
    fn dropped_charges_return_and_resumed_files_count_once() {
        let quota = quota(100, 10);
        drop(quota.charge(100, None).unwrap());
        assert_eq!(quota.used(), Some(QuotaUse::default()));
        // A copy breaks off with 30 bytes on disk, and another one resumes them.
        quota.charge(100, None).unwrap().keep_unfinished(30);
        assert_eq!(quota.used(), Some(QuotaUse::file(30)));
        quota.charge(100, Some(30)).unwrap().keep(None);
        assert_eq!(quota.used(), Some(QuotaUse::file(100)));
    }

    #[test]
    fn files_wait_until_the_use_is_known() {
        let limits = QuotaLimits {
            bytes: Some(10),
            files: None,
        };
        let quota = Quota::new("ana".into(), 1, limits, None);
        assert_eq!(quota.used(), None);
        let waiting = std::thread::spawn({
            let quota = quota.clone();
            move || quota.charge(5, None).is_ok()
        });
        quota.set_used(QuotaUse::file(6));
        assert!(!waiting.join().unwrap(), "6 of 10 bytes were used");
    }

    #[test]
    fn files_do_not_wait_for_ever() {
        let limits = QuotaLimits {
            bytes: Some(10),
            files: None,
        };
        let quota = Quota::new("ana".into(), 1, limits, None);
        let quota = Arc::new(Quota {
            patience: Duration::ZERO,
            ..Arc::into_inner(quota).unwrap()
        });
        let failure = quota.charge(5, None).unwrap_err();
        assert!(failure.detail.contains("are being counted"), "{failure}");
    }

    #[test]
    fn lowered_limit_admits_what_needs_nothing_more() {
        let mut ledger = QuotaLedger::new(QuotaLimits::default(), QuotaUse::file(50));
        ledger.set_limits(QuotaLimits {
            bytes: Some(10),
            files: Some(0),
        });
        assert_eq!(ledger.take(QuotaUse::default()), Ok(()));
        let exceeded = QuotaExceeded::Bytes { limit: 10, left: 0 };
        assert_eq!(ledger.take(QuotaUse::file(1)), Err(exceeded));
    }

    proptest! {
        /// Whatever is taken and given back, no limit is exceeded.
        #[test]
        fn limits_hold(steps in prop::collection::vec((any::<bool>(), 0u64..50, 0u64..3), 0..100)) {
            let limits = QuotaLimits { bytes: Some(100), files: Some(5) };
            let mut ledger = QuotaLedger::new(limits, QuotaUse::default());
            for (takes, bytes, files) in steps {
                let amount = QuotaUse { bytes, files };
                match takes {
                    true => drop(ledger.take(amount)),
                    false => ledger.give_back(amount),
                }
                prop_assert!(ledger.used().bytes <= 100 && ledger.used().files <= 5);
            }
        }
    }
}
