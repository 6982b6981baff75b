//! `Mode::Classic`: the buffer is twice the sender's estimated window, and only grows (DRS
//! paper, section 1 and reference 6).

use std::time::Duration;

use crate::{
    Action, Cause, Sample, Side,
    orders::Orders,
    receiver_rate::{RoundTracker, WindowTimer},
};

#[derive(Debug, Clone)]
pub(crate) struct ClassicMode {
    side: Side,
    timer: WindowTimer,
    rounds: RoundTracker,
    /// Window for which the buffer was last sized.
    window: u64,
}

impl ClassicMode {
    pub(crate) fn new(side: Side) -> Self {
        Self {
            side,
            timer: WindowTimer::default(),
            rounds: RoundTracker::default(),
            window: 0,
        }
    }

    pub(crate) fn observe(&mut self, sample: &Sample) -> Orders {
        let Some((estimate, rtt)) = self.estimate(sample) else {
            return Orders::default();
        };
        let wanted = estimate.saturating_mul(2);
        let now = self.window.max(match self.side {
            Side::Receiving => offered_window(sample),
            Side::Sending => u64::from(sample.buffers.send / 2),
        });
        if wanted <= now {
            return Orders::default();
        }
        self.window = wanted;
        let bytes = u32::try_from(wanted).unwrap_or(u32::MAX);
        let cause = Cause::TwiceTheWindow {
            window: estimate,
            rtt_us: u32::try_from(rtt.as_micros()).unwrap_or(u32::MAX),
        };
        match self.side {
            Side::Receiving => Orders::one(Action::ReceiveBuffer(bytes), cause)
                .with(Action::WindowClamp(bytes), cause),
            Side::Sending => Orders::one(Action::SendBuffer(bytes), cause),
        }
    }

    /// Returns the sender's window and the round-trip time in which it was measured.
    fn estimate(&mut self, sample: &Sample) -> Option<(u64, Duration)> {
        match self.side {
            Side::Receiving => {
                let read = bytes_read_by_program(sample)?;
                let rtt = self
                    .timer
                    .observe(sample.at, read, offered_window(sample))?;
                let round = self.rounds.observe(sample.at, read, rtt)?;
                Some((round.bytes_in(rtt), rtt))
            }
            Side::Sending => Some((congestion_window(sample), sample.info.rtt)),
        }
    }
}

/// Returns the window on offer: as the kernel reports it, else half the buffer, which is what the
/// kernel offers.
pub(crate) fn offered_window(sample: &Sample) -> u64 {
    sample
        .info
        .receive_window
        .filter(|window| *window > 0)
        .unwrap_or(sample.buffers.receive / 2)
        .into()
}

/// Returns the number of bytes that the program has read so far.
pub(crate) fn bytes_read_by_program(sample: &Sample) -> Option<u64> {
    Some(
        sample
            .info
            .bytes_received?
            .saturating_sub(sample.queues.unread.into()),
    )
}

/// Returns the congestion window in bytes.
pub(crate) fn congestion_window(sample: &Sample) -> u64 {
    u64::from(sample.info.congestion_window) * u64::from(sample.info.send_mss)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;

    const KB: u64 = 1024;
    /// 36 Mbit/s: 459,000 bytes in 102 ms.
    const RATE: u64 = 4_500_000;

    #[test]
    fn the_buffer_grows_to_fill_the_path() {
        let (mut fixed, mut sized) = (
            Model::new(102, RATE, 64 * KB),
            Model::new(102, RATE, 64 * KB),
        );
        let mut classic = ClassicMode::new(Side::Receiving);
        fixed.run(20_000, |_| Orders::default());
        let given = sized.run(20_000, |sample| classic.observe(sample));
        assert!(!given.is_empty());
        assert!(fixed.arrived < 20 * 700_000, "{}", fixed.arrived);
        assert!(
            sized.arrived > 5 * fixed.arrived,
            "{} of {}",
            sized.arrived,
            20 * RATE
        );
        // Twice the bytes of a round trip, which sampling every 20 ms overestimates by at most a
        // fifth.
        assert!(
            (800 * KB..1200 * KB).contains(&sized.buffer),
            "{}",
            sized.buffer
        );
    }

    #[test]
    fn it_never_shrinks() {
        let mut model = Model::new(102, RATE, 64 * KB);
        let mut classic = ClassicMode::new(Side::Receiving);
        model.run(10_000, |sample| classic.observe(sample));
        let before = model.buffer;
        model.rate /= 10;
        model.run(30_000, |sample| classic.observe(sample));
        assert!(model.buffer >= before);
    }
}
