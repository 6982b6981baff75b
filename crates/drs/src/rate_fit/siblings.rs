//! Flows of one process to one destination: they share a path, and each gets an equal part of its
//! capacity.
//!
//! Equal parts need no exchange beyond sums. A new flow takes as much as the others have on average
//! after they have made room for it, each in proportion. When a flow ends, the others take up its
//! part. If a flow's program does not use its part, the others find it by their steps up. When the
//! flow sends again, those with more than the mean step back first.

use super::{FitSample, Phase, RateFit};

/// The flows to one destination at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Siblings {
    /// Number of all flows.
    pub(super) present: u32,
    /// Number of flows with data to send.
    pub(super) flows: u32,
    /// Sum of the bytes that were acknowledged for these.
    pub(super) delivered: u64,
    /// Sum of their congestion windows, in bytes.
    pub(super) congestion_window: u64,
    /// Number of flows with a fitted rate.
    pub(super) fitted: u32,
    /// Sum of these rates, in bytes per second.
    pub(super) fitted_rates: f64,
    /// Number of fitted flows that the path limits, not their program; the sum of their rates
    /// follows.
    pub(super) filling: u32,
    pub(super) filling_rates: f64,
    /// Number of fitted flows for which others had to make room.
    pub(super) newcomers: u32,
    /// If true, some were released because others fill the path's queue.
    pub(super) has_released: bool,
}

impl Siblings {
    /// Sums up the flows to one destination, each with its next sample.
    #[must_use]
    pub fn gather<'a>(flows: impl IntoIterator<Item = (&'a RateFit, &'a FitSample)>) -> Self {
        let mut all = Self::default();
        for (fit, sample) in flows {
            all.add(fit, sample);
        }
        all
    }

    /// Adds one flow.
    pub fn add(&mut self, fit: &RateFit, sample: &FitSample) {
        self.present += 1;
        self.has_released |= matches!(fit.phase, Phase::Released);
        if let Phase::Fitted(fitted) = &fit.phase {
            self.fitted += 1;
            self.fitted_rates += fitted.rate();
            if !fitted.is_held() {
                self.filling += 1;
                self.filling_rates += fitted.rate();
            }
            self.newcomers += u32::from(fit.is_newcomer == Some(true));
        }
        if !sample.app_limited {
            self.flows += 1;
            self.delivered = self.delivered.saturating_add(sample.delivered);
            self.congestion_window = self
                .congestion_window
                .saturating_add(sample.congestion_window);
        }
    }

    /// Returns the mean of the fitted rates of the flows that the path limits, in bytes per second.
    pub(super) fn mean_rate(&self) -> Option<f64> {
        (self.filling > 0).then(|| self.filling_rates / f64::from(self.filling))
    }

    /// Returns true if all fitted flows make room for a new one.
    pub(super) fn make_room(&self) -> bool {
        self.fitted > 0 && !self.has_released
    }

    /// Returns the rate of one more flow after the others have made room, in bytes per second.
    pub(super) fn share_of_newcomer(&self) -> f64 {
        self.fitted_rates / f64::from(self.fitted + 1)
    }
}
