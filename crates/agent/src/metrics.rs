//! Metrics of an agent, and their OpenMetrics text. No label has a name of a job, user or place.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::jobs::AttemptResult;

/// Result of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// All counters of an agent.
#[derive(Debug)]
pub(crate) struct AgentMetrics {
    registry: Registry,
    pub(crate) jobs_submitted: Counter,
    pub(crate) attempts_active: Gauge,
    attempts_ended: Family<ResultLabel, Counter>,
    pub(crate) store_errors: Counter,
}

impl AgentMetrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("longhaul_agent");
        let metrics = Self {
            jobs_submitted: Counter::default(),
            attempts_active: Gauge::default(),
            attempts_ended: Family::default(),
            store_errors: Counter::default(),
            registry: Registry::default(),
        };
        registry.register(
            "jobs_submitted",
            "New jobs that this agent stored",
            metrics.jobs_submitted.clone(),
        );
        registry.register(
            "attempts_active",
            "Attempts at jobs that run here now",
            metrics.attempts_active.clone(),
        );
        registry.register(
            "attempts_ended",
            "Attempts at jobs that ended here, by result",
            metrics.attempts_ended.clone(),
        );
        registry.register(
            "store_errors",
            "Times that the store did not answer",
            metrics.store_errors.clone(),
        );
        Self {
            registry,
            ..metrics
        }
    }

    pub(crate) fn count_ended(&self, result: AttemptResult) {
        let result = match result {
            AttemptResult::Done => "done",
            AttemptResult::Failed => "failed",
            AttemptResult::BrokeOff { .. } => "broke off",
            AttemptResult::Stopped => "stopped",
        };
        let label = ResultLabel { result };
        self.attempts_ended.get_or_create(&label).inc();
    }

    /// Returns the page in OpenMetrics text format 1.0.
    pub(crate) fn page(&self) -> String {
        longhaul_service::encode(&self.registry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_counts_attempts_by_result() {
        let metrics = AgentMetrics::new();
        metrics.count_ended(AttemptResult::Done);
        metrics.count_ended(AttemptResult::BrokeOff { advanced: true });
        metrics.attempts_active.set(2);
        let page = metrics.page();
        for line in [
            "longhaul_agent_attempts_ended_total{result=\"done\"} 1",
            "longhaul_agent_attempts_ended_total{result=\"broke off\"} 1",
            "longhaul_agent_attempts_active 2",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
        }
        assert!(page.ends_with("# EOF\n"), "{page}");
    }
}
