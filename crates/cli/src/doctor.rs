//! `longhaul doctor`: what of this machine, and of the path to another, holds bulk transfer back.

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::Args;
use longhaul_doctor::{Finding, Path, Severity, Side, Source, findings, gather, render};

use crate::answer;
use crate::exit::Exit;

/// Find what holds transfers back on this machine, what it costs, and the command that mends it.
///
/// Changes nothing. Costs are reckoned on a path: the one given with --rate and --rtt, else 1 Gbit/s x 100 ms.
///
/// Exit status: 0 nothing costs bandwidth on that path; 1 something does.
#[derive(Args)]
pub struct Doctor {
    /// What the path should carry, such as 10Gbit/s [default: the rate of the device that leads there, else 1Gbit/s].
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    rate: Option<f64>,
    /// The path's round-trip time, such as 100ms [default: 100ms].
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    rtt: Option<f64>,
    /// Measure the disk of this directory too: writes at most 256 MiB there for at most 2 s, reads it back, and removes it.
    #[arg(long, value_name = "DIR")]
    disk: Option<PathBuf>,
    /// Print one JSON object (docs/doctor.md says what is in it).
    #[arg(long)]
    json: bool,
}

impl Doctor {
    /// Looks, and tells.
    pub fn run(self) -> Result<Exit> {
        let facts = gather::gather(&gather::Options {
            host: None,
            disk: self.disk.clone(),
        });
        let mut path = Path::table();
        path.take_rate_of(&facts);
        if let Some(rate) = self.rate {
            (path.rate_bps, path.rate_from) = (rate, Source::Given);
        }
        if let Some(rtt) = self.rtt {
            (path.rtt_seconds, path.rtt_from) = (rtt, Source::Given);
        }
        let found = findings(&facts, &path, Side::Here);
        if self.json {
            answer::line(
                serde_json::json!({ "schema": "longhaul-doctor/1", "path": path, "here": facts, "findings": found }),
            );
        } else {
            answer::line(format_args!("{}this machine:", render::path(&path)));
            answer::line(format_args!(
                "{}{}",
                render::facts(&facts),
                render::findings(&found)
            ));
            answer::line(verdict(&found));
        }
        Ok(exit(&found))
    }
}

fn exit(found: &[Finding]) -> Exit {
    match serious(found) {
        0 => Exit::Success,
        _ => Exit::SomeFailed,
    }
}

fn serious(found: &[Finding]) -> usize {
    found
        .iter()
        .filter(|finding| finding.severity == Severity::Serious)
        .count()
}

fn verdict(found: &[Finding]) -> String {
    match (serious(found), found.len()) {
        (0, 0) => "nothing found that holds this path back".to_owned(),
        (0, _) => "nothing found that costs bandwidth on this path".to_owned(),
        (1, _) => "1 finding costs bandwidth on this path".to_owned(),
        (n, _) => format!("{n} findings cost bandwidth on this path"),
    }
}

/// A rate: a number and bit/s, kbit/s, Mbit/s, Gbit/s or Tbit/s (also short: 10G).
fn parse_rate(text: &str) -> Result<f64> {
    let (number, unit) = split(text);
    let scale = match unit
        .to_ascii_lowercase()
        .trim_end_matches("/s")
        .trim_end_matches("ps")
        .trim_end_matches("bit")
        .trim_end_matches('b')
    {
        "" if unit.is_empty() => None,
        "" => Some(1.0),
        "k" => Some(1e3),
        "m" => Some(1e6),
        "g" => Some(1e9),
        "t" => Some(1e12),
        _ => None,
    };
    let bps = number.zip(scale).map(|(number, scale)| number * scale);
    bps.filter(|bps| (1e3..=1e13).contains(bps))
        .ok_or_else(|| anyhow!("not a rate from 1 kbit/s to 10 Tbit/s: write 10Gbit/s or 155Mbit/s"))
}

/// A time: a number and us, ms or s.
fn parse_time(text: &str) -> Result<f64> {
    let (number, unit) = split(text);
    let scale = match unit {
        "us" => Some(1e-6),
        "ms" => Some(1e-3),
        "s" => Some(1.0),
        _ => None,
    };
    let seconds = number.zip(scale).map(|(number, scale)| number * scale);
    seconds
        .filter(|seconds| (1e-6..=100.0).contains(seconds))
        .ok_or_else(|| anyhow!("not a time from 1us to 100s: write 100ms or 0.2s"))
}

fn split(text: &str) -> (Option<f64>, &str) {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number.parse().ok(), unit.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_times_are_read() {
        assert_eq!(parse_rate("10Gbit/s").unwrap(), 1e10);
        assert_eq!(parse_rate("155 Mbit/s").unwrap(), 1.55e8);
        assert_eq!(parse_rate("2.5g").unwrap(), 2.5e9);
        assert_eq!(parse_rate("1000Mbps").unwrap(), 1e9);
        assert_eq!(parse_time("100ms").unwrap(), 0.1);
        assert_eq!(parse_time("0.25 s").unwrap(), 0.25);
        for bad in [
            "",
            "10",
            "Gbit/s",
            "-1Gbit/s",
            "0Gbit/s",
            "1e9bit/s",
            "10 parsecs",
            "99Tbit/s",
            "1.2.3Mbit/s",
            "infGbit/s",
        ] {
            assert!(parse_rate(bad).is_err(), "{bad}");
        }
        for bad in ["", "100", "ms", "-1ms", "0ms", "1h", "1000s"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
    }
}
