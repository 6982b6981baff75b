//! Reads the losses of a link.

use super::Located;
use super::fields::ScenarioField;
use crate::spec::LossModel;

/// Reads `loss = "0.001%"`; `{ mean = "0.001%", burst = 10 }`; or the four numbers of Gilbert and
/// Elliott.
pub(super) fn loss(field: &ScenarioField) -> Located<LossModel> {
    if !field.is_table() {
        return Ok(independent(field.probability()?));
    }
    let mut fields = field.fields()?;
    if let Some(mean_field) = fields.optional("mean") {
        let mean = mean_field.probability()?;
        let burst_field = fields.required("burst")?;
        let burst = burst_field.integer()?;
        if !(1..=1_000_000).contains(&burst) {
            return Err(burst_field.wrong("a mean burst is 1 to 1000000 packets"));
        }
        fields.finish()?;
        // Every packet of the bad state is lost. Bursts are geometric with mean 1 / bad_to_good.
        // The share of time in the bad state, good_to_bad / (good_to_bad + bad_to_good), is the
        // mean loss.
        let bad_to_good = 1.0 / burst as f64;
        let good_to_bad = bad_to_good * mean / (1.0 - mean);
        if good_to_bad > 1.0 || good_to_bad.is_nan() {
            return Err(mean_field.wrong("this mean cannot be reached with bursts that short"));
        }
        return Ok(if mean == 0.0 {
            LossModel::None
        } else {
            LossModel::GilbertElliott {
                good_to_bad,
                bad_to_good,
                loss_in_good: 0.0,
                loss_in_bad: 1.0,
            }
        });
    }
    let model = LossModel::GilbertElliott {
        good_to_bad: fields.required("good_to_bad")?.probability()?,
        bad_to_good: fields.required("bad_to_good")?.probability()?,
        loss_in_good: fields
            .optional("loss_in_good")
            .map(|field| field.probability())
            .transpose()?
            .unwrap_or(0.0),
        loss_in_bad: fields
            .optional("loss_in_bad")
            .map(|field| field.probability())
            .transpose()?
            .unwrap_or(1.0),
    };
    fields.finish()?;
    Ok(model)
}

pub(super) fn independent(probability: f64) -> LossModel {
    if probability > 0.0 {
        LossModel::Independent { probability }
    } else {
        LossModel::None
    }
}
