//! Mixture of predictors by fixed share.

/// Weights of experts by *fixed share* (Herbster, Warmuth 1998). After each step, the weight of an
/// expert falls with its loss, and a fixed share of all weight is spread evenly. So an expert that
/// was bad for long counts again soon after it has become good.
///
/// **Bound.** Let `N` be the number of experts, `rate` the learning rate, `share` what is spread
/// after each step, and let all losses lie in 0 to 1. The loss of the mixture is the weighted mean
/// of the experts' losses. Over `n` steps of any losses, even adversarial ones, compare it with any
/// sequence of experts with `m` switches, even the best one in hindsight. It exceeds that
/// sequence's loss by at most
///
/// ```text
/// (ln N + m ln(N / share) + (n - 1 - m) ln(1 / (1 - share))) / rate + n rate / 8
/// ```
///
/// (Cesa-Bianchi, Lugosi, "Prediction, learning, and games", theorem 5.2). If the loss is convex in
/// the prediction, as the absolute error is, the weighted mean of the experts' predictions has no
/// greater loss than that.
#[derive(Debug, Clone)]
pub struct FixedShare {
    weights: Box<[f32]>,
    rate: f64,
    share: f64,
}

impl FixedShare {
    /// Creates equal weights for `experts` experts, at least one. `rate` is above 0, `share` above
    /// 0 and below 1.
    #[must_use]
    pub fn new(experts: usize, rate: f64, share: f64) -> Self {
        let experts = experts.max(1);
        Self {
            weights: vec![1.0 / experts as f32; experts].into(),
            rate,
            share,
        }
    }

    /// Returns the weight of each expert. They sum to one, except for rounding.
    #[must_use]
    pub fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// Returns the weighted mean of the experts' values, one per expert.
    #[must_use]
    pub fn mix(&self, values: impl Iterator<Item = f64>) -> f64 {
        let weighed = self
            .weights
            .iter()
            .map(|weight| f64::from(*weight))
            .zip(values);
        let (sum, all) = weighed.fold((0.0, 0.0), |(sum, all), (weight, value)| {
            (sum + weight * value, all + weight)
        });
        sum / all
    }

    /// Takes the loss of each expert in the past step, clamped to 0 to 1.
    pub fn update(&mut self, losses: impl Iterator<Item = f64>) {
        let mut all = 0.0;
        for (weight, loss) in self.weights.iter_mut().zip(losses) {
            // NaN counts as the greatest loss.
            let loss = if loss.is_nan() {
                1.0
            } else {
                loss.clamp(0.0, 1.0)
            };
            let kept = f64::from(*weight) * (-self.rate * loss).exp();
            *weight = kept as f32;
            all += kept;
        }
        let spread = self.share / self.weights.len() as f64;
        for weight in &mut self.weights {
            *weight = ((1.0 - self.share) * f64::from(*weight) / all + spread) as f32;
        }
    }

    /// Passes `steps` steps without losses. The weights move closer to each other, because the best
    /// expert is less and less likely to be the best still.
    pub fn pass_steps(&mut self, steps: u32) {
        let kept = (1.0 - self.share).powf(f64::from(steps));
        let spread = (1.0 - kept) / self.weights.len() as f64;
        for weight in &mut self.weights {
            *weight = (kept * f64::from(*weight) + spread) as f32;
        }
    }

    /// Returns the maximum by which the loss of the mixture over `steps` exceeds that of the best
    /// sequence of experts with this many switches.
    #[must_use]
    pub fn regret_bound(&self, steps: u64, switches: u64) -> f64 {
        let experts = self.weights.len() as f64;
        let stays = steps.saturating_sub(1).saturating_sub(switches) as f64;
        let prior = experts.ln() + switches as f64 * (experts / self.share).ln()
            - stays * (-self.share).ln_1p();
        prior / self.rate + steps as f64 * self.rate / 8.0
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.weights)
    }
}

#[cfg(test)]
mod tests;
