//! Metrics of a controller in OpenMetrics format, with the distribution of the newest measured
//! values. No label contains a key, a name or an address. The number of series does not depend on
//! reports.

use std::fmt::Write as _;
use std::sync::Arc;

use longhaul_control_api::measurements::Quantity;
use longhaul_metrics::MetricsPage;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::controller::Controller;

/// Prefix of all metric names.
const PREFIX: &str = "longhaul_control";

/// Labels of an answered request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabels {
    method: String,
    status: u16,
}

/// Labels of a refusal.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabels {
    reason: &'static str,
}

/// Metrics of a controller. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    requests: Family<AnswerLabels, Counter>,
    refused: Family<RefusalLabels, Counter>,
    measurements: Counter,
    duplicates: Counter,
    reports: Counter,
    questions: Counter,
    series: Gauge,
    depots: Gauge,
    stale: Gauge,
    reservations: Family<ReservationLabels, Gauge>,
    circuits: Family<CircuitLabels, Gauge>,
    failures: Counter,
    leads: Gauge,
    begun: Counter,
    ended: Counter,
}

/// Labels of reservations.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReservationLabels {
    state: &'static str,
}

/// Labels of circuits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CircuitLabels {
    standing: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Creates the metrics, all at zero.
    #[must_use]
    pub fn new() -> Self {
        let this = Self {
            registry: Arc::default(),
            requests: Family::default(),
            refused: Family::default(),
            measurements: Counter::default(),
            duplicates: Counter::default(),
            reports: Counter::default(),
            questions: Counter::default(),
            series: Gauge::default(),
            depots: Gauge::default(),
            stale: Gauge::default(),
            reservations: Family::default(),
            circuits: Family::default(),
            failures: Counter::default(),
            leads: Gauge::default(),
            begun: Counter::default(),
            ended: Counter::default(),
        };
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register(
            "requests",
            "Requests answered, by method and status",
            this.requests.clone(),
        );
        registry.register(
            "refused",
            "Requests refused, by reason (unauthenticated, forbidden, or overload: the disk is slow)",
            this.refused.clone(),
        );
        registry.register(
            "measurements_kept",
            "Measurements that were new",
            this.measurements.clone(),
        );
        registry.register(
            "measurements_known",
            "Measurements that were there before",
            this.duplicates.clone(),
        );
        registry.register(
            "transfer_reports",
            "Reports of transfers that were new",
            this.reports.clone(),
        );
        registry.register(
            "route_questions",
            "Requests for routes that were answered",
            this.questions.clone(),
        );
        registry.register(
            "series",
            "Forecast series: quantities of paths, by reporter; some kilobytes of memory each",
            this.series.clone(),
        );
        registry.register(
            "depots",
            "Depots on the map that routes may use",
            this.depots.clone(),
        );
        registry.register(
            "depots_stale",
            "Depots on the map that have been silent for too long",
            this.stale.clone(),
        );
        registry.register(
            "reservations",
            "Reservations, by state (held, reserved, provisioning, provisioned, releasing, failed, \
             passed_end_time, terminated)",
            this.reservations.clone(),
        );
        registry.register(
            "circuits",
            "Circuits of provisioned reservations, by standing (waiting, setting_up, set_up, failed, \
             tearing_down, unmanaged)",
            this.circuits.clone(),
        );
        registry.register(
            "circuits_failed",
            "Circuits that could not be set up, or broke",
            this.failures.clone(),
        );
        registry.register(
            "leads",
            "1 if this controller leads those that share its store, otherwise 0",
            this.leads.clone(),
        );
        registry.register(
            "leads_begun",
            "Times this controller began to lead",
            this.begun.clone(),
        );
        registry.register(
            "leads_ended",
            "Times this controller ceased to lead",
            this.ended.clone(),
        );
        Self {
            registry: Arc::new(registry),
            ..this
        }
    }

    pub(crate) fn answered(&self, method: &str, status: u16) {
        // Other methods share one label, as callers can invent any.
        let known = ["GET", "HEAD", "PUT", "POST", "DELETE"].contains(&method);
        let method = if known { method } else { "other" }.to_owned();
        self.requests
            .get_or_create(&AnswerLabels { method, status })
            .inc();
        let reason = match status {
            401 => "unauthenticated",
            403 => "forbidden",
            429 | 503 => "overload",
            _ => return,
        };
        self.refused.get_or_create(&RefusalLabels { reason }).inc();
    }

    pub(crate) fn led(&self, before: bool, now: bool) {
        self.leads.set(i64::from(now));
        self.ended.inc_by(u64::from(before));
        self.begun.inc_by(u64::from(now));
    }

    pub(crate) fn kept(&self, new: usize, known: usize) {
        self.measurements
            .inc_by(u64::try_from(new).unwrap_or(u64::MAX));
        self.duplicates
            .inc_by(u64::try_from(known).unwrap_or(u64::MAX));
    }

    pub(crate) fn reported(&self) {
        self.reports.inc();
    }

    pub(crate) fn asked(&self) {
        self.questions.inc();
    }
}

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
        let weather = controller.routing();
        metrics.series.set(count(weather.len()));
        for quantity in Quantity::ALL {
            let (name, unit, what) = family(quantity);
            let name = format!("{PREFIX}_{name}");
            let _ = writeln!(
                newest,
                "# HELP {name} {what}.\n# TYPE {name} gauge\n# UNIT {name} {unit}"
            );
            let of_quantity = weather.newest().filter(|(key, _)| key.quantity == quantity);
            let mut values: Vec<f64> = of_quantity.map(|(_, value)| value).collect();
            values.sort_by(f64::total_cmp);
            for (quantile, value) in quantiles(&values) {
                let _ = writeln!(newest, "{name}{{quantile=\"{quantile}\"}} {value}");
            }
        }
    }
    let mut page = String::new();
    if encode(&mut page, &metrics.registry).is_err() {
        // Writing to a string cannot fail.
        return page;
    }
    let counted = page.strip_suffix("# EOF\n").unwrap_or(&page);
    format!("{counted}{newest}# EOF\n")
}

/// Returns the metric name of a quantity without the prefix, its unit, and its description.
const fn family(quantity: Quantity) -> (&'static str, &'static str, &'static str) {
    match quantity {
        Quantity::Rate => (
            "path_rate_bits_per_second",
            "bits_per_second",
            "Newest rates measured of paths, by quantile",
        ),
        Quantity::Rtt => (
            "path_rtt_seconds",
            "seconds",
            "Newest round-trip times measured of paths, by quantile",
        ),
        Quantity::Delay => (
            "path_delay_seconds",
            "seconds",
            "Newest times in one direction measured of paths, by quantile",
        ),
        Quantity::Loss => (
            "path_loss_ratio",
            "ratio",
            "Newest shares of losses measured of paths, by quantile",
        ),
    }
}

/// Returns the first, fifth and ninth deciles of sorted values; nothing if there are no values.
fn quantiles(values: &[f64]) -> impl Iterator<Item = (&'static str, f64)> {
    let last = values.len().checked_sub(1);
    let quantile = move |(label, tenths): (&'static str, usize)| {
        // Nearest rank, so each result is a measured value.
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
        let of = |values: &[f64]| {
            quantiles(values)
                .map(|(_, value)| value)
                .collect::<Vec<_>>()
        };
        assert_eq!(of(&[3.0]), [3.0, 3.0, 3.0]);
        let eleven: Vec<f64> = (0..11).map(f64::from).collect();
        assert_eq!(of(&eleven), [1.0, 5.0, 9.0]);
    }
}
