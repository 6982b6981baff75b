//! Conversion of pScheduler's archives to records.

use std::collections::BTreeMap;

use drs::Limit;
use longhaul_proto::PublicKey;
use longhaul_proto::text::{printable, printable_within};
use serde::Deserialize;
use serde_json::Value;

use super::DEFAULT_BUCKET_WIDTH;
use super::time::{read_duration, read_moment};
use crate::check::{MAX_INTERVALS, MAX_TRACE_HOPS};
use crate::record::{
    Conditions, Distribution, HistogramBin, MeasurementKind, MeasurementMethod, MeasurementRecord,
    RateInterval, TraceHop, Values,
};

/// Maximum number of single round trips to read.
const MAX_ROUND_TRIPS: usize = 100_000;
/// Maximum length of a text to show or store, in bytes.
const MAX_TEXT_BYTES: usize = 64;

/// Reason why a text yields no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The text is not the JSON that pScheduler hands to an archiver.
    #[error("is not a run that pScheduler archived: {0}")]
    Json(String),
    /// The run failed, so there is nothing to store.
    #[error("the run did not succeed: {0}")]
    Failed(String),
    /// The test has an unsupported type.
    #[error(
        "tests of type {0:?} are not read: only throughput, rtt, latency, latencybg and trace are"
    )]
    Type(String),
    /// A required field is missing or invalid.
    #[error("{field}: {problem}")]
    Field {
        /// Path of the field.
        field: &'static str,
        /// Fault of the field.
        problem: &'static str,
    },
}

/// Input of an archiver: the measurement, perhaps wrapped in information for the archiver alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum ArchiverInput {
    Bare(Box<ArchivedRun>),
    Wrapped { result: Box<ArchivedRun> },
}

#[derive(Deserialize)]
struct ArchivedRun {
    test: Test,
    schedule: RunSchedule,
    #[serde(default)]
    tool: Option<Value>,
    #[serde(default)]
    participants: Vec<Participant>,
    result: Value,
    #[serde(default)]
    reference: Option<Value>,
}

#[derive(Deserialize)]
struct Test {
    r#type: String,
    spec: Spec,
}

#[derive(Deserialize)]
struct RunSchedule {
    start: String,
    duration: Option<String>,
    end: Option<String>,
}

