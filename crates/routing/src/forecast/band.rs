//! Quantiles around a forecast, from the errors of earlier ones.

use super::windows::replace_sorted;
use super::{ForecastQuantity, SeriesDetail};

/// Levels of the published quantiles.
pub const QUANTILE_LEVELS: [f64; 3] = [0.1, 0.5, 0.9];

/// Target share of values beyond each end of the band.
const TAIL_SHARE: f64 = 0.1;

/// Step size of a level, per value beyond its end.
const LEVEL_STEP: f64 = 0.02;

/// Maximum level. Beyond it, the ends would cross the median.
const MAX_LEVEL: f64 = 0.5;

/// Initial errors, in typical errors. Without any, a band would have no ends.
const PRIOR_ERRORS: [f32; 8] = [-3.0, -1.6, -0.8, -0.3, 0.3, 0.8, 1.6, 3.0];

/// Weight of the previous typical error in each update.
const ERROR_KEPT: f64 = 0.9;

/// Maximum error that enters the typical error, in typical errors.
const MAX_ERROR_GROWTH: f64 = 5.0;

/// Extra width at each end, in least errors, so that rounding does not put a constant outside.
const ROUNDING_MARGIN: f64 = 0.01;

/// First distance by which an end moves out, in typical errors. Each further one doubles it.
const FIRST_REACH_ERRORS: f64 = 1.0;

/// The lower end, middle and upper end of a band, on the scale of the quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BandLimits {
    /// Value that one in ten is expected to be below.
    pub lower: f64,
    /// Median.
    pub middle: f64,
    /// Value that one in ten is expected to be above.
    pub upper: f64,
}

/// Quantiles of the next value, by *adaptive conformal inference* (Gibbs, Candès 2021), applied to
/// each end separately.
///
/// The errors of past forecasts, in units of the typical error at the time, show how far values lie
/// from forecasts. An end is a quantile of those errors. Its level adapts: it falls by `STEP * 0.9`
/// with each value beyond the end, and rises by `STEP * 0.1` with each other value. At level zero
/// no past error is large enough. Then the end moves beyond the largest one, further each time that
/// does not suffice, up to the end of the scale.
///
/// **Bound.** For any `n` values, even adversarial ones, at most `n / 10 + Band::extra()` lie below
/// the lower end, and as many above the upper one. The level starts at a tenth, each value moves it
/// as described, and it is below zero only while the end grows to that of the scale. There is no
/// bound in the other direction: a constant is never missed.
#[derive(Debug, Clone)]
pub struct Band {
    /// Past errors in units of the typical error, in a ring.
    errors: Box<[f32]>,
    /// The same errors, sorted.
    sorted: Box<[f32]>,
    next: u32,
    held: u32,
    typical: f64,
    least_typical: f64,
    ends: (f64, f64),
    lower: BandEnd,
    upper: BandEnd,
}

#[derive(Debug, Clone, Copy)]
struct BandEnd {
    level: f64,
    /// Number of moves beyond all errors since the level was last above zero.
    reached: u32,
}

impl BandEnd {
    const NEW: Self = Self {
        level: TAIL_SHARE,
        reached: 0,
    };

    fn update(&mut self, missed: bool) {
        if missed && self.level <= 0.0 {
            self.reached += 1;
        }
        let moved = if missed { TAIL_SHARE - 1.0 } else { TAIL_SHARE };
        self.level = (self.level + LEVEL_STEP * moved).min(MAX_LEVEL);
        if self.level > 0.0 {
            self.reached = 0;
        }
    }

    /// Returns the distance of the end beyond all errors, in typical errors, or `None` if the level
    /// is above zero.
    fn reach(self) -> Option<f64> {
        (self.level <= 0.0)
            .then(|| FIRST_REACH_ERRORS * 2.0_f64.powf(f64::from(self.reached.min(80))))
    }
}

impl Band {
    /// Creates a band that remembers `remembered` errors, on a scale with these ends. The typical
    /// error starts at `first` and does not fall below `least`. Both are above zero and on the
    /// scale.
    #[must_use]
    pub fn new(remembered: usize, ends: (f64, f64), first: f64, least: f64) -> Self {
        let remembered = remembered.max(PRIOR_ERRORS.len());
        let mut errors = vec![0.0; remembered];
        for (place, error) in errors.iter_mut().zip(PRIOR_ERRORS) {
            *place = error;
        }
        Self {
            sorted: errors.clone().into(),
            errors: errors.into(),
            next: (PRIOR_ERRORS.len() % remembered) as u32,
            held: PRIOR_ERRORS.len() as u32,
            typical: first.max(least),
            least_typical: least,
            ends,
            lower: BandEnd::NEW,
            upper: BandEnd::NEW,
        }
    }

