//! Quantiles around a forecast, from how far earlier ones were off.

use super::windows::replace;
use super::{Detail, Quantity};

/// The quantiles that are published: their share of values below.
pub const LEVELS: [f64; 3] = [0.1, 0.5, 0.9];

/// The share of values asked to lie beyond each end of the band.
const TAIL_SHARE: f64 = 0.1;

/// By how much a level moves with one value that lies beyond its end.
const STEP: f64 = 0.02;

/// No level is greater: beyond it the ends would pass the median.
const MAX_LEVEL: f64 = 0.5;

/// Errors that count as seen in the beginning, in typical errors: without any, a band would have no
/// ends.
const PRIOR: [f32; 8] = [-3.0, -1.6, -0.8, -0.3, 0.3, 0.8, 1.6, 3.0];

/// What is kept of the typical error at each step.
const ERROR_KEPT: f64 = 0.9;

/// No error counts for more than so many typical ones towards the next typical one.
const MAX_ERROR_GROWTH: f64 = 5.0;

/// The ends lie so far further out than they should, in least errors: a constant is not to be
/// missed for how numbers are rounded.
const ROUNDING: f64 = 0.01;

/// By how much the ends move out, in typical errors, the first time; each further time by twice as
/// much.
const FIRST_REACH_ERRORS: f64 = 1.0;

/// The lower and the upper end of a band and what lies between, on the scale of the quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tails {
    /// One value in ten is expected below.
    pub lower: f64,
    /// As many above as below.
    pub middle: f64,
    /// One value in ten is expected above.
    pub upper: f64,
}

/// Quantiles of the next value, by *adaptive conformal inference* (Gibbs, Candès 2021), once for
/// each end.
///
/// The errors of past forecasts, in units of the typical error at the time, say how far values lie
/// from forecasts. An end is a quantile of those errors whose level is not fixed: it falls by
/// `STEP * 0.9` with each value beyond the end, and rises by `STEP * 0.1` with each other one.
/// Where it has fallen to zero, there is no error so great that it would do; the end is then put
/// beyond the greatest one, further each time that does not suffice, up to the end of the scale.
///
/// **Bound.** Whatever the values are and whoever chose them, of `n` values at most
/// `n / 10 + Band::extra()` lie below the lower end, and as many above the upper one: the level
/// starts at a tenth, each value moves it as said, and it falls below zero only while the ends grow
/// to that of the scale. In the other direction there is no bound: a constant is never missed.
#[derive(Debug, Clone)]
pub struct Band {
    /// Past errors in typical errors, in a ring.
    errors: Box<[f32]>,
    /// The same in order of size.
    sorted: Box<[f32]>,
    next: u32,
    held: u32,
    typical: f64,
    least_typical: f64,
    ends: (f64, f64),
    lower: End,
    upper: End,
}

#[derive(Debug, Clone, Copy)]
struct End {
    level: f64,
    /// How often the end has moved out beyond all errors since the level was last above zero.
    reached: u32,
}

impl End {
    const NEW: Self = Self {
        level: TAIL_SHARE,
        reached: 0,
    };

    fn update(&mut self, missed: bool) {
        if missed && self.level <= 0.0 {
            self.reached += 1;
        }
        let moved = if missed { TAIL_SHARE - 1.0 } else { TAIL_SHARE };
        self.level = (self.level + STEP * moved).min(MAX_LEVEL);
        if self.level > 0.0 {
            self.reached = 0;
        }
    }

    /// How far beyond all errors the end lies, in typical errors; none where the level still says.
    fn reach(self) -> Option<f64> {
        (self.level <= 0.0)
            .then(|| FIRST_REACH_ERRORS * 2.0_f64.powf(f64::from(self.reached.min(80))))
    }
}

impl Band {
    /// A band that remembers so many errors, on a scale with these ends. The typical error starts
    /// at `first` and does not fall below `least`, both above zero and on the scale.
    #[must_use]
    pub fn new(remembered: usize, ends: (f64, f64), first: f64, least: f64) -> Self {
        let remembered = remembered.max(PRIOR.len());
        let mut errors = vec![0.0; remembered];
        for (place, error) in errors.iter_mut().zip(PRIOR) {
            *place = error;
        }
        Self {
            sorted: errors.clone().into(),
            errors: errors.into(),
            next: (PRIOR.len() % remembered) as u32,
            held: PRIOR.len() as u32,
            typical: first.max(least),
            least_typical: least,
            ends,
            lower: End::NEW,
            upper: End::NEW,
        }
    }

