//! The demonstration: the features of Longhaul, act by act, on emulated long-haul paths.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};

use crate::copy::{Copied, Source, copy};
use crate::dataset;
use crate::experiment::{Cost, Experiment, Here};
use crate::experiments::attacks::{Attack, Attacks};
use crate::experiments::copy::OVER_SSH;
use crate::experiments::drs_run::{self, DrsRun, Hosts};
use crate::experiments::{
    admission, attacks, deadlines, gridftp, jobs, kills, lsr, mesh, multipath,
};
use crate::network::Network;
use crate::page::Page;
use crate::plans::plan;
use crate::record::{Key, Record};
use crate::runner;
use crate::runs::Runs;
use crate::schedule::run_all;
use crate::setting::{self, CopyRoute, Setting};
use crate::store::Store;
use crate::tools::Tools;

const MIB: u64 = 1 << 20;

/// Duration of the stream over the record's path, in seconds.
const RECORD_SECONDS: u32 = 12;

/// Duration of GridFTP's transfers, in seconds.
const GRIDFTP_SECONDS: [u32; 1] = [10];
/// Number of repeats if the lab did not keep up, and the time until which they are made: the
/// demonstration takes at most ten minutes. Runs that stay invalid are marked.
const RETRIES: u32 = 1;
const RETRIES_END: Duration = Duration::from_secs(360);
/// Copies of the mesh, each way.
const MESH_COPIES: usize = 6;
/// Copies with deadlines, each way.
const DEADLINE_COPIES: usize = 2;
/// Time for which the mesh's controller observes the links before the copies, in seconds: at least
/// one measurement of each path.
const MESH_LEARNING_SECONDS: f64 = 40.0;

/// Runs the demonstration and writes `report.json` into `out`.
///
/// # Errors
/// A copy failed or did not verify.
pub fn run(scenarios: &Path, out: &Path, small: bool, first_seed: u64) -> Result<()> {
    let tools = Tools::prepare(scenarios)?;
    let mut stage = Stage {
        tools: &tools,
        started: Instant::now(),
        first_seed,
        words: plan(include_str!("../plans/demo.toml")),
        failed: 0,
    };

    let crossings = if small {
        Crossings::small()
    } else {
        Crossings::full()
    };
    let records = stage.act("real-files", &crossings, &crossings.keys(first_seed))?;
    Store::open(out, "report").write(&records)?;

    if !small {
        stage.show("ssh", &OVER_SSH, OVER_SSH.demonstrated())?;
        stage.show("kills", &kills::Kills, kills::Cell::demonstrated())?;
        stage.show("jobs", &jobs::Jobs, jobs::Cell::DEMONSTRATED)?;
        stage.show(
            "multipath",
            &multipath::Multipath,
            [multipath::Cell::demonstrated()],
        )?;
        let record = lsr::Lsr {
            seconds: RECORD_SECONDS,
        };
        stage.show("record", &record, [lsr::Cell::LONGHAUL])?;
        let timed = gridftp::GridFtp {
            seconds: &GRIDFTP_SECONDS,
        };
        stage.show("gridftp", &timed, gridftp::Cell::DEMONSTRATED)?;
        let mesh = mesh::Mesh {
            copies: MESH_COPIES,
            learning_seconds: MESH_LEARNING_SECONDS,
        };
        stage.show("mesh", &mesh, mesh::Cell::DEMONSTRATED)?;
        stage.show(
            "admission",
            &admission::Admission,
            admission::Cell::demonstrated(),
        )?;
        let deadlines = deadlines::Deadlines {
            copies: DEADLINE_COPIES,
        };
        stage.show("deadlines", &deadlines, deadlines::Cell::DEMONSTRATED)?;
        let hosts = Hosts::LowCeiling;
        let cells = [false, true].map(|drs| drs_run::Cell { hosts, drs });
        stage.show("drs-run", &DrsRun, cells)?;
    }
    let shown = if small {
        &DEMONSTRATED[..1]
    } else {
        &DEMONSTRATED[..]
    };
    let under = |&attack: &Attack| {
        [false, true].map(|under_attack| attacks::Cell {
            attack,
            under_attack,
        })
    };
    stage.show("attacks", &Attacks, shown.iter().flat_map(under))?;

    crossings.print_table(&Runs::select_valid(&records));
    println!(
        "\n{:.0} s in all; {}",
        stage.started.elapsed().as_secs_f64(),
        out.join("report.json").display()
    );
    if stage.failed > 0 {
        bail!(
            "{} runs failed; the lines above say which and why",
            stage.failed
        );
    }
    Ok(())
}

