//! Counters and gauges of a controller.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::PREFIX;
use super::topology::TopologyMetrics;

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
    pub(super) registry: Arc<Registry>,
    requests: Family<AnswerLabels, Counter>,
    refused: Family<RefusalLabels, Counter>,
    measurements: Counter,
    duplicates: Counter,
    reports: Counter,
    questions: Counter,
    pub(super) series: Gauge,
    pub(super) depots: Gauge,
    pub(super) stale: Gauge,
    pub(super) reservations: Family<ReservationLabels, Gauge>,
    pub(super) circuits: Family<CircuitLabels, Gauge>,
    pub(super) failures: Counter,
    leads: Gauge,
    begun: Counter,
    ended: Counter,
    topology: TopologyMetrics,
}

/// Labels of reservations.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ReservationLabels {
    pub(super) state: &'static str,
}

/// Labels of circuits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CircuitLabels {
    pub(super) standing: &'static str,
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
            topology: TopologyMetrics::default(),
        };
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register(
            "requests",
            "Requests answered, by method and status",
            this.requests.clone(),
        );
        registry.register(
            "refused",
            "Requests refused, by reason (unauthenticated, forbidden, or overload: the disk is \
             slow)",
            this.refused.clone(),
        );
        registry.register(
            "measurements_kept",
            "Measurements that were new",
            this.measurements.clone(),
        );
        registry.register(
            "measurements_known",
            "Measurements that were known already",
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
            "1 if this controller leads those that share its store, else 0",
            this.leads.clone(),
        );
        registry.register(
            "leads_begun",
            "Times that this controller became the leader",
            this.begun.clone(),
        );
        registry.register(
            "leads_ended",
            "Times that this controller stopped being the leader",
            this.ended.clone(),
        );
        this.topology.register(&mut registry);
        Self {
            registry: Arc::new(registry),
            ..this
        }
    }

    pub(crate) const fn topology(&self) -> &TopologyMetrics {
        &self.topology
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
