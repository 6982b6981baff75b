//! Seeded loss of segments on the wire. Only the order of segments counts, never time, so the same
//! seed loses the same segments on every machine.

use rand_xoshiro::Xoshiro256PlusPlus;

use super::random::geometric;
use crate::spec::LossModel;

/// Maximum number of segments whose fates are drawn ahead; it limits the work of one draw.
const MAX_SEGMENTS_PER_DRAW: u64 = 65_536;

/// Fate of the next segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Run {
    /// This many segments arrive.
    Kept(u32),
    /// The next segment is lost.
    Lost,
}

/// The loss process of one direction.
#[derive(Debug, Clone)]
pub struct Loss {
    model: LossModel,
    random: Xoshiro256PlusPlus,
    /// State of the Gilbert-Elliott chain; `stay` is the number of segments for which it stays.
    bad: bool,
    stay: u64,
    /// Number of segments that are kept from here on.
    gap: u64,
    /// If true, one is lost after them; otherwise fates have to be drawn again.
    then_lost: bool,
}

impl Loss {
    /// Returns the process of `model`.
    #[must_use]
    pub fn new(model: LossModel, random: Xoshiro256PlusPlus) -> Self {
        let mut loss = Self {
            model,
            random,
            bad: false,
            stay: 0,
            gap: 0,
            then_lost: false,
        };
        loss.begin();
        loss
    }

    /// Changes to another model. A Gilbert-Elliott chain keeps its state; the same model continues
    /// undisturbed.
    pub fn change(&mut self, model: LossModel) {
        if model != self.model {
            self.bad &= matches!(model, LossModel::GilbertElliott { .. });
            self.model = model;
            self.begin();
        }
    }

    /// Returns the fate of the next segments, at most `most` of them.
    pub fn next_run(&mut self, most: u32) -> Run {
        if self.gap == 0 {
            if std::mem::take(&mut self.then_lost) {
                return Run::Lost;
            }
            self.draw();
            if self.gap == 0 {
                self.then_lost = false;
                return Run::Lost;
            }
        }
        let kept = u32::try_from(self.gap).unwrap_or(u32::MAX).min(most);
        self.gap -= u64::from(kept);
        Run::Kept(kept)
    }

    fn begin(&mut self) {
        (self.gap, self.then_lost) = (0, false);
        self.stay = self.draw_stay();
    }

    /// Draws the number of segments until the next loss, up to [`MAX_SEGMENTS_PER_DRAW`].
    fn draw(&mut self) {
        let mut kept = 0_u64;
        loop {
            let probability = self.loss_here();
            let before_loss = geometric(&mut self.random, probability);
            let (passed, lost) = if before_loss < self.stay {
                (before_loss, true)
            } else {
                (self.stay, false)
            };
            // Drawing again from the same state later is correct, because these waits have no
            // memory.
            if kept.saturating_add(passed) >= MAX_SEGMENTS_PER_DRAW {
                let step = MAX_SEGMENTS_PER_DRAW - kept;
                self.stay -= step;
                (self.gap, self.then_lost) = (MAX_SEGMENTS_PER_DRAW, false);
                return self.leave_when_over();
            }
            kept += passed;
            self.stay -= passed + u64::from(lost);
            self.leave_when_over();
            if lost {
                (self.gap, self.then_lost) = (kept, true);
                return;
            }
        }
    }

    fn leave_when_over(&mut self) {
        if self.stay == 0 {
            self.bad = !self.bad;
            self.stay = self.draw_stay();
        }
    }

    fn loss_here(&self) -> f64 {
        match self.model {
            LossModel::None => 0.0,
            LossModel::Independent { probability } => probability,
            LossModel::GilbertElliott { loss_in_bad, .. } if self.bad => loss_in_bad,
            LossModel::GilbertElliott { loss_in_good, .. } => loss_in_good,
        }
    }

