//! Metrics of an on-ramp, and their OpenMetrics text.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// Outcome of a requested connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ConnectionOutcome {
    /// Direct: made here, or left to the program.
    Direct,
    /// Carried by a session.
    Route,
    /// Failed or refused.
    Failed,
}

/// Entry and outcome of requested connections.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConnectionLabels {
    entry: &'static str,
    outcome: &'static str,
}

/// Direction of moved bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabel {
    direction: &'static str,
}

/// Outcome of a reload.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReloadLabel {
    outcome: &'static str,
}

/// All counters of an on-ramp.
#[derive(Debug)]
pub(crate) struct OnrampMetrics {
    registry: Registry,
    /// Copy of [`Self::listed`] from when the page was last rendered.
    connections: Family<ConnectionLabels, Counter>,
    /// Number of requested connections, by entry and outcome.
    listed: Mutex<BTreeMap<(&'static str, ConnectionOutcome), u64>>,
    pub(crate) carried: Gauge,
    pub(crate) sessions_resumable: Gauge,
    pub(crate) sessions_resumed: Counter,
    pub(crate) sessions_not_resumed: Counter,
    resume_memory: Gauge,
    sent: Counter,
    received: Counter,
    rules: Gauge,
    reloads: Family<ReloadLabel, Counter>,
}

impl ConnectionOutcome {
    /// Returns a short stable word.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Route => "route",
            Self::Failed => "failed",
        }
    }
}

impl OnrampMetrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("longhaul_onramp");
        let bytes = Family::<DirectionLabel, Counter>::default();
        let counter = |direction| bytes.get_or_create_owned(&DirectionLabel { direction });
        let metrics = Self {
            registry: Registry::default(),
            connections: Family::default(),
            listed: Mutex::default(),
            carried: Gauge::default(),
            sessions_resumable: Gauge::default(),
            sessions_resumed: Counter::default(),
            sessions_not_resumed: Counter::default(),
            resume_memory: Gauge::default(),
            sent: counter("sent"),
            received: counter("received"),
            rules: Gauge::default(),
            reloads: Family::default(),
        };
        registry.register(
            "connections",
            "Requested connections, by entry and outcome (direct, route, failed); those that a \
             program makes directly count when it asks next, or ends",
            metrics.connections.clone(),
        );
        registry.register(
            "connections_carried",
            "Connections now carried",
            metrics.carried.clone(),
        );
        registry.register(
            "sessions_resumable",
            "Sessions with off-ramps that can continue over another route",
            metrics.sessions_resumable.clone(),
        );
        registry.register(
            "sessions_resumed",
            "Continuations of sessions over another connection",
            metrics.sessions_resumed.clone(),
        );
        registry.register(
            "sessions_not_resumed",
            "Resumable sessions that ended early because no connection carried them on",
            metrics.sessions_not_resumed.clone(),
        );
        registry.register_with_unit(
            "resume_memory",
            "Memory promised to resumable sessions, for what may have to be sent again",
            Unit::Bytes,
            metrics.resume_memory.clone(),
        );
        registry.register_with_unit(
            "moved",
            "Bytes of ended connections, by direction (sent: from the program)",
            Unit::Bytes,
            bytes,
        );
        registry.register(
            "rules",
            "Rules of the table of routes in force",
            metrics.rules.clone(),
        );
        registry.register(
            "table_reloads",
            "Reloads of the table of routes, by outcome",
            metrics.reloads.clone(),
        );
        Self {
            registry,
            ..metrics
        }
    }

    pub(crate) fn count(&self, entry: &'static str, outcome: ConnectionOutcome) {
        self.count_many(entry, outcome, 1);
    }

    pub(crate) fn count_many(
        &self,
        entry: &'static str,
        outcome: ConnectionOutcome,
        connections: u64,
    ) {
        let mut listed = self.listed.lock();
        let counted = listed.entry((entry, outcome)).or_default();
        *counted = counted.saturating_add(connections);
    }

    pub(crate) fn moved(&self, sent: u64, received: u64) {
        self.sent.inc_by(sent);
        self.received.inc_by(received);
    }

    pub(crate) fn reloaded(&self, outcome: &'static str) {
        self.reloads.get_or_create(&ReloadLabel { outcome }).inc();
    }

    /// Returns the number of requested connections, by entry and outcome.
    pub(crate) fn connections(&self) -> BTreeMap<(&'static str, ConnectionOutcome), u64> {
        self.listed.lock().clone()
    }

    /// Returns the page, with the number of rules in force, and the memory of resumable sessions.
    pub(crate) fn page(&self, rules: usize, resume_memory: u64) -> String {
        let promised = i64::try_from(resume_memory).unwrap_or(i64::MAX);
        self.resume_memory.set(promised);
        self.rules.set(i64::try_from(rules).unwrap_or(i64::MAX));
        for ((entry, outcome), count) in self.connections() {
            let outcome = outcome.word();
            let labels = ConnectionLabels { entry, outcome };
            let counter = self.connections.get_or_create(&labels);
            counter.inner().store(count, Ordering::Relaxed);
        }
        longhaul_service::encode(&self.registry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_the_counters() {
        let metrics = OnrampMetrics::new();
        metrics.count("socks", ConnectionOutcome::Route);
        metrics.count("socks", ConnectionOutcome::Route);
        metrics.count("program", ConnectionOutcome::Direct);
        metrics.carried.inc();
        metrics.moved(7, 9);
        metrics.reloaded("loaded");
        let page = metrics.page(3, 262_144);
        for line in [
            "longhaul_onramp_connections_total{entry=\"socks\",outcome=\"route\"} 2",
            "longhaul_onramp_connections_total{entry=\"program\",outcome=\"direct\"} 1",
            "longhaul_onramp_connections_carried 1",
            "longhaul_onramp_moved_bytes_total{direction=\"sent\"} 7",
            "longhaul_onramp_moved_bytes_total{direction=\"received\"} 9",
            "longhaul_onramp_rules 3",
            "longhaul_onramp_resume_memory_bytes 262144",
            "longhaul_onramp_table_reloads_total{outcome=\"loaded\"} 1",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
        }
        assert!(page.ends_with("# EOF\n"), "{page}");
        assert_eq!(
            metrics.connections()[&("socks", ConnectionOutcome::Route)],
            2
        );
    }
}