    /// The band that a series of this quantity has.
    #[must_use]
    pub fn of(quantity: Quantity, detail: Detail) -> Self {
        Self::new(
            detail.errors(),
            quantity.scale(),
            quantity.first_error(),
            quantity.least_error(),
        )
    }

    /// The typical error lately, on the scale.
    #[must_use]
    pub const fn typical_error(&self) -> f64 {
        self.typical
    }

    /// The band around a forecast: `lower <= middle <= upper`, within the ends of the scale.
    #[must_use]
    pub fn around(&self, forecast: f64) -> Tails {
        let (from, to) = self.ends;
        let at = |errors: f64| (forecast + self.typical * errors).clamp(from, to);
        let least = self.at_rank(0.0);
        let greatest = self.at_rank(1.0);
        let lower = match self.lower.reach() {
            Some(reach) => least.min(0.0) - reach,
            None => self.quantile(self.lower.level),
        };
        let upper = match self.upper.reach() {
            Some(reach) => greatest.max(0.0) + reach,
            None => -self.mirrored(self.upper.level),
        };
        let rounding = ROUNDING * self.least_typical;
        Tails {
            lower: (at(lower) - rounding).max(from),
            middle: at(self.at_rank(0.5)),
            upper: (at(upper) + rounding).min(to),
        }
    }

    /// Takes a forecast of the past, the band that was around it, and the value that came.
    pub fn update(&mut self, forecast: f64, issued: Tails, value: f64) {
        self.lower.update(value < issued.lower);
        self.upper.update(value > issued.upper);
        let error = value - forecast;
        self.remember((error / self.typical) as f32);
        let counted = error.abs().min(MAX_ERROR_GROWTH * self.typical);
        self.typical =
            (ERROR_KEPT * self.typical + (1.0 - ERROR_KEPT) * counted).max(self.least_typical);
    }

    /// By how many values at most each end is missed more often than in one of ten, where bands are
    /// made `ahead` values before the values that they are held against, at least one.
    #[must_use]
    pub fn extra(&self, ahead: usize) -> f64 {
        // Each value beyond an end whose level is zero or below moves that end out by twice as
        // much, until it is at the end of the scale; bands that were made before are still to come.
        let width = (self.ends.1 - self.ends.0) / (FIRST_REACH_ERRORS * self.least_typical);
        let growing = width.max(1.0).log2().ceil() + 1.0;
        TAIL_SHARE / STEP + (1.0 - TAIL_SHARE) * (1.0 + growing + ahead as f64)
    }

    /// The error at this share of those remembered, from the least to the greatest.
    fn at_rank(&self, share: f64) -> f64 {
        let last = (self.held as usize).saturating_sub(1);
        let place = share * last as f64;
        let (below, above) = (place.floor() as usize, place.ceil() as usize);
        let error =
            |at: usize| f64::from(self.sorted.get(at.min(last)).copied().unwrap_or_default());
        error(below) + (place - place.floor()) * (error(above) - error(below))
    }

    /// The error such that a next one like those remembered lies below it with the chance `level`,
    /// up to one half: of `n` errors the one of rank `level * (n + 1)`, and between two of them in
    /// proportion.
    fn quantile(&self, level: f64) -> f64 {
        let held = f64::from(self.held);
        self.at_rank(((level * (held + 1.0) - 1.0) / (held - 1.0)).clamp(0.0, 0.5))
    }

    /// The same from above, with its sign turned.
    fn mirrored(&self, level: f64) -> f64 {
        let held = f64::from(self.held);
        -self.at_rank(1.0 - ((level * (held + 1.0) - 1.0) / (held - 1.0)).clamp(0.0, 0.5))
    }

    fn remember(&mut self, error: f32) {
        let Some(place) = self.errors.get_mut(self.next as usize) else {
            return;
        };
        let leaves = std::mem::replace(place, error);
        let full = self.held as usize == self.sorted.len();
        replace(
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
