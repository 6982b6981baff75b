//! `drs run` with programs that know nothing of it: Debian's busybox (`httpd`) sends a file to
//! curl, each as it is and under `drs run`.
//!
//! Written to `drs-run.json` (every run) and `drs-run.md`, each setting as it is measured.

use crate::children::{Server, output_within};
use crate::copy::{self, worst_lag_p99_us};
use crate::stats::Spread;
use crate::{dataset, report};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use wanbed::{Lab, Overrides, Scenario};

/// A copy at 5 Mbit/s takes under a minute.
const LIMIT: Duration = Duration::from_secs(240);
/// How long the server may take until it answers.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// Port of the server inside the lab, whose nodes run nothing else.
const PORT: u16 = 8080;
const MIB: u64 = 1 << 20;

/// Where `drs run` is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Place {
    /// Hosts whose autotuning ends at 64 KB.
    LowCeiling,
    /// Hosts whose autotuning is right.
    Tuned,
    /// Hosts without window scaling.
    Unscaled,
}

impl Place {
    fn id(self) -> &'static str {
        match self {
            Self::LowCeiling => "low-ceiling",
            Self::Tuned => "tuned",
            Self::Unscaled => "unscaled",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::LowCeiling => "autotuning ends at 64 KB, explicit buffers do not",
            Self::Tuned => "autotuning up to 8 MB: right already",
            Self::Unscaled => "window scaling off: 64 KB and no more",
        }
    }

    fn scenario(self) -> &'static str {
        match self {
            Self::LowCeiling => "drs-low-ceiling.toml",
            Self::Tuned | Self::Unscaled => "drs.toml",
        }
    }

    fn overrides(self) -> Overrides {
        match self {
            Self::Tuned => Overrides::default().set("nodes.*.buffers", "\"8 MB\""),
            Self::LowCeiling | Self::Unscaled => Overrides::default(),
        }
    }

    /// What is copied, in bytes: enough for a rate to settle, and no minute at 5 Mbit/s.
    fn bytes(self) -> u64 {
        match self {
            Self::LowCeiling | Self::Tuned => 32 * MIB,
            Self::Unscaled => 8 * MIB,
        }
    }
}

/// One copy.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Run {
    place: String,
    drs: bool,
    bytes: u64,
    seconds: f64,
    goodput_bps: f64,
    /// What both programs' connections had done to them, and what was found: the log's last lines.
    log: Vec<serde_json::Value>,
    /// The summary that `drs run` printed after curl.
    summary: String,
    valid: bool,
    invalid_because: Vec<String>,
    lag_p99_us: u64,
}

/// The programs, and a folder for files.
struct Programs {
    drs: PathBuf,
    busybox: PathBuf,
    curl: PathBuf,
    scratch: tempfile::TempDir,
}

/// Measures the places, `count` runs each way in turn, and writes the results into `out`.
///
/// # Errors
/// A program is missing, the lab or a copy fails, or the results cannot be written.
pub fn run(scenarios: &Path, out: &Path, places: &[Place], count: u32) -> Result<()> {
    let programs = Programs::find()?;
    let file = out.join("drs-run.json");
    let mut runs: Vec<Run> = report::read(&file)?;
    for place in places {
        runs.retain(|run| run.place != place.id());
        for round in 0..count {
            // In turn, so that a slow hour of the machine meets both.
            for drs in [false, true] {
                let run = once(&programs, scenarios, *place, drs)
                    .with_context(|| format!("{} round {round}, {}", place.id(), with_or_without(drs)))?;
                eprintln!(
                    "{} {}: {:.1} Mbit/s",
                    place.id(),
                    with_or_without(drs),
                    run.goodput_bps / 1e6
                );
                runs.push(run);
            }
        }
        fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
        write(&file, &serde_json::to_string_pretty(&runs)?)?;
        write(&out.join("drs-run.md"), &page(&runs))?;
    }
    Ok(())
}

fn with_or_without(drs: bool) -> &'static str {
    if drs { "drs run" } else { "as it is" }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

impl Programs {
    fn find() -> Result<Self> {
        Ok(Self {
            drs: copy::built("drs")?,
            busybox: installed("busybox")?,
            curl: installed("curl")?,
            scratch: copy::scratch()?,
        })
    }

    /// A program in a node, as it is or under `drs run`.
    fn command(&self, lab: &Lab, node: &str, program: &Path, drs: Option<&[&OsStr]>) -> Result<Command> {
        let Some(options) = drs else {
            return Ok(lab.command(node, program)?);
        };
        let mut command = lab.command(node, &self.drs)?;
        command.arg("run").args(options).arg("--").arg(program);
        Ok(command)
    }
}

/// A program of the distribution's.
fn installed(name: &str) -> Result<PathBuf> {
    let folders = [
        "/usr/sbin",
        "/usr/bin",
        "/sbin",
        "/bin",
        "/usr/local/sbin",
        "/usr/local/bin",
    ];
    folders
        .iter()
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.is_file())
        .with_context(|| format!("{name} is not installed: run `make deps`"))
}

