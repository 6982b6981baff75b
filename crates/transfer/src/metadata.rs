//! Metadata of entries, as the kernel has it and as it is sent.

use longhaul_platform::fs::{FileType, Stat, file_type};

use crate::attributes::{SpecialFile, SpecialKind};
use crate::wire::Meta;

pub(crate) mod changes;
pub(crate) mod links;
pub(crate) mod mode_changes;
pub(crate) mod node;
pub(crate) mod owners;
pub(crate) mod reader;

/// Returns the modification time in milliseconds since 1970, rounded down.
pub(crate) fn modified_ms(stat: &Stat) -> i64 {
    let milliseconds = i64::try_from(stat.st_mtime_nsec / 1_000_000).unwrap_or(0);
    stat.st_mtime
        .saturating_mul(1000)
        .saturating_add(milliseconds)
}

/// Returns permissions and modification time.
pub(crate) fn meta_of(stat: &Stat) -> Meta {
    let nanoseconds = stat.st_mtime_nsec as u32 % 1_000_000_000;
    Meta::new(stat.st_mode & 0o777, (stat.st_mtime, nanoseconds))
}

/// Returns the kind of a special file. `None` for any other entry.
pub(crate) fn special_file(stat: &Stat) -> Option<SpecialFile> {
    let kind = match file_type(stat.st_mode) {
        FileType::Fifo => SpecialKind::Fifo,
        FileType::Socket => SpecialKind::Socket,
        FileType::CharacterDevice => SpecialKind::CharacterDevice,
        FileType::BlockDevice => SpecialKind::BlockDevice,
        _ => return None,
    };
    let special = SpecialFile {
        kind,
        device: (
            longhaul_platform::fs::major(stat.st_rdev),
            longhaul_platform::fs::minor(stat.st_rdev),
        ),
    };
    Some(match special.is_device() {
        true => special,
        false => SpecialFile {
            device: (0, 0),
            ..special
        },
    })
}
