//! One measured copy: a lab, a server, depots, `longhaul cp`, and what its closing report says.

use crate::children::{Server, output_within};
use crate::plan::Job;
use crate::record::Run;
use crate::setting::Way;
use crate::{dataset, identities};
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use wanbed::{Lab, Overrides, Scenario};

/// A copy may take this long: ten times the slowest cell of the papers, so that a hang ends.
const LIMIT: Duration = Duration::from_secs(900);

/// Port of `longhaul serve` and of the depots inside the lab, whose nodes run nothing else.
const SERVER_PORT: u16 = 7511;
const DEPOT_PORT: u16 = 7510;

/// What every copy uses: the built programs, the scenarios, keys, and a folder for what is copied.
pub struct Tools {
    /// The `longhaul` binary.
    pub longhaul: PathBuf,
    /// The folder of scenario files.
    pub scenarios: PathBuf,
    /// Where sources and copies lie: memory-backed where there is one, so that no disk is measured.
    pub scratch: tempfile::TempDir,
    /// How often a run is repeated, with the same seed, when the lab did not keep up.
    pub repeats: u32,
    /// Keys of client, server and depots.
    pub identities: identities::Identities,
}

impl Tools {
    /// Finds the programs beside this one, and makes keys and a scratch folder.
    ///
    /// # Errors
    /// `longhaul` has not been built, or the scratch folder cannot be made.
    pub fn prepare(scenarios: &Path) -> Result<Self> {
        let longhaul = built("longhaul")?;
        let scratch = scratch()?;
        let identities = identities::Identities::create(&longhaul, &scratch.path().join("keys"))?;
        Ok(Self {
            longhaul,
            scenarios: scenarios.to_path_buf(),
            scratch,
            repeats: 2,
            identities,
        })
    }
}

/// A program that is built beside this one.
///
/// # Errors
/// It has not been built.
pub fn built(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find this program's own folder")?;
    let program = own.with_file_name(name);
    if !program.exists() {
        bail!(
            "{} is missing: build it with `cargo build --release --workspace`",
            program.display()
        );
    }
    Ok(program)
}

/// A folder for what is copied, memory-backed where there is one, so that no disk is measured.
///
/// # Errors
/// It cannot be made.
pub fn scratch() -> Result<tempfile::TempDir> {
    let memory = Path::new("/dev/shm");
    let base = if memory.is_dir() {
        memory.to_path_buf()
    } else {
        std::env::temp_dir()
    };
    tempfile::Builder::new()
        .prefix("longhaul-figures-")
        .tempdir_in(&base)
        .with_context(|| format!("cannot make a folder in {}", base.display()))
}

/// What is copied: a file or a folder below a served root.
#[derive(Clone, Debug)]
pub struct Source {
    /// The folder that is served.
    pub root: PathBuf,
    /// File or folder below it.
    pub name: String,
}

impl Source {
    /// A file of exactly `bytes` bytes.
    pub fn sized(tools: &Tools, bytes: u64) -> Result<Self> {
        let root = tools.scratch.path().join("sized");
        let name = format!("{bytes}.bin");
        dataset::sized_file(&root.join(&name), bytes, bytes)?;
        Ok(Self { root, name })
    }
}

/// Makes one copy, with so many streams or as many as it takes by itself; repeats it when the lab did not keep up, and says how often.
///
/// # Errors
/// The lab, a server or the copy could not be started, or the copy failed.
pub fn measure(tools: &Tools, job: &Job, source: &Source, streams: Option<u32>) -> Result<Run> {
    let mut discarded = 0;
    loop {
        let mut run = once(tools, job, source, streams)
            .with_context(|| format!("{} {} seed {}", job.setting.id, job.way.word(), job.seed))?;
        run.discarded = discarded;
        if run.valid || discarded == tools.repeats {
            return Ok(run);
        }
        eprintln!(
            "thrown away and repeated: {} {} seed {}: {}",
            job.setting.id,
            job.way.word(),
            job.seed,
            run.invalid_because.join("; ")
        );
        discarded += 1;
    }
}