fn once(programs: &Programs, scenarios: &Path, place: Place, drs: bool) -> Result<Run> {
    let lab = Lab::up(
        &Scenario::read(scenarios.join(place.scenario()))?,
        &place.overrides(),
    )?;
    let folder = tempfile::tempdir_in(programs.scratch.path()).context("cannot make a folder")?;
    let root = folder.path().join("root");
    let source = root.join("file");
    dataset::sized_file(&source, place.bytes(), place.bytes())?;

    let logs = ["sender.log", "receiver.log"].map(|name| folder.path().join(name));
    let log = OsStr::new("--log");
    let mut server = programs.command(
        &lab,
        "sender",
        &programs.busybox,
        drs.then_some([log, logs[0].as_os_str()].as_slice()),
    )?;
    server
        .args(["httpd", "-f", "-p", &PORT.to_string(), "-h"])
        .arg(&root);
    let url = format!("http://{}:{PORT}/file", lab.address("sender")?);
    let server = Server::start_silent(server, "busybox httpd")?;
    wait_until_answered(programs, &lab, &url)?;

    let copy = folder.path().join("copy");
    let options = [log, logs[1].as_os_str(), OsStr::new("--summary")];
    let mut client = programs.command(
        &lab,
        "receiver",
        &programs.curl,
        drs.then_some(options.as_slice()),
    )?;
    client
        .args([
            "--silent",
            "--show-error",
            "--write-out",
            "%{time_total}",
            "--output",
        ])
        .arg(&copy)
        .arg(&url);
    let (status, told, errors) = output_within(client, "curl", LIMIT)?;
    if !status.success() {
        bail!("curl ended with {status}: {}", errors.trim());
    }
    let links = lab.links()?;
    drop(server);
    drop(lab);
    if fs::read(&copy).ok() != fs::read(&source).ok() {
        bail!("the copy differs from what was served");
    }
    let seconds: f64 = told.trim().parse().context("curl told no time")?;
    let bytes = place.bytes();
    Ok(Run {
        place: place.id().into(),
        drs,
        bytes,
        seconds,
        goodput_bps: bytes as f64 * 8.0 / seconds,
        log: logs.iter().flat_map(|log| told_lines(log)).collect(),
        summary: errors,
        valid: links.valid,
        invalid_because: links.reasons.clone(),
        lag_p99_us: worst_lag_p99_us(&links),
    })
}

/// Asks until the server answers. Each attempt takes a round trip, so this does not spin.
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

/// Actions and ends of a log.
fn told_lines(log: &Path) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
    lines
        .filter(|line: &serde_json::Value| line["event"] != "verdict")
        .collect()
}

/// The results for people.
fn page(runs: &[Run]) -> String {
    let mut text = String::from(
        "# `drs run`: unmodified programs\n\nWritten by `make drs-run`; every run, with its log, is in [drs-run.json](drs-run.json). \
         Debian's busybox (`httpd`) sends a file to curl over 102.1 ms and 36 Mbit/s, one stream, set-up included; median (least to most). Both programs run as they \
         are, or both under `drs run` (mode auto).\n\n\
         | hosts | size | as it is, Mbit/s | drs run, Mbit/s | gain | runs |\n|---|---|---|---|---|---|\n",
    );
    let mut said = String::new();
    for place in <Place as clap::ValueEnum>::value_variants() {
        let of = |drs| -> Vec<&Run> {
            let here = runs.iter().filter(|run| run.place == place.id());
            here.filter(|run| run.drs == drs).collect()
        };
        let (plain, sized) = (of(false), of(true));
        let spread = |runs: &[&Run]| {
            let rates: Vec<f64> = runs.iter().map(|run| run.goodput_bps / 1e6).collect();
            Spread::of(&rates)
        };
        let (Some(before), Some(after)) = (spread(&plain), spread(&sized)) else {
            continue;
        };
        let invalid = plain.iter().chain(&sized).filter(|run| !run.valid).count();
        let doubts = if invalid > 0 {
            format!(", {invalid} of which the lab did not keep up with")
        } else {
            String::new()
        };
        let _ = writeln!(
            text,
            "| {} | {} MB | {:.1} ({:.1} to {:.1}) | {:.1} ({:.1} to {:.1}) | **{:.2}x** | {}+{}{doubts} |",
            place.title(),
            place.bytes() / MIB,
            before.median,
            before.min,
            before.max,
            after.median,
            after.min,
            after.max,
            after.median / before.median,
            plain.len(),
            sized.len(),
        );
        if let Some(first) = sized.first() {
            let _ = write!(
                said,
                "\n{}:\n\n```text\n{}```\n",
                capitalised(place.title()),
                first.summary
            );
        }
    }
    let _ = write!(
        text,
        "\n## What `drs run --summary` said of curl in the first run\n{said}"
    );
    text
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map(|first| first.to_uppercase().chain(letters).collect())
        .unwrap_or_default()
}
