//! Metadata of entries, as the kernel has it and as it is sent.

use rustix::fs::Stat;

use crate::wire::Meta;

pub(crate) fn meta_of(stat: &Stat) -> Meta {
    Meta {
        mode: stat.st_mode & 0o777,
        mtime: (stat.st_mtime, stat.st_mtime_nsec as u32 % 1_000_000_000),
    }
}
