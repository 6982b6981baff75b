//! Reading of a range of a file.

use std::os::fd::AsFd;

use rustix::io::Errno;

/// Reads from `offset` until `buffer` is full or the file ends. Returns the number of bytes.
/// Blocking.
pub(crate) fn read_full_at(
    file: impl AsFd,
    buffer: &mut [u8],
    offset: u64,
) -> Result<usize, Errno> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match rustix::io::pread(&file, rest, offset.saturating_add(filled as u64)) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(filled)
}
