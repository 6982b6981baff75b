//! `drs run` with unmodified programs: Debian's busybox (`httpd`) sends a file to curl, without and
//! with `drs run`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use minijinja::context;
use serde::{Deserialize, Serialize};
use wanbed::Lab;

use crate::children::{Server, output_within};
use crate::columns::Columns;
use crate::dataset;
use crate::experiment::{Cost, Experiment, Here};
use crate::network::Network;
use crate::page::{Figure, Page};
use crate::record::name;
use crate::runs::Runs;
use crate::stats::Gain;
use crate::template::page;
use crate::tools::{Tools, built, installed};

/// A copy at 5 Mbit/s takes under a minute.
const COPY_TIMEOUT: Duration = Duration::from_secs(240);
/// Maximum time until the server answers.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// Port of the server inside the lab, whose nodes run nothing else.
const PORT: u16 = 8080;
const MIB: u64 = 1 << 20;

/// The experiment.
pub struct DrsRun;

/// Hosts between which `drs run` is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hosts {
    /// Hosts whose autotuning ends at 64 KB.
    LowCeiling,
    /// Hosts whose autotuning is right.
    Tuned,
    /// Hosts without window scaling.
    Unscaled,
}

/// One copy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Hosts of the copy.
    pub hosts: Hosts,
    /// If true, both programs run under `drs run`.
    pub drs: bool,
}

/// Result of a copy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observation {
    bytes: u64,
    seconds: f64,
    goodput_bps: f64,
    /// Actions and findings for both programs' connections: the log's last lines.
    log: Vec<serde_json::Value>,
    /// Summary that `drs run` printed after curl.
    summary: String,
}

/// The programs.
pub struct Programs {
    drs: PathBuf,
    busybox: PathBuf,
    curl: PathBuf,
}

impl Hosts {
    const ALL: [Self; 3] = [Self::LowCeiling, Self::Tuned, Self::Unscaled];

    fn title(self) -> &'static str {
        match self {
            Self::LowCeiling => "Autotuning ends at 64 KB, explicit buffers do not",
            Self::Tuned => "Autotuning up to 8 MB: right already",
            Self::Unscaled => "Window scaling off: 64 KB and no more",
        }
    }

    /// Returns the bytes that are copied: enough for a rate to settle, but less than a minute at 5
    /// Mbit/s.
    fn bytes(self) -> u64 {
        match self {
            Self::LowCeiling | Self::Tuned => 32 * MIB,
            Self::Unscaled => 8 * MIB,
        }
    }
}

impl Experiment for DrsRun {
    type Cell = Cell;
    type Observation = Observation;
    type Setup = Programs;

    fn name(&self) -> &'static str {
        "drs-run"
    }

    fn title(&self) -> &'static str {
        "`drs run`: unmodified programs, right-sized"
    }

    fn cells(&self) -> Vec<Cell> {
        let both = |hosts| [false, true].map(|drs| Cell { hosts, drs });
        Hosts::ALL.into_iter().flat_map(both).collect()
    }

    fn cost(&self, cell: &Cell) -> Cost {
        let mbps = match (cell.hosts, cell.drs) {
            (Hosts::Tuned, _) | (Hosts::LowCeiling, true) => 25.0,
            _ => 5.0,
        };
        Cost::new(0.2, 3.0 + cell.hosts.bytes() as f64 * 8.0 / (1e6 * mbps))
    }

    fn prepare(&self, _tools: &Tools) -> Result<Programs> {
        Ok(Programs {
            drs: built("drs")?,
            busybox: installed("busybox", "busybox")?,
            curl: installed("curl", "curl")?,
        })
    }

    fn network(
        &self,
        tools: &Tools,
        _setup: &Programs,
        cell: &Cell,
        _seed: u64,
    ) -> Result<Network> {
        match cell.hosts {
            Hosts::LowCeiling => Network::load(tools, "drs-low-ceiling.toml"),
            Hosts::Tuned => {
                Ok(Network::load(tools, "drs.toml")?.set("nodes.*.buffers", "\"8 MB\""))
            }
            Hosts::Unscaled => Network::load(tools, "drs.toml"),
        }
    }

    fn run(&self, here: &Here<'_, Programs>, cell: &Cell) -> Result<Observation> {
        let (programs, lab) = (here.setup, here.lab);
        let (root, bytes) = (here.folder.join("root"), cell.hosts.bytes());
        let source = root.join("file");
        dataset::sized_file(&source, bytes, bytes)?;
        let logs = ["sender.log", "receiver.log"].map(|name| here.folder.join(name));
        let _server = programs.serve(lab, &root, cell.drs.then_some(logs[0].as_path()))?;
        let url = format!("http://{}:{PORT}/file", lab.address("sender")?);
        wait_until_answered(programs, lab, &url)?;
        let copy = here.folder.join("copy");
        let (seconds, summary) =
            programs.fetch(lab, &url, &copy, cell.drs.then_some(logs[1].as_path()))?;
        if fs::read(&copy).ok() != fs::read(&source).ok() {
            bail!("the copy differs from what was served");
        }
        Ok(Observation {
            bytes,
            seconds,
            goodput_bps: bytes as f64 * 8.0 / seconds,
            log: logs.iter().flat_map(|log| last_lines(log)).collect(),
            summary,
        })
    }

    fn outcome(&self, seen: &Observation) -> String {
        format!("{:.1} Mbit/s", seen.goodput_bps / 1e6)
    }

    fn page(&self, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
        let table = Columns::of(Hosts::ALL.into_iter().filter_map(|hosts| gain(runs, hosts)))
            .text("hosts", |(hosts, _)| hosts.title())
            .text("size", |(hosts, _)| format!("{} MB", hosts.bytes() / MIB))
            .spread("as it is, Mbit/s", 1, |(_, gain)| Some(gain.before))
            .spread("drs run, Mbit/s", 1, |(_, gain)| Some(gain.after))
            .text("gain", |(_, gain)| gain.bold(2, "x"))
            .text("runs", |(_, gain)| gain.counts())
            .table();
        let summary = |hosts: Hosts| {
            let runs = runs.cell(&Cell { hosts, drs: true });
            Some(context!(title => hosts.title(), text => runs.first()?.seen.summary))
        };
        let summaries: Vec<_> = Hosts::ALL.into_iter().filter_map(summary).collect();
        page!("drs-run", table, summaries)
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        let both = |(hosts, gain): (Hosts, Gain)| {
            let (ratio, basis) = (gain.ratio(), gain.basis());
            let title = format!("`drs run`, gain: {}", hosts.title());
            let rates = format!("{:.1} by {:.1}", gain.after.median, gain.before.median);
            [
                Figure::new(
                    name(hosts),
                    title,
                    format!("{ratio:.2} ({rates} Mbit/s)"),
                    basis,
                ),
                Figure::quoted(
                    format!("{}-gain", name(hosts)),
                    format!("{ratio:.1}"),
                    basis,
                ),
            ]
        };
        let measured = Hosts::ALL.into_iter().filter_map(|hosts| gain(runs, hosts));
        measured.flat_map(both).collect()
    }
}

