//! One measurement over the record's path.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use wanbed::Lab;

use super::{Sender, Throughput};
use crate::children::{Server, output_within};
use crate::tools::Tools;

/// The distance of the record, in km, and the router hops of the scenario in each direction.
const RECORD_KM_AND_HOPS: (&str, &str) = ("10037", "3");
/// The ends of the path: the sender, and the receiver.
const SENDER: &str = "geneva";
const RECEIVER: &str = "sunnyvale";
/// Ports in the lab, whose nodes run nothing else.
const PERF_PORT: u16 = 7511;
const IPERF_PORT: u16 = 5201;
/// Pace just under the bottleneck's payload rate: the best that trial and error finds.
const BY_HAND: &str = "2380M";
/// Time by which slow start is over, in seconds.
const SUSTAINED_FROM: f64 = 5.0;
/// Maximum time of a measurement beyond its sending time, for set-up and drain.
const SET_UP_TIMEOUT: Duration = Duration::from_secs(60);

/// The part of the JSON that both programs write.
#[derive(Deserialize)]
struct Json {
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    intervals: Vec<IperfInterval>,
    end: Option<IperfEnd>,
}

#[derive(Deserialize)]
struct IperfInterval {
    sum: IperfSum,
}

#[derive(Deserialize)]
struct IperfSum {
    start: f64,
    seconds: f64,
    bytes: u64,
    bits_per_second: f64,
    #[serde(default)]
    retransmits: u64,
}

#[derive(Deserialize)]
struct IperfEnd {
    sum_sent: IperfSum,
    sum_received: IperfSum,
    cpu_utilization_percent: Cpu,
    #[serde(default)]
    sender_tcp_congestion: String,
}

#[derive(Deserialize)]
struct Cpu {
    host_total: f64,
    remote_total: f64,
}

/// Runs one measurement.
pub(super) fn once(tools: &Tools, lab: &Lab, sender: Sender, seconds: u32) -> Result<Throughput> {
    let (server, client) = match sender {
        Sender::Longhaul | Sender::LonghaulPlain => longhaul(tools, lab, sender, seconds)?,
        Sender::Iperf3 | Sender::Iperf3Window | Sender::Iperf3Paced => {
            iperf3(lab, sender, seconds)?
        }
    };
    let limit = Duration::from_secs(seconds.into()) + SET_UP_TIMEOUT;
    let (status, out, err) = output_within(client, sender.title(), limit)?;
    drop(server);
    let json: Json = serde_json::from_str(&out)
        .with_context(|| format!("{} ended with {status}: {}", sender.title(), err.trim()))?;
    let Some(end) = json
        .end
        .filter(|_| status.success() && json.error.is_none())
    else {
        bail!("{}: {}", sender.title(), json.error.unwrap_or(err));
    };
    Ok(Throughput {
        seconds: end.sum_received.seconds,
        bits_per_second: end.sum_received.bits_per_second,
        sustained_bits_per_second: sustained(&json.intervals),
        retransmits: end.sum_sent.retransmits,
        congestion: end.sender_tcp_congestion,
        sender_cpu: end.cpu_utilization_percent.host_total,
        receiver_cpu: end.cpu_utilization_percent.remote_total,
    })
}

/// Returns the sending rate in the intervals after slow start, in bit/s.
fn sustained(intervals: &[IperfInterval]) -> f64 {
    let late = intervals
        .iter()
        .filter(|interval| interval.sum.start >= SUSTAINED_FROM);
    let (bytes, seconds) = late.fold((0, 0.0), |(bytes, seconds), interval| {
        (bytes + interval.sum.bytes, seconds + interval.sum.seconds)
    });
    if seconds > 0.0 {
        bytes as f64 * 8.0 / seconds
    } else {
        0.0
    }
}

fn longhaul(tools: &Tools, lab: &Lab, sender: Sender, seconds: u32) -> Result<(Server, Command)> {
    let keys = &tools.identities;
    let mut server = lab.command(RECEIVER, &tools.longhaul)?;
    server
        .env("LONGHAUL_HOME", &keys.server_home)
        .args(["perf", "--serve", "--allow", &keys.client_key, "--listen"])
        .arg(lab.endpoint(RECEIVER, PERF_PORT)?.to_string());
    let server = Server::start(server, "longhaul perf --serve", "listening")?;
    let mut client = lab.command(SENDER, &tools.longhaul)?;
    client
        .env("LONGHAUL_HOME", &keys.client_home)
        .args(["perf", "--json", "--host-key", &keys.server_key])
        .args(["--time", &seconds.to_string()])
        .args([
            "--distance",
            RECORD_KM_AND_HOPS.0,
            "--hops",
            RECORD_KM_AND_HOPS.1,
        ])
        .arg(lab.endpoint(RECEIVER, PERF_PORT)?.to_string());
    if sender == Sender::LonghaulPlain {
        client.arg("--no-encryption");
    }
    Ok((server, client))
}

fn iperf3(lab: &Lab, sender: Sender, seconds: u32) -> Result<(Server, Command)> {
    let mut server = lab.command(RECEIVER, "iperf3")?;
    server.args(["-s", "--forceflush", "-p", &IPERF_PORT.to_string()]);
    let server = Server::start(server, "iperf3 -s", "listening")?;
    let mut client = lab.command(SENDER, "iperf3")?;
    client
        .args([
            "-J",
            "-t",
            &seconds.to_string(),
            "-p",
            &IPERF_PORT.to_string(),
        ])
        .args(["-c", &lab.endpoint(RECEIVER, IPERF_PORT)?.ip().to_string()]);
    if sender == Sender::Iperf3Paced {
        client.args(["--fq-rate", BY_HAND]);
    }
    Ok((server, client))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sustained_rate_excludes_slow_start() {
        let json: Json = serde_json::from_str(
            r#"{"intervals":[
                {"sum":{"start":0.0,"seconds":1.0,"bytes":1,"bits_per_second":8.0}},
                {"sum":{"start":5.0,"seconds":1.0,"bytes":100,"bits_per_second":800.0}},
                {"sum":{"start":6.0,"seconds":1.0,"bytes":200,"bits_per_second":1600.0}}]}"#,
        )
        .unwrap();
        assert_eq!(sustained(&json.intervals), 1200.0);
        assert_eq!(sustained(&[]), 0.0);
    }
}
