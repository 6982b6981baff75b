//! Expected losses of a link.

use crate::spec::LossModel;

/// Returns the share of packets that a model loses in the long run.
pub(super) fn mean_loss(model: LossModel) -> f64 {
    match model {
        LossModel::None => 0.0,
        LossModel::Independent { probability } => probability,
        LossModel::GilbertElliott {
            good_to_bad,
            bad_to_good,
            loss_in_good,
            loss_in_bad,
        } => {
            let both = good_to_bad + bad_to_good;
            let bad = if both > 0.0 { good_to_bad / both } else { 0.0 };
            bad * loss_in_bad + (1.0 - bad) * loss_in_good
        }
    }
}
