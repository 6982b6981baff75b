//! The page of attacks.

use anyhow::Result;
use clap::ValueEnum;
use minijinja::context;

use super::{Attack, Cell, Observation};
use crate::columns::Columns;
use crate::page::{Figure, Page, cell};
use crate::runs::Runs;
use crate::single::Basis;
use crate::stats::Spread;
use crate::template::page;

/// Maximum time until an honest copy begins, in seconds.
const MAX_SECONDS_TO_BEGIN: f64 = 1.0;
/// Minimum share of its rate that it keeps.
const MIN_RATE_KEPT: f64 = 0.8;
/// Maximum memory of an attacked process, in bytes: a key's share of remembered state is 128 MiB.
const MAX_MEMORY: u64 = 192 << 20;
/// Maximum number of its descriptors: two for each of the 2,048 files of a key, and the others that
/// it needs.
const MAX_DESCRIPTORS: u64 = 2 * 2_048 + 256;

/// Figures of one attack and build.
struct Figures {
    runs: usize,
    failed: usize,
    begins: Option<Spread>,
    begins_unattacked: Option<Spread>,
    /// Ratio of the rates with and without the attack, round by round.
    ratio: Option<Spread>,
    memory: u64,
    descriptors: u64,
    log: f64,
}

impl Figures {
    fn for_attack(runs: &Runs<'_, Cell, Observation>, attack: Attack) -> Option<Self> {
        let [plain, attacked] = [false, true].map(|under_attack| Cell {
            attack,
            under_attack,
        });
        let all = runs.cell(&attacked);
        let seen = || all.iter().map(|record| &record.seen);
        all.first()?;
        Some(Self {
            runs: all.len(),
            failed: seen().filter(|seen| seen.error.is_some()).count(),
            begins: runs.spread(&attacked, |seen| seen.begins_s),
            begins_unattacked: runs.spread(&plain, |seen| seen.begins_s),
            ratio: runs.ratio(&attacked, &plain, |seen| seen.rate_bps),
            memory: seen().map(|seen| seen.peak_memory).max().unwrap_or(0),
            descriptors: seen().map(|seen| seen.peak_descriptors).max().unwrap_or(0),
            log: seen().map(|seen| seen.log_bytes_per_s).fold(0.0, f64::max),
        })
    }

    fn memory_mib(&self) -> f64 {
        self.memory as f64 / f64::from(1 << 20)
    }

    fn begins_in_time(&self) -> bool {
        let is_in_time = |begins: Spread| begins.max <= MAX_SECONDS_TO_BEGIN;
        self.failed == 0 && self.begins.is_some_and(is_in_time)
    }

    fn keeps_its_rate(&self) -> bool {
        let is_kept = |ratio: Spread| ratio.median >= MIN_RATE_KEPT;
        self.failed == 0 && self.ratio.is_some_and(is_kept)
    }

    fn bounded(&self) -> bool {
        self.memory <= MAX_MEMORY && self.descriptors <= MAX_DESCRIPTORS
    }

    fn begins_text(&self) -> String {
        let failed = format!("{} of {} fail", self.failed, self.runs);
        match (self.failed, self.begins) {
            (0, begins) => cell(begins, 2),
            (_, Some(begins)) => format!("{failed}, {}", cell(Some(begins), 2)),
            (_, None) => failed,
        }
    }
}

/// Returns the page of these runs.
///
/// # Errors
/// Its template is wrong.
pub fn render_page(runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
    let measured = measured(runs);
    let claims: Vec<_> = match measured.is_empty() {
        true => Vec::new(),
        false => CLAIMS
            .iter()
            .map(|(text, holds)| {
                let failing = measured.iter().filter(|(_, figures)| !holds(figures));
                let failing: Vec<&str> = failing.map(|(attack, _)| attack.title()).collect();
                context!(text, failing)
            })
            .collect(),
    };
    let attacks = measured.len();
    let table = Columns::of(measured)
        .text("attack", |(attack, _)| attack.title())
        .spread("begins without, s", 2, |(_, figures)| {
            figures.begins_unattacked
        })
        .text("begins within, s", |(_, figures)| figures.begins_text())
        .spread("rate, share of that without", 2, |(_, figures)| {
            figures.ratio
        })
        .number("peak memory, MiB", 0, |(_, figures)| figures.memory_mib())
        .text("descriptors", |(_, figures)| figures.descriptors)
        .number("log, bytes/s", 0, |(_, figures)| figures.log)
        .text("runs", |(_, figures)| figures.runs)
        .table();
    page!("attacks", table, claims, attacks)
}

/// Returns the figures over all attacks.
pub fn figures(runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
    let measured = measured(runs);
    let of = |value: fn(&Figures) -> Option<f64>| {
        let values = measured.iter().filter_map(|(_, figures)| value(figures));
        Spread::from_samples(&values.collect::<Vec<_>>())
    };
    let ratios = measured.iter().filter_map(|(_, figures)| figures.ratio);
    let least = ratios.map(|ratio| ratio.count).min().unwrap_or(0);
    let figure =
        |key, title, value, digits, basis| Figure::new(key, title, cell(of(value), digits), basis);
    vec![
        figure(
            "begins",
            "the latest begin of an honest copy under each attack, s",
            |figures| Some(figures.begins?.max),
            2,
            Basis::Counted,
        ),
        figure(
            "rate",
            "the share of its rate that an honest copy keeps under each attack",
            |figures| Some(figures.ratio?.median),
            2,
            Basis::Runs(least),
        ),
        figure(
            "memory",
            "the most memory of an attacked process under each attack, MiB",
            |figures| Some(figures.memory_mib()),
            0,
            Basis::Counted,
        ),
    ]
}

fn measured(runs: &Runs<'_, Cell, Observation>) -> Vec<(Attack, Figures)> {
    let all = Attack::value_variants().iter();
    all.filter_map(|attack| Some((*attack, Figures::for_attack(runs, *attack)?)))
        .collect()
}

/// Test of a claim.
type Holds = fn(&Figures) -> bool;

/// Claims about every attack.
const CLAIMS: [(&str, Holds); 3] = [
    (
        "every honest copy begins within 1 s of the start of its command",
        Figures::begins_in_time,
    ),
    (
        "the median copy, or the only one, loses less than 20 % of its rate",
        Figures::keeps_its_rate,
    ),
    (
        "the attacked process stays below 192 MiB of resident memory and 4,352 descriptors",
        Figures::bounded,
    ),
];
