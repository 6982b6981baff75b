//! Random numbers of the operating system.

use rustix::io::Errno;

/// Fills `bytes` with random numbers that nobody can predict.
///
/// # Errors
/// The system has none.
pub fn fill(bytes: &mut [u8]) -> Result<(), Errno> {
    getrandom::fill(bytes).map_err(|error| {
        let number = error.raw_os_error();
        number.map_or(Errno::IO, Errno::from_raw_os_error)
    })
}
