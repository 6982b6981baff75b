//! Commits finished files on file systems that cannot rename without replacing.
//!
//! `RENAME_NOREPLACE` is tried first, then a hard link, which does not replace either. exFAT by
//! FUSE and others support neither. There a name is *claimed*: an empty file is created exclusively
//! under it, and the finished file is renamed over it, provided that the name still belongs to the
//! claim and the claim is still empty. Between this check and the rename, one race remains: a file
//! that another program puts there in these microseconds is replaced.
//!
//! A directory claims its name by an empty directory. There no race remains, as a non-empty
//! directory is not replaced.
//!
//! FUSE caches metadata of a file for a second, for each spelling of its name. Claims are therefore
//! read from the file system itself (`AT_STATX_FORCE_SYNC`), never from the cache.
//!
//! A claim is locked, has the modification time [`CLAIM_SECONDS`], and exists only briefly. A claim
//! that a crash left keeps its time and loses its lock, and the next copy takes it over. A user's
//! own empty file does not have that time.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, Ordering};

use longhaul_platform::fs::{
    self, AtFlags, FileType, FlockOperation, HANDLE, Mode, OFlags, Stat, Timespec, Timestamps,
    stat_uncached,
};
use rustix::io::Errno;

use super::{Dir, NodeKind, kind_of};

/// Modification time of a claim, in seconds since 1970. The number is even, so that FAT keeps it
/// too.
const CLAIM_SECONDS: i64 = 500_000_000;
/// Step of time zone offsets. A file system that keeps local time may be mounted later with another
/// offset, in quarter hours.
const ZONE_STEP_SECONDS: i64 = 15 * 60;
const MAX_ZONE_SECONDS: i64 = 26 * 60 * 60;

/// Method of committing a file without replacing another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum NamingMethod {
    /// Not known yet.
    Unknown,
    /// `renameat2(2)` with `RENAME_NOREPLACE`.
    Rename,
    /// A hard link, after which the first name is removed.
    Link,
    /// An exclusively created empty file that the finished one replaces.
    Claim,
}

/// The method found to work in a directory.
#[derive(Debug)]
pub(super) struct FoundNaming(AtomicU8);

impl Default for FoundNaming {
    fn default() -> Self {
        Self(AtomicU8::new(NamingMethod::Unknown as u8))
    }
}

impl FoundNaming {
    pub(super) fn get(&self) -> NamingMethod {
        let code = self.0.load(Ordering::Relaxed);
        let all = [
            NamingMethod::Rename,
            NamingMethod::Link,
            NamingMethod::Claim,
        ];
        let found = all.into_iter().find(|naming| *naming as u8 == code);
        found.unwrap_or(NamingMethod::Unknown)
    }

    pub(super) fn set(&self, naming: NamingMethod) {
        self.0.store(naming as u8, Ordering::Relaxed);
    }
}

/// Renames the file `from` to `to` in `target`. Fails with `EXIST` if `to` exists.
pub(super) fn rename_to_free_name(
    source: &Dir,
    from: &OsStr,
    target: &Dir,
    to: &OsStr,
) -> Result<(), Errno> {
    let found = target.naming.get();
    if matches!(found, NamingMethod::Unknown | NamingMethod::Rename) {
        match fs::rename_noreplace(source, from, target, to) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            result => return target.remember(NamingMethod::Rename, result),
        }
    }
    if kind_of(&source.stat_name(from)?) == NodeKind::Directory {
        return rename_directory(source, from, target, to);
    }
    if found != NamingMethod::Claim {
        match source.link_into(from, target, to) {
            Err(Errno::PERM | Errno::NOSYS | Errno::OPNOTSUPP | Errno::MLINK) => {}
            linked => {
                target.remember(NamingMethod::Link, linked)?;
                return source.remove(from);
            }
        }
    }
    let claimed = NameClaim::take(target, to);
    let named = claimed.and_then(|claim| claim.give_way_to(source, from));
    target.remember(NamingMethod::Claim, named)
}

