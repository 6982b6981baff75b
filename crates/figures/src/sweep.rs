//! Measures a list of cells and keeps every run in `runs.json`.

use crate::copy::{Source, Tools, measure};
use crate::plan::{self, Cell};
use crate::record::Run;
use crate::report;
use crate::schedule::run_all;
use anyhow::{Result, bail};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Measures every cell both ways with every seed. Each run is written down as it ends, so that a sweep that is cut
/// short has lost only what was under way; an earlier run of the same setting, size, way and seed is replaced. With `resume`, what
/// has a valid run already is left alone. After `until` no run is started: what is left is for another time.
///
/// # Errors
/// A copy failed (after all others were made), or `runs.json` cannot be written.
pub fn run(
    scenarios: &Path,
    out: &Path,
    cells: &[Cell],
    resume: bool,
    repeats: u32,
    until: Option<Instant>,
) -> Result<()> {
    let tools = Tools {
        repeats,
        ..Tools::prepare(scenarios)?
    };
    let path = out.join("runs.json");
    let earlier: Vec<Run> = report::read(&path)?;
    let mut jobs = plan::jobs(cells);
    if resume {
        jobs.retain(|job| !earlier.iter().any(|run| run.counts() && run.is_of(job)));
    }
    let runs = Mutex::new(earlier);
    let left = AtomicUsize::new(0);
    let results = run_all(
        &jobs,
        |job| job.setting.load(job.way),
        |job| -> Result<()> {
            if until.is_some_and(|until| Instant::now() >= until) {
                left.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            let source = Source::sized(&tools, job.bytes)?;
            let run = measure(&tools, job, &source, Some(1))?;
            eprintln!(
                "{} {} {} seed {}: {:.3} Mbit/s{}",
                run.scenario,
                crate::table::size(run.bytes),
                run.route.word(),
                run.seed,
                run.mbps(),
                if run.valid { "" } else { " INVALID" }
            );
            let mut kept = runs.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            kept.retain(|old| {
                (&old.scenario, old.bytes, old.route, old.seed)
                    != (&run.scenario, run.bytes, run.route, run.seed)
            });
            kept.push(run);
            kept.sort_by(|a, b| {
                (&a.scenario, a.bytes, a.seed, a.route.word()).cmp(&(
                    &b.scenario,
                    b.bytes,
                    b.seed,
                    b.route.word(),
                ))
            });
            report::write(&path, &kept)
        },
    );
    if let left @ 1.. = left.into_inner() {
        eprintln!(
            "{left} of {} runs are left: --resume goes on with them",
            jobs.len()
        );
    }
    let failures: Vec<String> = results
        .into_iter()
        .filter_map(Result::err)
        .map(|error| format!("{error:#}"))
        .collect();
    for failure in &failures {
        eprintln!("failed: {failure}");
    }
    if failures.is_empty() {
        Ok(())
    } else {
        bail!(
            "{} of {} copies failed; the lines above say why",
            failures.len(),
            jobs.len()
        )
    }
}
