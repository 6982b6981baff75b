//! Conversion of records to pScheduler's archives.

use longhaul_proto::Host;
use serde_json::{Map, Value, json};

use super::DEFAULT_BUCKET_WIDTH;
use super::time::{write_duration, write_moment};
use crate::record::{
    Distribution, MeasurementKind, MeasurementMethod, MeasurementRecord, TraceHop,
};

/// Router errors that pScheduler knows; others are left out.
const ICMP_ERRORS: [&str; 16] = [
    "net-unreachable",
    "host-unreachable",
    "protocol-unreachable",
    "port-unreachable",
    "fragmentation-needed-and-df-set",
    "source-route-failed",
    "destination-network-unknown",
    "destination-host-unknown",
    "source-host-isolated",
    "destination-network-administratively-prohibited",
    "destination-host-administratively-prohibited",
    "network-unreachable-for-type-of-service",
    "icmp-destination-host-unreachable-tos",
    "communication-administratively-prohibited",
    "host-precedence-violation",
    "precedence-cutoff-in-effect",
];

/// Reason why a record cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The host of an end is unknown, but pScheduler names hosts.
    #[error(
        "{0:?} has no host name or address, which pScheduler needs for both ends of a measurement"
    )]
    NoHost(String),
    /// A delay has no histogram.
    #[error("pScheduler reports one-way delays as a histogram, and the measurement has none")]
    NoHistogram,
    /// A value that the record's kind requires is missing.
    #[error("the measurement has no {0}")]
    Missing(&'static str),
    /// The moment is beyond the year 9999.
    #[error("the time of the measurement is out of range")]
    Moment,
}

/// Formats a record as pScheduler's HTTP archiver would send it. `host` returns the host name or
/// address of an end of the path.
///
/// # Errors
/// [`WriteError`].
pub fn write(
    record: &MeasurementRecord,
    host: impl Fn(&str) -> Option<String>,
) -> Result<Value, WriteError> {
    let host = |end: &str| {
        host(end)
            .filter(|host| Host::parse(host).is_ok())
            .ok_or_else(|| WriteError::NoHost(printable_text(end)))
    };
    let (source, dest) = (host(&record.from)?, host(&record.to)?);
    let mut spec = Map::new();
    spec.insert("schema".to_owned(), json!(1));
    spec.insert("source".to_owned(), json!(source));
    spec.insert("dest".to_owned(), json!(dest));
    let (test, result) = match record.kind {
        MeasurementKind::Throughput => ("throughput", throughput(record, &mut spec)?),
        MeasurementKind::Rtt => ("rtt", round_trips(record)?),
        MeasurementKind::Latency | MeasurementKind::Loss => {
            ("latency", latency(record, &mut spec)?)
        }
        MeasurementKind::Trace => ("trace", trace(record)?),
    };
    let method = match record.method {
        MeasurementMethod::Probe => "probe",
        MeasurementMethod::Transfer => "transfer",
        MeasurementMethod::Relay => "relay",
        MeasurementMethod::Archive => "archive",
    };
    let mut own = json!({ "reporter": record.reporter.to_string(), "method": method });
    if let (Some(limit), Some(own)) = (record.conditions.limit, own.as_object_mut()) {
        own.insert("limit".to_owned(), json!(limit.as_str()));
    }
    Ok(json!({
        "id": id(record, test),
        "schedule": {
            "start": write_moment(record.start_ms).ok_or(WriteError::Moment)?,
            "duration": write_duration(record.duration_s),
        },
        "test": { "type": test, "spec": spec },
        "tool": record.conditions.tool.as_deref().unwrap_or("longhaul"),
        "participants": [
            { "host": source, "result": null },
            { "host": dest, "result": null },
        ],
        "result": result,
        "reference": { "longhaul": own },
    }))
}

fn printable_text(text: &str) -> String {
    longhaul_proto::text::printable_within(text.as_bytes(), 80)
}

