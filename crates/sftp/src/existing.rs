//! Treatment of what exists at the destination. It is pure.

use longhaul_transfer::FailureKind;
use longhaul_transfer::local_end::{ExistingOptions, Meta};

use crate::entries::{Attributes, Kind};

/// Decision on an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The entry is new. It is created, and replaces nothing that appears meanwhile.
    Create,
    /// The existing entry is replaced.
    Replace,
    /// The existing entry is left alone.
    Leave,
    /// The existing entry is the same. It gets the permissions of the source if `fix_mode`.
    Unchanged {
        /// If true, the permissions differ and the copy overwrites.
        fix_mode: bool,
    },
    /// The existing file has the same size, and its content must be compared.
    Compare,
    /// It cannot be copied.
    Fail(FailureKind),
}

/// Decides on a file of `size` bytes.
pub(crate) fn decide_file(
    there: Option<&Attributes>,
    meta: &Meta,
    size: u64,
    options: &ExistingOptions,
) -> Decision {
    let Some(there) = there else {
        return match options.policy.existing {
            true => Decision::Leave,
            false => Decision::Create,
        };
    };
    if is_left_alone(there, meta, options) {
        return Decision::Leave;
    }
    match there.kind {
        Kind::File if there.size == size && options.checksum => Decision::Compare,
        Kind::File if there.size == size && there.modified == meta.mtime.0 => {
            let fix_mode = options.overwrite && there.mode & 0o777 != meta.mode;
            Decision::Unchanged { fix_mode }
        }
        Kind::File | Kind::Symlink if options.overwrite => Decision::Replace,
        Kind::File | Kind::Symlink => Decision::Fail(FailureKind::Exists),
        Kind::Directory | Kind::Other => Decision::Fail(FailureKind::WrongKind),
    }
}

/// Decides on a symbolic link. The targets of two links are compared by the caller.
pub(crate) fn decide_link(
    there: Option<&Attributes>,
    meta: &Meta,
    options: &ExistingOptions,
) -> Decision {
    let Some(there) = there else {
        return match options.policy.existing {
            true => Decision::Leave,
            false => Decision::Create,
        };
    };
    if is_left_alone(there, meta, options) {
        return Decision::Leave;
    }
    match there.kind {
        Kind::Symlink => Decision::Compare,
        Kind::File if options.overwrite => Decision::Replace,
        Kind::File => Decision::Fail(FailureKind::Exists),
        Kind::Directory | Kind::Other => Decision::Fail(FailureKind::WrongKind),
    }
}

fn is_left_alone(there: &Attributes, meta: &Meta, options: &ExistingOptions) -> bool {
    let is_newer = there.modified > meta.mtime.0;
    options.policy.ignore_existing || (options.policy.update && is_newer)
}

#[cfg(test)]
mod tests {
    use longhaul_transfer::ExistingPolicy;

    use super::*;

    const META: Meta = Meta::new(0o644, (1000, 7));

    fn there(kind: Kind, size: u64, modified: i64) -> Attributes {
        Attributes {
            kind,
            size,
            modified,
            mode: 0o600,
        }
    }

    fn decide(there: Option<Attributes>, options: ExistingOptions) -> Decision {
        decide_file(there.as_ref(), &META, 5, &options)
    }

    #[test]
    fn only_overwrite_replaces() {
        let none = ExistingOptions::default();
        let overwrite = ExistingOptions {
            overwrite: true,
            ..none
        };
        assert_eq!(decide(None, none), Decision::Create);
        for (kind, size, modified) in [
            (Kind::File, 6, 1000),
            (Kind::File, 5, 999),
            (Kind::Symlink, 5, 1000),
        ] {
            let there = Some(there(kind, size, modified));
            assert_eq!(
                decide(there, none),
                Decision::Fail(FailureKind::Exists),
                "{kind:?}"
            );
            assert_eq!(decide(there, overwrite), Decision::Replace);
        }
        let directory = Some(there(Kind::Directory, 5, 1000));
        let wrong = Decision::Fail(FailureKind::WrongKind);
        assert_eq!(decide(directory, overwrite), wrong);
    }

    #[test]
    fn same_size_and_second_are_unchanged() {
        let same = Some(there(Kind::File, 5, 1000));
        let mut options = ExistingOptions::default();
        let decided = decide(same, options);
        assert_eq!(decided, Decision::Unchanged { fix_mode: false });
        options.overwrite = true;
        let decided = decide(same, options);
        assert_eq!(decided, Decision::Unchanged { fix_mode: true });
        options.checksum = true;
        assert_eq!(decide(same, options), Decision::Compare);
    }

    #[test]
    fn policies_leave_entries_alone() {
        let with = |policy| ExistingOptions {
            overwrite: true,
            policy,
            ..ExistingOptions::default()
        };
        let update = with(ExistingPolicy {
            update: true,
            ..ExistingPolicy::default()
        });
        let newer = Some(there(Kind::File, 9, 1001));
        assert_eq!(decide(newer, update), Decision::Leave);
        let older = Some(there(Kind::File, 9, 999));
        assert_eq!(decide(older, update), Decision::Replace);
        let existing = with(ExistingPolicy {
            existing: true,
            ..ExistingPolicy::default()
        });
        assert_eq!(decide(None, existing), Decision::Leave);
        let ignore = with(ExistingPolicy {
            ignore_existing: true,
            ..ExistingPolicy::default()
        });
        assert_eq!(decide(older, ignore), Decision::Leave);
        let link = there(Kind::Symlink, 3, 999);
        assert_eq!(decide_link(Some(&link), &META, &ignore), Decision::Leave);
        assert_eq!(decide_link(Some(&link), &META, &update), Decision::Compare);
    }
}
