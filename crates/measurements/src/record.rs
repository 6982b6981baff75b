//! Record of one measurement.

use std::net::IpAddr;

use drs::Limit;
use longhaul_proto::PublicKey;
use serde::{Deserialize, Serialize};

use crate::{EpochMs, text_form};

/// One measurement of the path from one end to another. Unknown values are left out. Times are in
/// seconds unless a field says otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasurementRecord {
    /// Start of the path: the name of a depot or host, or a key.
    pub from: String,
    /// End of the path.
    pub to: String,
    /// Key of the reporter.
    #[serde(with = "text_form::key")]
    pub reporter: PublicKey,
    /// Start of the measurement, in milliseconds since the Unix epoch.
    pub start_ms: EpochMs,
    /// Duration of the measurement.
    pub duration_s: f64,
    /// Kind of measurement.
    pub kind: MeasurementKind,
    /// Method of measurement.
    pub method: MeasurementMethod,
    /// Conditions of the measurement.
    #[serde(default)]
    pub conditions: Conditions,
    /// Measured values.
    pub values: Values,
}

/// Kind of measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MeasurementKind {
    /// Rate of the path: `values.rate_bps` is present.
    Throughput,
    /// Round trip: `values.rtt` is present.
    Rtt,
    /// One-way delay: `values.delay` is present.
    Latency,
    /// Loss: `values.loss` is present.
    Loss,
    /// Routers on the path: `values.hops` is present.
    Trace,
}

/// Method of measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MeasurementMethod {
    /// Traffic that was sent to measure.
    Probe,
    /// A copy, as seen by its client.
    Transfer,
    /// A hop of a session, as seen by its depot.
    Relay,
    /// Another program that sent traffic to measure, as recorded in its archive.
    Archive,
}

impl MeasurementMethod {
    /// Returns true if traffic was sent only to measure.
    #[must_use]
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Probe | Self::Archive)
    }
}

/// Conditions of a measurement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conditions {
    /// Number of bytes that were moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Number of concurrent streams; the rate is that of all together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<u32>,
    /// Congestion control, as the system names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// Dominant limit for most of the time, in the words of `drs`.
    #[serde(
        default,
        with = "text_form::limit",
        skip_serializing_if = "Option::is_none"
    )]
    pub limit: Option<Limit>,
    /// Number of packets that were sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
    /// Maximum difference between the clocks of the two ends, and so the error of a one-way delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_error_s: Option<f64>,
    /// Program that measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
}

/// Values of a measurement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Values {
    /// Rate of payload, in bit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<f64>,
    /// Round-trip times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt: Option<Distribution>,
    /// One-way delays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Distribution>,
    /// Share of packets or segments that were lost, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// Mean difference between the delays of consecutive packets (RFC 3550, section 6.4.1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter_s: Option<f64>,
    /// Number of retransmitted segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// Rate over time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<RateInterval>,
    /// Histogram of one-way delays.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub histogram: Vec<HistogramBin>,
    /// Routers on the path, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hops: Vec<TraceHop>,
}

/// Summary of many times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Distribution {
    /// Minimum.
    pub min_s: f64,
    /// Mean.
    pub mean_s: f64,
    /// Maximum.
    pub max_s: f64,
    /// Median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_s: Option<f64>,
    /// 95th percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95_s: Option<f64>,
    /// Standard deviation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stddev_s: Option<f64>,
    /// Number of times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

/// Rate over a part of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateInterval {
    /// Start, relative to that of the measurement.
    pub start_s: f64,
    /// End, relative to the start of the measurement.
    pub end_s: f64,
    /// Rate of payload of all streams together, in bit/s.
    pub rate_bps: f64,
    /// Number of retransmitted segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// If true, the interval is not part of the overall rate, such as one of slow start.
    #[serde(default)]
    pub omitted: bool,
}

/// Number of occurrences of a delay.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HistogramBin {
    /// Delay. It may be negative, because the clocks of two ends differ.
    pub delay_s: f64,
    /// Number of occurrences.
    pub count: u64,
}

/// A router on the path. All fields are empty if it did not answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceHop {
    /// Address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<IpAddr>,
    /// Host name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Round trip to the router.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_s: Option<f64>,
    /// Number of its autonomous system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autonomous_system: Option<u32>,
    /// Error that it returned instead of forwarding, in the words of ICMP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Distribution {
    /// Summarizes times in any order. Returns `None` if there are none.
    #[must_use]
    pub fn from_times(times: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = times.to_vec();
        sorted.sort_by(f64::total_cmp);
        Self::from_bins(&sorted.iter().map(|time| (*time, 1)).collect::<Vec<_>>())
    }

    /// Summarizes times with their counts, in ascending order. Returns `None` if all counts are 0.
    pub(crate) fn from_bins(bins: &[(f64, u64)]) -> Option<Self> {
        let count: u64 = bins
            .iter()
            .fold(0, |sum, (_, count)| u64::saturating_add(sum, *count));
        let mut seen = bins.iter().filter(|(_, count)| *count > 0);
        let (first, last) = (seen.clone().next()?.0, seen.next_back()?.0);
        let weight = count as f64;
        let mean = bins
            .iter()
            .map(|(time, count)| time * (*count as f64 / weight))
            .sum::<f64>();
        let variance = bins
            .iter()
            .map(|(time, count)| (time - mean).powi(2) * (*count as f64 / weight))
            .sum::<f64>();
        // Nearest-rank method.
        let quantile = |share: f64| {
            let rank = (share * weight).ceil().max(1.0);
            let mut below = 0.0;
            bins.iter()
                .find(|(_, count)| {
                    below += *count as f64;
                    below >= rank
                })
                .map(|(time, _)| *time)
        };
        Some(Self {
            min_s: first,
            mean_s: mean.clamp(first, last),
            max_s: last,
            p50_s: quantile(0.5),
            p95_s: quantile(0.95),
            stddev_s: Some(variance.sqrt()),
            count: Some(count),
        })
    }
}
