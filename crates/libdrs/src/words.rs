//! Numbers of `drs.h` for the types of `drs`, and their short names.

use std::ffi::{CStr, c_char, c_int};

use drs::{Limit, Mode, Side};

/// Returns the side for a number of `enum drs_side`.
pub(crate) fn side(number: c_int) -> Option<Side> {
    match number {
        1 => Some(Side::Sending),
        2 => Some(Side::Receiving),
        _ => None,
    }
}

/// Returns the mode for a number of `enum drs_mode`.
pub(crate) fn mode(number: c_int) -> Option<Mode> {
    match number {
        0 => Some(Mode::Observe),
        1 => Some(Mode::Auto),
        2 => Some(Mode::Classic),
        3 => Some(Mode::PaperPlus),
        _ => None,
    }
}

/// Returns the number of `enum drs_limit` for a limit.
pub(crate) fn limit(limit: Limit) -> u32 {
    match limit {
        Limit::SendingApplication => 1,
        Limit::ReceivingApplication => 2,
        Limit::SendBuffer => 3,
        Limit::ReceiveWindow => 4,
        Limit::Pacing => 5,
        Limit::Growing => 6,
        Limit::Loss => 7,
        Limit::Path => 8,
        Limit::Sender => 9,
    }
}

const UNKNOWN: &CStr = c"unknown";

/// `drs_limit_word`.
#[unsafe(no_mangle)]
pub extern "C" fn drs_limit_word(limit: c_int) -> *const c_char {
    let word = match limit {
        1 => c"sending-application",
        2 => c"receiving-application",
        3 => c"send-buffer",
        4 => c"receive-window",
        5 => c"pacing",
        6 => c"growing",
        7 => c"loss",
        8 => c"path",
        9 => c"sender",
        _ => UNKNOWN,
    };
    word.as_ptr()
}

/// `drs_mode_word`.
#[unsafe(no_mangle)]
pub extern "C" fn drs_mode_word(mode: c_int) -> *const c_char {
    let word = match mode {
        0 => c"observe",
        1 => c"auto",
        2 => c"classic",
        3 => c"paper+",
        _ => UNKNOWN,
    };
    word.as_ptr()
}

/// `drs_side_word`.
#[unsafe(no_mangle)]
pub extern "C" fn drs_side_word(side: c_int) -> *const c_char {
    let word = match side {
        1 => c"sending",
        2 => c"receiving",
        _ => UNKNOWN,
    };
    word.as_ptr()
}

/// `drs_action_word`.
#[unsafe(no_mangle)]
pub extern "C" fn drs_action_word(kind: c_int) -> *const c_char {
    let word = match kind {
        1 => c"unlock-receive",
        2 => c"unlock-send",
        3 => c"receive-buffer",
        4 => c"send-buffer",
        5 => c"window-clamp",
        6 => c"unsent-limit",
        7 => c"pacing-rate",
        8 => c"congestion-control",
        _ => UNKNOWN,
    };
    word.as_ptr()
}

/// `drs_advice_word`.
#[unsafe(no_mangle)]
pub extern "C" fn drs_advice_word(kind: c_int) -> *const c_char {
    let word = match kind {
        1 => c"streams",
        2 => c"depot",
        3 => c"raise",
        4 => c"lift-pacing",
        _ => UNKNOWN,
    };
    word.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_the_words_of_the_crate() {
        for each in Limit::ALL {
            let number = c_int::try_from(limit(each)).unwrap();
            // SAFETY: the words are static and NUL-terminated.
            let word = unsafe { CStr::from_ptr(drs_limit_word(number)) };
            assert_eq!(word.to_str().unwrap(), each.word());
        }
    }
}
