//! Metrics of an off-ramp, and their OpenMetrics text.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use drs::{Limit, LimitTally};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// Reason why a connection was turned away.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// Status with which an OPEN was refused.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabel {
    status: &'static str,
}

/// Ending of a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndingLabel {
    ending: &'static str,
}

/// Outcome of a policy reload.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReloadLabel {
    outcome: &'static str,
}

/// Direction of moved bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabel {
    direction: &'static str,
}

/// Limit of the incoming hop.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabel {
    limit: &'static str,
}

/// All counters of an off-ramp.
#[derive(Debug)]
pub(crate) struct OfframpMetrics {
    registry: Registry,
    pub(crate) accepted: Counter,
    pub(crate) accept_errors: Counter,
    turned_away: Family<ReasonLabel, Counter>,
    opens_refused: Family<StatusLabel, Counter>,
    sessions_ended: Family<EndingLabel, Counter>,
    pub(crate) sessions_active: Gauge,
    sessions_setting_up: Gauge,
    pub(crate) sessions_resumable: Gauge,
    pub(crate) sessions_resumed: Counter,
    pub(crate) sessions_not_resumed: Counter,
    resume_memory_bytes: Gauge,
    unauthenticated: Gauge,
    policy_reloads: Family<ReloadLabel, Counter>,
    dial_time: Histogram,
    to_servers: Counter,
    from_servers: Counter,
    limited: Family<LimitLabel, Counter<f64, AtomicU64>>,
    buffer_bytes: Gauge,
}

impl OfframpMetrics {
    pub(crate) fn new() -> Arc<Self> {
        let mut registry = Registry::with_prefix("longhaul_offramp");
        let bytes = Family::<DirectionLabel, Counter>::default();
        let counter = |direction| bytes.get_or_create_owned(&DirectionLabel { direction });
        let metrics = Self {
            accepted: Counter::default(),
            accept_errors: Counter::default(),
            turned_away: Family::default(),
            opens_refused: Family::default(),
            sessions_ended: Family::default(),
            sessions_active: Gauge::default(),
            sessions_setting_up: Gauge::default(),
            sessions_resumable: Gauge::default(),
            sessions_resumed: Counter::default(),
            sessions_not_resumed: Counter::default(),
            resume_memory_bytes: Gauge::default(),
            unauthenticated: Gauge::default(),
            policy_reloads: Family::default(),
            dial_time: Histogram::new(exponential_buckets(0.000_1, 2.0, 17)),
            to_servers: counter("forward"),
            from_servers: counter("backward"),
            limited: Family::default(),
            buffer_bytes: Gauge::default(),
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
            "Connections closed before an OPEN was read, by reason",
            metrics.turned_away.clone(),
        );
        registry.register(
            "opens_refused",
            "Refused OPENs, by status",
            metrics.opens_refused.clone(),
        );
        registry.register(
            "sessions_ended",
            "Sessions with servers, by how they ended",
            metrics.sessions_ended.clone(),
        );
        registry.register(
            "sessions_active",
            "Sessions now joined with a server's connection",
            metrics.sessions_active.clone(),
        );
        registry.register(
            "sessions_setting_up",
            "Sessions with a verified OPEN that wait for the server",
            metrics.sessions_setting_up.clone(),
        );
        registry.register(
            "sessions_resumable",
            "Sessions that can continue over another route",
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
            metrics.resume_memory_bytes.clone(),
        );
        registry.register(
            "connections_unauthenticated",
            "Connections without a verified OPEN",
            metrics.unauthenticated.clone(),
        );
        registry.register(
            "policy_reloads",
            "Reloads of the policy file, by outcome",
            metrics.policy_reloads.clone(),
        );
        registry.register_with_unit(
            "dial",
            "Time to connect to the server",
            Unit::Seconds,
            metrics.dial_time.clone(),
        );
        registry.register_with_unit(
            "moved",
            "Payload moved, by direction (forward: towards the server)",
            Unit::Bytes,
            bytes,
        );
        registry.register_with_unit(
            "hop_limited",
            "Time of ended bulk sessions, by limit of their inbound hop",
            Unit::Seconds,
            metrics.limited.clone(),
        );
        registry.register_with_unit(
            "buffer",
            "Buffers of sessions, used and spare",
            Unit::Bytes,
            metrics.buffer_bytes.clone(),
        );
        Arc::new(Self {
            registry,
            ..metrics
        })
    }

