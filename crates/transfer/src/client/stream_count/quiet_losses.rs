//! Detects random loss early: losses that no overflowing queue explains.
//!
//! Losses of an overflowing queue are repaired over several round trips, in which the queue drains.
//! So losses count only some time after the last sign of a queue. Segments that arrived out of
//! order do not count: they may only have been overtaken. Losses are a reason to try another
//! transport; adding streams takes [more evidence](super::StreamCount).

use std::time::Duration;

use super::window::{CopyObservation, MIN_LOSS_SIGNS};

/// Round trips without any sign of a queue after which losses count.
const QUIET_RTTS: u32 = 8;

/// Detector of random loss. Losses count only after a time without any sign of a queue.
#[derive(Debug, Default)]
pub(super) struct QuietLosses {
    /// Time of the latest observation that may have had a queue.
    queue_seen: Option<Duration>,
    /// Retransmitted segments up to the latest observation at which a queue may explain losses.
    explained: u64,
    /// True once the path has shown random loss, in this copy or an earlier one.
    has_random_loss: bool,
}

impl QuietLosses {
    /// Records an observation.
    pub(super) fn observe(&mut self, view: &CopyObservation) {
        if view.may_have_queue() {
            self.queue_seen = Some(view.now);
        }
        let quiet_after = view.rtt.saturating_mul(QUIET_RTTS);
        let is_quiet = self
            .queue_seen
            .is_none_or(|seen| view.now.saturating_sub(seen) >= quiet_after);
        if is_quiet {
            self.has_random_loss |= view.lost.saturating_sub(self.explained) >= MIN_LOSS_SIGNS;
        } else {
            self.explained = view.lost;
        }
    }

    /// Notes that an earlier copy over the same path had random losses.
    pub(super) fn remember(&mut self) {
        self.has_random_loss = true;
    }

    /// Returns true once the path has shown random loss, in this copy or an earlier one.
    pub(super) fn has_random_loss(&self) -> bool {
        self.has_random_loss
    }
}

#[cfg(test)]
mod tests {
    use super::super::QueueDelay;
    use super::*;

    const RTT: Duration = Duration::from_millis(60);

    fn view(millis: u64, lost: u64, queue: Duration) -> CopyObservation {
        CopyObservation {
            now: Duration::from_millis(millis),
            rtt: RTT,
            min_rtt: RTT,
            queue: QueueDelay {
                at_least: queue,
                at_most: queue,
            },
            lost,
            ..CopyObservation::default()
        }
    }

    fn has_random_loss(views: &[(u64, u64, u64)]) -> bool {
        let mut losses = QuietLosses::default();
        for (millis, lost, queue_millis) in views {
            losses.observe(&view(*millis, *lost, Duration::from_millis(*queue_millis)));
        }
        losses.has_random_loss()
    }

    #[test]
    fn three_losses_without_a_queue_are_random() {
        assert!(has_random_loss(&[(100, 0, 0), (400, 1, 2), (500, 3, 2)]));
        assert!(!has_random_loss(&[(100, 0, 0), (400, 1, 2), (500, 2, 2)]));
    }

    /// Slow start loses a thousand segments at a full queue. Their repair outlasts the queue.
    #[test]
    fn repair_of_an_overflow_is_not_random_loss() {
        let views = [
            (100, 0, 0),
            (300, 0, 30),
            (400, 100, 50),
            (500, 600, 20),
            (600, 1000, 1),
            (800, 1002, 0),
            (1500, 1003, 0),
        ];
        assert!(!has_random_loss(&views));
    }

    #[test]
    fn losses_long_after_a_queue_are_random() {
        assert!(has_random_loss(&[
            (100, 0, 30),
            (400, 9, 0),
            (700, 9, 0),
            (900, 12, 0)
        ]));
    }
}
