//! Flows of one process to one destination: they share a path, and each gets an equal part of what
//! it carries.
//!
//! Equal parts need no exchange beyond sums. A flow that comes takes as much as the others have on
//! average once they have made room for it, each in proportion; when one goes, the others take up
//! its part. What a flow leaves unused because its program gives it nothing, the others find by
//! their steps up; when it sends again, those that have more than the mean step back first.

use super::{FitSample, Phase, RateFit};

/// The flows to one destination at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Siblings {
    /// All of them.
    pub(super) present: u32,
    /// Those that have data to send.
    pub(super) flows: u32,
    /// Bytes that these have had acknowledged in all.
    pub(super) delivered: u64,
    /// Their congestion windows, in bytes in all.
    pub(super) congestion_window: u64,
    /// How many flows have a fitted rate.
    pub(super) fitted: u32,
    /// These rates in all, in bytes a second.
    pub(super) fitted_rates: f64,
    /// How many of them the path holds, and not their program, and their rates in all.
    pub(super) filling: u32,
    pub(super) filling_rates: f64,
    /// How many of the fitted came when others had been fitted, who make room.
    pub(super) newcomers: u32,
    /// Some have been released, because others fill the path's queue.
    pub(super) has_released: bool,
}

impl Siblings {
    /// Gathers the flows to one destination, each with its next sample.
    #[must_use]
    pub fn gather<'a>(flows: impl IntoIterator<Item = (&'a RateFit, &'a FitSample)>) -> Self {
        let mut all = Self::default();
        for (fit, sample) in flows {
            all.add(fit, sample);
        }
        all
    }

    /// Adds one more.
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

    /// The mean of the fitted rates of those that the path holds, in bytes a second.
    pub(super) fn mean_rate(&self) -> Option<f64> {
        (self.filling > 0).then(|| self.filling_rates / f64::from(self.filling))
    }

    /// Whether all fitted flows make room for one that comes now.
    pub(super) fn make_room(&self) -> bool {
        self.fitted > 0 && !self.has_released
    }

    /// What one more flow gets, in bytes a second, when the others have made room.
    pub(super) fn share_of_newcomer(&self) -> f64 {
        self.fitted_rates / f64::from(self.fitted + 1)
    }
}
