//! The demonstration: a real data set crosses emulated long-haul paths, direct and through depots.

use crate::attacks;
use crate::copy::{Source, Tools, measure};
use crate::dataset;
use crate::plan::Job;
use crate::record::Run;
use crate::report;
use crate::schedule::run_all;
use crate::setting::{self, Mnemonic, Setting, Way};
use crate::stats::Spread;
use crate::table;
use anyhow::{Result, bail};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::path::Path;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// How much is copied.
struct Size {
    /// Bytes of real files, and how many at most.
    real: (u64, u64),
    /// Bytes of the large file between hosts whose window or loss keeps them slow.
    slow: u64,
    /// The same between hosts with large buffers.
    fast: u64,
    /// What is shown, and with how many seeds: one copy says little where losses decide.
    settings: Vec<(Setting, u64)>,
}

impl Size {
    fn full() -> Self {
        let settings = vec![
            (setting::anl_utk(), 6),
            (setting::ucsd_utk(), 6),
            (setting::mnemonic_untuned(Mnemonic::Short), 2),
            (setting::mnemonic_untuned(Mnemonic::Long), 2),
            (setting::mnemonic_tuned(Mnemonic::Short, "reno"), 4),
            (setting::mnemonic_tuned(Mnemonic::Long, "reno"), 4),
        ];
        Self {
            real: (24 * MIB, 400),
            slow: 24 * MIB,
            fast: 504 * MIB,
            settings,
        }
    }

    fn small() -> Self {
        let settings = vec![
            (setting::ucsd_utk(), 1),
            (setting::mnemonic_untuned(Mnemonic::Short), 1),
        ];
        Self {
            real: (3 * MIB, 200),
            slow: MIB,
            fast: MIB,
            settings,
        }
    }
}

/// Runs the demonstration and writes `report.json` into `out`.
///
/// # Errors
/// A copy failed or did not verify, or the lab could not keep up with one of them.
pub fn run(scenarios: &Path, out: &Path, small: bool, first_seed: u64) -> Result<()> {
    let started = Instant::now();
    let tools = Tools::prepare(scenarios)?;
    let size = if small { Size::small() } else { Size::full() };
    let root = tools.scratch.path().join("demo");
    let slow = dataset::real_tree(&root.join("slow"), size.real.0, size.real.1, size.slow)?;
    let fast = dataset::real_tree(&root.join("fast"), size.real.0, size.real.1, size.fast)?;
    println!(
        "data set: {} real files of this machine and one large one, {} MB for the slow settings, {} MB for the fast",
        slow.files - 1,
        slow.bytes / 1_000_000,
        fast.bytes / 1_000_000
    );

    let mut jobs: Vec<Job> = size
        .settings
        .iter()
        .flat_map(|(setting, seeds)| {
            let bytes = if is_fast(setting) { fast.bytes } else { slow.bytes };
            (first_seed..first_seed.saturating_add(*seeds)).flat_map(move |seed| {
                Way::BOTH.map(|way| Job {
                    setting: setting.clone(),
                    bytes,
                    way,
                    seed,
                })
            })
        })
        .collect();
    jobs.sort_by(|a, b| a.setting.load(a.way).total_cmp(&b.setting.load(b.way)));
    let lines = MultiProgress::new();
    let results = run_all(
        &jobs,
        |job| job.setting.load(job.way),
        |job| {
            let line = running_line(&lines, job);
            let name = if is_fast(&job.setting) { "fast" } else { "slow" };
            let result = measure(
                &tools,
                job,
                &Source {
                    root: root.clone(),
                    name: name.into(),
                },
                Some(1),
            );
            line.finish_and_clear();
            let said = match &result {
                Ok(run) => finished_line(job, run),
                Err(error) => format!("FAILED {} {}: {error:#}", job.setting.title, job.way.word()),
            };
            // `MultiProgress::println` is silent where there is no terminal.
            lines.suspend(|| println!("{said}"));
            result
        },
    );
    let failed = results.iter().filter(|result| result.is_err()).count();
    let runs: Vec<Run> = results.into_iter().flatten().collect();
    report::write(&out.join("report.json"), &runs)?;
    print_table(&size.settings, &runs);
    attacks::demonstrate(small)?;
    println!(
        "{} copies in {:.0} s; {}",
        jobs.len(),
        started.elapsed().as_secs_f64(),
        out.join("report.json").display()
    );
    let unverified = runs.iter().filter(|run| !run.verified).count();
    if failed + unverified > 0 {
        bail!("{failed} copies failed and {unverified} did not verify; the lines above say which and why");
    }
    Ok(())
}

/// Whether a setting's hosts are limited by neither a small window nor a loss rate fitted to a slow path.
fn is_fast(setting: &Setting) -> bool {
    setting.hosts == "large buffers"
}

fn running_line(lines: &MultiProgress, job: &Job) -> ProgressBar {
    let line = lines.add(ProgressBar::new_spinner());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
        line.set_style(style);
    }
    line.set_message(format!(
        "{}, {}, seed {}",
        job.setting.title,
        job.way.word(),
        job.seed
    ));
    line.enable_steady_tick(Duration::from_millis(200));
    line
}

fn finished_line(job: &Job, run: &Run) -> String {
    format!(
        "{:<66} {:>6}, seed {:>2}: {:>8.2} Mbit/s, {:>6.1} s, {} files {}{}",
        job.setting.title,
        job.way.word(),
        job.seed,
        run.mbps(),
        run.seconds,
        run.files,
        if run.verified { "verified" } else { "NOT VERIFIED" },
        if run.valid {
            String::new()
        } else {
            format!(" (lab too slow: {})", run.invalid_because.join(", "))
        },
    )
}

/// Means over the seeds, as the papers print averages, with the least and the most.
fn print_table(settings: &[(Setting, u64)], runs: &[Run]) {
    println!(
        "\n{:<66} {:>26} {:>26} {:>7}",
        "mean Mbit/s (least..most), one stream", "direct", "depots", "ratio"
    );
    for (setting, _) in settings {
        let rates = |way| {
            let of_setting = runs
                .iter()
                .filter(|run| run.scenario == setting.id && run.route == way && run.counts());
            Spread::of(&of_setting.map(Run::mbps).collect::<Vec<_>>())
        };
        let shown = |spread: &Spread| format!("{:.2} ({:.2}..{:.2})", spread.mean, spread.min, spread.max);
        match (rates(Way::Direct), rates(Way::Depots)) {
            (Some(direct), Some(depots)) => println!(
                "{:<66} {:>26} {:>26} {:>6.1}x",
                setting.title,
                shown(&direct),
                shown(&depots),
                depots.mean / direct.mean
            ),
            _ => println!("{:<66} no run counts: the lines above say why", setting.title),
        }
    }
    println!("\n{}", table::validity(runs).trim());
}
