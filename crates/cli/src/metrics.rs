//! Metrics of `longhaul serve`, and their OpenMetrics text.

use std::sync::Arc;

use longhaul_service::MetricsPage;
use longhaul_session::{Listener, ServiceName};
use longhaul_transfer::Server;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::account_workers::WorkerPool;

/// Status with which an OPEN was refused.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabel {
    status: &'static str,
}

/// Service of a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ServiceLabel {
    service: &'static str,
}

/// Result of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// Direction of bytes, as the server sees them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabel {
    direction: &'static str,
}

/// Resource that the keys share.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabel {
    resource: &'static str,
}

/// Result of a reload.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReloadLabel {
    outcome: &'static str,
}

/// All counters of a server. Those that the server and its listener keep are copied when the page
/// is rendered.
#[derive(Debug)]
struct ServeCounters {
    registry: Registry,
    accepted: Counter,
    accept_errors: Counter,
    turned_away: Counter,
    opens_refused: Family<StatusLabel, Counter>,
    unauthenticated: Gauge,
    sessions: Family<ServiceLabel, Counter>,
    sessions_active: Gauge,
    copies_active: Gauge,
    copies_ended: Family<ResultLabel, Counter>,
    bytes: Family<DirectionLabel, Counter>,
    permits: Family<ResourceLabel, Gauge>,
    permits_in_use: Family<ResourceLabel, Gauge>,
    grants_reloads: Family<ReloadLabel, Counter>,
}

/// Metrics of a server.
#[derive(Clone)]
pub struct ServeMetrics {
    counters: Arc<ServeCounters>,
    server: Arc<Server>,
    workers: WorkerPool,
    listener: Arc<Listener>,
}

/// A session that is counted as active until this is dropped.
pub struct ActiveSession(Gauge);

impl Drop for ActiveSession {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl ServeMetrics {
    /// Creates the metrics of `server` and its workers, whose sessions arrive at `listener`.
    pub fn new(server: Arc<Server>, workers: WorkerPool, listener: Arc<Listener>) -> Self {
        Self {
            counters: Arc::new(ServeCounters::new()),
            server,
            workers,
            listener,
        }
    }

    /// Returns their page.
    pub fn page(&self) -> MetricsPage {
        let this = self.clone();
        MetricsPage::new(move || this.text())
    }

    /// Counts a session for `service`.
    pub fn count_session(&self, service: &ServiceName) -> ActiveSession {
        // The listener offers these only.
        let known = [
            (ServiceName::COPY, "copy"),
            (ServiceName::FILES, "files"),
            (ServiceName::FETCH, "fetch"),
            (ServiceName::STRIPE, "stripe"),
            (ServiceName::DOCTOR, "doctor"),
            (ServiceName::PERF, "perf"),
        ];
        let word = known.iter().find(|(name, _)| name == service);
        let service = word.map_or("other", |(_, word)| word);
        let label = ServiceLabel { service };
        self.counters.sessions.get_or_create(&label).inc();
        self.counters.sessions_active.inc();
        ActiveSession(self.counters.sessions_active.clone())
    }

    /// Counts a reload of the grants.
    pub fn count_reload(&self, outcome: &'static str) {
        let label = ReloadLabel { outcome };
        self.counters.grants_reloads.get_or_create(&label).inc();
    }

    fn text(&self) -> String {
        let metrics = &*self.counters;
        let connections = self.listener.counts();
        raise(&metrics.accepted, connections.accepted);
        raise(&metrics.accept_errors, connections.accept_errors);
        raise(&metrics.turned_away, connections.evicted);
        metrics.unauthenticated.set(gauge(connections.pending));
        for (status, count) in connections.refused {
            let label = StatusLabel { status };
            raise(&metrics.opens_refused.get_or_create(&label), count);
        }
        let (counts, workers) = (self.server.counts(), self.workers.running());
        metrics
            .copies_active
            .set(gauge(counts.running.saturating_add(workers.copies)));
        for (result, count) in counts.ended {
            let label = ResultLabel { result };
            raise(&metrics.copies_ended.get_or_create(&label), count);
        }
        let received = counts.received.saturating_add(workers.received);
        let sent = counts.sent.saturating_add(workers.sent);
        for (direction, bytes) in [("received", received), ("sent", sent)] {
            let label = DirectionLabel { direction };
            raise(&metrics.bytes.get_or_create(&label), bytes);
        }
        for resource in counts.resources {
            let label = ResourceLabel {
                resource: resource.name,
            };
            let (total, in_use) = (gauge(resource.total), gauge(resource.in_use));
            metrics.permits.get_or_create(&label).set(total);
            metrics.permits_in_use.get_or_create(&label).set(in_use);
        }
        longhaul_service::encode(&metrics.registry)
    }
}

/// Raises a counter to a count that is kept elsewhere. A counter never falls.
fn raise(counter: &Counter, count: u64) {
    counter.inc_by(count.saturating_sub(counter.get()));
}

fn gauge(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

impl ServeCounters {
    fn new() -> Self {
        let mut registry = Registry::with_prefix("longhaul_serve");
        let metrics = Self {
            accepted: Counter::default(),
            accept_errors: Counter::default(),
            turned_away: Counter::default(),
            opens_refused: Family::default(),
            unauthenticated: Gauge::default(),
            sessions: Family::default(),
            sessions_active: Gauge::default(),
            copies_active: Gauge::default(),
            copies_ended: Family::default(),
            bytes: Family::default(),
            permits: Family::default(),
            permits_in_use: Family::default(),
            grants_reloads: Family::default(),
            registry: Registry::default(),
        };
        registry.register(
            "connections",
            "Connections accepted",
            metrics.accepted.clone(),
        );
        registry.register(
            "accept_errors",
            "Failed accepts, such as no free descriptor",
            metrics.accept_errors.clone(),
        );
        registry.register(
            "connections_turned_away",
            "Connections reset before an OPEN was read, to make room for others",
            metrics.turned_away.clone(),
        );
        registry.register(
            "opens_refused",
            "Refused OPENs, by status",
            metrics.opens_refused.clone(),
        );
        registry.register(
            "connections_unauthenticated",
            "Connections without a verified OPEN",
            metrics.unauthenticated.clone(),
        );
        registry.register(
            "sessions",
            "Sessions accepted, by service; each stream of a copy is one",
            metrics.sessions.clone(),
        );
        registry.register(
            "sessions_active",
            "Sessions now",
            metrics.sessions_active.clone(),
        );
        registry.register("copies_active", "Copies now", metrics.copies_active.clone());
        registry.register(
            "copies_ended",
            "Copies that have ended, by result",
            metrics.copies_ended.clone(),
        );
        registry.register_with_unit(
            "copied",
            "Bytes of files copied, by direction (received: to this server)",
            Unit::Bytes,
            metrics.bytes.clone(),
        );
        registry.register(
            "permits",
            "Units of each resource that the keys share; memory in bytes",
            metrics.permits.clone(),
        );
        registry.register(
            "permits_in_use",
            "Units of each resource in use; memory in bytes",
            metrics.permits_in_use.clone(),
        );
        registry.register(
            "grants_reloads",
            "Reloads of the grants, by outcome",
            metrics.grants_reloads.clone(),
        );
        Self {
            registry,
            ..metrics
        }
    }
}
