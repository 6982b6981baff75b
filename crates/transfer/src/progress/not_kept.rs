//! Counts of source properties that a copy does not keep, as seen by the end that reads the
//! sources.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_platform::fs::{FileType, Stat, file_type};

use crate::preservation::Preservation;

/// Set-user-ID and set-group-ID.
const SET_ID_BITS: u32 = 0o6000;
/// Prefix of the names of extended attributes that hold an ACL.
const ACL_PREFIX: &[u8] = b"system.posix_acl_";
/// Prefixes of the names of extended attributes that the system itself gives to every file.
const SYSTEM_LABELS: [&[u8]; 2] = [b"security.selinux", b"security.ima"];

/// Counters of properties that a copy does not keep: those that this end has counted, and those
/// that the other end has reported (LH-COPY-54, LH-COPY-68).
#[derive(Debug, Default)]
pub struct NotKept {
    own_user: OnceLock<u32>,
    own: NotKeptCounters,
    reported: NotKeptCounters,
}

#[derive(Debug, Default)]
struct NotKeptCounters {
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
    /// Counts an entry of the source by its owner and mode, as far as these are not `kept`.
    pub(crate) fn note_entry(&self, stat: &Stat, kept: Preservation) {
        let own = *self
            .own_user
            .get_or_init(|| rustix::process::geteuid().as_raw());
        if !kept.owner {
            self.note_owner(stat.st_uid, own);
        }
        // A link has no mode bits of its own.
        let is_link = file_type(stat.st_mode) == FileType::Symlink;
        if !is_link && !kept.special_bits {
            self.note_mode(stat.st_mode);
        }
    }

    fn note_owner(&self, owner: u32, own: u32) {
        self.own
            .owners
            .fetch_add(u64::from(owner != own), Ordering::Relaxed);
    }

    fn note_mode(&self, mode: u32) {
        let has_bits = mode & SET_ID_BITS != 0;
        self.own
            .set_id_bits
            .fetch_add(u64::from(has_bits), Ordering::Relaxed);
    }

    /// Counts an opened file that has extended attributes of these names, each terminated by NUL,
    /// as far as these are not `kept`.
    pub(crate) fn note_attributes(&self, names: &[u8], kept: Preservation) {
        let mut names = names
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty());
        let is_acl = |name: &[u8]| name.starts_with(ACL_PREFIX);
        let is_label = |name: &[u8]| SYSTEM_LABELS.iter().any(|label| name.starts_with(label));
        let has_acl = names.clone().any(is_acl);
        let has_others = names.any(|name| !is_acl(name) && !is_label(name));
        self.note_unread(has_acl && !kept.acls, has_others && !kept.xattrs);
    }

    /// Counts an entry whose ACLs or other extended attributes are not copied.
    pub(crate) fn note_unread(&self, acls: bool, xattrs: bool) {
        self.add(NotKeptCounts {
            acls: u64::from(acls),
            extended_attributes: u64::from(xattrs),
            ..NotKeptCounts::default()
        });
    }

    /// Adds to the counts of this end.
    pub(crate) fn add(&self, counts: NotKeptCounts) {
        for (counter, count) in self.own.counters_with(counts) {
            counter.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Takes over the counts of the other end. Counts never decrease, as an older report may arrive
    /// later.
    pub(crate) fn raise(&self, counts: NotKeptCounts) {
        for (counter, count) in self.reported.counters_with(counts) {
            counter.fetch_max(count, Ordering::Relaxed);
        }
    }

    /// Resets all counts to zero.
    pub(super) fn reset(&self) {
        for counters in [&self.own, &self.reported] {
            for (counter, _) in counters.counters_with(NotKeptCounts::default()) {
                counter.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Returns the current counts of this end.
    pub(crate) fn own_counts(&self) -> NotKeptCounts {
        self.own.counts()
    }

    /// Returns the current counts of both ends.
    pub fn counts(&self) -> NotKeptCounts {
        let (own, reported) = (self.own.counts(), self.reported.counts());
        NotKeptCounts {
            owners: own.owners.saturating_add(reported.owners),
            set_id_bits: own.set_id_bits.saturating_add(reported.set_id_bits),
            acls: own.acls.saturating_add(reported.acls),
            extended_attributes: own
                .extended_attributes
                .saturating_add(reported.extended_attributes),
        }
    }
}

impl NotKeptCounters {
    /// Returns each counter with its part of `counts`.
    fn counters_with(&self, counts: NotKeptCounts) -> [(&AtomicU64, u64); 4] {
        [
            (&self.owners, counts.owners),
            (&self.set_id_bits, counts.set_id_bits),
            (&self.acls, counts.acls),
            (&self.attributes, counts.extended_attributes),
        ]
    }

    fn counts(&self) -> NotKeptCounts {
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
        let (not_kept, none) = (NotKept::default(), Preservation::default());
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
        not_kept.note_attributes(b"", none);
        not_kept.note_attributes(b"security.selinux\0", none);
        not_kept.note_attributes(b"security.selinux\0user.a\0user.b\0", none);
        not_kept.note_attributes(b"system.posix_acl_access\0", none);
        let line = not_kept.counts().line().unwrap();
        assert_eq!(
            line,
            "not kept: owners (2), set-ID bits (2), ACLs (1), extended attributes (1)"
        );
        not_kept.reset();
        assert_eq!(not_kept.counts(), NotKeptCounts::default());
    }

    #[test]
    fn lh_copy_68_counts_of_both_ends_are_added() {
        let not_kept = NotKept::default();
        let counts = NotKeptCounts {
            owners: 2,
            acls: 1,
            ..NotKeptCounts::default()
        };
        not_kept.add(counts);
        not_kept.add(counts);
        not_kept.raise(counts);
        not_kept.raise(counts);
        assert_eq!((not_kept.counts().owners, not_kept.counts().acls), (6, 3));
        assert_eq!(not_kept.own_counts().owners, 4);
    }

    #[test]
    fn what_is_kept_is_not_counted() {
        let not_kept = NotKept::default();
        let acls = Preservation {
            acls: true,
            ..Preservation::default()
        };
        not_kept.note_attributes(b"system.posix_acl_access\0user.a\0", acls);
        let counts = not_kept.counts();
        assert_eq!((counts.acls, counts.extended_attributes), (0, 1));
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