/// Returns a UUID of the record (RFC 9562, version 8). It is the same whenever the record is
/// written.
fn id(record: &MeasurementRecord, test: &str) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(record.reporter.as_bytes());
    for text in [&record.from, &record.to, test] {
        hasher.update(&(text.len() as u64).to_be_bytes());
        hasher.update(text.as_bytes());
    }
    hasher.update(&record.start_ms.to_be_bytes());
    let digest = hasher.finalize();
    let mut bits = u128::from(u64::from_be_bytes(eight_bytes(digest.as_bytes(), 0))) << 64
        | u128::from(u64::from_be_bytes(eight_bytes(digest.as_bytes(), 8)));
    bits = bits & !(0xf << 76) | 0x8 << 76;
    bits = bits & !(0x3 << 62) | 0x2 << 62;
    let digits = format!("{bits:032x}");
    let part = |range: std::ops::Range<usize>| digits.get(range).unwrap_or_default();
    [
        part(0..8),
        part(8..12),
        part(12..16),
        part(16..20),
        part(20..32),
    ]
    .join("-")
}

fn eight_bytes(bytes: &[u8; 32], from: usize) -> [u8; 8] {
    bytes
        .get(from..from + 8)
        .and_then(|bytes| bytes.try_into().ok())
        .unwrap_or_default()
}

fn throughput(
    record: &MeasurementRecord,
    spec: &mut Map<String, Value>,
) -> Result<Value, WriteError> {
    let rate = record.values.rate_bps.ok_or(WriteError::Missing("rate"))?;
    spec.insert(
        "duration".to_owned(),
        json!(write_duration(record.duration_s)),
    );
    if let Some(streams) = record.conditions.streams {
        spec.insert("parallel".to_owned(), json!(streams.max(1)));
    }
    if let Some(control) = record
        .conditions
        .congestion_control
        .as_ref()
        .filter(|control| !control.is_empty())
    {
        // Before schema 4, only listed congestion controls are valid.
        spec.insert("schema".to_owned(), json!(4));
        spec.insert("congestion".to_owned(), json!(control));
    }
    let flow = |start: f64, end: f64, rate: f64, retransmits: Option<u64>, omitted: bool| {
        let mut flow = json!({
            "start": start,
            "end": end,
            "throughput-bits": rate,
            "throughput-bytes": rate / 8.0,
            "omitted": omitted,
        });
        if let (Some(retransmits), Some(flow)) = (retransmits, flow.as_object_mut()) {
            flow.insert("retransmits".to_owned(), json!(retransmits));
        }
        flow
    };
    let values = &record.values;
    let mut summary = flow(0.0, record.duration_s, rate, values.retransmits, false);
    if let Some(summary) = summary.as_object_mut() {
        if let Some(jitter) = values.jitter_s {
            summary.insert("jitter".to_owned(), json!(jitter));
        }
        if let (Some(sent), Some(loss)) = (record.conditions.packets, values.loss) {
            summary.insert("sent".to_owned(), json!(sent));
            summary.insert(
                "lost".to_owned(),
                json!((sent as f64 * loss).round() as u64),
            );
        }
    }
    let intervals: Vec<Value> = values
        .intervals
        .iter()
        .map(|of| {
            let summary = flow(
                of.start_s,
                of.end_s,
                of.rate_bps,
                of.retransmits,
                of.omitted,
            );
            json!({ "streams": [], "summary": summary })
        })
        .collect();
    Ok(json!({
        "schema": 1,
        "succeeded": true,
        "diags": "",
        "intervals": intervals,
        "summary": { "streams": [], "summary": summary },
    }))
}

fn round_trips(record: &MeasurementRecord) -> Result<Value, WriteError> {
    let Distribution {
        min_s,
        mean_s,
        max_s,
        stddev_s,
        ..
    } = record
        .values
        .rtt
        .ok_or(WriteError::Missing("round-trip time"))?;
    let loss = record.values.loss.unwrap_or(0.0).clamp(0.0, 1.0);
    let mut result = json!({
        "schema": 1,
        "succeeded": true,
        "roundtrips": [],
        "loss": loss,
        "min": write_duration(min_s),
        "mean": write_duration(mean_s),
        "max": write_duration(max_s),
    });
    if let Some(result) = result.as_object_mut() {
        if let Some(stddev) = stddev_s {
            result.insert("stddev".to_owned(), json!(write_duration(stddev)));
        }
        if let Some(sent) = record.conditions.packets.filter(|sent| *sent > 0) {
            let lost = (sent as f64 * loss).round() as u64;
            result.insert("sent".to_owned(), json!(sent));
            result.insert("lost".to_owned(), json!(lost));
            result.insert("received".to_owned(), json!(sent.saturating_sub(lost)));
        }
    }
    Ok(result)
}

