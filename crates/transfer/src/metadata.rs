//! Metadata of entries, as the kernel has it and as it is sent.

use rustix::fs::Stat;

use crate::wire::Meta;

/// Returns the modification time in milliseconds since 1970, rounded down.
pub(crate) fn modified_ms(stat: &Stat) -> i64 {
    let milliseconds = i64::try_from(stat.st_mtime_nsec / 1_000_000).unwrap_or(0);
    stat.st_mtime
        .saturating_mul(1000)
        .saturating_add(milliseconds)
}

pub(crate) fn meta_of(stat: &Stat) -> Meta {
    Meta {
        mode: stat.st_mode & 0o777,
        mtime: (stat.st_mtime, stat.st_mtime_nsec as u32 % 1_000_000_000),
    }
}
