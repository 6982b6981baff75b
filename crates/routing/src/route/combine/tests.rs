use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;

fn quantities() -> impl Strategy<Value = Quantiles> {
    (0.01..100.0f64, 0.0..0.8f64, 0.0..1.5f64)
        .prop_map(|(median, below, above)| around_median(median, below, above))
}

/// Generates quantities that vary by more than the precision of quantiles (a thousandth), so that
/// the share below a quantile is meaningful.
fn varying() -> impl Strategy<Value = Quantiles> {
    (0.01..100.0f64, 0.1..0.8f64, 0.1..1.5f64)
        .prop_map(|(median, below, above)| around_median(median, below, above))
}

/// Returns the shares of many draws of the maximum, or the sum, below each computed quantile.
fn shares(parts: &[Quantiles], computed: &Quantiles, fold: fn(f64, f64) -> f64) -> [f64; 3] {
    const DRAWS: usize = 4000;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    let mut below = [0.0; 3];
    for _ in 0..DRAWS {
        let draw = parts
            .iter()
            .map(|part| quantile_at(part, random.random_range(1e-6..1.0 - 1e-6)));
        let value = draw.fold(0.0, fold);
        for (count, limit) in below
            .iter_mut()
            .zip([computed.p10, computed.p50, computed.p90])
        {
            *count += if value <= limit {
                1.0 / DRAWS as f64
            } else {
                0.0
            };
        }
    }
    below
}

#[test]
fn the_maximum_of_alike_parts_exceeds_each() {
    let one = around_median(10.0, 0.2, 0.4);
    let of_four = maximum(&[one; 4]);
    assert!(
        of_four.p50 > quantile_at(&one, 0.8) && of_four.p50 < quantile_at(&one, 0.86),
        "{of_four:?}"
    );
    assert_eq!(
        maximum(&[one]),
        Quantiles {
            p50: 10.0,
            ..maximum(&[one])
        }
    );
}

#[test]
fn exact_quantities_stay_exact() {
    let known = [Quantiles::exactly(2.0), Quantiles::exactly(5.0)];
    assert_eq!(maximum(&known), Quantiles::exactly(5.0));
    assert_eq!(sum(known), Quantiles::exactly(7.0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// The computed quantiles of a maximum match the shares of draws.
    #[test]
    fn quantiles_of_a_maximum_match_draws(parts in prop::collection::vec(varying(), 1..=4)) {
        let [low, middle, high] = shares(&parts, &maximum(&parts), f64::max);
        prop_assert!(
            (low - 0.1).abs() < 0.03 && (middle - 0.5).abs() < 0.04 && (high - 0.9).abs() < 0.03,
            "{low} {middle} {high}"
        );
    }

    /// Quantiles of a sum are approximate: the band of eight in ten holds between six and nine and
    /// a half.
    #[test]
    fn quantiles_of_a_sum_roughly_match_draws(parts in prop::collection::vec(varying(), 1..=4)) {
        let [low, _, high] = shares(&parts, &sum(parts.iter().copied()), |a, b| a + b);
        prop_assert!((0.6..=0.95).contains(&(high - low)), "{low} {high}");
    }

    /// If hops are bad at the same time, the maximum of independent ones errs on the slow side,
    /// never on the fast one.
    #[test]
    fn a_maximum_is_never_below_that_of_correlated_parts(
        parts in prop::collection::vec(quantities(), 1..=4),
    ) {
        let all = maximum(&parts);
        for part in &parts {
            prop_assert!(
                all.p10 >= part.p10 * (1.0 - 1e-3)
                    && all.p50 >= part.p50 * (1.0 - 1e-3)
                    && all.p90 >= part.p90 * (1.0 - 1e-3)
            );
        }
        prop_assert!(all.p10 <= all.p50 && all.p50 <= all.p90);
    }
}
