//! File times: set, read, and compared at the granularity that the file system keeps.
//!
//! Both times are always set, as file systems by libfuse 2 report success for `utimensat(2)` with
//! `UTIME_OMIT` and set nothing. The result is read back. A file system that keeps no time, or
//! another one than it was given, is reported, unless the difference is its rounding.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::time::{SystemTime, UNIX_EPOCH};

use longhaul_platform::fs::{self, AtFlags, Stat, Timespec, Timestamps};
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::error::{Failure, FailureKind, metadata_failure};
use crate::metadata::node::Node;
use crate::store::confine::Dir;
use crate::wire::Meta;

/// A modification time: seconds since 1970, and nanoseconds.
type FileTime = (i64, u32);

const SECOND: i128 = 1_000_000_000;
/// Granularities of file systems in nanoseconds: NTFS 100 ns, SMB and NFS servers 1 us and 1 ms,
/// exFAT 10 ms, HFS+ and ext3 1 s, FAT 2 s.
const GRANULARITIES: [i128; 7] = [1, 100, 1_000, 1_000_000, 10_000_000, SECOND, 2 * SECOND];
/// Times that reveal the granularity of a file system: each is rounded differently at each of the
/// [`GRANULARITIES`], and one of the two is in an odd second.
const PROBES: [FileTime; 2] = [(1_600_000_001, 987_654_321), (1_600_000_002, 987_654_321)];
/// Maximum number of file systems of one copy whose granularity is remembered.
const MAX_FILE_SYSTEMS: usize = 16;

/// Granularity of the times of a file system, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct TimeGranularity(i128);

impl TimeGranularity {
    /// Returns the smallest granularity at which a file system turns `asked` into `stored`. Returns
    /// `None` if the time was not accepted at any granularity. One observation may show less than
    /// the true granularity, but never more.
    fn shown_by(asked: FileTime, stored: FileTime) -> Option<Self> {
        GRANULARITIES
            .map(Self)
            .into_iter()
            .find(|grain| grain.rounds(asked, stored))
    }

    /// Returns true if a file system of this granularity may turn `asked` into `stored`.
    fn rounds(self, asked: FileTime, stored: FileTime) -> bool {
        let (asked, stored) = (nanoseconds(asked), nanoseconds(stored));
        stored % self.0 == 0 && (asked - stored).abs() < self.0
    }
}

fn nanoseconds((seconds, nanoseconds): FileTime) -> i128 {
    i128::from(seconds) * SECOND + i128::from(nanoseconds)
}

/// Returns the modification time.
pub(super) fn modified(stat: &Stat) -> FileTime {
    (stat.st_mtime, stat.st_mtime_nsec as u32)
}

/// Granularities that this copy has found, by file system (`st_dev`). `None` if it could not be
/// found.
#[derive(Debug, Default)]
pub(super) struct GranularityCache(Mutex<Vec<(u64, Option<TimeGranularity>)>>);

impl GranularityCache {
    /// Returns true if the file of `stat` in `dir` has the time `asked`, as its file system keeps
    /// it. If the times differ but could be equal at some granularity, a file `temp` is created to
    /// measure it.
    pub(super) fn has_time(&self, stat: &Stat, asked: FileTime, dir: &Dir, temp: &OsStr) -> bool {
        let stored = modified(stat);
        if stored == asked {
            return true;
        }
        TimeGranularity::shown_by(asked, stored).is_some()
            && self
                .find(stat.st_dev, dir, temp)
                .is_some_and(|grain| grain.rounds(asked, stored))
    }

    fn find(&self, device: u64, dir: &Dir, temp: &OsStr) -> Option<TimeGranularity> {
        let mut known = self.0.lock();
        if let Some((_, grain)) = known.iter().find(|(known, _)| *known == device) {
            return *grain;
        }
        let grain = measure(dir, temp).ok().flatten();
        if known.len() < MAX_FILE_SYSTEMS {
            known.push((device, grain));
        }
        grain
    }
}

/// Measures the granularity of the file system of `dir` with a file of its own.
fn measure(dir: &Dir, temp: &OsStr) -> Result<Option<TimeGranularity>, Errno> {
    let file = dir.create_new(temp)?;
    let shown = PROBES.map(|asked| {
        fs::futimens(&file, &timestamps(asked, asked))?;
        Ok(TimeGranularity::shown_by(
            asked,
            modified(&fs::fstat(&file)?),
        ))
    });
    drop(file);
    dir.remove(temp)?;
    let [first, second] = shown;
    Ok(first?.zip(second?).map(|(first, second)| first.max(second)))
}

/// Sets the modification time of an open file or directory, and checks that it was accepted.
pub(super) fn set(file: impl AsFd, meta: &Meta) -> Result<(), Failure> {
    let given = || {
        let stat = fs::fstat(&file)?;
        let accessed = (stat.st_atime, stat.st_atime_nsec as u32);
        fs::futimens(&file, &timestamps(accessed, meta.mtime))?;
        fs::fstat(&file)
    };
    let stored = modified(&given().map_err(metadata_failure)?);
    match TimeGranularity::shown_by(meta.mtime, stored) {
        Some(_) => Ok(()),
        None => Err(Failure::with_detail(
            FailureKind::Metadata,
            "the target's file system did not accept its modification time",
        )),
    }
}