/// A host alone, or with its part of the result.
#[derive(Deserialize)]
#[serde(untagged)]
enum Participant {
    Name(String),
    Host { host: String },
    Named { participant: String },
    Other(serde::de::IgnoredAny),
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Spec {
    source: Option<String>,
    dest: Option<String>,
    #[serde(default)]
    reverse: bool,
    duration: Option<String>,
    parallel: Option<u32>,
    congestion: Option<String>,
    bandwidth: Option<f64>,
    fq_rate: Option<f64>,
    window_size: Option<f64>,
    bucket_width: Option<f64>,
}

#[derive(Deserialize)]
struct RunOutcome {
    succeeded: bool,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Throughput {
    #[serde(default)]
    intervals: Vec<ThroughputPart>,
    summary: ThroughputPart,
}

#[derive(Deserialize, Default)]
struct ThroughputPart {
    #[serde(default)]
    streams: Vec<FlowResult>,
    summary: Option<FlowResult>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
struct FlowResult {
    throughput_bits: Option<f64>,
    receiver_throughput_bits: Option<f64>,
    sent: Option<u64>,
    lost: Option<u64>,
    jitter: Option<f64>,
    start: Option<f64>,
    end: Option<f64>,
    retransmits: Option<u64>,
    #[serde(default)]
    omitted: bool,
}

#[derive(Deserialize)]
struct RoundTripResult {
    #[serde(default)]
    roundtrips: Vec<RoundTrip>,
    loss: Option<f64>,
    min: Option<String>,
    max: Option<String>,
    mean: Option<String>,
    stddev: Option<String>,
    sent: Option<u64>,
}

#[derive(Deserialize)]
struct RoundTrip {
    rtt: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Latency {
    packets_sent: Option<u64>,
    packets_lost: Option<u64>,
    /// Maximum clock error, in milliseconds.
    max_clock_error: Option<f64>,
    #[serde(default)]
    histogram_latency: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct Trace {
    paths: Vec<Vec<Router>>,
}

#[derive(Deserialize)]
struct Router {
    ip: Option<String>,
    hostname: Option<String>,
    rtt: Option<String>,
    r#as: Option<AutonomousSystem>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct AutonomousSystem {
    number: u32,
}

/// Parses what pScheduler's HTTP archiver sent, or what archivers are handed. `reporter` is the
/// sender. The record's ends are the hosts of the test, as named there.
///
/// The caller has to check the record ([`MeasurementRecord::check`]) like any other.
///
/// # Errors
/// [`ReadError`].
pub fn read(text: &str, reporter: PublicKey) -> Result<MeasurementRecord, ReadError> {
    let handed: ArchiverInput = serde_json::from_str(text).map_err(json_error)?;
    let run = match handed {
        ArchiverInput::Bare(run) | ArchiverInput::Wrapped { result: run } => *run,
    };
    let outcome: RunOutcome = parse_value(&run.result)?;
    if !outcome.succeeded {
        let why = outcome.error.unwrap_or_default();
        return Err(ReadError::Failed(printable_text(&why)));
    }
    let (from, to) = ends(&run)?;
    let start_ms = read_moment(&run.schedule.start).ok_or(ReadError::Field {
        field: "schedule.start",
        problem: "is not an ISO 8601 time",
    })?;
    let mut record = MeasurementRecord {
        from,
        to,
        reporter,
        start_ms,
        duration_s: duration(&run, start_ms)?,
        kind: MeasurementKind::Throughput,
        method: MeasurementMethod::Archive,
        conditions: conditions(&run),
        values: Values::default(),
    };
    match run.test.r#type.as_str() {
        "throughput" => throughput(&mut record, parse_value(&run.result)?)?,
        "rtt" => round_trips(&mut record, parse_value(&run.result)?)?,
        "latency" | "latencybg" => latency(&mut record, parse_value(&run.result)?, &run.test.spec)?,
        "trace" => trace(&mut record, parse_value(&run.result)?)?,
        other => return Err(ReadError::Type(printable_text(other))),
    }
    Ok(record)
}

fn printable_text(text: &str) -> String {
    printable_within(text.as_bytes(), MAX_TEXT_BYTES)
}

fn json_error(error: serde_json::Error) -> ReadError {
    ReadError::Json(printable(error.to_string().as_bytes()))
}

fn parse_value<'a, T: Deserialize<'a>>(of: &'a Value) -> Result<T, ReadError> {
    T::deserialize(of).map_err(json_error)
}

/// Returns the source and the destination of the data.
fn ends(run: &ArchivedRun) -> Result<(String, String), ReadError> {
    let participant = |index| match run.participants.get(index)? {
        Participant::Name(host)
        | Participant::Host { host }
        | Participant::Named { participant: host } => Some(host.clone()),
        Participant::Other(_) => None,
    };
    let spec = &run.test.spec;
    let source = spec
        .source
        .clone()
        .or_else(|| participant(0))
        .ok_or(ReadError::Field {
            field: "test.spec.source",
            problem: "is missing, and so are participants",
        })?;
    let dest = spec
        .dest
        .clone()
        .or_else(|| participant(1))
        .ok_or(ReadError::Field {
            field: "test.spec.dest",
            problem: "is missing, and so are participants",
        })?;
    Ok(if spec.reverse {
        (dest, source)
    } else {
        (source, dest)
    })
}

fn duration(run: &ArchivedRun, start_ms: u64) -> Result<f64, ReadError> {
    let wrong = ReadError::Field {
        field: "schedule.duration",
        problem: "is not an ISO 8601 duration",
    };
    if let Some(text) = run
        .schedule
        .duration
        .as_ref()
        .or(run.test.spec.duration.as_ref())
    {
        return read_duration(text).ok_or(wrong);
    }
    let end = run.schedule.end.as_deref().and_then(read_moment);
    Ok(end.map_or(0.0, |end| end.saturating_sub(start_ms) as f64 / 1000.0))
}

fn conditions(run: &ArchivedRun) -> Conditions {
    let spec = &run.test.spec;
    let tool = run.tool.as_ref().and_then(|tool| match tool {
        Value::String(name) => Some(name.as_str()),
        other => other.get("name")?.as_str(),
    });
    let reported = run.reference.as_ref().and_then(|reference| {
        let word = reference.get("longhaul")?.get("limit")?.as_str()?;
        word.parse().ok()
    });
    // A test with a prescribed rate or window does not measure the path.
    let by_test = match (spec.bandwidth.or(spec.fq_rate), spec.window_size) {
        (Some(_), _) => Some(Limit::Pacing),
        (None, Some(_)) => Some(Limit::SendBuffer),
        (None, None) => None,
    };
    Conditions {
        streams: spec.parallel,
        congestion_control: spec.congestion.as_deref().map(printable_text),
        limit: reported.or(by_test),
        tool: tool.map(printable_text),
        ..Conditions::default()
    }
}

fn throughput(record: &mut MeasurementRecord, result: Throughput) -> Result<(), ReadError> {
    let sum = |flows: &[FlowResult]| {
        let rates = flows.iter().filter_map(|flow| flow.throughput_bits);
        flows.first().map(|_| rates.sum::<f64>())
    };
    let whole = result.summary.summary.unwrap_or_default();
    let rate = whole
        .receiver_throughput_bits
        .or(whole.throughput_bits)
        .or_else(|| sum(&result.summary.streams));
    let Some(rate) = rate else {
        return Err(ReadError::Field {
            field: "result.summary.summary.throughput-bits",
            problem: "is missing",
        });
    };
    let streams = u32::try_from(result.summary.streams.len())
        .ok()
        .filter(|count| *count > 0);
    record.conditions.streams = record.conditions.streams.or(streams);
    record.conditions.packets = whole.sent;
    // Time of the data transfer, which is less than the scheduled time of the run.
    if let (Some(start), Some(end)) = (whole.start, whole.end)
        && end > start
    {
        record.duration_s = end - start;
    }
    record.values = Values {
        rate_bps: Some(rate),
        loss: share(whole.lost, whole.sent),
        jitter_s: whole.jitter,
        retransmits: whole.retransmits,
        intervals: result
            .intervals
            .iter()
            .take(MAX_INTERVALS)
            .filter_map(interval)
            .collect(),
        ..Values::default()
    };
    Ok(())
}

fn interval(part: &ThroughputPart) -> Option<RateInterval> {
    let flow = part.summary.as_ref()?;
    Some(RateInterval {
        start_s: flow.start?,
        end_s: flow.end?,
        rate_bps: flow.throughput_bits?,
        retransmits: flow.retransmits,
        omitted: flow.omitted,
    })
}

fn share(lost: Option<u64>, sent: Option<u64>) -> Option<f64> {
    let (lost, sent) = (lost?, sent.filter(|sent| *sent > 0)?);
    Some((lost as f64 / sent as f64).min(1.0))
}

fn round_trips(record: &mut MeasurementRecord, result: RoundTripResult) -> Result<(), ReadError> {
    let time = |text: &Option<String>| text.as_deref().and_then(read_duration);
    let seen: Vec<f64> = result
        .roundtrips
        .iter()
        .take(MAX_ROUND_TRIPS)
        .filter_map(|trip| time(&trip.rtt))
        .collect();
    let reported = || {
        Some(Distribution {
            min_s: time(&result.min)?,
            mean_s: time(&result.mean)?,
            max_s: time(&result.max)?,
            stddev_s: time(&result.stddev),
            ..Distribution::default()
        })
    };
    let rtt = Distribution::from_times(&seen).or_else(reported);
    record.kind = if rtt.is_some() {
        MeasurementKind::Rtt
    } else {
        MeasurementKind::Loss
    };
    record.conditions.packets = result.sent;
    record.values.rtt = rtt;
    record.values.loss = result.loss;
    if rtt.is_none() && result.loss.is_none() {
        return Err(ReadError::Field {
            field: "result",
            problem: "has neither round trips nor a loss",
        });
    }
    Ok(())
}

fn latency(record: &mut MeasurementRecord, result: Latency, spec: &Spec) -> Result<(), ReadError> {
    let width = spec.bucket_width.unwrap_or(DEFAULT_BUCKET_WIDTH);
    let wrong = ReadError::Field {
        field: "result.histogram-latency",
        problem: "has too many bins, or one that is not a number",
    };
    if result.histogram_latency.len() > MAX_INTERVALS {
        return Err(wrong);
    }
    let mut bins = Vec::new();
    for (key, count) in &result.histogram_latency {
        match key.parse::<f64>() {
            Ok(place) if place.is_finite() => bins.push((place * width, *count)),
            _ => return Err(wrong),
        }
    }
    bins.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let delay = Distribution::from_bins(&bins);
    record.kind = if delay.is_some() {
        MeasurementKind::Latency
    } else {
        MeasurementKind::Loss
    };
    record.conditions.packets = result.packets_sent;
    record.conditions.clock_error_s = result.max_clock_error.map(|error| error / 1000.0);
    record.values = Values {
        delay,
        loss: share(result.packets_lost, result.packets_sent),
        histogram: bins
            .into_iter()
            .map(|(delay_s, count)| HistogramBin { delay_s, count })
            .collect(),
        ..Values::default()
    };
    if delay.is_none() && record.values.loss.is_none() {
        return Err(ReadError::Field {
            field: "result",
            problem: "has neither a histogram nor numbers of packets",
        });
    }
    Ok(())
}

fn trace(record: &mut MeasurementRecord, result: Trace) -> Result<(), ReadError> {
    let wrong = ReadError::Field {
        field: "result.paths",
        problem: "has no path, a path of more than 255 hops, or an invalid address",
    };
    let path = result.paths.into_iter().next().unwrap_or_default();
    if path.is_empty() || path.len() > MAX_TRACE_HOPS {
        return Err(wrong);
    }
    let hops = path.into_iter().map(|hop| {
        let ip = match hop.ip {
            None => None,
            Some(text) => Some(text.parse().map_err(|_| wrong.clone())?),
        };
        Ok(TraceHop {
            ip,
            hostname: hop
                .hostname
                .map(|name| printable_within(name.trim_end_matches('.').as_bytes(), 253)),
            rtt_s: hop.rtt.as_deref().and_then(read_duration),
            autonomous_system: hop.r#as.map(|system| system.number),
            error: hop.error.as_deref().map(printable_text),
        })
    });
    record.kind = MeasurementKind::Trace;
    record.values.hops = hops.collect::<Result<_, ReadError>>()?;
    Ok(())
}