fn rename_directory(source: &Dir, from: &OsStr, target: &Dir, to: &OsStr) -> Result<(), Errno> {
    fs::mkdirat(target, to, Mode::RWXU)?;
    let renamed = fs::renameat(source, from, target, to);
    if renamed.is_err() {
        let _ = target.remove_dir(to);
    }
    renamed
}

impl Dir {
    fn remember(&self, naming: NamingMethod, result: Result<(), Errno>) -> Result<(), Errno> {
        if matches!(result, Ok(()) | Err(Errno::EXIST)) {
            self.naming.set(naming);
        }
        result
    }

    /// Determines how files can be committed here without replacing others, by means of a file
    /// called `first` and then `second`. Does nothing if the method is known.
    pub(crate) fn try_naming(&self, first: &OsStr, second: &OsStr) -> Result<(), Errno> {
        if self.naming.get() != NamingMethod::Unknown {
            return Ok(());
        }
        drop(self.create_new(first)?);
        let named = rename_to_free_name(self, first, self, second);
        for name in [first, second] {
            let _ = self.remove(name);
        }
        named
    }

    /// Checks that a file here may be called `name`. Uses a temporary directory `temp`, so nothing
    /// appears under the name.
    ///
    /// # Errors
    /// Those of creating the file.
    pub(crate) fn try_name(&self, temp: &OsStr, name: &OsStr) -> Result<(), Errno> {
        fs::mkdirat(self, temp, Mode::RWXU)?;
        let tried = self.try_name_within(temp, name);
        self.remove_dir(temp)?;
        tried
    }

    fn try_name_within(&self, temp: &OsStr, name: &OsStr) -> Result<(), Errno> {
        let within = Dir::new(
            self.resolve(temp, OFlags::DIRECTORY | HANDLE)?,
            self.resolver,
        );
        match within.create_new(name) {
            Err(Errno::NOENT) => Err(Errno::INVAL),
            created => {
                drop(created?);
                within.remove(name)
            }
        }
    }

    /// Returns the metadata of `name` like [`Dir::stat_name`]. A claim counts as absent (`NOENT`),
    /// since the next file of that name replaces it.
    pub(crate) fn stat_occupant(&self, name: &OsStr) -> Result<Stat, Errno> {
        match self.stat_name(name)? {
            stat if looks_like_claim(&stat) && is_claim(self, name) => Err(Errno::NOENT),
            stat => Ok(stat),
        }
    }
}

/// A name held by an empty file until the finished file replaces it.
struct NameClaim<'a> {
    directory: &'a Dir,
    name: &'a OsStr,
    file: OwnedFd,
}

impl<'a> NameClaim<'a> {
    fn take(directory: &'a Dir, name: &'a OsStr) -> Result<Self, Errno> {
        match directory.create_new(name) {
            Err(Errno::EXIST) => Self::take_over(directory, name),
            file => {
                let claim = Self {
                    directory,
                    name,
                    file: file?,
                };
                // If files cannot be locked, or keep no such time, a claim left by a crash looks
                // like an empty file and stays.
                if claim.lock().is_ok() {
                    let _ = fs::futimens(&claim.file, &claim_times());
                }
                Ok(claim)
            }
        }
    }

    /// Takes over the claim of a copy that is gone. Fails with `EXIST` if `name` is anything else.
    fn take_over(directory: &'a Dir, name: &'a OsStr) -> Result<Self, Errno> {
        if !is_claim(directory, name) {
            return Err(Errno::EXIST);
        }
        let flags =
            OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = fs::openat(directory, name, flags, Mode::empty()).map_err(|_| Errno::EXIST)?;
        let claim = Self {
            directory,
            name,
            file,
        };
        let is_abandoned = claim.lock().is_ok() && is_claim(directory, name) && claim.is_valid();
        if is_abandoned {
            Ok(claim)
        } else {
            Err(Errno::EXIST)
        }
    }