fn once(tools: &Tools, job: &Job, source: &Source, streams: Option<u32>) -> Result<Run> {
    let setting = &job.setting;
    let scenario = Scenario::read(tools.scenarios.join(setting.scenario))?;
    let overrides = setting
        .set
        .iter()
        .fold(Overrides::default().seed(job.seed), |all, (path, value)| {
            all.set(path.clone(), value.clone())
        });
    let lab = Lab::up(&scenario, &overrides)?;

    let mut servers = vec![serve(tools, &lab, setting.server, source)?];
    if job.way == Way::Depots {
        for depot in setting.depots {
            servers.push(start_depot(tools, &lab, depot)?);
        }
    }
    let target = tempfile::tempdir_in(tools.scratch.path()).context("cannot make a folder for the copy")?;
    let mut cp = in_node(tools, &lab, setting.client, &tools.identities.client_home)?;
    cp.args(["cp", "-r", "--json", "--host-key", &tools.identities.server_key])
        .args(["--route", &route(&lab, job)?])
        .arg(format!(
            "lh://{}:{SERVER_PORT}/{}",
            lab.address(setting.server)?,
            source.name
        ))
        .arg(target.path());
    if let Some(streams) = streams {
        cp.args(["--streams", &streams.to_string()]);
    }
    let (status, out, err) = output_within(cp, "longhaul cp", LIMIT)?;
    let links = lab.links()?;
    drop(servers);
    let report = closing_report(&out).with_context(|| format!("exit {status}: {}", err.trim()))?;
    if !status.success() {
        bail!(
            "longhaul cp ended with {status}: {}",
            report.error.as_deref().unwrap_or_else(|| err.trim())
        );
    }
    Ok(Run {
        scenario: setting.id.into(),
        route: job.way,
        congestion: setting.congestion.into(),
        hosts: setting.hosts.into(),
        bytes: report.bytes,
        files: report.files,
        seconds: report.seconds,
        goodput_bps: report.goodput_bps,
        verified: report.verification.verified,
        seed: job.seed,
        streams: report.streams.len() as u32,
        retransmits: report
            .streams
            .iter()
            .filter_map(|stream| stream.retransmits)
            .sum(),
        limited_by: report.limited_by,
        valid: links.valid,
        invalid_because: links.reasons.clone(),
        lag_p99_us: worst_lag_p99_us(&links),
        discarded: 0,
    })
}

/// The worst 99th percentile of lag over a lab's links, in microseconds.
pub fn worst_lag_p99_us(links: &wanbed::Report) -> u64 {
    let both = links
        .links
        .iter()
        .flat_map(|link| [&link.counters.forward, &link.counters.backward]);
    both.map(|direction| direction.lag.p99).max().unwrap_or(0)
}

/// The route as `longhaul cp` takes it.
fn route(lab: &Lab, job: &Job) -> Result<String> {
    if job.way == Way::Direct {
        return Ok("direct".into());
    }
    let depots = job.setting.depots.iter();
    let hops: Result<Vec<String>, wanbed::Error> = depots
        .map(|depot| Ok(format!("{}:{DEPOT_PORT}", lab.address(depot)?)))
        .collect();
    Ok(hops?.join(","))
}

/// The `longhaul` command in a node, with the keys of `home`.
fn in_node(tools: &Tools, lab: &Lab, node: &str, home: &Path) -> Result<Command> {
    let mut command = lab.command(node, &tools.longhaul)?;
    command.env("LONGHAUL_HOME", home);
    Ok(command)
}

fn serve(tools: &Tools, lab: &Lab, node: &str, source: &Source) -> Result<Server> {
    let mut command = in_node(tools, lab, node, &tools.identities.server_home)?;
    command
        .args([
            "serve",
            "--listen",
            &format!("0.0.0.0:{SERVER_PORT}"),
            "--read",
            &tools.identities.client_key,
        ])
        .arg("--root")
        .arg(&source.root);
    Server::start(command, "longhaul serve", "listening")
}

fn start_depot(tools: &Tools, lab: &Lab, node: &str) -> Result<Server> {
    let mut command = in_node(tools, lab, node, &tools.identities.depot_home(node))?;
    command
        .args(["depot", "--listen", &format!("0.0.0.0:{DEPOT_PORT}"), "--policy"])
        .arg(&tools.identities.depot_policy);
    Server::start(command, "longhaul depot", "listening")
}

/// The last line of `longhaul cp --json`.
#[derive(Deserialize)]
struct Report {
    bytes: u64,
    files: u64,
    seconds: f64,
    goodput_bps: f64,
    verification: Verification,
    error: Option<String>,
    limited_by: Option<String>,
    streams: Vec<StreamReport>,
}

#[derive(Deserialize)]
struct Verification {
    verified: bool,
}

#[derive(Deserialize)]
struct StreamReport {
    retransmits: Option<u64>,
}

fn closing_report(out: &str) -> Result<Report> {
    let last = out
        .lines()
        .rfind(|line| !line.trim().is_empty())
        .context("longhaul cp printed no report")?;
    serde_json::from_str(last).with_context(|| format!("longhaul cp's closing report does not parse: {last}"))
}
