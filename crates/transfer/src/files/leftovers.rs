//! Lists what copies left in a directory, a page at a time, and removes what is no longer needed.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;
use std::time::Duration;

use super::message::{FoundLeftover, LeftoverOutcome, LeftoverUsage, PathBytes};
use crate::error::Failure;
use crate::store::confine::Dir;
use crate::store::journal::{Leftover, LeftoverUse, leftovers, remove_leftover};

/// Maximum number of leftovers in one response. With their names and the longest target names, the
/// line stays within its limit.
const MAX_LEFTOVERS_PER_PAGE: usize = 250;
/// Minimum age for the removal of leftovers if it is unknown whether a copy still writes them. A
/// copy whose peer is silent ends within a minute.
const MIN_UNKNOWN_AGE: Duration = Duration::from_secs(3600);

/// Returns the leftovers whose first name is behind `after`, and the name behind which there are
/// more. Removes those that were last written at least `remove_older_than_seconds` ago, unless a
/// copy uses them (LH-FILES-11). Blocking.
pub(super) fn page(
    dir: &Arc<Dir>,
    after: Option<&PathBytes>,
    remove_older_than_seconds: Option<u64>,
) -> Result<(Vec<FoundLeftover>, Option<PathBytes>), Failure> {
    let mut found = leftovers(dir)?;
    found.retain(|leftover| after.is_none_or(|after| first_name(leftover) > after.0.as_slice()));
    let more = found.len() > MAX_LEFTOVERS_PER_PAGE;
    found.truncate(MAX_LEFTOVERS_PER_PAGE);
    let next = found.last().map(first_name).filter(|_| more);
    let next = next.map(|name| PathBytes(name.to_vec()));
    let mut reported = Vec::new();
    for leftover in found {
        let outcome = match remove_older_than_seconds {
            Some(seconds) if is_old(&leftover, Duration::from_secs(seconds)) => {
                match remove_leftover(dir, &leftover) {
                    Ok(true) => LeftoverOutcome::Removed,
                    Ok(false) => LeftoverOutcome::Kept,
                    Err(_) => LeftoverOutcome::Failed,
                }
            }
            _ => LeftoverOutcome::Kept,
        };
        reported.push(of(leftover, outcome));
    }
    Ok((reported, next))
}

fn first_name(leftover: &Leftover) -> &[u8] {
    leftover.names.first().map_or(&[], |name| name.as_bytes())
}

fn is_old(leftover: &Leftover, bound: Duration) -> bool {
    let bound = match leftover.usage {
        LeftoverUse::Unknown => bound.max(MIN_UNKNOWN_AGE),
        _ => bound,
    };
    leftover.age >= bound
}

fn of(leftover: Leftover, outcome: LeftoverOutcome) -> FoundLeftover {
    let bytes = |name: OsString| PathBytes(name.into_vec());
    FoundLeftover {
        names: leftover.names.into_iter().map(bytes).collect(),
        target: leftover.target.map(PathBytes),
        size: leftover.size,
        durable_bytes: leftover.durable_bytes,
        disk_bytes: leftover.disk_bytes,
        age_seconds: leftover.age.as_secs(),
        usage: match leftover.usage {
            LeftoverUse::Idle => LeftoverUsage::Idle,
            LeftoverUse::Unknown => LeftoverUsage::Unknown,
            LeftoverUse::InUse => LeftoverUsage::InUse,
            LeftoverUse::Foreign => LeftoverUsage::Foreign,
        },
        outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn removed(dir: &Arc<Dir>, seconds: u64) -> Vec<LeftoverOutcome> {
        let (reported, next) = page(dir, None, Some(seconds)).unwrap();
        assert_eq!(next, None);
        reported
            .into_iter()
            .map(|leftover| leftover.outcome)
            .collect()
    }

    #[test]
    fn lh_files_11_only_old_and_unused_leftovers_are_removed() {
        let tmp = tempfile::tempdir().unwrap();
        let file = tmp.path().join(".longhaul-01020304-5");
        std::fs::write(&file, "begun").unwrap();
        let dir = Arc::new(Dir::open(tmp.path()).unwrap());
        // It is unknown whether a copy uses it, so the minimum age is an hour.
        assert_eq!(removed(&dir, 0), [LeftoverOutcome::Kept]);
        let now = std::time::SystemTime::now();
        let set_age = |seconds| {
            let file = std::fs::File::options().write(true).open(&file).unwrap();
            file.set_modified(now - Duration::from_secs(seconds))
                .unwrap();
        };
        set_age(2 * 86400);
        assert_eq!(removed(&dir, 7 * 86400), [LeftoverOutcome::Kept]);
        assert_eq!(removed(&dir, 86400), [LeftoverOutcome::Removed]);
        assert_eq!(removed(&dir, 0), []);
        // What a copy writes is never removed, whatever its age. No copy creates a directory with
        // such a name, so this one is foreign.
        std::fs::create_dir(&file).unwrap();
        assert_eq!(removed(&dir, 0), [LeftoverOutcome::Kept]);
    }

    #[test]
    fn many_leftovers_are_paged_each_once() {
        let tmp = tempfile::tempdir().unwrap();
        let count = 2 * MAX_LEFTOVERS_PER_PAGE + 3;
        for n in 0..count {
            std::fs::write(tmp.path().join(format!(".longhaul-01020304-{n}")), "x").unwrap();
        }
        let dir = Arc::new(Dir::open(tmp.path()).unwrap());
        let (mut names, mut after) = (Vec::new(), None);
        loop {
            let (reported, next) = page(&dir, after.as_ref(), None).unwrap();
            names.extend(reported.into_iter().flat_map(|leftover| leftover.names));
            after = next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(names.len(), count);
        assert!(names.is_sorted());
    }
}
