//! `longhaul doctor`: finds what limits bulk transfer on this machine, on another, and on the path
//! between them.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::Args;
use longhaul_doctor::{
    AssessedPath, Fact, Facts, Finding, FindingSide, NumberSource, PathMeasurement, Severity,
    findings, gather, probe, render,
};
use longhaul_output::message;
use longhaul_session::{Endpoint, PublicKey};
use longhaul_transfer::Error;
use quantities::{Rate, Time};

use crate::exit::Exit;
use crate::quantity::{path_rate, path_round_trip};
use crate::target::{SERVER_PORT, Target};
use crate::{answer, failure};

mod far;

pub use far::FactsService;

const AFTER_HELP: &str = "\
Exit status: 0 nothing costs bandwidth on that path; 1 something does; 2 the command line is \
wrong; 3 the host does not answer; \
4 the server does not let this key ask, or its key is not the expected one; 5 its answer did not \
arrive; 6 its answer is not understood.

Examples:
  longhaul doctor                                  this machine, for 1 Gbit/s x 100 ms
  longhaul doctor --rate 10Gbit/s --rtt 88ms       this machine, for another path
  longhaul doctor store.example --rate 10Gbit/s    and the path there: round trip, path MTU, what \
  TCP agrees on
  longhaul doctor lh://store.example               and the machine there, which `longhaul serve` \
  reports on";

/// Find what holds transfers back, what it costs, and the command that fixes it.
///
/// Inspects this machine, and changes nothing. With a host, measures the path to it: round trip,
/// path MTU and MTU black holes, what TCP agrees on. With lh://host, asks the `longhaul serve`
/// there about its machine too, and compares the clocks.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Doctor {
    /// A host to measure the path to: host[:port], or lh://host[:port] to inspect the machine there
    /// too [default port: 7511].
    #[arg(value_name = "HOST")]
    host: Option<String>,
    /// The rate that the path should carry, such as 10Gbit/s [default: the rate of the device that
    /// leads there, else 1Gbit/s].
    #[arg(long, value_name = "RATE", value_parser = path_rate)]
    rate: Option<Rate>,
    /// The path's round-trip time, such as 100ms [default: measured to HOST, else 100ms].
    #[arg(long, value_name = "TIME", value_parser = path_round_trip)]
    rtt: Option<Time>,
    /// Measure the disk of this directory too: writes at most 256 MiB there for about 2 s, reads it
    /// back, and removes it.
    #[arg(long, value_name = "DIR")]
    disk: Option<PathBuf>,
    /// The server's key, as `longhaul serve` prints it; nothing else is trusted then.
    #[arg(long, value_name = "KEY")]
    host_key: Option<PublicKey>,
    /// Trust a server that is not known yet, and remember its key.
    #[arg(long, conflicts_with = "host_key")]
    accept_new: bool,
    /// The key to authenticate with [default: the default key, made when first needed].
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Print one JSON object (docs/doctor.md describes it).
    #[arg(long)]
    json: bool,
}

/// Everything that was gathered for the report.
struct GatheredFacts {
    path: AssessedPath,
    here: Facts,
    /// Facts of the remote machine. `None` if it was not to be asked.
    there: Option<Fact<Facts>>,
    found: Vec<Finding>,
}

impl Doctor {
    /// Gathers the facts, and reports the findings.
    pub fn run(self) -> Result<Exit> {
        let host = self.host.as_deref().map(read_host).transpose()?;
        let runtime = crate::runtime::start_small()?;
        let mut path = AssessedPath::assumed();
        let address = match &host {
            Some((endpoint, _)) => {
                let addresses = runtime.block_on(resolve(endpoint))?;
                let measured = self.measure(endpoint, &addresses)?;
                (path.rtt_seconds, path.rtt_from) =
                    (measured.rtt.as_secs_f64(), NumberSource::Measured);
                Some(path.measured.insert(measured).address)
            }
            None => None,
        };
        let here = gather::gather(&gather::GatherOptions {
            host: address.map(|address| address.ip()),
            disk: self.disk.clone(),
        });
        path.take_rate_of(&here);
        if let Some(rate) = self.rate {
            (path.rate_bps, path.rate_from) = (rate.bits_per_second(), NumberSource::Given);
        }
        if let Some(rtt) = self.rtt {
            (path.rtt_seconds, path.rtt_from) = (rtt.seconds(), NumberSource::Given);
        }
        let asked = match &host {
            Some((endpoint, true)) => Some(runtime.block_on(self.ask(endpoint))),
            _ => None,
        };
        let (there, failure) = match asked {
            None => (None, None),
            Some(Ok((facts, clocks))) => {
                if let (Some(measured), Some((endpoint, _))) = (&mut path.measured, &host) {
                    measured.skew = Some(clocks.skew());
                    let quic = runtime.block_on(self.measure_quic(endpoint));
                    measured.quic = Some(quic.map_err(|why| failure::format_line(&why)).into());
                }
                (Some(Fact::Known(facts)), None)
            }
            Some(Err(error)) => (
                Some(Fact::unknown(failure::format_line(&error))),
                Some(error),
            ),
        };
        let mut found = findings(&here, &path, FindingSide::Here);
        if let Some(facts) = there.as_ref().and_then(Fact::known) {
            found.extend(findings(facts, &path, FindingSide::There));
            found.sort_by_key(|finding| finding.severity);
        }
        let seen = GatheredFacts {
            path,
            here,
            there,
            found,
        };
        self.report(&seen);
        match failure {
            Some(error) => Err(error),
            None => Ok(exit(&seen.found)),
        }
    }

