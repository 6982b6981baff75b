//! Quantiles of a sum, and of a maximum, of independent quantities.
//!
//! Each quantity is modelled as log-logistic, with its own spread below and above its median. This
//! passes through all three quantiles, and has a closed form.

use crate::Quantiles;

/// Logarithm of the odds of 0.9: the distance of the log-logistic's 0.9 from its median, relative
/// to its spread.
const LOGIT_90: f64 = 2.197_224_577_336_219_6;
/// Number of bisection steps for a maximum; the interval is narrow from the start.
const BISECTIONS: usize = 12;

/// Returns the quantiles of a sum. Medians add up; distances from the median to p10, or p90, add up
/// as squares, as standard deviations do.
#[must_use]
pub fn sum(parts: impl IntoIterator<Item = Quantiles>) -> Quantiles {
    let (mut median, mut below, mut above) = (0.0, 0.0, 0.0);
    for part in parts {
        median += part.p50;
        below += (part.p50 - part.p10).powi(2);
        above += (part.p90 - part.p50).powi(2);
    }
    Quantiles {
        p10: (median - below.sqrt()).max(0.0),
        p50: median,
        p90: median + above.sqrt(),
    }
}

/// Returns the quantiles of the greatest of several positive quantities: the probability that it is
/// below a value is the product of theirs. They are never less than those of any part, and greater
/// if parts are alike.
#[must_use]
pub fn maximum(parts: &[Quantiles]) -> Quantiles {
    let [q10, q50, q90] = [0.1, 0.5, 0.9].map(|chance| maximum_at(parts, chance));
    Quantiles {
        p10: q10,
        p50: q50,
        p90: q90,
    }
}

fn maximum_at(parts: &[Quantiles], chance: f64) -> f64 {
    let of = |part: &Quantiles, chance: f64| quantile_at(part, chance);
    let low = parts
        .iter()
        .map(|part| of(part, chance))
        .fold(0.0, f64::max);
    // Parts that are almost surely below `low` do not matter.
    let rivals = || parts.iter().filter(|part| quantile_at(part, 0.999) > low);
    let count = rivals().count();
    if count <= 1 {
        return low;
    }
    let each = chance.powf(1.0 / count as f64);
    let high = rivals().map(|part| of(part, each)).fold(low, f64::max);
    let (mut low, mut high) = (low, high);
    for _ in 0..BISECTIONS {
        if high - low <= 1e-3 * high {
            break;
        }
        let middle = low + (high - low) / 2.0;
        let below: f64 = rivals().map(|part| chance_below(part, middle)).product();
        if below < chance {
            low = middle;
        } else {
            high = middle;
        }
    }
    low + (high - low) / 2.0
}

/// Returns the value that a quantity is below with this probability.
#[must_use]
pub fn quantile_at(quantity: &Quantiles, chance: f64) -> f64 {
    if chance == 0.5 || quantity.p50 <= 0.0 {
        return quantity.p50;
    }
    let odds = (chance / (1.0 - chance)).ln() / LOGIT_90;
    let spread = if odds > 0.0 {
        spread_above(quantity)
    } else {
        spread_below(quantity)
    };
    quantity.p50 * (odds * spread).exp()
}

/// Returns the probability that a quantity is below a value.
#[must_use]
pub fn chance_below(quantity: &Quantiles, value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    if quantity.p50 <= 0.0 {
        return 1.0;
    }
    let off = (value / quantity.p50).ln();
    let spread = if off > 0.0 {
        spread_above(quantity)
    } else {
        spread_below(quantity)
    };
    if spread <= 0.0 {
        return if off < 0.0 { 0.0 } else { 1.0 };
    }
    1.0 / (1.0 + (-off / spread * LOGIT_90).exp())
}

/// Returns the logarithm of p90 relative to the median.
#[must_use]
pub fn spread_above(quantity: &Quantiles) -> f64 {
    log_ratio(quantity.p90, quantity.p50)
}

/// Returns the logarithm of the median relative to p10.
#[must_use]
pub fn spread_below(quantity: &Quantiles) -> f64 {
    log_ratio(quantity.p50, quantity.p10)
}

fn log_ratio(more: f64, less: f64) -> f64 {
    if less > 0.0 && more > less {
        (more / less).ln()
    } else {
        0.0
    }
}

/// Returns the quantiles around a median with these spreads.
#[must_use]
pub fn around_median(median: f64, below: f64, above: f64) -> Quantiles {
    Quantiles {
        p10: median * (-below).exp(),
        p50: median,
        p90: median * above.exp(),
    }
}

#[cfg(test)]
mod tests;
