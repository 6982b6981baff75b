//! Counts of source properties that a copy does not keep, as seen by the end that reads the
//! sources.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::Stat;

/// Mode bits that no copy keeps: set-user-ID and set-group-ID.
const SET_ID_BITS: u32 = 0o6000;
/// Prefix of the names of extended attributes that hold an ACL.
const ACL_PREFIX: &[u8] = b"system.posix_acl_";
/// Prefixes of the names of extended attributes that the system itself gives to every file.
const SYSTEM_LABELS: [&[u8]; 2] = [b"security.selinux", b"security.ima"];

/// Counters of properties that a copy does not keep. At the end that writes, they are copied from
/// the other end (LH-COPY-54).
#[derive(Debug, Default)]
pub struct NotKept {
    own_user: OnceLock<u32>,
    owners: AtomicU64,
    set_id_bits: AtomicU64,
    acls: AtomicU64,
    attributes: AtomicU64,
}

/// Counts at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct NotKeptCounts {
    /// Entries whose owner is not the user who copies.
    pub owners: u64,
    /// Entries with a set-user-ID or set-group-ID bit.
    pub set_id_bits: u64,
    /// Sent files that have an ACL.
    pub acls: u64,
    /// Sent files that have other extended attributes.
    pub extended_attributes: u64,
}

impl NotKept {
    /// Counts an entry of the source by its owner and mode.
    pub(crate) fn note_entry(&self, stat: &Stat) {
        let own = *self
            .own_user
            .get_or_init(|| rustix::process::geteuid().as_raw());
        self.note_owner(stat.st_uid, own);
        // A link has no mode bits of its own.
        if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::Symlink {
            self.note_mode(stat.st_mode);
        }
    }

    fn note_owner(&self, owner: u32, own: u32) {
        self.owners
            .fetch_add(u64::from(owner != own), Ordering::Relaxed);
    }

    fn note_mode(&self, mode: u32) {
        let has_bits = mode & SET_ID_BITS != 0;
        self.set_id_bits
            .fetch_add(u64::from(has_bits), Ordering::Relaxed);
    }

    /// Counts an opened file that has extended attributes of these names, each terminated by NUL.
    pub(crate) fn note_attributes(&self, names: &[u8]) {
        let mut names = names
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty());
        let is_acl = |name: &[u8]| name.starts_with(ACL_PREFIX);
        let is_label = |name: &[u8]| SYSTEM_LABELS.iter().any(|label| name.starts_with(label));
        let has_acl = names.clone().any(is_acl);
        let has_others = names.any(|name| !is_acl(name) && !is_label(name));
        self.acls.fetch_add(u64::from(has_acl), Ordering::Relaxed);
        self.attributes
            .fetch_add(u64::from(has_others), Ordering::Relaxed);
    }

    /// Takes over the counts of the end that reads the sources. Counts never decrease, as an older
    /// report may arrive later.
    pub(crate) fn raise(&self, counts: NotKeptCounts) {
        self.owners.fetch_max(counts.owners, Ordering::Relaxed);
        self.set_id_bits
            .fetch_max(counts.set_id_bits, Ordering::Relaxed);
        self.acls.fetch_max(counts.acls, Ordering::Relaxed);
        self.attributes
            .fetch_max(counts.extended_attributes, Ordering::Relaxed);
    }

    /// Resets all counts to zero.
    pub(super) fn reset(&self) {
        for counter in [
            &self.owners,
            &self.set_id_bits,
            &self.acls,
            &self.attributes,
        ] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    /// Returns the current counts.
    pub fn counts(&self) -> NotKeptCounts {
        NotKeptCounts {
            owners: self.owners.load(Ordering::Relaxed),
            set_id_bits: self.set_id_bits.load(Ordering::Relaxed),
            acls: self.acls.load(Ordering::Relaxed),
            extended_attributes: self.attributes.load(Ordering::Relaxed),
        }
    }
}

impl NotKeptCounts {
    /// Returns one line with all counts, or `None` if everything is kept.
    pub fn line(&self) -> Option<String> {
        let parts = [
            ("owners", self.owners),
            ("set-ID bits", self.set_id_bits),
            ("ACLs", self.acls),
            ("extended attributes", self.extended_attributes),
        ];
        let some = parts.iter().filter(|(_, count)| *count > 0);
        let list: Vec<String> = some
            .map(|(what, count)| format!("{what} ({count})"))
            .collect();
        (!list.is_empty()).then(|| format!("not kept: {}", list.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_not_kept_are_counted_in_one_line() {
        let not_kept = NotKept::default();
        assert_eq!(not_kept.counts().line(), None);
        for (owner, mode) in [
            (0, 0o100_644),
            (7, 0o104_755),
            (7, 0o042_775),
            (0, 0o041_777),
        ] {
            not_kept.note_owner(owner, 0);
            not_kept.note_mode(mode);
        }
        not_kept.note_attributes(b"");
        not_kept.note_attributes(b"security.selinux\0");
        not_kept.note_attributes(b"security.selinux\0user.a\0user.b\0");
        not_kept.note_attributes(b"system.posix_acl_access\0");
        let line = not_kept.counts().line().unwrap();
        assert_eq!(
            line,
            "not kept: owners (2), set-ID bits (2), ACLs (1), extended attributes (1)"
        );
        not_kept.reset();
        assert_eq!(not_kept.counts(), NotKeptCounts::default());
    }

    #[test]
    fn lh_copy_54_older_report_lowers_no_count() {
        let not_kept = NotKept::default();
        let counts = |owners, acls| NotKeptCounts {
            owners,
            acls,
            ..NotKeptCounts::default()
        };
        for report in [counts(3, 0), counts(5, 1), counts(3, 0)] {
            not_kept.raise(report);
        }
        assert_eq!(not_kept.counts(), counts(5, 1));
    }
}
