//! Entries at a host, as SFTP describes them.

use std::path::Path;

use openssh_sftp_client_lowlevel::{FileAttrs, FileType, Permissions, UnixTimeStamp};

use longhaul_transfer::local_end::Meta;
use longhaul_transfer::{Failure, FailureKind};

/// Kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    Symlink,
    /// A device, FIFO or socket, or a kind that the server does not tell.
    Other,
}

/// Attributes of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub kind: Kind,
    /// Size in bytes.
    pub size: u64,
    /// Modification time, in seconds since 1970.
    pub modified: i64,
    /// Permission bits, including set-ID and sticky bits.
    pub mode: u32,
}

impl Attributes {
    /// Returns what a copy keeps.
    pub(crate) fn meta(&self) -> Meta {
        Meta::new(self.mode & 0o777, (self.modified, 0))
    }
}

impl From<FileAttrs> for Attributes {
    fn from(attrs: FileAttrs) -> Self {
        let kind = match attrs.get_filetype() {
            Some(FileType::RegularFile) => Kind::File,
            Some(FileType::Directory) => Kind::Directory,
            Some(FileType::Symlink) => Kind::Symlink,
            _ => Kind::Other,
        };
        let modified = attrs.get_time().map_or(0, |(_, mtime)| mtime.into_raw());
        Self {
            kind,
            size: attrs.get_size().unwrap_or(0),
            modified: i64::from(modified),
            mode: attrs.get_permissions().map_or(0, |mode| mode.bits()),
        }
    }
}

/// Returns attributes that set permissions.
pub(crate) fn mode_attrs(mode: u32) -> FileAttrs {
    let mut attrs = FileAttrs::new();
    attrs.set_permissions(Permissions::from_bits_truncate(mode));
    attrs
}

/// Returns attributes that set permissions and time, and false if SFTP cannot express the time: it
/// has 32 bits of seconds since 1970.
pub(crate) fn meta_attrs(meta: &Meta) -> (FileAttrs, bool) {
    let mut attrs = mode_attrs(meta.mode);
    let is_set = set_time(&mut attrs, meta.mtime.0);
    (attrs, is_set)
}

/// Returns attributes that set the modification time alone. `None` if SFTP cannot express it.
pub(crate) fn time_attrs(modified: i64) -> Option<FileAttrs> {
    let mut attrs = FileAttrs::new();
    set_time(&mut attrs, modified).then_some(attrs)
}

fn set_time(attrs: &mut FileAttrs, modified: i64) -> bool {
    let time = u32::try_from(modified).ok();
    let time = time.and_then(UnixTimeStamp::from_raw);
    if let Some(time) = time {
        attrs.set_time(time, time);
    }
    time.is_some()
}

/// Checks that a path can be sent.
pub(crate) fn check_utf8(path: &Path) -> Result<(), Failure> {
    match path.to_str() {
        Some(_) => Ok(()),
        None => {
            let why = "the name is not UTF-8, which copies by sftp need: rename it, or use \
                       longhaul at the host";
            Err(Failure::with_detail(FailureKind::RefusedPath, why))
        }
    }
}
