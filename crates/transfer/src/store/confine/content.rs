//! Reads ranges of files.

use longhaul_platform::fs;
use rustix::io::Errno;

use super::{Dir, NodeKind, kind_of};
use crate::full_read::read_full_at;
use crate::path::RelPath;

impl Dir {
    /// Reads at most `max_bytes` bytes from the beginning of a regular file. Returns true with them
    /// if the file has more.
    pub(crate) fn read_beginning(
        &self,
        path: &RelPath,
        max_bytes: usize,
    ) -> Result<(Vec<u8>, bool), Errno> {
        self.read_range(path, 0, max_bytes)
    }

    /// Reads at most `max_bytes` bytes from `offset` of a regular file. Returns true with them if
    /// the file has more.
    pub(crate) fn read_range(
        &self,
        path: &RelPath,
        offset: u64,
        max_bytes: usize,
    ) -> Result<(Vec<u8>, bool), Errno> {
        let file = self.open_file(path)?;
        match kind_of(&fs::fstat(&file)?) {
            NodeKind::File => {}
            NodeKind::Directory => return Err(Errno::ISDIR),
            NodeKind::Symlink | NodeKind::Other => return Err(Errno::INVAL),
        }
        // One byte more shows that the file goes on.
        let mut content = vec![0; max_bytes.saturating_add(1)];
        let length = read_full_at(&file, &mut content, offset)?;
        content.truncate(length.min(max_bytes));
        Ok((content, length > max_bytes))
    }
}
