//! One measurement.

use std::net::IpAddr;

use drs::Limit;
use longhaul_proto::PublicKey;
use serde::{Deserialize, Serialize};

use crate::{Moment, text_form};

/// What was measured of the path from one end to another, once. What is not known is left out.
/// Times are in seconds unless a field says otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Where the path begins: the name of a depot or host, or a key.
    pub from: String,
    /// Where it ends.
    pub to: String,
    /// Who says so.
    #[serde(with = "text_form::key")]
    pub reporter: PublicKey,
    /// When it began, in milliseconds since the Unix epoch.
    pub start_ms: Moment,
    /// How long it took.
    pub duration_s: f64,
    /// What was measured.
    pub kind: Kind,
    /// With what.
    pub method: Method,
    /// Under which conditions.
    #[serde(default)]
    pub conditions: Conditions,
    /// What came out.
    pub values: Values,
}

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// What the path carries: `values.rate_bps` is there.
    Throughput,
    /// There and back again: `values.rtt` is there.
    Rtt,
    /// One way: `values.delay` is there.
    Latency,
    /// What gets lost: `values.loss` is there.
    Loss,
    /// The routers on the way: `values.hops` is there.
    Trace,
}

/// What it was measured with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// Traffic that was sent to measure.
    Probe,
    /// A copy, as its client saw it.
    Transfer,
    /// A hop of a session, as its depot saw it.
    Relay,
    /// Another program that sent traffic to measure, as its archive has it.
    Archive,
}

impl Method {
    /// Whether traffic was sent only to measure.
    #[must_use]
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Probe | Self::Archive)
    }
}

/// Under which conditions it was measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conditions {
    /// Bytes that were moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Streams at once; the rate is theirs together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<u32>,
    /// The congestion control, as the system names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// What held it back for most of the time, in the words of `drs`.
    #[serde(
        default,
        with = "text_form::limit",
        skip_serializing_if = "Option::is_none"
    )]
    pub limit: Option<Limit>,
    /// Packets that were sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
    /// By how much the clocks of the two ends may differ: a delay one way is wrong by up to that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_error_s: Option<f64>,
    /// The program that measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
}

/// What came out of a measurement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Values {
    /// Payload, in bit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<f64>,
    /// Round-trip times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt: Option<Distribution>,
    /// Delays one way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Distribution>,
    /// The share of packets or segments that was lost, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// The mean difference of the delays of packets that follow each other (RFC 3550, section
    /// 6.4.1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter_s: Option<f64>,
    /// Segments that were sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// The rate over time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<Interval>,
    /// How often each delay one way was seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub histogram: Vec<HistogramBin>,
    /// The routers on the way, the first one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hops: Vec<TraceHop>,
}

/// Many times in a few numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Distribution {
    /// The least.
    pub min_s: f64,
    /// The mean.
    pub mean_s: f64,
    /// The greatest.
    pub max_s: f64,
    /// The median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_s: Option<f64>,
    /// One in twenty is greater.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95_s: Option<f64>,
    /// The standard deviation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stddev_s: Option<f64>,
    /// How many there were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

/// The rate over a part of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    /// When it began, after the measurement did.
    pub start_s: f64,
    /// When it ended.
    pub end_s: f64,
    /// Payload of all streams together, in bit/s.
    pub rate_bps: f64,
    /// Segments that were sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// Whether it was left out of the rate of the whole, as slow start may be.
    #[serde(default)]
    pub omitted: bool,
}

/// How often a delay was seen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HistogramBin {
    /// The delay. It may be negative: the clocks of two ends differ.
    pub delay_s: f64,
    /// How often.
    pub count: u64,
}

/// A router on the way; one that did not answer has nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceHop {
    /// Its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<IpAddr>,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// The round trip to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_s: Option<f64>,
    /// The number of its autonomous system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autonomous_system: Option<u32>,
    /// What it said in place of letting pass, in the words of ICMP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Distribution {
    /// Of these times, in any order; none if there are none.
    #[must_use]
    pub fn of(times: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = times.to_vec();
        sorted.sort_by(f64::total_cmp);
        Self::of_bins(&sorted.iter().map(|time| (*time, 1)).collect::<Vec<_>>())
    }

    /// Of times that were seen so often each, the least first; none if none was seen.
    pub(crate) fn of_bins(bins: &[(f64, u64)]) -> Option<Self> {
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
        // Nearest rank.
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
