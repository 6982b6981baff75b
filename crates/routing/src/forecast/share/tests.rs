use proptest::prelude::*;

use super::*;

/// Returns the least loss of any sequence of experts with 0, 1, 2, ... switches, by dynamic
/// programming.
fn best_with_switches(losses: &[Vec<f64>], most: usize) -> Vec<f64> {
    let experts = losses[0].len();
    let mut least = vec![vec![f64::INFINITY; experts]; most + 1];
    least[0] = losses[0].clone();
    for step in &losses[1..] {
        for switches in (0..=most).rev() {
            let from_another = match switches {
                0 => f64::INFINITY,
                _ => least[switches - 1]
                    .iter()
                    .copied()
                    .fold(f64::INFINITY, f64::min),
            };
            for expert in 0..experts {
                least[switches][expert] = least[switches][expert].min(from_another) + step[expert];
            }
        }
    }
    least
        .iter()
        .map(|row| row.iter().copied().fold(f64::INFINITY, f64::min))
        .collect()
}

fn losses() -> impl Strategy<Value = Vec<Vec<f64>>> {
    // Random losses, and extreme ones: the worst cases are among those.
    let any = prop_oneof![0.0..=1.0_f64, Just(0.0), Just(1.0)];
    (2usize..8).prop_flat_map(move |experts| {
        prop::collection::vec(prop::collection::vec(any.clone(), experts), 1..150)
    })
}

proptest! {
    #[test]
    fn no_loss_sequence_exceeds_the_regret_bound(
        losses in losses(),
        rate in 0.05..4.0_f64,
        share in 0.001..0.3_f64,
    ) {
        let mut mixture = FixedShare::new(losses[0].len(), rate, share);
        let mut suffered = 0.0;
        for step in &losses {
            suffered += mixture.mix(step.iter().copied());
            mixture.update(step.iter().copied());
        }
        for (switches, least) in best_with_switches(&losses, 5).into_iter().enumerate() {
            let bound = mixture.regret_bound(losses.len() as u64, switches as u64);
            if switches < losses.len() {
                prop_assert!(
                    suffered <= least + bound + 1e-4 * losses.len() as f64,
                    "{suffered} {least} {bound}"
                );
            }
        }
    }

    #[test]
    fn an_adversary_cannot_exceed_the_regret_bound(
        rate in 0.05..4.0_f64,
        share in 0.001..0.3_f64,
        experts in 2usize..8,
    ) {
        let mut mixture = FixedShare::new(experts, rate, share);
        let mut all = vec![];
        let mut suffered = 0.0;
        for _ in 0..150 {
            // The expert with the greatest weight fails.
            let most = mixture.weights().iter().copied().fold(0.0, f32::max);
            let step: Vec<f64> =
                mixture
                    .weights()
                    .iter()
                    .map(|weight| f64::from(u8::from(*weight == most)))
                    .collect();
            suffered += mixture.mix(step.iter().copied());
            mixture.update(step.iter().copied());
            all.push(step);
        }
        for (switches, least) in best_with_switches(&all, 5).into_iter().enumerate() {
            prop_assert!(suffered <= least + mixture.regret_bound(150, switches as u64) + 0.01);
        }
    }

    #[test]
    fn weights_stay_valid_for_any_losses(
        steps in prop::collection::vec((any::<f64>(), any::<f64>(), any::<u32>()), 0..100),
    ) {
        let mut mixture = FixedShare::new(2, 2.0, 0.01);
        for (one, other, pause) in steps {
            mixture.update([one, other].into_iter());
            mixture.pass_steps(pause % 1000);
            let sum: f32 = mixture.weights().iter().sum();
            prop_assert!((sum - 1.0).abs() < 1e-3, "{sum}");
            prop_assert!(mixture.weights().iter().all(|weight| *weight >= 0.004));
        }
    }
}

#[test]
fn a_predictor_that_becomes_good_soon_counts() {
    let mut mixture = FixedShare::new(2, 2.0, 0.01);
    (0..1000).for_each(|_| mixture.update([0.0, 1.0].into_iter()));
    assert!(mixture.weights()[0] > 0.98);
    (0..6).for_each(|_| mixture.update([1.0, 0.0].into_iter()));
    assert!(mixture.weights()[1] > 0.9, "{:?}", mixture.weights());
}