/// Sets the modification time of a symbolic link. Not every file system has times for links.
pub(super) fn set_of_link(dir: &Dir, name: &OsStr, meta: &Meta) -> Result<(), Errno> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let now = (now.as_secs() as i64, now.subsec_nanos());
    fs::utimensat(
        dir,
        name,
        &timestamps(now, meta.mtime),
        AtFlags::SYMLINK_NOFOLLOW,
    )
}

/// Sets the modification time of a special file.
pub(super) fn set_of_node(node: &Node<'_>, stat: &Stat, meta: &Meta) -> Result<(), Errno> {
    let accessed = (stat.st_atime, stat.st_atime_nsec as u32);
    node.set_times(&timestamps(accessed, meta.mtime))
}

fn timestamps(accessed: FileTime, modified: FileTime) -> Timestamps {
    let time = |(seconds, nanoseconds): FileTime| Timespec {
        tv_sec: seconds,
        tv_nsec: i64::from(nanoseconds),
    };
    Timestamps {
        last_access: time(accessed),
        last_modification: time(modified),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the multiple of the granularity at or below a time.
    fn rounded_down(asked: FileTime, grain: i128) -> FileTime {
        let down = nanoseconds(asked).div_euclid(grain) * grain;
        (
            i64::try_from(down.div_euclid(SECOND)).unwrap(),
            u32::try_from(down.rem_euclid(SECOND)).unwrap(),
        )
    }

    proptest! {
        #[test]
        fn one_observation_shows_at_most_the_true_granularity(
            seconds in -10_000_000_000i64..10_000_000_000,
            nanoseconds in 0u32..1_000_000_000,
            at in 0..GRANULARITIES.len()
        ) {
            let (asked, grain) = ((seconds, nanoseconds), GRANULARITIES[at]);
            let shown = TimeGranularity::shown_by(asked, rounded_down(asked, grain)).unwrap();
            prop_assert!(shown <= TimeGranularity(grain));
            prop_assert!(TimeGranularity(grain).rounds(asked, rounded_down(asked, grain)));
        }
    }

    #[test]
    fn probes_show_every_granularity() {
        for grain in GRANULARITIES {
            let shown = PROBES
                .map(|asked| TimeGranularity::shown_by(asked, rounded_down(asked, grain)).unwrap());
            assert_eq!(shown.into_iter().max(), Some(TimeGranularity(grain)));
        }
    }

    #[test]
    fn rejected_time_shows_no_granularity() {
        let asked = (1_600_000_001, 234_567_891);
        for stored in [
            (1_700_000_000, 0),
            (1_600_000_004, 0),
            (1_600_000_001, 234_567_890),
            (0, 0),
            (1_600_000_001, 5),
        ] {
            assert_eq!(TimeGranularity::shown_by(asked, stored), None, "{stored:?}");
        }
    }

    #[test]
    fn times_are_equal_only_at_the_granularity() {
        let fat = TimeGranularity(2 * SECOND);
        assert!(fat.rounds((1_600_000_001, 5), (1_600_000_000, 0)));
        assert!(
            !fat.rounds((1_600_000_001, 5), (1_600_000_001, 0)),
            "FAT has no odd second"
        );
        assert!(!fat.rounds((1_600_000_002, 0), (1_600_000_000, 0)));
        let ntfs = TimeGranularity(100);
        assert!(ntfs.rounds((1, 234_567_891), (1, 234_567_800)));
        assert!(!ntfs.rounds((1, 234_567_891), (1, 234_000_000)));
    }

    #[test]
    fn nanoseconds_count_if_they_are_kept() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = Dir::open(tmp.path()).unwrap();
        let file = dir.create_new(OsStr::new("file")).unwrap();
        let stored = (1_600_000_000, 0);
        set(&file, &Meta::new(0o644, stored)).unwrap();
        let stat = fs::fstat(&file).unwrap();
        assert_eq!(modified(&stat), stored);
        let grains = GranularityCache::default();
        let has_time = |asked| grains.has_time(&stat, asked, &dir, OsStr::new("temp"));
        assert!(has_time(stored));
        assert!(!has_time((1_600_000_000, 1)));
        assert!(!has_time((1_600_000_001, 0)));
        assert_eq!(
            std::fs::read_dir(tmp.path()).unwrap().count(),
            1,
            "the probe is removed"
        );
    }

    #[test]
    fn setting_keeps_the_access_time() {
        let tmp = tempfile::tempfile().unwrap();
        fs::futimens(&tmp, &timestamps((7, 8), (9, 10))).unwrap();
        let meta = Meta::new(0o644, (-5, 999_999_999));
        set(&tmp, &meta).unwrap();
        let stat = fs::fstat(&tmp).unwrap();
        assert_eq!((stat.st_atime, stat.st_atime_nsec as u32), (7, 8));
        assert_eq!(modified(&stat), meta.mtime);
    }
}
