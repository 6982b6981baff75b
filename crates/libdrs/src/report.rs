//! `struct drs_report`, as `drs.h` lays it out, and how a step fills it.

use std::ffi::c_char;
use std::mem::{offset_of, size_of};
use std::ptr;
use std::time::Duration;

use drs::Evidence;

use crate::error::Code;

/// Maximum number of actions in a report (`DRS_ACTIONS_MAX`).
pub(crate) const ACTIONS_MAX: usize = 8;

pub(crate) const HAS_VERDICT: u32 = 1;
pub(crate) const HAS_ADVICE: u32 = 2;
const HAS_PACING: u32 = 4;
const HAS_DELIVERY: u32 = 8;

/// `struct drs_action`: one action of a step.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct DrsAction {
    /// `enum drs_action_kind`.
    pub kind: u32,
    /// 0, or the errno of the kernel's refusal.
    pub failed: i32,
    /// Requested value.
    pub asked: u64,
    /// Value that the kernel set.
    pub made: u64,
    /// Cause, as a NUL-terminated sentence.
    pub cause: [c_char; 128],
}

/// `struct drs_report`: the results of a step. `drs.h` documents its members.
#[derive(Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)]
pub struct DrsReport {
    pub size: u32,
    pub flags: u32,
    pub limit: u32,
    pub action_count: u32,
    pub actions: [DrsAction; ACTIONS_MAX],
    pub advice: u32,
    pub advice_value: u32,
    pub advice_text: [c_char; 256],
    pub interval_us: u64,
    pub rtt_us: u64,
    pub min_rtt_us: u64,
    pub goodput_bps: f64,
    pub pacing_bps: f64,
    pub delivery_bps: f64,
    pub congestion_window: u64,
    pub in_flight: u64,
    pub peer_window: u64,
    pub send_buffer: u64,
    pub receive_buffer: u64,
    pub unsent: u64,
    pub unread: u64,
    pub busy: f64,
    pub receive_window_limited: f64,
    pub send_buffer_limited: f64,
    pub retransmits: u32,
    pub reserved: u32,
}

/// Size of the first version. No caller was ever built for a smaller one.
const FIRST_VERSION: usize = size_of::<DrsReport>();

impl DrsReport {
    /// Returns a report of all zeros, the result of a step without results.
    #[must_use]
    pub const fn empty() -> Self {
        const NOTHING: DrsAction = DrsAction {
            kind: 0,
            failed: 0,
            asked: 0,
            made: 0,
            cause: [0; 128],
        };
        Self {
            size: 0,
            flags: 0,
            limit: 0,
            action_count: 0,
            actions: [NOTHING; ACTIONS_MAX],
            advice: 0,
            advice_value: 0,
            advice_text: [0; 256],
            interval_us: 0,
            rtt_us: 0,
            min_rtt_us: 0,
            goodput_bps: 0.0,
            pacing_bps: 0.0,
            delivery_bps: 0.0,
            congestion_window: 0,
            in_flight: 0,
            peer_window: 0,
            send_buffer: 0,
            receive_buffer: 0,
            unsent: 0,
            unread: 0,
            busy: 0.0,
            receive_window_limited: 0.0,
            send_buffer_limited: 0.0,
            retransmits: 0,
            reserved: 0,
        }
    }

    /// Copies the numbers that support a verdict.
    pub(crate) fn put_evidence(&mut self, evidence: &Evidence) {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.interval_us = micros(evidence.interval);
        self.rtt_us = micros(evidence.rtt);
        self.min_rtt_us = micros(evidence.min_rtt);
        self.goodput_bps = evidence.goodput_bps;
        self.congestion_window = evidence.congestion_window;
        self.in_flight = evidence.in_flight;
        self.peer_window = evidence.peer_window;
        self.send_buffer = evidence.send_buffer;
        self.receive_buffer = evidence.receive_buffer;
        self.unsent = evidence.unsent;
        self.unread = evidence.unread;
        self.busy = evidence.busy;
        self.receive_window_limited = evidence.receive_window_limited;
        self.send_buffer_limited = evidence.send_buffer_limited;
        self.retransmits = evidence.retransmits;
        if let Some(pacing) = evidence.pacing_bps {
            self.flags |= HAS_PACING;
            self.pacing_bps = pacing;
        }
        if let Some(delivery) = evidence.delivery_bps {
            self.flags |= HAS_DELIVERY;
            self.delivery_bps = delivery;
        }
    }
}