    pub(crate) fn count_turned_away(&self, reason: &'static str) {
        self.turned_away
            .get_or_create(&ReasonLabel { reason })
            .inc();
    }

    pub(crate) fn count_refused(&self, status: &'static str) {
        self.opens_refused
            .get_or_create(&StatusLabel { status })
            .inc();
    }

    pub(crate) fn count_ended(&self, ending: &'static str) {
        self.sessions_ended
            .get_or_create(&EndingLabel { ending })
            .inc();
    }

    pub(crate) fn count_reload(&self, outcome: &'static str) {
        self.policy_reloads
            .get_or_create(&ReloadLabel { outcome })
            .inc();
    }

    pub(crate) fn observe_dial_time(&self, took: Duration) {
        self.dial_time.observe(took.as_secs_f64());
    }

    pub(crate) fn count_bytes(&self, to_server: u64, from_server: u64) {
        self.to_servers.inc_by(to_server);
        self.from_servers.inc_by(from_server);
    }

    /// Adds the time for which each limit held at a session's hop.
    pub(crate) fn add_limit_times(&self, tally: &LimitTally) {
        for limit in Limit::ALL {
            let held = tally.time_of(limit).as_secs_f64();
            if held > 0.0 {
                self.limited
                    .get_or_create(&LimitLabel {
                        limit: limit.as_str(),
                    })
                    .inc_by(held);
            }
        }
    }

    /// Returns the page in OpenMetrics text format 1.0, with the current gauges.
    pub(crate) fn page(
        &self,
        newcomers: usize,
        verified: usize,
        buffers: usize,
        resume_memory: u64,
    ) -> String {
        let promised = i64::try_from(resume_memory).unwrap_or(i64::MAX);
        self.resume_memory_bytes.set(promised);
        let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.unauthenticated.set(gauge(newcomers));
        let setting_up = gauge(verified).saturating_sub(self.sessions_active.get());
        self.sessions_setting_up.set(setting_up.max(0));
        self.buffer_bytes.set(gauge(buffers));
        longhaul_service::encode(&self.registry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_units_labels_and_an_end() {
        let metrics = OfframpMetrics::new();
        metrics.count_bytes(7, 9);
        metrics.count_refused("replay");
        metrics.count_ended("finished");
        metrics.count_turned_away("evicted");
        metrics.count_reload("loaded");
        metrics.observe_dial_time(Duration::from_millis(3));
        let mut tally = LimitTally::default();
        tally.add_time(Limit::Loss, Duration::from_secs(2));
        metrics.add_limit_times(&tally);
        metrics.sessions_active.set(2);
        let page = metrics.page(1, 5, 65536, 262_144);
        for line in [
            "longhaul_offramp_moved_bytes_total{direction=\"forward\"} 7",
            "longhaul_offramp_moved_bytes_total{direction=\"backward\"} 9",
            "longhaul_offramp_opens_refused_total{status=\"replay\"} 1",
            "longhaul_offramp_sessions_ended_total{ending=\"finished\"} 1",
            "longhaul_offramp_connections_turned_away_total{reason=\"evicted\"} 1",
            "longhaul_offramp_policy_reloads_total{outcome=\"loaded\"} 1",
            "longhaul_offramp_buffer_bytes 65536",
            "longhaul_offramp_resume_memory_bytes 262144",
            "longhaul_offramp_sessions_setting_up 3",
            "longhaul_offramp_connections_unauthenticated 1",
            "longhaul_offramp_dial_seconds_count 1",
            "longhaul_offramp_hop_limited_seconds_total{limit=\"loss\"} 2.0",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
        }
        assert!(page.ends_with("# EOF\n"), "{page}");
    }
}