/// Demonstrated attacks: a crowd of strangers at a server, and unresolvable names at a depot.
const DEMONSTRATED: [Attack; 2] = [Attack::IdleAtServe, Attack::SlowNames];

fn key<C>(factors: C, seed: u64) -> Key<C> {
    Key::new(factors, seed)
}

/// Setting in which the acts are made.
struct Stage<'a> {
    tools: &'a Tools,
    started: Instant,
    first_seed: u64,
    /// Introduction of each act.
    words: BTreeMap<String, String>,
    /// Number of runs that did not complete.
    failed: usize,
}

impl Stage<'_> {
    /// Makes one run of each of these cells.
    fn show<E: Experiment>(
        &mut self,
        name: &str,
        experiment: &E,
        cells: impl IntoIterator<Item = E::Cell>,
    ) -> Result<()> {
        println!();
        let keys: Vec<_> = cells
            .into_iter()
            .map(|cell| key(cell, self.first_seed))
            .collect();
        self.act(name, experiment, &keys).map(drop)
    }

    /// Makes these runs and prints a line for each. Returns those that completed.
    fn act<E: Experiment>(
        &mut self,
        name: &str,
        experiment: &E,
        keys: &[Key<E::Cell>],
    ) -> Result<Vec<Record<E::Cell, E::Observation>>> {
        println!("{}", self.words.get(name).context("this act has no words")?);
        let setup = experiment.prepare(self.tools)?;
        let progress = ProgressBar::new(keys.len() as u64);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {pos} of {len} runs, {elapsed}")
        {
            progress.set_style(style);
        }
        progress.enable_steady_tick(Duration::from_millis(200));
        let (tools, started) = (self.tools, self.started);
        let outcomes = run_all(
            keys,
            |key| experiment.cost(&key.factors).share,
            |key| {
                let retries = if started.elapsed() < RETRIES_END {
                    RETRIES
                } else {
                    0
                };
                let outcome = runner::run(experiment, tools, &setup, key, retries, "");
                let line = match &outcome {
                    Ok(record) => runner::line(experiment, record),
                    Err(error) => format!("FAILED {error:#}"),
                };
                // `ProgressBar::println` is silent where there is no terminal.
                progress.suspend(|| println!("{line}"));
                progress.inc(1);
                outcome
            },
        );
        progress.finish_and_clear();
        self.failed += outcomes.iter().filter(|outcome| outcome.is_err()).count();
        Ok(outcomes.into_iter().flatten().collect())
    }
}

/// Copies of a tree of real files and a large one.
struct Crossings {
    /// Maximum bytes and number of real files.
    real: (u64, u64),
    /// Size of the large file between hosts whose window or loss keeps them slow.
    slow: u64,
    /// Size of the large file between hosts with large buffers.
    fast: u64,
    /// Settings and their numbers of seeds: with random losses, one copy says little.
    settings: Vec<(&'static Setting, u64)>,
}

/// One copy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Cell {
    setting: String,
    way: CopyRoute,
}

impl Crossings {
    fn full() -> Self {
        let settings = [
            ("lsl-anl-utk", 2),
            ("lsl-ucsd-utk", 2),
            ("mnemonic-10-50-10-64k", 1),
            ("mnemonic-25-100-25-64k", 1),
            ("mnemonic-10-50-10-reno", 2),
            ("mnemonic-25-100-25-reno", 1),
        ];
        Self::new((24 * MIB, 400), 24 * MIB, 504 * MIB, &settings)
    }

    fn small() -> Self {
        let settings = [("lsl-ucsd-utk", 1), ("mnemonic-10-50-10-64k", 1)];
        Self::new((3 * MIB, 200), MIB, MIB, &settings)
    }

    fn new(real: (u64, u64), slow: u64, fast: u64, settings: &[(&str, u64)]) -> Self {
        let planned = |(id, seeds): &(&str, u64)| Some((setting::named(id).ok()?, *seeds));
        let settings = settings.iter().filter_map(planned).collect();
        Self {
            real,
            slow,
            fast,
            settings,
        }
    }

