//! Samples as text, so that a flow can be recorded and judged again. The format is JSON lines, each
//! an object of the changes since the line before. Durations are whole microseconds. Needs the
//! feature `trace`.

use std::io::{self, BufRead, Write};

use serde_json::{Map, Value};

use crate::Sample;

/// Writes samples of one flow, in order.
#[derive(Debug)]
pub struct TraceWriter<W> {
    out: W,
    before: Value,
}

impl<W: Write> TraceWriter<W> {
    /// Starts a trace.
    pub fn new(out: W) -> Self {
        Self {
            out,
            before: Value::Null,
        }
    }

    /// Writes a sample.
    ///
    /// # Errors
    /// The writer's error.
    pub fn write(&mut self, sample: &Sample) -> io::Result<()> {
        let now = serde_json::to_value(sample)?;
        let line = difference(&self.before, &now).unwrap_or_else(|| Value::Object(Map::new()));
        writeln!(self.out, "{line}")?;
        self.before = now;
        Ok(())
    }
}

/// Reads a trace.
///
/// # Errors
/// The reader's error, or `InvalidData` with the number of a line that is not part of a trace.
pub fn read_trace(from: impl BufRead) -> io::Result<Vec<Sample>> {
    let mut whole = serde_json::to_value(Sample::default())?;
    let mut samples = vec![];
    for (number, line) in from.lines().enumerate() {
        let bad = |error| {
            let text = format!("line {} of the trace is not a sample: {error}", number + 1);
            io::Error::new(io::ErrorKind::InvalidData, text)
        };
        let change: Map<String, Value> = serde_json::from_str(&line?).map_err(bad)?;
        merge(&mut whole, Value::Object(change));
        samples.push(serde_json::from_value(whole.clone()).map_err(bad)?);
    }
    Ok(samples)
}

/// Returns what in `now` differs from `before`, or `None` if nothing does.
fn difference(before: &Value, now: &Value) -> Option<Value> {
    match (before, now) {
        (_, same) if same == before => None,
        (Value::Object(before), Value::Object(now)) => {
            let changed = now.iter().filter_map(|(key, value)| {
                let change = difference(before.get(key).unwrap_or(&Value::Null), value)?;
                Some((key.clone(), change))
            });
            Some(Value::Object(changed.collect()))
        }
        _ => Some(now.clone()),
    }
}

fn merge(whole: &mut Value, change: Value) {
    match (whole, change) {
        (Value::Object(whole), Value::Object(change)) => {
            for (key, value) in change {
                merge(whole.entry(key).or_insert(Value::Null), value);
            }
        }
        (whole, change) => *whole = change,
    }
}

/// Serializes a duration as whole microseconds.
pub(crate) mod micros {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    #[allow(clippy::trivially_copy_pass_by_ref)] // serde's shape
    pub fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Duration, D::Error> {
        Ok(Duration::from_micros(u64::deserialize(from)?))
    }
}

/// Serializes an optional duration as whole microseconds.
pub(crate) mod micros_or_none {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[allow(clippy::ref_option)] // serde's shape
    pub fn serialize<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        time.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
            .serialize(to)
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(Duration::from_micros))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Bbr, CongestionName, TcpInfo, TcpState};

    #[test]
    fn samples_are_restored_from_their_trace() {
        let first = Sample {
            at: Duration::from_micros(1_500_001),
            info: TcpInfo {
                state: TcpState::Established,
                min_rtt: Some(Duration::from_millis(3)),
                bytes_acked: Some(u64::MAX),
                ..TcpInfo::default()
            },
            ..Sample::default()
        };
        let mut second = first;
        second.info.min_rtt = None;
        second.info.state = TcpState::Other(77);
        second.queues.unsent = 5;
        second.congestion.name = CongestionName::from_kernel(b"bbr");
        second.congestion.bbr = Some(Bbr {
            pacing_gain: 739,
            ..Bbr::default()
        });
        let samples = [Sample::default(), first, first, second, first];
        let mut text = vec![];
        let mut writer = TraceWriter::new(&mut text);
        samples
            .iter()
            .for_each(|sample| writer.write(sample).unwrap());
        assert_eq!(read_trace(&*text).unwrap(), samples);
        let text = String::from_utf8(text).unwrap();
        assert_eq!(
            text.lines().nth(2),
            Some("{}"),
            "what did not change is not written again"
        );
    }

    #[test]
    fn invalid_trace_is_an_error_with_its_line() {
        for bad in ["{}\nnonsense", "{}\n{\"at\":-1}", "{}\n[]"] {
            let error = read_trace(bad.as_bytes()).unwrap_err();
            assert!(error.to_string().starts_with("line 2 "), "{error}");
        }
    }
}
