//! Waits for a file descriptor when this process or the system has run out of them.
//!
//! Files that stay open have permits that fit the limit (`ulimit -n`). In addition, work on
//! blocking threads briefly opens directories and files. If no descriptor is left for one of these,
//! another closes soon.

use std::time::{Duration, Instant};

use rustix::io::Errno;

/// Pauses between attempts: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const MAX_PAUSE: Duration = Duration::from_millis(50);
/// Longest wait for a descriptor. After it, the file fails.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Calls `open` again until it does not fail for lack of a descriptor. Blocking.
///
/// # Errors
/// Those of `open`. EMFILE and ENFILE are returned only after [`WAIT_TIMEOUT`].
pub(crate) fn with_descriptor<T>(mut open: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let (mut pause, mut waited_since) = (FIRST_PAUSE, None);
    loop {
        match open() {
            Err(errno) if is_shortage(errno) => {
                let since = *waited_since.get_or_insert_with(Instant::now);
                match next_pause(pause, since.elapsed()) {
                    Some(next) => std::thread::sleep(std::mem::replace(&mut pause, next)),
                    None => return Err(errno),
                }
            }
            result => return result,
        }
    }
}

/// Returns true if this process (EMFILE) or the system (ENFILE) has no descriptor left.
pub(crate) fn is_shortage(errno: Errno) -> bool {
    matches!(errno, Errno::MFILE | Errno::NFILE)
}

/// Returns the pause that follows `pause`, or `None` if `waited` was long enough.
fn next_pause(pause: Duration, waited: Duration) -> Option<Duration> {
    (waited < WAIT_TIMEOUT).then(|| pause.saturating_mul(2).min(MAX_PAUSE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_waits_for_a_descriptor() {
        let mut attempts = [Err(Errno::MFILE), Err(Errno::NFILE), Ok(7)].into_iter();
        assert_eq!(with_descriptor(|| attempts.next().unwrap()), Ok(7));
        let mut attempts = [Err(Errno::NOENT), Ok(7)].into_iter();
        assert_eq!(
            with_descriptor(|| attempts.next().unwrap()),
            Err(Errno::NOENT)
        );
    }

    #[test]
    fn lasting_descriptor_shortage_is_an_error() {
        assert_eq!(
            next_pause(FIRST_PAUSE, Duration::ZERO),
            Some(2 * FIRST_PAUSE)
        );
        assert_eq!(next_pause(MAX_PAUSE, Duration::ZERO), Some(MAX_PAUSE));
        assert_eq!(next_pause(MAX_PAUSE, WAIT_TIMEOUT), None);
    }
}