/// A caller's buffer for a report, with the size that the caller gave.
pub(crate) struct Place {
    at: *mut DrsReport,
    size: usize,
}

impl Place {
    /// Returns the buffer at `at`, or `None` for NULL.
    ///
    /// # Errors
    /// [`Code::Invalid`] if its size member is less than the first version's size.
    ///
    /// # Safety
    /// `at` is NULL, or valid for reads and writes of as many bytes as its first member says, while
    /// the buffer is used.
    pub(crate) unsafe fn new(at: *mut DrsReport) -> Result<Option<Self>, Code> {
        if at.is_null() {
            return Ok(None);
        }
        // SAFETY: the size member is the first; the caller promises that it can be read.
        let size = unsafe { ptr::read_unaligned(at.cast::<u32>()) };
        let size = usize::try_from(size).map_err(|_| Code::Invalid)?;
        if size < FIRST_VERSION {
            return Err(Code::Invalid);
        }
        Ok(Some(Self { at, size }))
    }

    /// Copies as much of the report as the caller's buffer holds, and sets its size member to that.
    pub(crate) fn fill(self, mut report: DrsReport) {
        let filled = self.size.min(size_of::<DrsReport>());
        report.size = u32::try_from(filled).unwrap_or(0);
        // SAFETY: `new`'s caller promised `size` writable bytes. `filled` is at most that and at
        // most the size of what is read. A local does not overlap the caller's memory.
        unsafe {
            ptr::copy_nonoverlapping(
                (&raw const report).cast::<u8>(),
                self.at.cast::<u8>(),
                filled,
            )
        };
    }
}

/// Formats into a NUL-terminated array of C characters without allocating, and truncates.
pub(crate) struct Text<'a> {
    room: &'a mut [c_char],
    used: usize,
}

impl<'a> Text<'a> {
    pub(crate) fn new(room: &'a mut [c_char]) -> Self {
        Self { room, used: 0 }
    }
}

impl std::fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        // The last byte is for the NUL.
        let last = self.room.len().saturating_sub(1);
        for byte in text.bytes() {
            match self.room.get_mut(self.used) {
                Some(place) if self.used < last => *place = c_char::from_ne_bytes([byte]),
                _ => return Ok(()),
            }
            self.used += 1;
        }
        Ok(())
    }
}

// These are the offsets in `drs.h`; the C tests compare them with those of the C compiler.
const _: () = assert!(
    offset_of!(DrsReport, actions) == 16 && offset_of!(DrsReport, advice) == 16 + ACTIONS_MAX * 152
);

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    #[test]
    fn text_is_truncated_and_nul_terminated() {
        let mut room = [1; 6];
        Text::new(&mut room).write_str("abcdefgh").unwrap();
        // The last byte is for the NUL, and was not written.
        assert_eq!(
            room.map(|c| u8::from_ne_bytes(c.to_ne_bytes())),
            *b"abcde\x01"
        );
        let mut room = [0; 6];
        write!(Text::new(&mut room), "ab{}", 1).unwrap();
        assert_eq!(
            room.map(|c| u8::from_ne_bytes(c.to_ne_bytes())),
            *b"ab1\0\0\0"
        );
    }

    #[test]
    fn report_buffer_needs_the_first_versions_size() {
        let mut small = DrsReport::empty();
        small.size = 8;
        // SAFETY: a whole report is there.
        let place = unsafe { Place::new(&raw mut small) };
        assert!(matches!(place, Err(Code::Invalid)));
        // SAFETY: NULL is allowed.
        let place = unsafe { Place::new(ptr::null_mut()) };
        assert!(matches!(place, Ok(None)));

        #[repr(C)]
        struct Later {
            known: DrsReport,
            added: u64,
        }
        let mut later = Later {
            known: DrsReport::empty(),
            added: 99,
        };
        later.known.size = u32::try_from(size_of::<Later>()).unwrap();
        // SAFETY: as many bytes are there as the size member says.
        let place = unsafe { Place::new((&raw mut later).cast()) }
            .ok()
            .flatten()
            .unwrap();
        place.fill(DrsReport {
            limit: 3,
            ..DrsReport::empty()
        });
        assert_eq!((later.known.limit, later.added), (3, 99));
        assert_eq!(
            usize::try_from(later.known.size).unwrap(),
            size_of::<DrsReport>()
        );
    }
}
