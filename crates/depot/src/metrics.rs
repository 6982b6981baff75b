//! Metrics of a depot, and their OpenMetrics text.

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

/// A label set of one label.
macro_rules! label {
    ($(#[$doc:meta])* $name:ident { $field:ident }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
        pub(crate) struct $name {
            $field: &'static str,
        }
        impl $name {
            pub(crate) fn new($field: &'static str) -> Self {
                Self { $field }
            }
        }
    };
}
label!(
    /// Reason why a connection was turned away.
    ReasonLabel { reason }
);
label!(
    /// Ending of a session.
    EndingLabel { ending }
);
label!(
    /// Status with which an OPEN was refused.
    StatusLabel { status }
);
label!(
    /// Result of a reload of the policy or the forwarding table.
    ReloadLabel { outcome }
);
label!(
    /// Result of dialling a depot of the forwarding table.
    AddedHopLabel { outcome }
);
label!(
    /// Transport of a dialled hop.
    TransportLabel { transport }
);
label!(
    /// Direction of relayed bytes.
    DirectionLabel { direction }
);

/// Limit of a hop. `upstream` is the hop towards the initiator.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct HopLimit {
    hop: &'static str,
    limit: &'static str,
}

/// Counters of moved bytes, one for each direction; cheap to clone and to update.
#[derive(Debug, Clone)]
pub(crate) struct Traffic {
    forward: Counter,
    backward: Counter,
}

impl Traffic {
    pub(crate) fn count(&self, forward: u64, backward: u64) {
        if forward > 0 {
            self.forward.inc_by(forward);
        }
        if backward > 0 {
            self.backward.inc_by(backward);
        }
    }
}

/// All counters of a depot.
#[derive(Debug)]
pub(crate) struct DepotMetrics {
    registry: Registry,
    pub(crate) accepted: Counter,
    pub(crate) accept_errors: Counter,
    pub(crate) turned_away: Family<ReasonLabel, Counter>,
    pub(crate) opens_refused: Family<StatusLabel, Counter>,
    pub(crate) sessions_ended: Family<EndingLabel, Counter>,
    pub(crate) sessions_active: Gauge,
    pub(crate) sessions_setting_up: Gauge,
    pub(crate) unauthenticated: Gauge,
    pub(crate) policy_reloads: Family<ReloadLabel, Counter>,
    pub(crate) forwarding_reloads: Family<ReloadLabel, Counter>,
    pub(crate) added_hops: Family<AddedHopLabel, Counter>,
    pub(crate) dial_time: Histogram,
    pub(crate) dialled: Family<TransportLabel, Counter>,
    pub(crate) traffic: Traffic,
    pub(crate) granted_sessions: Gauge,
    pub(crate) granted_bytes: Counter,
    limited: Family<HopLimit, Counter<f64, AtomicU64>>,
    pipe_bytes: Gauge,
}