    /// Measures the path to the first of the host's addresses that answers.
    fn measure(&self, endpoint: &Endpoint, addresses: &[SocketAddr]) -> Result<PathMeasurement> {
        let mut last = anyhow!(Error::Connect(format!(
            "{endpoint}: the name has no address"
        )));
        for &address in addresses {
            self.report_progress(format_args!("measures the path to {address}"));
            match probe::measure(address) {
                Ok(measured) => return Ok(measured),
                Err(error) => last = error.into(),
            }
        }
        Err(last)
    }

    /// Prints a progress line on a terminal, as some steps take a while.
    fn report_progress(&self, what: std::fmt::Arguments<'_>) {
        if !self.json && std::io::stderr().is_terminal() {
            message!("longhaul: {what}");
        }
    }

    fn report(&self, seen: &GatheredFacts) {
        if self.json {
            answer::write_line(serde_json::json!({
                "schema": "longhaul-doctor/1",
                "path": seen.path,
                "here": seen.here,
                "there": seen.there,
                "findings": seen.found,
            }));
            return;
        }
        // Findings come first, as the facts fill a screen.
        let path = render::path(&seen.path);
        let (assumed, measured) = path.split_once('\n').unwrap_or((&path, ""));
        let mut page = format!(
            "{assumed}\n{}\n{}\n\n{measured}this machine:\n{}",
            render::findings(&seen.found),
            verdict(&seen.found),
            render::facts(&seen.here)
        );
        match &seen.there {
            None => {}
            Some(Fact::Known(facts)) => {
                page += &format!("the far machine:\n{}", render::facts(facts))
            }
            Some(Fact::Unknown(why)) => page += &format!("the far machine: not known: {why}\n"),
        }
        answer::write_line(page.trim_end());
    }
}

/// Parses a host. Returns true with it if the machine there is to be asked.
fn read_host(text: &str) -> Result<(Endpoint, bool)> {
    if text.starts_with("lh://") {
        return match Target::parse(text.as_ref())? {
            Target::Remote(remote) if remote.path.is_root() => Ok((remote.server, true)),
            _ => Err(anyhow!("{text}: name a host, without a path")),
        };
    }
    let endpoint =
        Endpoint::parse_with_port(text, SERVER_PORT).map_err(|error| anyhow!("{text}: {error}"))?;
    match endpoint.port {
        0 => Err(anyhow!("{text}: port 0 cannot be connected to")),
        _ => Ok((endpoint, false)),
    }
}

async fn resolve(endpoint: &Endpoint) -> Result<Vec<SocketAddr>> {
    let text = endpoint.to_string();
    let found = tokio::net::lookup_host(&text).await;
    let found = found.map_err(|error| anyhow!(Error::Connect(format!("{text}: {error}"))))?;
    Ok(found.collect())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read() {
        let (endpoint, ask) = read_host("store.example").unwrap();
        assert_eq!(
            (endpoint.to_string().as_str(), ask),
            ("store.example:7511", false)
        );
        assert!(!read_host("10.0.0.1:22").unwrap().1 && read_host("lh://[::1]").unwrap().1);
        for bad in ["", "lh://", "a b", "h:0", "lh://h/path", "h:99999"] {
            let error = read_host(bad).unwrap_err().to_string();
            assert!(!error.contains('\n'), "{bad}: {error}");
        }
    }
}
