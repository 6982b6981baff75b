//! How many streams a copy takes by itself, beside fixed numbers of them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Mutex;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::copy::{Source, Tools, measure};
use crate::plan::Job;
use crate::record::Run;
use crate::report;
use crate::schedule::run_all;
use crate::setting::{self, Mnemonic, Setting, Way};
use crate::stats::Spread;

const MIB: u64 = 1 << 20;
/// The numbers that a user might give; `None` is what the copy finds by itself.
const NUMBERS: [Option<u32>; 6] = [Some(1), Some(2), Some(4), Some(8), Some(16), None];

/// One copy, and the number of streams that it was told.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Told {
    told: Option<u32>,
    #[serde(flatten)]
    run: Run,
}

/// What is copied: each a limit of another kind.
fn cells() -> [(Setting, u64); 4] {
    let clean = Setting {
        // Streams of one copy are what is compared, not neighbours.
        load: (1.0, 1.0),
        ..setting::clean_long()
    };
    [
        (setting::mnemonic_untuned(Mnemonic::Long), 24 * MIB),
        (setting::ucsd_utk(), 48 * MIB),
        (
            Setting {
                load: (1.0, 1.0),
                ..setting::mnemonic_tuned(Mnemonic::Long, "reno")
            },
            512 * MIB,
        ),
        (clean, 256 * MIB),
    ]
}

/// Measures every cell, number and seed that has no valid run in `streams.json` yet, and writes `streams.md`.
///
/// # Errors
/// A copy failed (after all others were made), or a file cannot be read or written.
pub fn run(scenarios: &Path, out: &Path, seeds: u64) -> Result<()> {
    let tools = Tools::prepare(scenarios)?;
    let path = out.join("streams.json");
    let earlier: Vec<Told> = report::read(&path)?;
    let mut jobs = Vec::new();
    for (setting, bytes) in cells() {
        for seed in 1..=seeds {
            for told in NUMBERS {
                let job = Job {
                    setting: setting.clone(),
                    bytes,
                    way: Way::Direct,
                    seed,
                };
                let done = |old: &Told| old.told == told && old.run.is_of(&job) && old.run.counts();
                if !earlier.iter().any(done) {
                    jobs.push((job, told));
                }
            }
        }
    }
    let kept = Mutex::new(earlier);
    let failures: Vec<String> = run_all(
        &jobs,
        |(job, _)| job.setting.load(job.way),
        |(job, told)| -> Result<()> {
            let source = Source::sized(&tools, job.bytes)?;
            let run = measure(&tools, job, &source, *told)?;
            eprintln!(
                "{} {told:?} seed {}: {:.2} Mbit/s",
                run.scenario,
                run.seed,
                run.mbps()
            );
            let mut kept = kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            kept.retain(|old| !(old.told == *told && old.run.is_of(job)));
            kept.push(Told { told: *told, run });
            kept.sort_by(|a, b| {
                (&a.run.scenario, a.told, a.run.seed).cmp(&(&b.run.scenario, b.told, b.run.seed))
            });
            report::write(&path, &kept)
        },
    )
    .into_iter()
    .filter_map(Result::err)
    .map(|error| format!("{error:#}"))
    .collect();
    let kept = kept.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    fs::write(out.join("streams.md"), page(&kept)?)
        .with_context(|| format!("cannot write into {}", out.display()))?;
    if failures.is_empty() {
        return Ok(());
    }
    bail!("{} copies failed: {}", failures.len(), failures.join("; "))
}

/// The table of all runs that count.
fn page(runs: &[Told]) -> Result<String> {
    let mut text = String::from(
        "# How many streams a copy takes\n\nWritten by `longhaul-figures streams`; every run is in [streams.json](streams.json). `longhaul cp` without depots, told how many \
         streams to use, and not told: then it begins with one and tries more while it runs (`docs/copying.md`). Goodput in Mbit/s, from the start of the copy to its \
         verified end; the median of the seeds, with the least and the greatest. The share is of the best fixed number; the last column is what a copy with one stream says of itself.\n\n| setting | size |",
    );
    for told in NUMBERS {
        match told {
            Some(number) => write!(text, " {number} |")?,
            None => text.push_str(" not told |"),
        }
    }
    text.push_str(
        " streams it came to | share of the best | one stream is limited by |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for (setting, bytes) in cells() {
        write!(text, "| {} | {} MiB |", setting.title, bytes / MIB)?;
        let of = |told: Option<u32>, value: fn(&Run) -> f64| {
            let samples: Vec<f64> = runs
                .iter()
                .filter(|one| one.told == told && one.run.scenario == setting.id && one.run.bytes == bytes)
                .filter(|one| one.run.counts())
                .map(|one| value(&one.run))
                .collect();
            Spread::of(&samples)
        };
        for told in NUMBERS {
            match of(told, Run::mbps) {
                Some(spread) => write!(
                    text,
                    " {:.1} ({:.1}..{:.1}) |",
                    spread.median, spread.min, spread.max
                )?,
                None => text.push_str(" - |"),
            }
        }
        let best = NUMBERS
            .into_iter()
            .flatten()
            .filter_map(|number| of(Some(number), Run::mbps))
            .map(|spread| spread.median)
            .fold(0.0, f64::max);
        match (of(None, |run| f64::from(run.streams)), of(None, Run::mbps)) {
            (Some(streams), Some(found)) if best > 0.0 => writeln!(
                text,
                " {:.0} ({:.0}..{:.0}) | {:.0} % | {} |",
                streams.median,
                streams.min,
                streams.max,
                100.0 * found.median / best,
                words(runs, setting.id)
            )?,
            _ => text.push_str(" - | - | - |\n"),
        }
    }
    Ok(text)
}

/// What the copies with one stream say of themselves.
fn words(runs: &[Told], setting: &str) -> String {
    let mut words: Vec<&str> = runs
        .iter()
        .filter(|one| one.told == Some(1) && one.run.scenario == setting && one.run.counts())
        .filter_map(|one| one.run.limited_by.as_deref())
        .collect();
    words.sort_unstable();
    words.dedup();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_holds_what_counts_and_what_it_is_compared_with() {
        let (setting, bytes) = &cells()[0];
        let run = |told, goodput: f64, streams, valid| Told {
            told,
            run: Run {
                scenario: setting.id.into(),
                route: Way::Direct,
                congestion: "reno".into(),
                hosts: "64 KB".into(),
                bytes: *bytes,
                files: 1,
                seconds: 1.0,
                goodput_bps: goodput,
                verified: true,
                seed: 1,
                streams,
                retransmits: 0,
                limited_by: Some("receive-window".into()),
                valid,
                invalid_because: vec![],
                lag_p99_us: 0,
                discarded: 0,
            },
        };
        let runs = [
            run(Some(1), 3e6, 1, true),
            run(Some(8), 20e6, 8, true),
            run(Some(16), 90e6, 16, false),
            run(None, 15e6, 4, true),
        ];
        let text = page(&runs).unwrap();
        let line = text.lines().find(|line| line.contains(setting.title)).unwrap();
        assert!(
            line.ends_with("| 15.0 (15.0..15.0) | 4 (4..4) | 75 % | receive-window |"),
            "{line}"
        );
        assert!(
            line.contains("| - |"),
            "a run that does not count is not there: {line}"
        );
    }
}
