//! Metrics of a controller in OpenMetrics format, with the distribution of the newest measured
//! values. No label contains a key, a name or an address. The number of series does not depend on
//! reports.

pub(crate) mod counters;
mod topology;

use std::fmt::Write as _;

use longhaul_control_api::measurements::Quantity;
use longhaul_service::{MetricsPage, encode};

pub use counters::Metrics;
use counters::{CircuitLabels, ReservationLabels};

use crate::controller::Controller;

/// Prefix of all metric names.
const PREFIX: &str = "longhaul_control";

/// Returns the metrics page of a controller.
#[must_use]
pub fn page(controller: Controller) -> MetricsPage {
    MetricsPage::new(move || text(&controller))
}

fn text(controller: &Controller) -> String {
    let metrics = controller.metrics();
    let places = controller.places();
    let (fresh, stale): (Vec<_>, Vec<_>) = places
        .known
        .map
        .depots
        .iter()
        .partition(|depot| depot.state.is_usable());
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    metrics.depots.set(count(fresh.len()));
    metrics.stale.set(count(stale.len()));
    let counts = controller.circuits().counts();
    metrics.reservations.clear();
    for (state, number) in counts.reservations {
        metrics
            .reservations
            .get_or_create(&ReservationLabels { state })
            .set(number);
    }
    metrics.circuits.clear();
    for (standing, number) in counts.circuits {
        metrics
            .circuits
            .get_or_create(&CircuitLabels { standing })
            .set(number);
    }
    metrics
        .failures
        .inc_by(counts.failures.saturating_sub(metrics.failures.get()));
    let mut newest = String::new();
    {
        let routing = controller.routing();
        metrics.series.set(count(routing.len()));
        for quantity in Quantity::ALL {
            let (name, unit, help) = family(quantity);
            let name = format!("{PREFIX}_{name}");
            let _ = writeln!(
                newest,
                "# HELP {name} {help}.\n# TYPE {name} gauge\n# UNIT {name} {unit}"
            );
            let of_quantity = routing.newest().filter(|(key, _)| key.quantity == quantity);
            let mut values: Vec<f64> = of_quantity.map(|(_, value)| value).collect();
            values.sort_by(f64::total_cmp);
            for (quantile, value) in quantiles(&values) {
                let _ = writeln!(newest, "{name}{{quantile=\"{quantile}\"}} {value}");
            }
        }
    }
    let page = encode(&metrics.registry);
    let counted = page.strip_suffix("# EOF\n").unwrap_or(&page);
    format!("{counted}{newest}# EOF\n")
}

/// Returns the metric name of a quantity without the prefix, its unit, and its description.
const fn family(quantity: Quantity) -> (&'static str, &'static str, &'static str) {
    match quantity {
        Quantity::Rate => (
            "path_rate_bits_per_second",
            "bits_per_second",
            "Newest measured path rates, by quantile",
        ),
        Quantity::Rtt => (
            "path_rtt_seconds",
            "seconds",
            "Newest measured path round-trip times, by quantile",
        ),
        Quantity::Delay => (
            "path_delay_seconds",
            "seconds",
            "Newest measured path delays in one direction, by quantile",
        ),
        Quantity::Loss => (
            "path_loss_ratio",
            "ratio",
            "Newest measured path loss ratios, by quantile",
        ),
    }
}

/// Returns the first, fifth and ninth deciles of sorted values; nothing if there are no values.
fn quantiles(values: &[f64]) -> impl Iterator<Item = (&'static str, f64)> {
    let last = values.len().checked_sub(1);
    let quantile = move |(label, tenths): (&'static str, usize)| {
        // The nearest index, so each result is a measured value.
        Some((label, *values.get((last? * tenths + 5) / 10)?))
    };
    [("0.1", 1), ("0.5", 5), ("0.9", 9)]
        .into_iter()
        .filter_map(quantile)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_measured_values() {
        assert_eq!(quantiles(&[]).count(), 0);
        let deciles = |values: &[f64]| {
            quantiles(values)
                .map(|(_, value)| value)
                .collect::<Vec<_>>()
        };
        assert_eq!(deciles(&[3.0]), [3.0, 3.0, 3.0]);
        let eleven: Vec<f64> = (0..11).map(f64::from).collect();
        assert_eq!(deciles(&eleven), [1.0, 5.0, 9.0]);
    }
}
