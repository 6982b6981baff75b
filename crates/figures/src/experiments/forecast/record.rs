//! Series that `longhaul perf` records in the lab, over links with cross traffic.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use longhaul_routing::forecast::ForecastQuantity;
use serde::{Deserialize, Serialize};

use crate::children::{Server, output_within};
use crate::experiment::Here;
use crate::network::Network;
use crate::tools::Tools;

/// Duration of one stream, in seconds.
pub const SECONDS: u32 = 200;
/// Seconds between values.
pub const PERIOD: f64 = 0.5;
/// Time after slow start from which values are recorded, in seconds.
const FROM: f64 = 5.0;
const PORT: u16 = 7511;
/// Additional time of a measurement, for setup and drain.
const SET_UP_TIMEOUT: Duration = Duration::from_secs(60);

/// A link with on/off cross traffic of exponentially distributed times, as the lab makes it.
const CROSSED: &str = include_str!("../../../labs/forecast.toml");

/// Recorded quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recording {
    /// Rate of a stream next to cross traffic.
    CrossTraffic,
    /// Rate of a stream over the DRS paper's path, which changes, next to cross traffic.
    VaryingPath,
    /// Round trips of a stream next to cross traffic.
    RoundTrips,
}

impl Recording {
    /// All of them, in the order of the tables.
    pub const ALL: [Self; 3] = [Self::CrossTraffic, Self::VaryingPath, Self::RoundTrips];

    /// Returns its title, as the head of a row.
    pub const fn title(self) -> &'static str {
        match self {
            Self::CrossTraffic => "recorded: rate beside cross traffic",
            Self::VaryingPath => "recorded: rate over the DRS paper's path, with cross traffic",
            Self::RoundTrips => "recorded: round trip beside cross traffic",
        }
    }

    /// Returns the quantity that is forecast.
    pub const fn quantity(self) -> ForecastQuantity {
        match self {
            Self::CrossTraffic | Self::VaryingPath => ForecastQuantity::Rate,
            Self::RoundTrips => ForecastQuantity::RoundTrip,
        }
    }

    /// Returns the network, with the trace of a seed if it has one.
    ///
    /// # Errors
    /// The scenario cannot be read, or the trace cannot be written.
    pub fn network(self, tools: &Tools, seed: u64) -> Result<Network> {
        if self != Self::VaryingPath {
            return Ok(Network::of_text("forecast", CROSSED));
        }
        let path = tools.scratch.path().join(format!("forecast-{seed}.csv"));
        crate::store::replace(&path, &wanbed::drs_trace::write(seed, 180))?;
        let trace = format!(
            "{{ file = \"{}\", repeat_after = \"3600 s\" }}",
            path.display()
        );
        let cross = "{ rate = \"5 Mbit/s\", on = \"4 s\", off = \"8 s\" }";
        Ok(Network::load(tools, "drs-trace.toml")?
            .set("links.wan.trace", trace)
            .set("links.wan.cross", cross))
    }

    /// Returns the nodes that measure and answer.
    const fn nodes(self) -> (&'static str, &'static str) {
        match self {
            Self::CrossTraffic | Self::RoundTrips => ("client", "server"),
            Self::VaryingPath => ("receiver", "sender"),
        }
    }
}

/// Part of the JSON with the series.
#[derive(Deserialize)]
struct Json {
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    intervals: Vec<TraceInterval>,
    end: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct TraceInterval {
    sum: TraceSum,
    streams: Vec<Stream>,
}

#[derive(Deserialize)]
struct TraceSum {
    start: f64,
    seconds: f64,
    bits_per_second: f64,
}

#[derive(Deserialize)]
struct Stream {
    /// Round trip in microseconds, if this end sends.
    rtt: Option<f64>,
}

/// Records a series, in the quantity's unit.
///
/// # Errors
/// The measurement failed.
pub fn record<S>(here: &Here<'_, S>, what: Recording) -> Result<Vec<f64>> {
    let keys = &here.tools.identities;
    let (client, serving) = what.nodes();
    let mut server = here.lab.command(serving, &here.tools.longhaul)?;
    server
        .env("LONGHAUL_HOME", &keys.server_home)
        .args(["perf", "--serve", "--allow", &keys.client_key, "--listen"])
        .arg(format!("0.0.0.0:{PORT}"));
    let server = Server::start(server, "longhaul perf --serve", "listening")?;
    let mut command = here.lab.command(client, &here.tools.longhaul)?;
    command
        .env("LONGHAUL_HOME", &keys.client_home)
        .args(["perf", "--json", "--host-key", &keys.server_key])
        .args([
            "--time",
            &format!("{SECONDS}s"),
            "-i",
            &format!("{PERIOD}s"),
        ]);
    if what.quantity() == ForecastQuantity::Rate {
        // The receiver counts what arrives; a sender would count what goes into its buffer.
        command.arg("-R");
    }
    command.arg(format!("{}:{PORT}", here.lab.address(serving)?));
    let limit = Duration::from_secs(SECONDS.into()) + SET_UP_TIMEOUT;
    let (status, out, err) = output_within(command, "longhaul perf", limit)?;
    drop(server);
    let json: Json = serde_json::from_str(&out)
        .with_context(|| format!("longhaul perf ended with {status}: {}", err.trim()))?;
    if !status.success() || json.error.is_some() || json.end.is_none() {
        bail!("longhaul perf: {}", json.error.unwrap_or(err));
    }
    Ok(series(&json.intervals, what.quantity()))
}

/// Returns the values of whole intervals after slow start.
fn series(intervals: &[TraceInterval], quantity: ForecastQuantity) -> Vec<f64> {
    let whole = intervals
        .iter()
        .filter(|interval| interval.sum.start >= FROM && interval.sum.seconds > 0.5 * PERIOD);
    let value = |interval: &TraceInterval| match quantity {
        ForecastQuantity::RoundTrip => Some(1e-6 * interval.streams.first()?.rtt?),
        _ => Some(interval.sum.bits_per_second),
    };
    // Four digits exceed the lab's own accuracy.
    whole.filter_map(value).map(four_digits).collect()
}

fn four_digits(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_begins_after_slow_start_and_holds_whole_intervals() {
        let interval = |start: f64, seconds: f64, rate: f64| TraceInterval {
            sum: TraceSum {
                start,
                seconds,
                bits_per_second: rate,
            },
            streams: vec![Stream {
                rtt: Some(40_123.4),
            }],
        };
        let all = [
            interval(0.0, 0.5, 1.0),
            interval(5.0, 0.5, 12345.6),
            interval(5.5, 0.5, 0.0),
            interval(6.0, 0.01, 7.0),
        ];
        assert_eq!(series(&all, ForecastQuantity::Rate), [12350.0, 0.0]);
        assert_eq!(
            series(&all, ForecastQuantity::RoundTrip),
            [0.04012, 0.04012]
        );
    }
}
