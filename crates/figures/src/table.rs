//! Tables for people: Markdown files for `docs/results/`, plain text for a terminal.

use crate::record::Run;
use crate::setting::{Setting, Way};
use crate::stats::Spread;
use std::fmt::Write;

/// A size in the papers' units: `16K`, `4M`.
pub fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 => format!("{}M", b >> 20),
        b if b >= 1 << 10 => format!("{}K", b >> 10),
        b => format!("{b}"),
    }
}

/// The runs of one setting, way and size that count: those the lab kept up with and that verified.
pub fn cell<'a>(runs: &'a [Run], id: &'a str, way: Way, bytes: u64) -> impl Iterator<Item = &'a Run> {
    runs.iter()
        .filter(move |run| run.scenario == id && run.route == way && run.bytes == bytes && run.counts())
}

/// The spread of goodput of one cell, Mbit/s.
pub fn rates(runs: &[Run], id: &str, way: Way, bytes: u64) -> Option<Spread> {
    Spread::of(&cell(runs, id, way, bytes).map(Run::mbps).collect::<Vec<_>>())
}

/// Depot rate over direct rate, for every seed that has both.
pub fn paired_ratios(runs: &[Run], id: &str, bytes: u64) -> Vec<f64> {
    cell(runs, id, Way::Direct, bytes)
        .filter_map(|direct| {
            let depots = cell(runs, id, Way::Depots, bytes).find(|run| run.seed == direct.seed)?;
            Some(depots.goodput_bps / direct.goodput_bps)
        })
        .collect()
}

/// A table of rate by size with the paper's averages beside it.
pub fn by_size(setting: &Setting, runs: &[Run], sizes: &[u64]) -> String {
    let mut out = format!(
        "### {}\n\n{}, {}; Mbit/s.\n\n",
        setting.title, setting.congestion, setting.hosts
    );
    out.push_str("| size | direct mean (min..max) | depots mean (min..max) | ratio of means | paper direct | paper depots | paper ratio | runs |\n");
    out.push_str("|---|---|---|---|---|---|---|---|\n");
    for &bytes in sizes {
        let (direct, depots) = (
            rates(runs, setting.id, Way::Direct, bytes),
            rates(runs, setting.id, Way::Depots, bytes),
        );
        let (Some(direct), Some(depots)) = (direct, depots) else {
            continue;
        };
        let paper = setting
            .paper
            .and_then(|curve| curve.points.iter().find(|point| point.0 == bytes));
        let (paper_direct, paper_depots, paper_ratio) = paper.map_or_else(
            || ("-".into(), "-".into(), "-".into()),
            |(_, a, b)| (format!("{a:.3}"), format!("{b:.3}"), format!("{:.2}", b / a)),
        );
        let _ = writeln!(
            out,
            "| {} | {:.3} ({:.3}..{:.3}) | {:.3} ({:.3}..{:.3}) | **{:.2}** | {paper_direct} | {paper_depots} | {paper_ratio} | {} |",
            size(bytes),
            direct.mean,
            direct.min,
            direct.max,
            depots.mean,
            depots.min,
            depots.max,
            depots.mean / direct.mean,
            counts(runs, setting.id, bytes),
        );
    }
    out.push('\n');
    out
}

/// The head of a table of ratios; rows come from [`ratio_row`].
pub const RATIO_HEAD: &str = "| setting | hosts | size | direct median (min..max) | depots median (min..max) | ratio of medians | paired ratio median (min..max) | runs |\n|---|---|---|---|---|---|---|---|\n";

/// A row of a table of ratios, or `None` where a way has no valid run.
pub fn ratio_row(setting: &Setting, runs: &[Run], bytes: u64) -> Option<String> {
    let direct = rates(runs, setting.id, Way::Direct, bytes)?;
    let depots = rates(runs, setting.id, Way::Depots, bytes)?;
    let paired = Spread::of(&paired_ratios(runs, setting.id, bytes)).map_or_else(
        || "-".into(),
        |spread| format!("{:.2} ({:.2}..{:.2})", spread.median, spread.min, spread.max),
    );
    Some(format!(
        "| {} | {} | {} | {:.1} ({:.1}..{:.1}) | {:.1} ({:.1}..{:.1}) | **{:.2}** | {paired} | {} |\n",
        setting.title,
        setting.hosts,
        size(bytes),
        direct.median,
        direct.min,
        direct.max,
        depots.median,
        depots.min,
        depots.max,
        depots.median / direct.median,
        counts(runs, setting.id, bytes),
    ))
}

/// The short table: medians and their ratio, a row for each setting that has been measured.
pub fn short(rows: &[(Setting, u64)], runs: &[Run]) -> String {
    let mut out = String::from(
        "\n| path, one stream | hosts | size | direct, Mbit/s | depots, Mbit/s | gain | runs |\n",
    );
    out.push_str("|---|---|---|---|---|---|---|\n");
    for (setting, bytes) in rows {
        let both = Way::BOTH.map(|way| rates(runs, setting.id, way, *bytes));
        if let [Some(direct), Some(depots)] = both {
            let _ = writeln!(
                out,
                "| {} | {}, {} | {} | {:.1} | {:.1} | **{:.2}x** | {} |",
                setting.title,
                setting.hosts,
                setting.congestion,
                size(*bytes),
                direct.median,
                depots.median,
                depots.median / direct.median,
                counts(runs, setting.id, *bytes),
            );
        }
    }
    out.push('\n');
    out
}

/// A line about the runs that do not count.
pub fn validity(runs: &[Run]) -> String {
    let counted = runs.iter().filter(|run| run.counts()).count();
    let discarded: u32 = runs.iter().map(|run| run.discarded).sum();
    format!(
        "{counted} runs count. {} do not: the lab did not keep up (late deliveries, drops of its own, over 1 % of the processor's time stolen), \
         or the copy did not verify. {discarded} were thrown away and repeated.\n",
        runs.len() - counted,
    )
}

/// How many runs of each way count.
fn counts(runs: &[Run], id: &str, bytes: u64) -> String {
    let [direct, depots] = Way::BOTH.map(|way| cell(runs, id, way, bytes).count());
    format!("{direct}+{depots}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(way: Way, seed: u64, mbps: f64) -> Run {
        Run {
            scenario: "s".into(),
            route: way,
            congestion: "reno".into(),
            hosts: "h".into(),
            bytes: 100,
            files: 1,
            seconds: 1.0,
            goodput_bps: mbps * 1e6,
            verified: true,
            seed,
            streams: 1,
            retransmits: 0,
            limited_by: None,
            valid: true,
            invalid_because: vec![],
            lag_p99_us: 0,
            discarded: 0,
        }
    }

    #[test]
    fn ratios_pair_runs_of_the_same_seed() {
        let runs = [
            run(Way::Direct, 1, 2.0),
            run(Way::Direct, 2, 4.0),
            run(Way::Depots, 2, 12.0),
            run(Way::Depots, 1, 4.0),
        ];
        assert_eq!(paired_ratios(&runs, "s", 100), [2.0, 3.0]);
    }

    #[test]
    fn a_run_the_lab_spoilt_does_not_count() {
        let mut spoilt = run(Way::Direct, 1, 2.0);
        spoilt.valid = false;
        spoilt.invalid_because = vec!["late".into()];
        assert_eq!(rates(&[spoilt], "s", Way::Direct, 100), None);
    }

    #[test]
    fn sizes_print_as_in_the_papers() {
        assert_eq!([size(16384), size(4 << 20), size(10)], ["16K", "4M", "10"]);
    }
}
