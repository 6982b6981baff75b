//! Metrics of live topology and of the reservations that follow it.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Labels of followed links.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LinkLabels {
    state: &'static str,
}

/// Metrics of live topology. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct TopologyMetrics {
    links: Family<LinkLabels, Gauge>,
    current: Gauge,
    changes: Counter,
    rerouted: Counter,
    impaired: Gauge,
}

impl TopologyMetrics {
    /// Registers the metrics.
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "topology_links",
            "Links whose states follow the network, by state (up, down)",
            self.links.clone(),
        );
        registry.register(
            "topology_current",
            "1 if the states of links follow the network, 0 if they are as last known or no \
             network is followed",
            self.current.clone(),
        );
        registry.register(
            "topology_changes",
            "Changes of links' states and rates that were taken from the network",
            self.changes.clone(),
        );
        registry.register(
            "reservations_rerouted",
            "Reservations that were planned again after a link had failed or shrunk",
            self.rerouted.clone(),
        );
        registry.register(
            "reservations_impaired",
            "Reservations with a failed or overbooked link for which no other path was found",
            self.impaired.clone(),
        );
    }

    pub(crate) fn set_links(&self, up: usize, down: usize) {
        for (state, number) in [("up", up), ("down", down)] {
            self.links
                .get_or_create(&LinkLabels { state })
                .set(i64::try_from(number).unwrap_or(i64::MAX));
        }
        self.changes.inc();
    }

    pub(crate) fn set_current(&self, is_current: bool) {
        self.current.set(i64::from(is_current));
    }

    pub(crate) fn count_rerouted(&self, reservations: usize) {
        self.rerouted
            .inc_by(u64::try_from(reservations).unwrap_or(u64::MAX));
    }

    pub(crate) fn set_impaired(&self, reservations: usize) {
        self.impaired
            .set(i64::try_from(reservations).unwrap_or(i64::MAX));
    }
}
