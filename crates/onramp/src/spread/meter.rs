//! Measured rate of a path. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

/// Minimum time between two samples that are compared.
const MIN_SPAN: Duration = Duration::from_millis(500);
/// Consecutive saturated spans before the rate counts, so that slow start is over.
const MIN_SATURATED_SPANS: u32 = 3;
/// Weight of a new span in the mean.
const NEW_SPAN_WEIGHT: f64 = 0.25;
/// Time for which a measured rate is valid.
const RATE_LIFETIME: Duration = Duration::from_secs(60);

/// A connection of the path at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FlowSample {
    /// Its source port.
    pub(super) port: u16,
    /// Bytes that its peer has acknowledged.
    pub(super) acked: u64,
    /// If true, it has data that waits to be sent.
    pub(super) is_backlogged: bool,
}

/// Measures the rate of a path while it is *saturated*: while every connection on it has data that
/// waits. Otherwise the programs are the limit, and say nothing of the path.
#[derive(Debug, Default)]
pub(super) struct PathMeter {
    last: Option<(Duration, BTreeMap<u16, u64>)>,
    was_saturated: bool,
    saturated_spans: u32,
    /// Mean rate, in bit/s, and the time of its last span.
    rate: Option<(f64, Duration)>,
}

impl PathMeter {
    /// Takes a sample of all connections of the path that carry data.
    pub(super) fn observe(&mut self, now: Duration, flows: &[FlowSample]) {
        if let Some((before, _)) = &self.last
            && now.saturating_sub(*before) < MIN_SPAN
        {
            return;
        }
        let is_saturated = !flows.is_empty() && flows.iter().all(|flow| flow.is_backlogged);
        let counts: BTreeMap<u16, u64> = flows.iter().map(|flow| (flow.port, flow.acked)).collect();
        let last = self.last.replace((now, counts));
        let was_saturated = std::mem::replace(&mut self.was_saturated, is_saturated);
        let Some((before, counts)) = last.filter(|_| is_saturated && was_saturated) else {
            self.saturated_spans = 0;
            return;
        };
        self.saturated_spans = self.saturated_spans.saturating_add(1);
        if self.saturated_spans < MIN_SATURATED_SPANS {
            return;
        }
        let moved = flows.iter().map(|flow| {
            let earlier = counts.get(&flow.port).copied().unwrap_or(flow.acked);
            flow.acked.saturating_sub(earlier)
        });
        let seconds = now.saturating_sub(before).as_secs_f64();
        let found = moved.sum::<u64>() as f64 * 8.0 / seconds;
        let mean = match self.valid_rate(now) {
            Some(mean) => mean + NEW_SPAN_WEIGHT * (found - mean),
            None => found,
        };
        self.rate = Some((mean, now));
    }

    /// Returns the measured rate in bit/s, if there is a valid one.
    pub(super) fn valid_rate(&self, now: Duration) -> Option<f64> {
        let (rate, at) = self.rate?;
        (now.saturating_sub(at) < RATE_LIFETIME).then_some(rate)
    }
}

#[cfg(test)]
mod tests;
