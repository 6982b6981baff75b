//! The table of the record's path.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::{GOODPUT, Run, Way};
use crate::stats::Spread;

const HEAD: &str = "# The Land Speed Record's path

One TCP stream, Geneva - Chicago - Sunnyvale as in `scenarios/lsr.toml`: 2.4 Gbit/s at the bottleneck, a round trip of 180 ms, MTU 9000, Reno, a
queue of 4 MB at the bottleneck, no loss but that of a full queue. Written by `longhaul-figures lsr`; every run is in [lsr.json](lsr.json).

\"Nothing tuned\" are hosts whose kernel may give a connection up to 256 MB, which fits no path in particular. \"Fitted by hand\" are 54 MB,
the bandwidth-delay product, as the record's hosts had it; \"paced\" adds `--fq-rate`, just below the bottleneck's rate. The share is
of the payload that the bottleneck carries, 2386 Mbit/s; TLS takes 0.13 % of it. *Whole* counts from the first byte on. A sender that doubles
its window each round trip from ten segments on has lost 1.5 s by the time that it is as wide as the path, so 97.5 % is the most that 60 s can show. *Sustained* counts from the fifth second on.

| sender | runs | whole, Mbit/s median (min..max) | share | sustained, Mbit/s median (min..max) | share | retransmissions | processors: sender, receiver | valid |
|---|---|---|---|---|---|---|---|---|
";

/// Writes `lsr.md` from all runs so far.
pub(super) fn table(out: &Path, runs: &[Run]) -> Result<()> {
    let mut text = String::from(HEAD);
    for way in Way::ALL {
        let of: Vec<&Run> = runs.iter().filter(|run| run.way == way).collect();
        let spread = |value: fn(&Run) -> f64| {
            let samples: Vec<f64> = of.iter().map(|run| value(run)).collect();
            Spread::of(&samples)
        };
        let (Some(whole), Some(sustained)) = (
            spread(|run| run.bits_per_second),
            spread(|run| run.sustained_bits_per_second),
        ) else {
            continue;
        };
        let (Some(sender), Some(receiver), Some(lost)) = (
            spread(|run| run.sender_cpu),
            spread(|run| run.receiver_cpu),
            spread(|run| run.retransmits as f64),
        ) else {
            continue;
        };
        let cell = |spread: Spread| {
            format!(
                "{:.0} ({:.0}..{:.0}) | {:.1} %",
                spread.median / 1e6,
                spread.min / 1e6,
                spread.max / 1e6,
                100.0 * spread.median / GOODPUT
            )
        };
        writeln!(
            text,
            "| {} | {} | {} | {} | {:.0} ({:.0}..{:.0}) | {:.0} %, {:.0} % | {} of {} |",
            way.title(),
            of.len(),
            cell(whole),
            cell(sustained),
            lost.median,
            lost.min,
            lost.max,
            sender.median,
            receiver.median,
            of.iter().filter(|run| run.valid).count(),
            of.len()
        )?;
    }
    let discarded: u32 = runs.iter().map(|run| run.discarded).sum();
    let mut reasons: Vec<&str> = runs
        .iter()
        .flat_map(|run| &run.invalid_because)
        .map(String::as_str)
        .collect();
    reasons.sort_unstable();
    reasons.dedup();
    write!(
        text,
        "\n{discarded} runs were thrown away and repeated because the lab did not keep up."
    )?;
    if !reasons.is_empty() {
        write!(
            text,
            " Runs that are left and not valid are so because: {}.",
            reasons.join("; ")
        )?;
    }
    text.push('\n');
    fs::write(out.join("lsr.md"), text).with_context(|| format!("cannot write into {}", out.display()))
}
