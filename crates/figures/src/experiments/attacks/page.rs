//! The page of attacks.

use std::fmt::Write as _;

use clap::ValueEnum;

use super::{Attack, Cell, Observation};
use crate::page::{Figure, Page, Table, cell};
use crate::record::Record;
use crate::runs::Runs;
use crate::single::Basis;
use crate::stats::Spread;

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
        let of = |under_attack| {
            runs.cell(&Cell {
                attack,
                under_attack,
            })
        };
        let (plain, attacked) = (of(false), of(true));
        let begins = |runs: &[&Record<Cell, Observation>]| {
            let seconds: Vec<f64> = runs.iter().filter_map(|run| run.seen.begins_s).collect();
            Spread::from_samples(&seconds)
        };
        let ratios: Vec<f64> = attacked
            .iter()
            .filter_map(|run| {
                let pair = plain
                    .iter()
                    .find(|other| other.cell.seed == run.cell.seed)?;
                Some(run.seen.rate_bps? / pair.seen.rate_bps?)
            })
            .collect();
        attacked.first()?;
        Some(Self {
            runs: attacked.len(),
            failed: attacked
                .iter()
                .filter(|run| run.seen.error.is_some())
                .count(),
            begins: begins(&attacked),
            begins_unattacked: begins(&plain),
            ratio: Spread::from_samples(&ratios),
            memory: attacked
                .iter()
                .map(|run| run.seen.peak_memory)
                .max()
                .unwrap_or(0),
            descriptors: attacked
                .iter()
                .map(|run| run.seen.peak_descriptors)
                .max()
                .unwrap_or(0),
            log: attacked
                .iter()
                .map(|run| run.seen.log_bytes_per_s)
                .fold(0.0, f64::max),
        })
    }

    fn begins_in_time(&self) -> bool {
        self.failed == 0
            && self
                .begins
                .is_some_and(|begins| begins.max <= MAX_SECONDS_TO_BEGIN)
    }

    fn keeps_its_rate(&self) -> bool {
        self.failed == 0
            && self
                .ratio
                .is_some_and(|ratio| ratio.median >= MIN_RATE_KEPT)
    }

    fn bounded(&self) -> bool {
        self.memory <= MAX_MEMORY && self.descriptors <= MAX_DESCRIPTORS
    }

    fn begins_text(&self) -> String {
        let failed = match self.failed {
            0 => String::new(),
            failed => format!("{failed} of {} fail", self.runs),
        };
        match (&self.begins, failed.is_empty()) {
            (begins, true) => cell(*begins, 2),
            (Some(begins), false) => format!("{failed}, {}", cell(Some(*begins), 2)),
            (None, _) => failed,
        }
    }
}

/// Returns the page of these runs.
pub fn render_page(runs: &Runs<'_, Cell, Observation>) -> Page {
    let mut table = Table::new([
        "attack",
        "begins without, s",
        "begins within, s",
        "rate, share of that without",
        "peak memory, MiB",
        "descriptors",
        "log, bytes/s",
        "runs",
    ]);
    let measured = measured(runs);
    for (attack, figures) in &measured {
        table.row([
            attack.title().to_owned(),
            cell(figures.begins_unattacked, 2),
            figures.begins_text(),
            cell(figures.ratio, 2),
            format!("{:.0}", figures.memory as f64 / f64::from(1 << 20)),
            figures.descriptors.to_string(),
            format!("{:.0}", figures.log),
            figures.runs.to_string(),
        ]);
    }
    Page::new(HEAD).table(&table).paragraph(&judge(&measured))
}

/// Returns the figures over all attacks.
pub fn figures(runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
    let measured = measured(runs);
    let of = |value: fn(&Figures) -> Option<f64>| {
        let values: Vec<f64> = measured
            .iter()
            .filter_map(|(_, figures)| value(figures))
            .collect();
        Spread::from_samples(&values)
    };
    let ratios = measured.iter().filter_map(|(_, figures)| figures.ratio);
    let least = ratios.map(|ratio| ratio.count).min().unwrap_or(0);
    vec![
        Figure::new(
            "begins",
            "the latest begin of an honest copy under each attack, s",
            cell(of(|figures| Some(figures.begins?.max)), 2),
            Basis::Counted,
        ),
        Figure::new(
            "rate",
            "the share of its rate that an honest copy keeps under each attack",
            cell(of(|figures| Some(figures.ratio?.median)), 2),
            Basis::Runs(least),
        ),
        Figure::new(
            "memory",
            "the most memory of an attacked process under each attack, MiB",
            cell(
                of(|figures| Some(figures.memory as f64 / f64::from(1 << 20))),
                0,
            ),
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

/// Lists the claims that hold, and those that do not.
fn judge(measured: &[(Attack, Figures)]) -> String {
    let claims: [(&str, Holds); 3] = [
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
    let mut text = String::new();
    if measured.is_empty() {
        return text;
    }
    for (claim, holds) in claims {
        let failing: Vec<&str> = measured
            .iter()
            .filter(|(_, figures)| !holds(figures))
            .map(|(attack, _)| attack.title())
            .collect();
        let _ = if failing.is_empty() {
            writeln!(
                text,
                "- **Holds** under all {} attacks: {claim}.",
                measured.len()
            )
        } else {
            writeln!(
                text,
                "- **Fails** under {} of {} attacks: {claim}. Where it fails: {}.",
                failing.len(),
                measured.len(),
                failing.join("; ")
            )
        };
    }
    text
}

const HEAD: &str = "In a lab, a client pulls 24 MiB over one stream, 20 ms of \
round trip and 100 Mbit/s, from `longhaul serve`, or through `longhaul depot` where that is \
attacked. The attacker has links of its own to both, other addresses and \
another key than the client. Each copy is made of fresh processes, without the attack and under \
it in turn. *Begins* is the time from the start of the command until data has \
arrived; the rate is that from then on. Medians (least..greatest), and of one run its value; \
peaks are the greatest of all runs and of the process that is attacked. Client, server, depot, \
attacker and lab share \
the processors of one machine.\n\n";