    fn lock(&self) -> Result<(), Errno> {
        fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive)
    }

    /// Returns true if the name still belongs to this very file, and nothing was written to it.
    fn is_valid(&self) -> bool {
        let (Ok(own), Ok(named)) = (fs::fstat(&self.file), self.directory.stat_name(self.name))
        else {
            return false;
        };
        (own.st_dev, own.st_ino) == (named.st_dev, named.st_ino)
            && is_empty(self.directory, self.name)
    }

    fn give_way_to(self, source: &Dir, from: &OsStr) -> Result<(), Errno> {
        if !self.is_valid() {
            return Err(Errno::EXIST);
        }
        let renamed = fs::renameat(source, from, self.directory, self.name);
        if renamed.is_err() && self.is_valid() {
            let _ = fs::unlinkat(self.directory, self.name, AtFlags::empty());
        }
        renamed
    }
}

fn looks_like_claim(stat: &Stat) -> bool {
    kind_of(stat) == NodeKind::File && stat.st_size == 0 && is_claim_time(stat.st_mtime)
}

fn is_claim(directory: &Dir, name: &OsStr) -> bool {
    stat_uncached(directory, name).is_ok_and(|now| {
        let is_file = fs::file_type(now.mode) == FileType::RegularFile;
        is_file && now.size == 0 && is_claim_time(now.modified)
    })
}

fn is_empty(directory: &Dir, name: &OsStr) -> bool {
    stat_uncached(directory, name).is_ok_and(|now| now.size == 0)
}

fn is_claim_time(seconds: i64) -> bool {
    let offset = seconds.saturating_sub(CLAIM_SECONDS);
    offset % ZONE_STEP_SECONDS == 0 && offset.unsigned_abs() <= MAX_ZONE_SECONDS.unsigned_abs()
}

