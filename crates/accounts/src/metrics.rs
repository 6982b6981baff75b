//! Metrics of the accounts, and their OpenMetrics text.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Counters of the accounts.
#[derive(Debug)]
pub(crate) struct AccountMetrics {
    registry: Registry,
    pub(crate) records: Counter,
    pub(crate) lost: Counter,
    pub(crate) waiting: Gauge,
    pub(crate) write_errors: Counter,
    pub(crate) rotations: Counter,
    pub(crate) journal_errors: Counter,
}

impl AccountMetrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("longhaul_accounts");
        let metrics = Self {
            records: Counter::default(),
            lost: Counter::default(),
            waiting: Gauge::default(),
            write_errors: Counter::default(),
            rotations: Counter::default(),
            journal_errors: Counter::default(),
            registry: Registry::default(),
        };
        registry.register(
            "records",
            "Records of copies and sessions",
            metrics.records.clone(),
        );
        registry.register(
            "records_lost",
            "Records that could not be kept in memory until the disk had room",
            metrics.lost.clone(),
        );
        registry.register(
            "records_waiting",
            "Records that wait in memory for the disk",
            metrics.waiting.clone(),
        );
        registry.register(
            "write_errors",
            "Failed attempts to write or sync records, such as on a full disk",
            metrics.write_errors.clone(),
        );
        registry.register(
            "rotations",
            "Rotations of the file",
            metrics.rotations.clone(),
        );
        registry.register(
            "journal_errors",
            "Records that the journal of systemd did not take",
            metrics.journal_errors.clone(),
        );
        Self {
            registry,
            ..metrics
        }
    }

    /// Returns the page in OpenMetrics text format 1.0.
    pub(crate) fn page(&self) -> String {
        let mut page = String::new();
        if prometheus_client::encoding::text::encode(&mut page, &self.registry).is_err() {
            // Writing to a String does not fail.
            page.clear();
        }
        page
    }
}
