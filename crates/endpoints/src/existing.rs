//! Treatment of objects that exist. It is pure.

use longhaul_transfer::FailureKind;
use longhaul_transfer::local_end::ExistingOptions;

use crate::object::Object;
use crate::store::Found;

/// Decision on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It is new, and replaces nothing that appears meanwhile.
    Create,
    /// The existing object is replaced.
    Replace,
    /// The existing object is left alone: it must be, or it is the same.
    Leave,
    /// The existing object has the same size, and its content must be compared.
    Compare,
    /// It cannot be copied.
    Fail(FailureKind),
}

/// Decides on a file of `size` bytes that was modified at `modified`, in seconds since 1970.
///
/// An object of the same size that was stored no earlier than the file was modified is taken for
/// the same: stores have no other time in their listings.
pub(crate) fn decide(
    there: Option<&Found>,
    modified: i64,
    size: u64,
    options: &ExistingOptions,
) -> Decision {
    let there: &Object = match there {
        None if options.policy.existing => return Decision::Leave,
        None => return Decision::Create,
        Some(Found::Directory) => return Decision::Fail(FailureKind::WrongKind),
        Some(Found::File(object)) => object,
    };
    let there_modified = there.mtime.map_or(there.changed, |(seconds, _)| seconds);
    if options.policy.ignore_existing || (options.policy.update && there_modified > modified) {
        return Decision::Leave;
    }
    let is_as_old = match there.mtime {
        Some((seconds, _)) => seconds == modified,
        None => there.changed >= modified,
    };
    match there.size == size {
        true if options.checksum => Decision::Compare,
        true if is_as_old => Decision::Leave,
        _ if options.overwrite => Decision::Replace,
        _ => Decision::Fail(FailureKind::Exists),
    }
}

#[cfg(test)]
mod tests {
    use longhaul_transfer::ExistingPolicy;

    use super::*;

    fn there(size: u64, changed: i64, mtime: Option<i64>) -> Found {
        Found::File(Object {
            size,
            changed,
            mtime: mtime.map(|seconds| (seconds, 7)),
            e_tag: None,
        })
    }

    fn decide_on(there: Found, options: &ExistingOptions) -> Decision {
        decide(Some(&there), 1000, 5, options)
    }

    #[test]
    fn only_overwrite_replaces() {
        let none = ExistingOptions::default();
        let overwrite = ExistingOptions {
            overwrite: true,
            ..none
        };
        assert_eq!(decide(None, 1000, 5, &none), Decision::Create);
        for (size, changed, mtime) in [(6, 2000, None), (5, 999, None), (5, 2000, Some(999))] {
            let exists = decide_on(there(size, changed, mtime), &none);
            assert_eq!(exists, Decision::Fail(FailureKind::Exists));
            let replaced = decide_on(there(size, changed, mtime), &overwrite);
            assert_eq!(replaced, Decision::Replace);
        }
        let directory = decide_on(Found::Directory, &overwrite);
        assert_eq!(directory, Decision::Fail(FailureKind::WrongKind));
    }

    #[test]
    fn same_size_stored_later_is_unchanged() {
        let mut options = ExistingOptions::default();
        for unchanged in [
            there(5, 1000, None),
            there(5, 2000, None),
            there(5, 2000, Some(1000)),
        ] {
            assert_eq!(decide_on(unchanged, &options), Decision::Leave);
        }
        options.checksum = true;
        assert_eq!(decide_on(there(5, 2000, None), &options), Decision::Compare);
    }

    #[test]
    fn policies_leave_objects_alone() {
        let with = |policy| ExistingOptions {
            overwrite: true,
            policy,
            ..ExistingOptions::default()
        };
        let update = with(ExistingPolicy {
            update: true,
            ..ExistingPolicy::default()
        });
        assert_eq!(decide_on(there(9, 1001, None), &update), Decision::Leave);
        assert_eq!(decide_on(there(9, 999, None), &update), Decision::Replace);
        assert_eq!(
            decide_on(there(9, 2000, Some(999)), &update),
            Decision::Replace
        );
        let existing = with(ExistingPolicy {
            existing: true,
            ..ExistingPolicy::default()
        });
        assert_eq!(decide(None, 1000, 5, &existing), Decision::Leave);
        let ignore = with(ExistingPolicy {
            ignore_existing: true,
            ..ExistingPolicy::default()
        });
        assert_eq!(decide_on(there(9, 999, None), &ignore), Decision::Leave);
    }
}
