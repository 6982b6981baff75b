//! One recorded stream: iperf3, as on the slides, with the kernel's own Reno.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use wanbed::Lab;

use super::samples::{CourseSamples, Sample};
use super::{Course, SECOND_LOSS_AT, Threshold};
use crate::children::{Server, output_within, succeed_within};

const SENDER: &str = "geneva";
const RECEIVER: &str = "chicago";
const PORT: u16 = 5201;
/// Number of samples of a stream, unless its intervals would be shorter than iperf3 permits.
const SAMPLES: f64 = 240.0;
/// Maximum time between two samples, in seconds; iperf3 takes them late if it is not scheduled.
const MAX_GAP: f64 = 1.5;
/// Minimum interval of iperf3, in seconds.
const MIN_INTERVAL: f64 = 0.1;
/// Maximum time of a stream beyond its sending time.
const SET_UP_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit of a short command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Deserialize)]
struct Json {
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    intervals: Vec<Interval>,
    #[serde(default)]
    start: Start,
}

#[derive(Deserialize, Default)]
struct Start {
    /// Payload of a segment, in bytes.
    #[serde(default)]
    tcp_mss_default: u32,
}

#[derive(Deserialize)]
struct Interval {
    streams: Vec<Stream>,
}

#[derive(Deserialize)]
struct Stream {
    end: f64,
    bits_per_second: f64,
    retransmits: u64,
    /// Congestion window, in bytes.
    snd_cwnd: u64,
}

/// Records a stream.
pub(super) fn record(course: &Course, lab: &Lab) -> Result<CourseSamples> {
    limit_window(lab, course.window())?;
    let mut server = lab.command(RECEIVER, "iperf3")?;
    server.args(["-s", "--forceflush", "-p", &PORT.to_string()]);
    let _server = Server::start(server, "iperf3 -s", "listening")?;
    remember_limit(lab)?;
    let samples = match course {
        Course::OneLoss { .. } => stream(lab, course.stream_seconds())?,
        Course::SlowStart { threshold } => {
            stream(lab, SECOND_LOSS_AT + 2.0)?;
            if *threshold == Threshold::Flushed {
                ip(lab, &["tcp_metrics", "flush", "all"])?;
                remember_limit(lab)?;
            }
            let remembered = remembered_threshold(&ip(lab, &["tcp_metrics", "show"])?);
            ensure!(
                remembered.is_some() == (*threshold == Threshold::Remembered),
                "the sender remembers a threshold of {remembered:?} segments"
            );
            CourseSamples {
                threshold: remembered,
                ..stream(lab, course.stream_seconds())?
            }
        }
    };
    let intended = match course {
        Course::OneLoss { .. } => 1,
        Course::SlowStart { .. } => 0,
    };
    ensure!(
        samples.retransmits == intended,
        "the stream retransmitted {} segments instead of {intended}: the machine was disturbed, \
         measure again",
        samples.retransmits
    );
    let gap = samples.longest_gap();
    ensure!(
        gap <= MAX_GAP,
        "the sender was not scheduled for {gap:.1} s: the machine was disturbed, measure again"
    );
    Ok(samples)
}

/// Makes the sender remember the receiver, with the window's cap: a connection takes it from there,
/// and not from the route.
fn remember_limit(lab: &Lab) -> Result<()> {
    let mut client = client(lab)?;
    client.args(["-n", "64K"]);
    succeed_within(client, "iperf3", COMMAND_TIMEOUT).map(|_| ())
}

/// Returns the command of an iperf3 client.
fn client(lab: &Lab) -> Result<Command> {
    let mut client = lab.command(SENDER, "iperf3")?;
    client
        .args(["-p", &PORT.to_string()])
        .args(["-c", &lab.address(RECEIVER)?.to_string()]);
    Ok(client)
}

/// Caps the congestion window of the sender's streams by a metric of its route.
fn limit_window(lab: &Lab, segments: u32) -> Result<()> {
    let receiver = lab.address(RECEIVER)?.to_string();
    let route = ip(lab, &["-4", "route", "show", &receiver])?;
    let mut words = vec!["route", "change"];
    words.extend(route.split_whitespace());
    let segments = segments.to_string();
    words.extend(["cwnd", "lock", &segments]);
    ip(lab, &words).map(|_| ())
}

/// Runs `ip` at the sender. Returns its output.
fn ip(lab: &Lab, words: &[&str]) -> Result<String> {
    let mut command = lab.command(SENDER, "ip")?;
    command.args(words);
    succeed_within(command, "ip", COMMAND_TIMEOUT)
}

/// Returns the slow-start threshold in the output of `ip tcp_metrics show`, in segments.
fn remembered_threshold(metrics: &str) -> Option<u32> {
    let mut words = metrics.split_whitespace();
    words.find(|word| *word == "ssthresh")?;
    words.next()?.parse().ok()
}

/// Sends for `seconds`.
fn stream(lab: &Lab, seconds: f64) -> Result<CourseSamples> {
    let interval = (seconds / SAMPLES).max(MIN_INTERVAL);
    let mut client = client(lab)?;
    client
        .args(["-J", "-t", &seconds.to_string()])
        .args(["-i", &format!("{interval:.2}")]);
    let limit = Duration::from_secs_f64(seconds) + SET_UP_TIMEOUT;
    let (status, out, err) = output_within(client, "iperf3", limit)?;
    let json: Json = serde_json::from_str(&out)
        .with_context(|| format!("iperf3 ended with {status}: {}", err.trim()))?;
    if let (false, _) | (_, Some(_)) = (status.success(), &json.error) {
        bail!("iperf3: {}", json.error.unwrap_or(err));
    }
    samples(&json)
}

fn samples(json: &Json) -> Result<CourseSamples> {
    let mss = json.start.tcp_mss_default;
    ensure!(mss > 0, "iperf3 does not report the size of segments");
    let rounded = |value: f64, steps: f64| (value * steps).round() / steps;
    let sample = |stream: &Stream| {
        Sample(
            rounded(stream.end, 100.0),
            rounded(stream.bits_per_second / 1e6, 10.0),
            u32::try_from(stream.snd_cwnd / u64::from(mss)).unwrap_or(u32::MAX),
            stream.retransmits,
        )
    };
    let streams = json
        .intervals
        .iter()
        .filter_map(|interval| interval.streams.first());
    let samples: Vec<Sample> = streams.map(sample).collect();
    Ok(CourseSamples {
        retransmits: samples.iter().map(|sample| sample.3).sum(),
        samples,
        threshold: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threshold_is_read_from_the_metrics() {
        let metrics = "10.77.0.2 age 1.2sec ssthresh 267 cwnd 268 rtt 120000us source 10.77.0.1\n";
        assert_eq!(remembered_threshold(metrics), Some(267));
        assert_eq!(remembered_threshold("10.77.0.2 age 1.2sec cwnd 10\n"), None);
        assert_eq!(remembered_threshold(""), None);
    }

    #[test]
    fn windows_are_counted_in_segments() {
        let json = r#"{"start":{"tcp_mss_default":8948},"intervals":[{"streams":[{"end":0.1004,
            "bits_per_second":622000000.0,"retransmits":1,"snd_cwnd":89480}]}]}"#;
        let found = samples(&serde_json::from_str(json).unwrap()).unwrap();
        assert_eq!(found.samples, [Sample(0.1, 622.0, 10, 1)]);
        assert_eq!(found.retransmits, 1);
    }
}
