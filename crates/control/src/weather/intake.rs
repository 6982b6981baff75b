//! Processing of measurements: updates their series and hops.

use longhaul_control_api::measurements::{Limit, Measurement, Quantity, Source};
use longhaul_routing::Quantiles;
use longhaul_routing::forecast::{self, SampleBound, Series, SeriesDetail, SeriesSample};
use longhaul_routing::route::NodeId;
use longhaul_routing::route::map::HopForecast;
use longhaul_routing::route::model::max_loss_at;

use super::{KnownSeries, RoutingState};
use crate::places::Speaker;
use crate::store::measurements::SeriesKey;

/// Microseconds in a millisecond.
pub(super) const MS_US: i64 = 1_000;

/// Maximum number of series of one reporter. Measurements beyond it are stored, but not forecast.
pub(super) const MAX_SERIES_OF_REPORTER: usize = 20_000;

impl RoutingState {
    /// Processes a measurement that was already authorized. `speaker` has the ends that its
    /// reporter speaks for.
    pub fn record_measurement(
        &mut self,
        reporter: &str,
        speaker: &Speaker,
        measurement: &Measurement,
    ) {
        let key = SeriesKey::from_measurement(reporter, measurement);
        let quantity = match measurement.quantity {
            Quantity::Rate => forecast::ForecastQuantity::Rate,
            Quantity::Rtt | Quantity::Delay => forecast::ForecastQuantity::RoundTrip,
            Quantity::Loss => forecast::ForecastQuantity::Loss,
        };
        if !self.series.contains_key(&key) {
            let of_reporter = self.of_reporters.entry(reporter.to_owned()).or_default();
            if *of_reporter >= MAX_SERIES_OF_REPORTER {
                return;
            }
            *of_reporter += 1;
        }
        let value = match measurement.quantity {
            Quantity::Loss => self.loss_of_the_path(&key, measurement),
            _ => measurement.value,
        };
        let known = self
            .series
            .entry(key.clone())
            .or_insert_with(|| KnownSeries {
                series: Series::new(quantity, SeriesDetail::Compact),
                newest: value,
            });
        let sample = SeriesSample {
            at: at_us(measurement.at_ms),
            value,
            bound: measurement_bound(measurement),
        };
        // Late or invalid values stay in the store, but change no forecast.
        if known.series.observe(sample).is_err() {
            return;
        }
        known.newest = value;
        if matches!(measurement.source, Source::Transfer | Source::Relay) {
            let path = (self.id(&measurement.from), self.id(&measurement.to));
            let at = self.carried.entry(path).or_default();
            *at = measurement.at_ms.max(*at);
        }
        if measurement.source == Source::Probe && measurement.quantity == Quantity::Rate {
            let path = (self.id(&measurement.from), self.id(&measurement.to));
            let unseen = sample.bound == SampleBound::AtLeast;
            match measurement.conditions.bytes.filter(|_| unseen) {
                Some(bytes) => _ = self.unseen.insert(path, bytes),
                None => _ = self.unseen.remove(&path),
            }
        }
        if measurement.from != measurement.to {
            self.update_hop(&key, speaker);
        }
    }

    /// Returns the loss of a flow, limited to what it could have tolerated at its rate. It caused
    /// the rest itself by filling a queue.
    fn loss_of_the_path(&self, key: &SeriesKey, measurement: &Measurement) -> f64 {
        let conditions = &measurement.conditions;
        let most = || {
            let (bytes, seconds) = (conditions.bytes? as f64, conditions.duration_s?);
            let streams = f64::from(conditions.streams?.max(1));
            let rtt = self.series.get(&key.with_quantity(Quantity::Rtt))?.newest;
            let rate = bytes * 8.0 / seconds / streams;
            rate.is_finite().then(|| max_loss_at(rate, rtt))
        };
        most().map_or(measurement.value, |most| measurement.value.min(most))
    }

    /// Records the reporter for an end of a hop. An earlier report by the same key for the other
    /// end is removed, as no key may confirm its own report.
    fn note_reporter(&mut self, reporter: &str, (from, to): (NodeId, NodeId), end: NodeId) {
        let [begin, finish] = self.reporters.entry((from, to)).or_default();
        let (own, other, other_end) = match end == from {
            true => (begin, finish, to),
            false => (finish, begin, from),
        };
        if other.as_deref() == Some(reporter) {
            *other = None;
            self.reports.forget_report(other_end, from, to);
        }
        if own.as_deref() != Some(reporter) {
            *own = Some(reporter.into());
        }
    }

    /// Updates a hop from the series of one reporter.
    fn update_hop(&mut self, key: &SeriesKey, speaker: &Speaker) {
        let of = |quantity| {
            let known = self.series.get(&key.with_quantity(quantity))?;
            let forecast = known.series.forecast()?;
            Some((forecast.quantiles, forecast.samples, known.series.newest()?))
        };
        let (Some(rtt), Some(rate)) = (of(Quantity::Rtt), of(Quantity::Rate)) else {
            // Without both, a hop has no forecast.
            return;
        };
        let loss = of(Quantity::Loss).map_or(Quantiles::exactly(0.0), |(quantiles, ..)| quantiles);
        let samples = u32::try_from(rtt.1.min(rate.1)).unwrap_or(u32::MAX);
        let said = HopForecast {
            rtt: rtt.0,
            loss,
            rate: rate.0,
            at: rtt.2.min(rate.2) as f64 / 1e6,
            samples,
        };
        let (from, to) = (self.id(&key.from), self.id(&key.to));
        // The two ends of a hop report separately, so that neither makes it look better than the
        // other one reports.
        let Some(reporter) = reporting_end(speaker, (&key.from, from), (&key.to, to)) else {
            return;
        };
        self.note_reporter(&key.reporter, (from, to), reporter);
        let Ok(taken) = self.reports.take(reporter, from, to, said) else {
            return;
        };
        self.measured.insert((from, to), taken);
        match self.hops.hop(from, to) {
            Some(hop) => _ = self.hops.update(hop, &taken),
            None => self.has_new = true,
        }
    }
}

/// Returns the end of a path that a report counts for; `None` if its reporter speaks for neither
/// any more. Archives, which are no ends, count for the start.
pub(super) fn reporting_end(
    speaker: &Speaker,
    (from, from_id): (&str, NodeId),
    (to, to_id): (&str, NodeId),
) -> Option<NodeId> {
    match (speaker.speaks_for(from), speaker.speaks_for(to)) {
        (true, _) => Some(from_id),
        (false, true) => Some(to_id),
        (false, false) => speaker.ends.is_empty().then_some(from_id),
    }
}

/// Returns the bound of a measurement: a flow that the network did not limit shows only a minimum.
pub(super) fn measurement_bound(measurement: &Measurement) -> SampleBound {
    match (measurement.quantity, measurement.conditions.limit) {
        (
            Quantity::Rate,
            Some(
                Limit::Application
                | Limit::SendBuffer
                | Limit::ReceiveWindow
                | Limit::Pacing
                | Limit::CongestionWindow,
            ),
        ) => SampleBound::AtLeast,
        _ => SampleBound::Exact,
    }
}

fn at_us(at_ms: u64) -> i64 {
    i64::try_from(at_ms)
        .unwrap_or(i64::MAX)
        .saturating_mul(MS_US)
}