impl DepotMetrics {
    pub(crate) fn new() -> Arc<Self> {
        let mut registry = Registry::with_prefix("longhaul_depot");
        let bytes = Family::<DirectionLabel, Counter<u64, AtomicU64>>::default();
        let metrics = Self {
            accepted: Counter::default(),
            accept_errors: Counter::default(),
            turned_away: Family::default(),
            opens_refused: Family::default(),
            sessions_ended: Family::default(),
            sessions_active: Gauge::default(),
            sessions_setting_up: Gauge::default(),
            unauthenticated: Gauge::default(),
            policy_reloads: Family::default(),
            forwarding_reloads: Family::default(),
            added_hops: Family::default(),
            dial_time: Histogram::new(exponential_buckets(0.001, 2.0, 14)),
            dialled: Family::default(),
            traffic: Traffic {
                forward: bytes.get_or_create_owned(&DirectionLabel::new("forward")),
                backward: bytes.get_or_create_owned(&DirectionLabel::new("backward")),
            },
            granted_sessions: Gauge::default(),
            granted_bytes: Counter::default(),
            limited: Family::default(),
            pipe_bytes: Gauge::default(),
            registry: Registry::default(),
        };
        registry.register(
            "connections",
            "Connections accepted",
            metrics.accepted.clone(),
        );
        registry.register(
            "dialled_hops",
            "Hops dialled, by the transport that was used",
            metrics.dialled.clone(),
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
            "granted_sessions",
            "Sessions now using a circuit's grant",
            metrics.granted_sessions.clone(),
        );
        registry.register(
            "granted_bytes",
            "Bytes carried by ended sessions with a circuit's grant, both ways",
            metrics.granted_bytes.clone(),
        );
        registry.register(
            "sessions_ended",
            "Relayed sessions, by how they ended",
            metrics.sessions_ended.clone(),
        );
        registry.register(
            "sessions_active",
            "Sessions now relayed",
            metrics.sessions_active.clone(),
        );
        registry.register(
            "sessions_setting_up",
            "Sessions with a verified OPEN that wait for the next hop",
            metrics.sessions_setting_up.clone(),
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
        registry.register(
            "forwarding_reloads",
            "Reloads of the forwarding table, by outcome",
            metrics.forwarding_reloads.clone(),
        );
        registry.register(
            "added_hops",
            "Depots of the forwarding table dialled before loose hops, by outcome",
            metrics.added_hops.clone(),
        );
        registry.register_with_unit(
            "dial",
            "Time to connect to the next hop",
            Unit::Seconds,
            metrics.dial_time.clone(),
        );
        registry.register_with_unit(
            "relayed",
            "Payload moved, by direction (forward: towards the acceptor)",
            Unit::Bytes,
            bytes,
        );
        registry.register_with_unit(
            "hop_limited",
            "Time of ended bulk sessions, by hop (upstream: towards the initiator) and limit",
            Unit::Seconds,
            metrics.limited.clone(),
        );
        registry.register_with_unit(
            "pipe",
            "Capacity of all pipes, used and spare",
            Unit::Bytes,
            metrics.pipe_bytes.clone(),
        );
        Arc::new(Self {
            registry,
            ..metrics
        })
    }

    /// Returns the page in OpenMetrics text format 1.0. `pipe_bytes` is the current capacity of all
    /// pipes.
    pub(crate) fn page(&self, pipe_bytes: usize) -> String {
        self.pipe_bytes
            .set(i64::try_from(pipe_bytes).unwrap_or(i64::MAX));
        longhaul_service::encode(&self.registry)
    }

    /// Adds the time for which each limit held at a session's hop.
    pub(crate) fn add_limit_times(&self, hop: &'static str, tally: &LimitTally) {
        for limit in Limit::ALL {
            let held = tally.time_of(limit).as_secs_f64();
            if held > 0.0 {
                let label = HopLimit {
                    hop,
                    limit: limit.as_str(),
                };
                self.limited.get_or_create(&label).inc_by(held);
            }
        }
    }

    /// Counts a depot of the forwarding table that was dialled, or could not be.
    pub(crate) fn count_added_hop(&self, outcome: &'static str) {
        let label = AddedHopLabel::new(outcome);
        self.added_hops.get_or_create(&label).inc();
    }

    pub(crate) fn observe_dial_time(&self, took: Duration) {
        self.dial_time.observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_units_labels_and_an_end() {
        let metrics = DepotMetrics::new();
        metrics.traffic.count(7, 9);
        metrics
            .opens_refused
            .get_or_create(&StatusLabel::new("replay"))
            .inc();
        metrics.observe_dial_time(Duration::from_millis(3));
        let mut tally = LimitTally::default();
        tally.add_time(Limit::Loss, Duration::from_secs(2));
        metrics.add_limit_times("upstream", &tally);
        let page = metrics.page(65536);
        for line in [
            "longhaul_depot_relayed_bytes_total{direction=\"forward\"} 7",
            "longhaul_depot_relayed_bytes_total{direction=\"backward\"} 9",
            "longhaul_depot_opens_refused_total{status=\"replay\"} 1",
            "longhaul_depot_pipe_bytes 65536",
            "longhaul_depot_dial_seconds_count 1",
            "longhaul_depot_hop_limited_seconds_total{hop=\"upstream\",limit=\"loss\"} 2.0",
        ] {
            assert!(
                page.lines().any(|l| l == line),
                "{line} is missing in:\n{page}"
            );
        }
        assert!(page.ends_with("# EOF\n"));
    }
}
