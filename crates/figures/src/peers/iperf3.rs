//! iperf3: from memory to memory, so no peer that copies, but the rate that the path's TCP gives.

use super::one_copy::Direction;
use super::place::{Place, Serving};
use super::{Need, Program};
use crate::children::output_within;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::time::Duration;

const IPERF3: Need = Need {
    program: "iperf3",
    package: "iperf3",
};

/// Port of the server in its node.
const PORT: u16 = 5201;
/// A test that takes longer is stopped.
const TEST_TIME_LIMIT: Duration = Duration::from_secs(900);

/// iperf3(1): `-n` bytes in all over `-P` streams, with `-R` towards the client.
pub struct Iperf3;

impl Program for Iperf3 {
    fn name(&self) -> &'static str {
        "iperf3"
    }
    fn title(&self) -> &'static str {
        "iperf3, memory to memory"
    }
    fn options(&self) -> &'static str {
        "-n BYTES -P N"
    }
    fn needs(&self) -> &'static [Need] {
        &[IPERF3]
    }
}

impl Iperf3 {
    /// Serves in a node until the result is dropped, one test after another.
    ///
    /// # Errors
    /// iperf3 is missing, or the server does not start.
    pub fn serve(&self, place: &Place) -> Result<Serving> {
        let port = PORT.to_string();
        place.serve(
            &IPERF3,
            &["-s", "-p", &port],
            place.settings()?,
            place.scratch,
            PORT,
        )
    }

    /// Moves `bytes` bytes in all; gives the bits per second that arrived, by the receiver's own account. Set-up does not count.
    ///
    /// # Errors
    /// iperf3 is missing, fails, or prints no report.
    pub fn goodput_bps(
        &self,
        place: &Place,
        serving: &Serving,
        bytes: u64,
        direction: Direction,
        streams: u32,
    ) -> Result<f64> {
        let at = serving.endpoint.address;
        let mut command = place.client(&IPERF3, serving)?;
        command
            .args(["-J", "-c", &at.ip().to_string(), "-p", &at.port().to_string()])
            .args(["-n", &bytes.to_string(), "-P", &streams.to_string()]);
        if direction == Direction::Fetch {
            command.arg("-R");
        }
        let (status, out, err) = output_within(command, IPERF3.program, TEST_TIME_LIMIT)?;
        let report: Value = serde_json::from_str(&out)
            .with_context(|| format!("iperf3 ended with {status} and without a report: {}", err.trim()))?;
        if let Some(error) = report["error"].as_str() {
            bail!("iperf3: {error}");
        }
        report["end"]["sum_received"]["bits_per_second"]
            .as_f64()
            .context("iperf3's report has no received rate")
    }
}