    /// Returns all runs, those that need little of the machine first.
    fn keys(&self, first_seed: u64) -> Vec<Key<Cell>> {
        let mut keys: Vec<Key<Cell>> = self
            .settings
            .iter()
            .flat_map(|(setting, seeds)| {
                (first_seed..first_seed.saturating_add(*seeds)).flat_map(move |seed| {
                    CopyRoute::BOTH.map(|way| {
                        let setting = setting.id.to_owned();
                        key(Cell { setting, way }, seed)
                    })
                })
            })
            .collect();
        keys.sort_by(|a, b| {
            let share = |key: &Key<Cell>| self.cost(&key.factors).share;
            share(a).total_cmp(&share(b))
        });
        keys
    }

    fn setting(&self, cell: &Cell) -> Result<&'static Setting> {
        let mut all = self.settings.iter().map(|(setting, _)| *setting);
        all.find(|setting| setting.id == cell.setting)
            .ok_or_else(|| anyhow::anyhow!("there is no setting {}", cell.setting))
    }

    /// Prints means over the seeds, as the papers print averages, with minimum and maximum.
    fn print_table(&self, runs: &Runs<'_, Cell, Copied>) {
        println!(
            "\n{:<66} {:>26} {:>26} {:>7}",
            "mean Mbit/s (least..most), one stream", "direct", "depots", "ratio"
        );
        for (setting, _) in &self.settings {
            let [direct, depots] = CopyRoute::BOTH.map(|way| {
                let setting = setting.id.to_owned();
                runs.spread(&Cell { setting, way }, Copied::mbps)
            });
            let (Some(direct), Some(depots)) = (direct, depots) else {
                println!(
                    "{:<66} no run counts: the lines above say why",
                    setting.title
                );
                continue;
            };
            let [shown_direct, shown_depots] = [direct, depots]
                .map(|spread| format!("{:.2} ({:.2}..{:.2})", spread.mean, spread.min, spread.max));
            println!(
                "{:<66} {shown_direct:>26} {shown_depots:>26} {:>6.1}x",
                setting.title,
                depots.mean / direct.mean
            );
        }
    }
}

/// Returns true if a setting's hosts are limited neither by a small window nor by a loss rate
/// fitted to a slow path.
fn is_fast(setting: &Setting) -> bool {
    setting.hosts == "large buffers"
}

impl Experiment for Crossings {
    type Cell = Cell;
    type Observation = Copied;
    type Setup = PathBuf;

    fn name(&self) -> &'static str {
        "copy"
    }

    fn title(&self) -> &'static str {
        "Copies of real files"
    }

    fn cells(&self) -> Vec<Cell> {
        self.keys(0).into_iter().map(|key| key.factors).collect()
    }

    fn cost(&self, cell: &Cell) -> Cost {
        self.setting(cell).map_or(Cost::new(1.0, 0.0), |setting| {
            let bytes = if is_fast(setting) {
                self.fast
            } else {
                self.slow
            };
            setting.cost(cell.way, bytes + self.real.0)
        })
    }

    fn prepare(&self, tools: &Tools) -> Result<PathBuf> {
        let root = tools.scratch.path().join("demo");
        let slow = dataset::real_tree(&root.join("slow"), self.real.0, self.real.1, self.slow)?;
        let fast = dataset::real_tree(&root.join("fast"), self.real.0, self.real.1, self.fast)?;
        println!(
            "{} real files and a large one, {} MB for the slow settings, {} MB for the fast",
            slow.files - 1,
            slow.bytes / 1_000_000,
            fast.bytes / 1_000_000
        );
        Ok(root)
    }

    fn network(&self, tools: &Tools, _root: &PathBuf, cell: &Cell, _seed: u64) -> Result<Network> {
        self.setting(cell)?.network(tools, cell.way)
    }

    fn run(&self, here: &Here<'_, PathBuf>, cell: &Cell) -> Result<Copied> {
        let setting = self.setting(cell)?;
        let source = Source {
            root: here.setup.clone(),
            name: if is_fast(setting) { "fast" } else { "slow" }.into(),
        };
        copy(here, setting, cell.way, &source, Some(1))
    }

    fn outcome(&self, seen: &Copied) -> String {
        format!("{}, {} files verified", seen.words(), seen.files)
    }

    fn page(&self, _runs: &Runs<'_, Cell, Copied>) -> Result<Page> {
        Ok(Page::default())
    }
}
