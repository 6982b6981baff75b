//! The clock, as the kernel's own discipline knows it (`adjtimex`).
#![allow(unsafe_code)] // neither std nor rustix has adjtimex

use std::io;

use crate::fact::Fact;
use crate::facts::Clock;

pub(super) fn read() -> Clock {
    // SAFETY: `timex` is plain numbers throughout, so all zero is a valid value.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: `state` is valid for writes through the call; its `modes` are 0, so nothing is
    // changed.
    let result = unsafe { libc::adjtimex(&raw mut state) };
    if result < 0 {
        let error = io::Error::last_os_error();
        return Clock {
            synchronised: Fact::unknown(&error),
            max_error_us: Fact::unknown(&error),
        };
    }
    let synchronised = result != libc::TIME_ERROR && state.status & libc::STA_UNSYNC == 0;
    Clock {
        synchronised: Fact::Known(synchronised),
        max_error_us: match (synchronised, u64::try_from(state.maxerror)) {
            (true, Ok(error)) => Fact::Known(error),
            _ => Fact::unknown("the clock is not synchronised"),
        },
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_kernel_answers() {
        let clock = super::read();
        let synchronised = *clock.synchronised.known().unwrap();
        assert_eq!(clock.max_error_us.known().is_some(), synchronised);
    }
}
