//! iperf3, which copies from memory to memory. It is no peer that copies files, but shows the rate
//! of TCP on the path.

use super::one_copy::PeerDirection;
use super::place::{PeerNode, Serving};
use super::{Need, Program, need};
use crate::children::output_within;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The program.
const NAME: &str = "iperf3";
/// Default port of the server in its node.
const PORT: u16 = 5201;
/// Maximum time of a test.
const TEST_TIME_LIMIT: Duration = Duration::from_secs(900);

/// iperf3(1): `-n` bytes in all over `-P` streams, with `-R` towards the client.
pub struct Iperf3;

impl Program for Iperf3 {
    fn name(&self) -> &'static str {
        NAME
    }
    fn title(&self) -> &'static str {
        "iperf3, memory to memory"
    }
    fn options(&self) -> &'static str {
        "-n BYTES -P N"
    }
    fn needs(&self) -> Vec<Need> {
        need(NAME).into_iter().collect()
    }
}

/// Flows under way.
pub struct Flows {
    /// When they were started.
    pub begun: Instant,
    report: JoinHandle<Result<Value>>,
}

/// Bytes that flows carried in an interval.
#[derive(Clone, Copy, Debug)]
pub struct Interval {
    /// Seconds since their start.
    pub start: f64,
    /// The same.
    pub end: f64,
    /// Payload that arrived, in bits.
    pub bits: f64,
}

impl Flows {
    /// Waits until the flows end.
    ///
    /// # Errors
    /// iperf3 fails, or its report has no intervals.
    pub fn intervals(self) -> Result<Vec<Interval>> {
        let report = self.report.join();
        let report =
            report.unwrap_or_else(|_| bail!("the thread that waits for iperf3 ended badly"))?;
        let intervals = report["intervals"].as_array();
        let intervals = intervals
            .context("iperf3's report has no intervals")?
            .iter();
        let sums = intervals.map(|interval| {
            let number = |field: &str| {
                let number = interval["sum"][field].as_f64();
                number.with_context(|| format!("an interval of iperf3's has no {field}"))
            };
            Ok(Interval {
                start: number("start")?,
                end: number("end")?,
                bits: 8.0 * number("bytes")?,
            })
        });
        sums.collect()
    }
}

/// Begins a client's command, which is to report in JSON.
fn client(
    place: &PeerNode,
    serving: &Serving,
    direction: PeerDirection,
    streams: u32,
) -> Result<Command> {
    let at = serving.endpoint.address;
    let mut command = place.client(NAME, serving)?;
    command
        .args([
            "-J",
            "-c",
            &at.ip().to_string(),
            "-p",
            &at.port().to_string(),
        ])
        .args(["-P", &streams.to_string()]);
    if direction == PeerDirection::Fetch {
        command.arg("-R");
    }
    Ok(command)
}

/// Runs a client until it ends.
fn report_of(command: Command, limit: Duration) -> Result<Value> {
    let (status, out, err) = output_within(command, NAME, limit)?;
    let report: Value = serde_json::from_str(&out).with_context(|| {
        format!(
            "iperf3 ended with {status} and without a report: {}",
            err.trim()
        )
    })?;
    match report["error"].as_str() {
        Some(error) => bail!("iperf3: {error}"),
        None => Ok(report),
    }
}

impl Iperf3 {
    /// Serves in a node until the result is dropped, one test after another.
    ///
    /// # Errors
    /// iperf3 is missing, or the server does not start.
    pub fn serve(&self, place: &PeerNode) -> Result<Serving> {
        self.serve_at(place, PORT)
    }

    /// The same at another port.
    ///
    /// # Errors
    /// As for [`Self::serve`].
    pub fn serve_at(&self, place: &PeerNode, port: u16) -> Result<Serving> {
        let command = [NAME, "-s", "-p", &port.to_string()].map(str::to_owned);
        place.serve(&command, place.settings()?, place.scratch, port)
    }

    /// Starts `streams` flows towards the client, and reports what they carry in intervals of
    /// `interval` seconds.
    ///
    /// # Errors
    /// iperf3 is missing.
    pub fn start(
        &self,
        place: &PeerNode,
        serving: &Serving,
        seconds: u32,
        streams: u32,
        interval: f64,
    ) -> Result<Flows> {
        let mut command = client(place, serving, PeerDirection::Fetch, streams)?;
        command.args(["-t", &seconds.to_string(), "-i", &interval.to_string()]);
        let limit = Duration::from_secs(u64::from(seconds) + 30);
        Ok(Flows {
            begun: Instant::now(),
            report: thread::spawn(move || report_of(command, limit)),
        })
    }

    /// Moves `bytes` bytes in total. Returns the receiver's rate in bit/s, without the set-up.
    ///
    /// # Errors
    /// iperf3 is missing, fails, or prints no report.
    pub fn goodput_bps(
        &self,
        place: &PeerNode,
        serving: &Serving,
        bytes: u64,
        direction: PeerDirection,
        streams: u32,
    ) -> Result<f64> {
        let mut command = client(place, serving, direction, streams)?;
        command.args(["-n", &bytes.to_string()]);
        report_of(command, TEST_TIME_LIMIT)?["end"]["sum_received"]["bits_per_second"]
            .as_f64()
            .context("iperf3's report has no received rate")
    }
}