    /// Returns the number of segments until the chain leaves its state, at least one.
    fn draw_stay(&mut self) -> u64 {
        match self.model {
            LossModel::None | LossModel::Independent { .. } => u64::MAX,
            LossModel::GilbertElliott {
                good_to_bad,
                bad_to_good,
                ..
            } => {
                let leave = if self.bad { bad_to_good } else { good_to_bad };
                geometric(&mut self.random, leave).saturating_add(1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::random::{Process, sequence};
    use super::*;

    fn process(model: LossModel, seed: u64, direction: u32) -> Loss {
        Loss::new(model, sequence(seed, Process::Loss, direction))
    }

    /// Returns the fate of each of the first `count` segments: true means lost.
    fn fates(mut loss: Loss, count: usize, mut chunk: impl FnMut() -> u32) -> Vec<bool> {
        let mut all = Vec::with_capacity(count + 64);
        while all.len() < count {
            match loss.next_run(chunk().max(1)) {
                Run::Kept(n) => all.extend(std::iter::repeat_n(false, n as usize)),
                Run::Lost => all.push(true),
            }
        }
        all.truncate(count);
        all
    }

    fn share(fates: &[bool]) -> f64 {
        fates.iter().filter(|lost| **lost).count() as f64 / fates.len() as f64
    }

    #[test]
    fn independent_loss_comes_at_the_rate_asked() {
        for (seed, p, count) in [
            (1, 1e-2, 1_000_000),
            (2, 1e-3, 4_000_000),
            (3, 1e-4, 6_000_000),
            (4, 0.5, 100_000),
        ] {
            let got = share(&fates(
                process(LossModel::Independent { probability: p }, seed, 0),
                count,
                || 45,
            ));
            let deviation = (p * (1.0 - p) / count as f64).sqrt();
            assert!((got - p).abs() < 3.5 * deviation, "asked {p}, got {got}");
        }
    }

    #[test]
    fn independent_losses_know_nothing_of_each_other() {
        let p = 0.05;
        let fates = fates(
            process(LossModel::Independent { probability: p }, 9, 0),
            1_000_000,
            || 7,
        );
        let after_loss: Vec<bool> = fates
            .windows(2)
            .filter(|pair| pair[0])
            .map(|pair| pair[1])
            .collect();
        let deviation = (p * (1.0 - p) / after_loss.len() as f64).sqrt();
        assert!((share(&after_loss) - p).abs() < 3.5 * deviation);
    }

    #[test]
    fn certainties_are_certain() {
        let all = |model| share(&fates(process(model, 5, 0), 200_000, || 45));
        assert_eq!(all(LossModel::None), 0.0);
        assert_eq!(all(LossModel::Independent { probability: 0.0 }), 0.0);
        assert_eq!(all(LossModel::Independent { probability: 1.0 }), 1.0);
        let flip = LossModel::GilbertElliott {
            good_to_bad: 1.0,
            bad_to_good: 1.0,
            loss_in_good: 0.0,
            loss_in_bad: 1.0,
        };
        assert_eq!(all(flip), 0.5);
    }

    #[test]
    fn bursts_have_the_length_and_share_of_the_chain() {
        let (to_bad, to_good) = (0.01, 0.1);
        let model = LossModel::GilbertElliott {
            good_to_bad: to_bad,
            bad_to_good: to_good,
            loss_in_good: 0.0,
            loss_in_bad: 1.0,
        };
        let fates = fates(process(model, 11, 0), 5_000_000, || 45);
        let bursts = fates.windows(2).filter(|pair| !pair[0] && pair[1]).count();
        let lost = fates.iter().filter(|lost| **lost).count();
        // Some 45,000 bursts of mean 1 / 0.1 and deviation sqrt(0.9) / 0.1: 2 % is beyond four
        // deviations of the mean.
        let length = lost as f64 / bursts as f64;
        assert!((length - 10.0).abs() < 0.2, "mean burst {length}");
        let expected = to_bad / (to_bad + to_good);
        assert!(
            (share(&fates) / expected - 1.0).abs() < 0.03,
            "share {}",
            share(&fates)
        );
    }

    #[test]
    fn partial_loss_in_both_states_adds_up() {
        let model = LossModel::GilbertElliott {
            good_to_bad: 0.02,
            bad_to_good: 0.08,
            loss_in_good: 0.01,
            loss_in_bad: 0.3,
        };
        let expected = 0.8 * 0.01 + 0.2 * 0.3;
        let got = share(&fates(process(model, 12, 0), 4_000_000, || 45));
        assert!((got / expected - 1.0).abs() < 0.02, "{got} for {expected}");
    }

    #[test]
    fn how_segments_are_grouped_changes_nothing() {
        let models = [
            LossModel::Independent { probability: 0.01 },
            LossModel::GilbertElliott {
                good_to_bad: 0.01,
                bad_to_good: 0.2,
                loss_in_good: 0.001,
                loss_in_bad: 0.7,
            },
            LossModel::Independent { probability: 1e-5 },
        ];
        for model in models {
            let one_by_one = fates(process(model, 77, 0), 300_000, || 1);
            let mut n = 0;
            let grouped = fates(process(model, 77, 0), 300_000, || {
                n += 1;
                n * 31 % 97
            });
            assert!(one_by_one == grouped);
            assert!(
                one_by_one != fates(process(model, 77, 1), 300_000, || 1),
                "streams differ"
            );
            assert!(
                one_by_one != fates(process(model, 78, 0), 300_000, || 1),
                "seeds differ"
            );
        }
    }

    #[test]
    fn rare_loss_and_busy_chains_are_drawn_in_bounded_steps() {
        let model = LossModel::GilbertElliott {
            good_to_bad: 1.0,
            bad_to_good: 1.0,
            loss_in_good: 0.0,
            loss_in_bad: 1e-300,
        };
        let mut loss = process(model, 1, 0);
        assert_eq!(
            loss.next_run(u32::MAX),
            Run::Kept(MAX_SEGMENTS_PER_DRAW as u32)
        );
    }

    #[test]
    fn the_same_model_again_goes_on_undisturbed() {
        let model = LossModel::Independent { probability: 0.1 };
        let plain = fates(process(model, 3, 0), 10_000, || 1);
        let mut loss = process(model, 3, 0);
        let mut again = Vec::new();
        while again.len() < 10_000 {
            loss.change(model);
            again.push(loss.next_run(1) == Run::Lost);
        }
        assert_eq!(plain, again);
        loss.change(LossModel::None);
        assert!(matches!(loss.next_run(1000), Run::Kept(_)));
    }
}
