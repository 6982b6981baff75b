//! Readable summary of a run's log.

use std::collections::BTreeMap;
use std::fmt;

use quantities::{ByteCount, Time};
use serde::Deserialize;

/// A line of the log, with the members that are used here.
#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum RecordLine {
    Verdict {},
    Action {
        process: u32,
        flow: Option<u64>,
        what: String,
        made: Option<u64>,
        refused: Option<i32>,
        cause: String,
    },
    Advice {
        process: u32,
        flow: u64,
        advice: String,
    },
    End(EndRecord),
}

#[derive(Deserialize)]
struct EndRecord {
    process: u32,
    flow: u64,
    seconds: f64,
    peer: Option<String>,
    local: Option<String>,
    sent: u64,
    received: u64,
    #[serde(default)]
    unscaled: bool,
    verdicts: BTreeMap<String, u32>,
}

/// One connection.
#[derive(Default)]
struct FlowSummary {
    end: Option<EndRecord>,
    done: Vec<String>,
    advice: Vec<String>,
}

/// A run's connections.
pub struct Summary {
    flows: BTreeMap<(u32, u64), FlowSummary>,
    ahead: Vec<String>,
}

impl Summary {
    /// Parses a log. Lines in another format are ignored.
    pub fn parse(log: &[u8]) -> Self {
        let mut summary = Self {
            flows: BTreeMap::new(),
            ahead: Vec::new(),
        };
        for line in log.split(|byte| *byte == b'\n') {
            let Ok(line) = serde_json::from_slice::<RecordLine>(line) else {
                continue;
            };
            summary.take(line);
        }
        summary
    }

    fn take(&mut self, line: RecordLine) {
        match line {
            RecordLine::Verdict {} => {}
            RecordLine::Action {
                process,
                flow,
                what,
                made,
                refused,
                cause,
            } => {
                let result = match (made, refused) {
                    (_, Some(number)) => format!(" refused (error {number})"),
                    (Some(made), None) if made > 0 => format!(" now {made}"),
                    _ => String::new(),
                };
                let text = format!("{what}{result}: {cause}");
                match flow {
                    Some(flow) => self
                        .flows
                        .entry((process, flow))
                        .or_default()
                        .done
                        .push(text),
                    None => self.ahead.push(text),
                }
            }
            RecordLine::Advice {
                process,
                flow,
                advice,
            } => {
                self.flows
                    .entry((process, flow))
                    .or_default()
                    .advice
                    .push(advice);
            }
            RecordLine::End(end) => {
                let key = (end.process, end.flow);
                self.flows.entry(key).or_default().end = Some(end);
            }
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.flows.len();
        let plural = if count == 1 { "" } else { "s" };
        writeln!(f, "drs: {count} connection{plural}")?;
        for text in &self.ahead {
            writeln!(f, "  before a connection: {text}")?;
        }
        self.flows.values().try_for_each(|flow| write!(f, "{flow}"))
    }
}

impl fmt::Display for FlowSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.end {
            Some(end) => {
                let unknown = "unknown".to_owned();
                writeln!(
                    f,
                    "  {} - {}: sent {} and received {} in {}",
                    end.local.as_ref().unwrap_or(&unknown),
                    end.peer.as_ref().unwrap_or(&unknown),
                    ByteCount(end.sent),
                    ByteCount(end.received),
                    Time::from_seconds(end.seconds)
                )?;
                writeln!(f, "    limited by: {}", LimitCounts(&end.verdicts))?;
            }
            None => writeln!(
                f,
                "  a connection that was still open when its process was killed"
            )?,
        }
        self.done
            .iter()
            .try_for_each(|done| writeln!(f, "    {done}"))?;
        if self.done.is_empty() {
            writeln!(f, "    nothing done: {}", self.inaction_reason())?;
        }
        self.advice
            .iter()
            .try_for_each(|advice| writeln!(f, "    advice: {advice}"))
    }
}

impl FlowSummary {
    /// Returns the reason why a connection was left as it was.
    fn inaction_reason(&self) -> &'static str {
        let Some(end) = &self.end else {
            return "the log says no more";
        };
        let most = end.verdicts.iter().max_by_key(|(_, count)| **count);
        let Some((most, _)) = most else {
            return "it ended, or was idle, before anything could be measured";
        };
        match most
            .split_once(' ')
            .map_or(most.as_str(), |(_, limit)| limit)
        {
            "sending-application" => "the sending program had no more to send",
            "receiving-application" => "the receiving program read no faster",
            // The receiver cannot distinguish a sender that waits for the window from one that
            // waits for something else.
            "send-buffer" | "receive-window" | "sender" if end.unscaled => {
                "window scaling is off at one of the ends (net.ipv4.tcp_window_scaling), so no \
                 window can be over 64 KiB"
            }
            "send-buffer" | "receive-window" => "this end cannot get a larger buffer",
            "pacing" => "a pacing rate was set",
            "growing" => "the congestion window was still growing; the buffers were large enough",
            "loss" => "losses held it back, and no buffer helps against those",
            "path" => "the path was full",
            "sender" => "the sending end held it back; the buffers here were large enough",
            _ => "nothing that buffers can change limited it",
        }
    }
}

/// Limits, sorted by how often they were found.
struct LimitCounts<'a>(&'a BTreeMap<String, u32>);

impl fmt::Display for LimitCounts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: u32 = self.0.values().sum();
        if all == 0 {
            return f.write_str("not known");
        }
        let mut limits: Vec<_> = self.0.iter().collect();
        limits.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let shares = limits
            .iter()
            .map(|(limit, count)| format!("{limit} {}%", **count * 100 / all));
        f.write_str(&shares.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_becomes_sentences() {
        let log = br#"{"event":"end","at":1.0,"process":7,"flow":1,"seconds":2.5,"local":"10.0.0.1:5","peer":"10.0.0.2:80","sent":10,"received":99,"looks":3,"actions":0,"refused":0,"verdicts":{"receiving path":3,"receiving loss":1}}
no line of ours
{"event":"action","at":1.0,"process":7,"flow":2,"what":"receive-buffer","asked":5,"made":10,"cause":"because"}
{"event":"end","at":1.0,"process":7,"flow":2,"seconds":1,"sent":1,"received":1,"verdicts":{"receiving receive-window":9}}
"#;
        let text = Summary::parse(log).to_string();
        assert!(text.starts_with("drs: 2 connections\n"), "{text}");
        assert!(
            text.contains("limited by: receiving path 75%, receiving loss 25%"),
            "{text}"
        );
        assert!(text.contains("nothing done: the path was full"), "{text}");
        assert!(text.contains("receive-buffer now 10: because"), "{text}");
    }

    #[test]
    fn missing_window_scaling_is_the_reason() {
        let log = br#"{"event":"end","process":7,"flow":1,"seconds":2,"sent":10,"received":99,"unscaled":true,"verdicts":{"receiving sender":3}}"#;
        let text = Summary::parse(log).to_string();
        assert!(text.contains("net.ipv4.tcp_window_scaling"), "{text}");
    }

    #[test]
    fn empty_log_has_an_empty_summary() {
        assert_eq!(Summary::parse(b"").to_string(), "drs: 0 connections\n");
    }
}
