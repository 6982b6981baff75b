use proptest::prelude::*;

use super::*;

const ENDS: (f64, f64) = (0.0, 28.0);

fn band() -> Band {
    Band::new(64, ENDS, 0.25, 1e-3)
}

/// Plays values against bands that are issued `ahead` values in advance, around the newest value.
/// Returns how many values there were, and how many lay below and above.
fn misses(values: impl Iterator<Item = f64>, ahead: usize) -> (u32, u32, u32) {
    let mut band = band();
    let (mut below, mut above, mut count) = (0, 0, 0);
    let mut pending = std::collections::VecDeque::new();
    let mut forecast = 14.0;
    for value in values {
        pending.push_back((forecast, band.around(forecast)));
        if pending.len() >= ahead {
            let (forecast, issued) = pending.pop_front().unwrap();
            assert!(issued.lower <= issued.middle && issued.middle <= issued.upper);
            assert!(issued.lower >= ENDS.0 && issued.upper <= ENDS.1);
            below += u32::from(value < issued.lower);
            above += u32::from(value > issued.upper);
            count += 1;
            band.update(forecast, issued, value);
        }
        forecast = value;
    }
    (below, above, count)
}

fn within(misses: (u32, u32, u32), ahead: usize) -> bool {
    let most = TAIL_SHARE * f64::from(misses.2) + band().max_excess_misses(ahead);
    f64::from(misses.0) <= most && f64::from(misses.1) <= most
}

fn values() -> impl Strategy<Value = Vec<f64>> {
    // Some values stay, some jump from one end to the other, some lie in between.
    let any = prop_oneof![Just(ENDS.0), Just(ENDS.1), Just(14.0), ENDS.0..=ENDS.1];
    prop::collection::vec((any, 1usize..30), 1..200).prop_map(|runs| {
        runs.into_iter()
            .flat_map(|(value, times)| vec![value; times])
            .collect()
    })
}

proptest! {
    #[test]
    fn no_values_are_missed_more_often_than_the_bound(values in values(), ahead in 1usize..9) {
        let misses = misses(values.into_iter(), ahead);
        prop_assert!(within(misses, ahead), "{misses:?}");
    }

    #[test]
    fn exponentially_growing_values_keep_the_bound(
        from in 1e-4..0.1_f64,
        growth in 1.0..1.2_f64,
        ahead in 1usize..9,
    ) {
        let mut size = from;
        let values = (0..2000).map(|step| {
            size = (size * growth).min(14.0);
            14.0 + if step % 2 == 0 { size } else { -size }
        });
        let misses = misses(values, ahead);
        prop_assert!(within(misses, ahead), "{misses:?}");
    }
}

#[test]
fn an_adversary_who_sees_the_band_keeps_the_bound() {
    for above in [false, true] {
        let mut band = band();
        let mut missed = 0.0;
        for _ in 0..5000 {
            let issued = band.around(14.0);
            let value = match above {
                true if issued.upper < ENDS.1 => issued.upper + 1e-9,
                false if issued.lower > ENDS.0 => issued.lower - 1e-9,
                _ => 14.0,
            };
            missed += f64::from(u8::from(value < issued.lower || value > issued.upper));
            band.update(14.0, issued, value);
        }
        let most = TAIL_SHARE * 5000.0 + band.max_excess_misses(1);
        assert!(
            missed <= most && missed > 0.08 * 5000.0,
            "{missed} of at most {most}"
        );
    }
}

#[test]
fn uniform_noise_misses_each_end_once_in_ten() {
    let mut state = 1u64;
    let values = (0..20_000).map(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        10.0 + (state >> 40) as f64 / 2.0_f64.powi(24)
    });
    let (below, above, count) = misses(values, 1);
    for missed in [below, above] {
        let share = f64::from(missed) / f64::from(count);
        assert!((share - TAIL_SHARE).abs() < 0.005, "{share}");
    }
}

#[test]
fn a_constant_gets_a_narrow_band() {
    let mut band = band();
    for _ in 0..500 {
        let issued = band.around(14.0);
        band.update(14.0, issued, 14.0);
    }
    let issued = band.around(14.0);
    assert!(issued.upper - issued.lower < 0.01, "{issued:?}");
}
