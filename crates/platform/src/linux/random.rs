//! Random numbers of the operating system.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Fills `bytes` with random numbers that nobody can predict.
///
/// # Errors
/// Those of getrandom(2).
pub fn fill(bytes: &mut [u8]) -> Result<(), Errno> {
    let mut left = bytes;
    while !left.is_empty() {
        let got = getrandom(&mut *left, GetRandomFlags::empty())?;
        left = left.get_mut(got..).unwrap_or_default();
    }
    Ok(())
}