fn latency(record: &MeasurementRecord, spec: &mut Map<String, Value>) -> Result<Value, WriteError> {
    let values = &record.values;
    if record.kind == MeasurementKind::Latency && values.histogram.is_empty() {
        return Err(WriteError::NoHistogram);
    }
    let mut histogram: Map<String, Value> = Map::new();
    for bin in &values.histogram {
        // Rounded to two decimals, as in pScheduler; bins with the same key are merged.
        let key = format!("{:.2}", bin.delay_s / DEFAULT_BUCKET_WIDTH);
        let held = histogram.get(&key).and_then(Value::as_u64).unwrap_or(0);
        histogram.insert(key, json!(held.saturating_add(bin.count)));
    }
    let seen = values
        .histogram
        .iter()
        .fold(0, |sum: u64, bin| sum.saturating_add(bin.count));
    let loss = values.loss.map(|loss| loss.clamp(0.0, 1.0));
    let sent = record.conditions.packets.or_else(|| {
        let loss = loss.filter(|loss| *loss < 1.0).unwrap_or(0.0);
        (seen > 0).then_some((seen as f64 / (1.0 - loss)).round() as u64)
    });
    let mut result = json!({ "schema": 1, "succeeded": true });
    if let Some(result) = result.as_object_mut() {
        if !histogram.is_empty() {
            result.insert("histogram-latency".to_owned(), Value::Object(histogram));
        }
        match (sent, loss) {
            (Some(sent), Some(loss)) => {
                let lost = ((sent as f64 * loss).round() as u64).min(sent);
                result.insert("packets-sent".to_owned(), json!(sent));
                result.insert("packets-lost".to_owned(), json!(lost));
                result.insert(
                    "packets-received".to_owned(),
                    json!(sent.saturating_sub(lost)),
                );
            }
            (Some(sent), None) => drop(result.insert("packets-sent".to_owned(), json!(sent))),
            (None, _) if record.kind == MeasurementKind::Loss => {
                return Err(WriteError::Missing("number of packets"));
            }
            (None, _) => {}
        }
        if let Some(error) = record.conditions.clock_error_s {
            result.insert("max-clock-error".to_owned(), json!(error * 1000.0));
        }
    }
    if let Some(sent) = sent.filter(|sent| *sent > 0) {
        spec.insert("packet-count".to_owned(), json!(sent));
    }
    Ok(result)
}

fn trace(record: &MeasurementRecord) -> Result<Value, WriteError> {
    if record.values.hops.is_empty() {
        return Err(WriteError::Missing("hops"));
    }
    let path: Vec<Value> = record.values.hops.iter().map(hop).collect();
    Ok(json!({ "schema": 1, "succeeded": true, "paths": [path] }))
}

fn hop(hop: &TraceHop) -> Value {
    let mut out = Map::new();
    if let Some(ip) = hop.ip {
        out.insert("ip".to_owned(), json!(ip.to_string()));
    }
    if let Some(name) = hop
        .hostname
        .as_deref()
        .filter(|name| Host::parse(name).is_ok())
    {
        out.insert("hostname".to_owned(), json!(name));
    }
    if let Some(rtt) = hop.rtt_s {
        out.insert("rtt".to_owned(), json!(write_duration(rtt)));
    }
    if let Some(number) = hop.autonomous_system.filter(|number| *number > 0) {
        out.insert("as".to_owned(), json!({ "number": number }));
    }
    if let Some(error) = hop
        .error
        .as_deref()
        .filter(|error| ICMP_ERRORS.contains(error))
    {
        out.insert("error".to_owned(), json!(error));
    }
    Value::Object(out)
}