fn claim_times() -> Timestamps {
    let time = Timespec {
        tv_sec: CLAIM_SECONDS,
        tv_nsec: 0,
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: &str = "from";
    const TO: &str = "to";

    /// Creates a directory that uses the given naming method, with a finished file in it.
    fn directory(naming: NamingMethod) -> (tempfile::TempDir, Dir) {
        let tmp = tempfile::tempdir().unwrap();
        std::fs::write(tmp.path().join(FROM), "finished").unwrap();
        let dir = Dir::open(tmp.path()).unwrap();
        dir.naming.set(naming);
        (tmp, dir)
    }

    fn give_name(dir: &Dir) -> Result<(), Errno> {
        dir.rename(FROM.as_ref(), TO.as_ref(), false)
    }

    #[test]
    fn each_naming_method_commits_without_replacing() {
        for naming in [
            NamingMethod::Unknown,
            NamingMethod::Rename,
            NamingMethod::Link,
            NamingMethod::Claim,
        ] {
            let (tmp, dir) = directory(naming);
            give_name(&dir).unwrap();
            assert_eq!(std::fs::read(tmp.path().join(TO)).unwrap(), b"finished");
            assert!(!tmp.path().join(FROM).exists(), "{naming:?}");
            for there in ["", "a user's"] {
                let (tmp, dir) = directory(naming);
                std::fs::write(tmp.path().join(TO), there).unwrap();
                assert_eq!(give_name(&dir), Err(Errno::EXIST), "{naming:?} {there:?}");
                assert_eq!(
                    std::fs::read(tmp.path().join(TO)).unwrap(),
                    there.as_bytes()
                );
                assert!(tmp.path().join(FROM).exists());
            }
        }
    }

    #[test]
    fn directory_takes_only_a_free_name() {
        for naming in [
            NamingMethod::Unknown,
            NamingMethod::Rename,
            NamingMethod::Link,
            NamingMethod::Claim,
        ] {
            let (tmp, dir) = directory(naming);
            std::fs::create_dir(tmp.path().join("d")).unwrap();
            std::fs::create_dir(tmp.path().join("there")).unwrap();
            for taken in ["there", FROM] {
                let renamed = dir.rename("d".as_ref(), taken.as_ref(), false);
                assert_eq!(renamed, Err(Errno::EXIST), "{naming:?}");
            }
            dir.rename("d".as_ref(), TO.as_ref(), false).unwrap();
            assert!(tmp.path().join(TO).is_dir() && !tmp.path().join("d").exists());
        }
    }

    #[test]
    fn abandoned_claim_is_taken_over() {
        let (tmp, dir) = directory(NamingMethod::Claim);
        drop(NameClaim::take(&dir, TO.as_ref()).unwrap());
        assert!(tmp.path().join(TO).exists());
        assert_eq!(dir.stat_occupant(TO.as_ref()).unwrap_err(), Errno::NOENT);
        give_name(&dir).unwrap();
        assert_eq!(std::fs::read(tmp.path().join(TO)).unwrap(), b"finished");
    }

    #[test]
    fn claim_in_use_is_left_alone() {
        let (tmp, dir) = directory(NamingMethod::Claim);
        let claim = NameClaim::take(&dir, TO.as_ref()).unwrap();
        assert_eq!(give_name(&dir), Err(Errno::EXIST));
        drop(claim);
        assert_eq!(std::fs::read(tmp.path().join(TO)).unwrap(), b"");
    }

    #[test]
    fn replaced_or_written_claim_is_void() {
        let (tmp, dir) = directory(NamingMethod::Claim);
        let claim = NameClaim::take(&dir, TO.as_ref()).unwrap();
        std::fs::write(tmp.path().join(TO), "written to").unwrap();
        assert_eq!(claim.give_way_to(&dir, FROM.as_ref()), Err(Errno::EXIST));
        let (tmp, dir) = directory(NamingMethod::Claim);
        let claim = NameClaim::take(&dir, TO.as_ref()).unwrap();
        std::fs::write(tmp.path().join("other"), "").unwrap();
        std::fs::rename(tmp.path().join("other"), tmp.path().join(TO)).unwrap();
        assert_eq!(claim.give_way_to(&dir, FROM.as_ref()), Err(Errno::EXIST));
        assert!(tmp.path().join(FROM).exists());
    }

    #[test]
    fn failed_commit_leaves_no_claim() {
        let (tmp, dir) = directory(NamingMethod::Claim);
        let missing = dir.rename("missing".as_ref(), TO.as_ref(), false);
        assert_eq!(missing, Err(Errno::NOENT));
        assert!(!tmp.path().join(TO).exists());
    }

    #[test]
    fn claims_are_recognised_in_any_time_zone() {
        for shift in [0, 3600, -3600, 45 * 60, 14 * 3600, -12 * 3600] {
            assert!(is_claim_time(CLAIM_SECONDS + shift), "{shift}");
        }
        for other in [
            0,
            CLAIM_SECONDS + 1,
            CLAIM_SECONDS + 27 * 3600,
            i64::MIN,
            i64::MAX,
        ] {
            assert!(!is_claim_time(other), "{other}");
        }
    }

    #[test]
    fn naming_method_is_tried_once_and_leaves_nothing() {
        let (tmp, dir) = directory(NamingMethod::Unknown);
        dir.try_naming("first".as_ref(), "second".as_ref()).unwrap();
        let best = match longhaul_platform::IS_LINUX {
            true => NamingMethod::Rename,
            false => NamingMethod::Link,
        };
        assert_eq!(dir.naming.get(), best);
        dir.try_naming("no/name".as_ref(), "no/name".as_ref())
            .unwrap();
        assert_eq!(std::fs::read_dir(tmp.path()).unwrap().count(), 1);
    }

    #[test]
    fn name_is_tried_invisibly() {
        let (tmp, dir) = directory(NamingMethod::Unknown);
        let long = "x".repeat(300);
        for (name, tried) in [
            ("a:b", Ok(())),
            (FROM, Ok(())),
            (&long, Err(Errno::NAMETOOLONG)),
        ] {
            assert_eq!(
                dir.try_name("temp".as_ref(), name.as_ref()),
                tried,
                "{name}"
            );
            assert_eq!(std::fs::read_dir(tmp.path()).unwrap().count(), 1);
        }
        assert_eq!(std::fs::read(tmp.path().join(FROM)).unwrap(), b"finished");
    }
}
