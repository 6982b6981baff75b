//! The page.

use std::fmt::Write as _;

use clap::ValueEnum;

use super::{Attack, Build, Run};
use crate::stats::Spread;

/// An honest copy begins within this time, in seconds.
const BEGINS_WITHIN: f64 = 1.0;
/// It keeps at least this share of its rate.
const KEEPS: f64 = 0.8;
/// Memory that an attacked process may hold at most, in bytes: a key's share of what is remembered is 128 MiB.
const MAX_MEMORY: u64 = 192 << 20;
/// Descriptors that it may hold at most: two for each of the 2,048 files of a key, and what else it needs.
const MAX_DESCRIPTORS: u64 = 2 * 2_048 + 256;

/// The figures of one attack and build.
struct Figures {
    runs: usize,
    failed: usize,
    begins: Option<Spread>,
    begins_unattacked: Option<Spread>,
    /// Rate under attack by rate without, round by round.
    ratio: Option<Spread>,
    memory: u64,
    descriptors: u64,
    log: f64,
}

impl Figures {
    fn of(runs: &[Run], attack: Attack, build: Build) -> Option<Self> {
        let of = |under: bool| {
            let mut some: Vec<&Run> = runs
                .iter()
                .filter(|run| run.attack == attack && run.build == build && run.under_attack == under)
                .collect();
            some.sort_by_key(|run| run.round);
            some
        };
        let (plain, attacked) = (of(false), of(true));
        let begins = |runs: &[&Run]| {
            let seconds: Vec<f64> = runs.iter().filter_map(|run| run.begins_s).collect();
            Spread::of(&seconds)
        };
        let ratios: Vec<f64> = attacked
            .iter()
            .filter_map(|run| {
                let pair = plain.iter().find(|other| other.round == run.round)?;
                Some(run.rate_bps? / pair.rate_bps?)
            })
            .collect();
        attacked.first()?;
        Some(Self {
            runs: attacked.len(),
            failed: attacked.iter().filter(|run| run.error.is_some()).count(),
            begins: begins(&attacked),
            begins_unattacked: begins(&plain),
            ratio: Spread::of(&ratios),
            memory: attacked.iter().map(|run| run.peak_memory).max().unwrap_or(0),
            descriptors: attacked.iter().map(|run| run.peak_descriptors).max().unwrap_or(0),
            log: attacked.iter().map(|run| run.log_bytes_per_s).fold(0.0, f64::max),
        })
    }

    fn begins_in_time(&self) -> bool {
        self.failed == 0 && self.begins.is_some_and(|begins| begins.max <= BEGINS_WITHIN)
    }

    fn keeps_its_rate(&self) -> bool {
        self.failed == 0 && self.ratio.is_some_and(|ratio| ratio.median >= KEEPS)
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
            (Some(begins), true) => spread(begins),
            (Some(begins), false) => format!("{failed}, {}", spread(begins)),
            (None, _) => failed,
        }
    }

    fn ratio_text(&self) -> String {
        self.ratio.as_ref().map_or_else(|| "-".to_owned(), spread)
    }
}

fn spread(spread: &Spread) -> String {
    format!("{:.2} ({:.2}..{:.2})", spread.median, spread.min, spread.max)
}

/// The page of these runs.
pub fn of(runs: &[Run]) -> String {
    let mut text = String::from(HEAD);
    let before = runs.iter().any(|run| run.build == Build::Before);
    text.push_str("| attack | begins without, s | begins within, s | rate, share of that without | peak memory, MiB | descriptors | log, bytes/s |");
    text.push_str(if before {
        " before: begins within, s | before: rate | before: memory, MiB | before: descriptors | before: log, bytes/s |\n"
    } else {
        "\n"
    });
    text.push_str(&"|---".repeat(if before { 12 } else { 7 }));
    text.push_str("|\n");
    let mut measured = Vec::new();
    for &attack in Attack::value_variants() {
        let [now, earlier] = [Build::Now, Build::Before].map(|build| Figures::of(runs, attack, build));
        let Some(any) = now.as_ref().or(earlier.as_ref()) else {
            continue;
        };
        let without = any
            .begins_unattacked
            .as_ref()
            .map_or_else(|| "-".to_owned(), spread);
        let _ = write!(text, "| {} | {without} |", attack.title());
        row(&mut text, now.as_ref());
        if before {
            row(&mut text, earlier.as_ref());
        }
        text.push('\n');
        measured.extend(now.map(|now| (attack, now)));
    }
    text.push('\n');
    text.push_str(&judge(&measured));
    let doubtful = runs.iter().filter(|run| !run.valid).count();
    let _ = writeln!(
        text,
        "\nThe lab did not keep up with {doubtful} of {} copies; they are counted all the same.",
        runs.len()
    );
    text
}

fn row(text: &mut String, figures: Option<&Figures>) {
    let Some(figures) = figures else {
        return text.push_str(" - | - | - | - | - |");
    };
    let _ = write!(
        text,
        " {} | {} | {:.0} | {} | {:.0} |",
        figures.begins_text(),
        figures.ratio_text(),
        figures.memory as f64 / f64::from(1 << 20),
        figures.descriptors,
        figures.log
    );
}

/// Whether a claim holds.
type Holds = fn(&Figures) -> bool;

/// What holds, and what does not.
fn judge(measured: &[(Attack, Figures)]) -> String {
    let claims: [(&str, Holds); 3] = [
        (
            "every honest copy begins within 1 s of the start of its command",
            Figures::begins_in_time,
        ),
        (
            "the median copy loses less than 20 % of its rate",
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
            writeln!(text, "- **Holds** under all {} attacks: {claim}.", measured.len())
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

const HEAD: &str = "# Honest copies under attack\n\nWritten by `make attacks`; every run is in [attacks.json](attacks.json). In a lab, a client pulls 24 MiB over one stream, 20 ms of \
round trip and 100 Mbit/s, from `longhaul serve`, or through `longhaul depot` where that is attacked. The attacker has links of its own to both, other addresses and \
another key than the client. Each copy is made of fresh processes, without the attack and under it in turn. *Begins* is the time from the start of the command until data has \
arrived; the rate is that from then on. Medians (least..greatest); peaks are the greatest of all runs and of the process that is attacked. Client, server, depot, attacker and lab share \
the processors of one machine.\n\n";