/// Returns the rates without and with `drs run`, in Mbit/s.
fn gain(runs: &Runs<'_, Cell, Observation>, hosts: Hosts) -> Option<(Hosts, Gain)> {
    let [before, after] = [false, true].map(|drs| Cell { hosts, drs });
    let gain = runs.gain([&before, &after], |seen| seen.goodput_bps / 1e6)?;
    Some((hosts, gain))
}

impl Programs {
    /// Returns a program in a node, without or with `drs run`.
    fn command(
        &self,
        lab: &Lab,
        node: &str,
        program: &Path,
        drs: Option<&[&OsStr]>,
    ) -> Result<Command> {
        let Some(options) = drs else {
            return Ok(lab.command(node, program)?);
        };
        let mut command = lab.command(node, &self.drs)?;
        command.arg("run").args(options).arg("--").arg(program);
        Ok(command)
    }

    fn serve(&self, lab: &Lab, root: &Path, log: Option<&Path>) -> Result<Server> {
        let options = log.map(|log| [OsStr::new("--log"), log.as_os_str()]);
        let mut server = self.command(
            lab,
            "sender",
            &self.busybox,
            options.as_ref().map(|all| all.as_slice()),
        )?;
        server
            .args(["httpd", "-f", "-p", &PORT.to_string(), "-h"])
            .arg(root);
        Server::start_silent(server, "busybox httpd")
    }

    /// Fetches the file. Returns the seconds that curl reports, and the output of `drs run`.
    fn fetch(&self, lab: &Lab, url: &str, to: &Path, log: Option<&Path>) -> Result<(f64, String)> {
        let options = log.map(|log| {
            [
                OsStr::new("--log"),
                log.as_os_str(),
                OsStr::new("--summary"),
            ]
        });
        let mut client = self.command(
            lab,
            "receiver",
            &self.curl,
            options.as_ref().map(|all| all.as_slice()),
        )?;
        client
            .args([
                "--silent",
                "--show-error",
                "--write-out",
                "%{time_total}",
                "--output",
            ])
            .arg(to)
            .arg(url);
        let (status, reported, errors) = output_within(client, "curl", COPY_TIMEOUT)?;
        if !status.success() {
            bail!("curl ended with {status}: {}", errors.trim());
        }
        Ok((
            reported.trim().parse().context("curl reported no time")?,
            errors,
        ))
    }
}

/// Repeats a request until the server answers. Each attempt takes a round trip, so this does not
/// spin.
fn wait_until_answered(programs: &Programs, lab: &Lab, url: &str) -> Result<()> {
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        let status = lab
            .command("receiver", &programs.curl)?
            .args(["--silent", "--head", url])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .context("cannot start curl")?;
        if status.success() {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!(
                "busybox httpd did not answer within {} s ({status})",
                READY_WITHIN.as_secs()
            );
        }
    }
}

/// Returns the actions and ends in a log.
fn last_lines(log: &Path) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    lines
        .filter(|line: &serde_json::Value| line["event"] != "verdict")
        .collect()
}
