//! Identity of the file that a journal is about, as chosen by the side that reads the file.

use std::fmt;

use longhaul_platform::fs::Stat;

use crate::stripe::MemberId;

/// Maximum length of an identity, in bytes.
pub(super) const MAX_IDENTITY_BYTES: usize = 256;
/// Prefix of an identity made from the operating system's metadata of a file.
const POSIX: &[u8] = b"posix1";
/// Context for deriving the identities of members (BLAKE3 paper, section 2.3).
const MEMBER_CONTEXT: &str = "longhaul 2026 file that a member of a striped server writes";

/// Identity of one state of one source file: bytes that the sender chooses and the receiver only
/// compares. If two are equal, the content is assumed to be the same.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Identity(Box<[u8]>);

impl Identity {
    /// Creates an identity from bytes of the sender's choice. Returns `None` if there are none, or
    /// more than 256.
    pub fn opaque(bytes: &[u8]) -> Option<Self> {
        (1..=MAX_IDENTITY_BYTES)
            .contains(&bytes.len())
            .then(|| Self(bytes.into()))
    }

    /// Creates the identity of a local file: its size, modification time, change time (both with
    /// nanoseconds) and inode number. A program cannot set the change time, so changed content
    /// gives another identity even if the modification time was reset. The device number is
    /// omitted, since it may differ after a reboot.
    pub fn from_stat(stat: &Stat) -> Self {
        let mut bytes = POSIX.to_vec();
        for number in [
            stat.st_size as u64,
            stat.st_mtime as u64,
            stat.st_mtime_nsec,
            stat.st_ctime as u64,
            stat.st_ctime_nsec,
            stat.st_ino,
        ] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        Self(bytes.into())
    }

    /// Returns the identity of the same file for a member of a striped server. Each member thus has
    /// journals and data files of its own.
    pub(crate) fn at_member(&self, member: MemberId) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(MEMBER_CONTEXT);
        hasher.update(&member.0).update(&self.0);
        Self(hasher.finalize().as_bytes().as_slice().into())
    }

    /// Returns the bytes, 1 to 256.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", longhaul_proto::text::printable(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_platform::fs;

    #[test]
    fn changed_content_with_its_old_time_has_a_new_identity() {
        let tmp = tempfile::NamedTempFile::new().unwrap();
        let file = tmp.as_file();
        fs::ftruncate(file, 10).unwrap();
        let times = |stat: &Stat| fs::Timestamps {
            last_access: fs::Timespec {
                tv_sec: 0,
                tv_nsec: fs::UTIME_OMIT,
            },
            last_modification: fs::Timespec {
                tv_sec: stat.st_mtime,
                tv_nsec: stat.st_mtime_nsec as i64,
            },
        };
        let before = fs::fstat(file).unwrap();
        assert_eq!(
            Identity::from_stat(&before),
            Identity::from_stat(&fs::fstat(file).unwrap())
        );
        // The clock of change times may tick as slowly as a hundred times a second.
        let mut after = before;
        while (after.st_ctime, after.st_ctime_nsec) == (before.st_ctime, before.st_ctime_nsec) {
            rustix::io::pwrite(file, b"x", 0).unwrap();
            fs::futimens(file, &times(&before)).unwrap();
            after = fs::fstat(file).unwrap();
        }
        assert_eq!(
            (before.st_mtime, before.st_mtime_nsec),
            (after.st_mtime, after.st_mtime_nsec)
        );
        assert_ne!(Identity::from_stat(&before), Identity::from_stat(&after));
    }

    #[test]
    fn identity_is_neither_empty_nor_too_long() {
        assert!(Identity::opaque(b"").is_none());
        assert!(Identity::opaque(&[0; 257]).is_none());
        assert_eq!(
            Identity::opaque(b"etag \xff").unwrap().as_bytes(),
            b"etag \xff"
        );
    }

    #[test]
    fn each_member_has_its_own_identity_of_a_file() {
        let identity = Identity::opaque(&[7; MAX_IDENTITY_BYTES]).unwrap();
        let [one, other] = [1, 2].map(|id| identity.at_member(MemberId([id; 8])));
        assert_ne!(one, other);
        assert_ne!(one, identity);
        assert_eq!(one, identity.at_member(MemberId([1; 8])));
        assert!(Identity::opaque(one.as_bytes()).is_some());
    }
}