    /// Creates the band for a series of this quantity.
    #[must_use]
    pub fn for_quantity(quantity: ForecastQuantity, detail: SeriesDetail) -> Self {
        Self::new(
            detail.errors(),
            quantity.scale(),
            quantity.first_error(),
            quantity.least_error(),
        )
    }

    /// Returns the recent typical error, on the scale.
    #[must_use]
    pub const fn typical_error(&self) -> f64 {
        self.typical
    }

    /// Returns the band around a forecast: `lower <= middle <= upper`, within the ends of the
    /// scale.
    #[must_use]
    pub fn around(&self, forecast: f64) -> BandLimits {
        let (from, to) = self.ends;
        let at = |errors: f64| (forecast + self.typical * errors).clamp(from, to);
        let least = self.at_rank(0.0);
        let greatest = self.at_rank(1.0);
        let lower = match self.lower.reach() {
            Some(reach) => least.min(0.0) - reach,
            None => self.lower_quantile(self.lower.level),
        };
        let upper = match self.upper.reach() {
            Some(reach) => greatest.max(0.0) + reach,
            None => -self.upper_quantile(self.upper.level),
        };
        let rounding = ROUNDING_MARGIN * self.least_typical;
        BandLimits {
            lower: (at(lower) - rounding).max(from),
            middle: at(self.at_rank(0.5)),
            upper: (at(upper) + rounding).min(to),
        }
    }

    /// Takes a past forecast, the band that was issued for it, and the actual value.
    pub fn update(&mut self, forecast: f64, issued: BandLimits, value: f64) {
        self.lower.update(value < issued.lower);
        self.upper.update(value > issued.upper);
        let error = value - forecast;
        self.remember_error((error / self.typical) as f32);
        let counted = error.abs().min(MAX_ERROR_GROWTH * self.typical);
        self.typical =
            (ERROR_KEPT * self.typical + (1.0 - ERROR_KEPT) * counted).max(self.least_typical);
    }

    /// Returns the maximum number of values by which each end is missed in excess of one in ten,
    /// for bands that are issued `ahead` values in advance, at least one.
    #[must_use]
    pub fn max_excess_misses(&self, ahead: usize) -> f64 {
        // Each value beyond an end at level zero or below doubles the move of that end, until it
        // reaches the end of the scale. Bands that were issued before are still to come.
        let width = (self.ends.1 - self.ends.0) / (FIRST_REACH_ERRORS * self.least_typical);
        let growing = width.max(1.0).log2().ceil() + 1.0;
        TAIL_SHARE / LEVEL_STEP + (1.0 - TAIL_SHARE) * (1.0 + growing + ahead as f64)
    }

    /// Returns the remembered error at this rank, from 0 for the least to 1 for the greatest.
    fn at_rank(&self, share: f64) -> f64 {
        let last = (self.held as usize).saturating_sub(1);
        let place = share * last as f64;
        let (below, above) = (place.floor() as usize, place.ceil() as usize);
        let error =
            |at: usize| f64::from(self.sorted.get(at.min(last)).copied().unwrap_or_default());
        error(below) + (place - place.floor()) * (error(above) - error(below))
    }

    /// Returns the error that a next one lies below with probability `level`, up to one half: of
    /// `n` errors, the one of rank `level * (n + 1)`, interpolated between neighbours.
    fn lower_quantile(&self, level: f64) -> f64 {
        let held = f64::from(self.held);
        self.at_rank(((level * (held + 1.0) - 1.0) / (held - 1.0)).clamp(0.0, 0.5))
    }

    /// Returns the corresponding quantile from above, negated.
    fn upper_quantile(&self, level: f64) -> f64 {
        let held = f64::from(self.held);
        -self.at_rank(1.0 - ((level * (held + 1.0) - 1.0) / (held - 1.0)).clamp(0.0, 0.5))
    }

    fn remember_error(&mut self, error: f32) {
        let Some(place) = self.errors.get_mut(self.next as usize) else {
            return;
        };
        let leaves = std::mem::replace(place, error);
        let full = self.held as usize == self.sorted.len();
        replace_sorted(
            &mut self.sorted,
            self.held as usize,
            full.then_some(leaves),
            error,
        );
        self.next = (self.next + 1) % self.sorted.len() as u32;
        self.held = (self.held + 1).min(self.sorted.len() as u32);
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.errors) + size_of_val(&*self.sorted)
    }
}

#[cfg(test)]
mod tests;
