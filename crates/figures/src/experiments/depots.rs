//! Gain of depots: copies over the papers' paths, direct and through depots.

use anyhow::Result;
use plotters::style::RGBColor;
use serde::{Deserialize, Serialize};

use crate::copy::{Copied, Source, copy};
use crate::experiment::{Cost, Experiment, Here, Network};
use crate::page::{Figure, Page, Table, cell, mean, median, number};
use crate::paper::{self, LSL_SIZES};
use crate::plot::{self, Curve, Strip};
use crate::runs::Runs;
use crate::setting::{self, CopyRoute, Mnemonic, Setting};
use crate::single::Basis;
use crate::stats::Spread;
use crate::tools::Tools;

const MIB: u64 = 1 << 20;

/// Size of the copies between untuned hosts: the window is the limit from the first round trips on,
/// so a longer copy shows nothing more.
const UNTUNED_BYTES: u64 = 16 * MIB;

/// Size of the copies between hosts with large buffers: several loss events in each.
const TUNED_BYTES: u64 = 512 * MIB;

/// Size of a copy as long as the MNEMONIC paper's shortest timed transfer: 10 s at 1 Gbit/s. Slow
/// start matters less in it.
const TUNED_BYTES_10S: u64 = 1192 * MIB;

/// Congestion controls that are compared between tuned hosts.
const CONGESTION: [&str; 3] = ["reno", "cubic", "bbr"];

/// The experiment.
pub struct Depots;

/// One copy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The setting's short name.
    setting: String,
    /// Bytes of the file.
    bytes: u64,
    /// Route of the bytes.
    way: CopyRoute,
}

/// Returns the settings, each with its sizes.
fn settings() -> Vec<(Setting, Vec<u64>)> {
    let mut all = vec![
        (setting::anl_utk(), LSL_SIZES.to_vec()),
        (setting::ucsd_utk(), LSL_SIZES.to_vec()),
        (setting::ucsd_utk_64k(), LSL_SIZES.to_vec()),
    ];
    for path in [Mnemonic::Short, Mnemonic::Long] {
        all.push((setting::mnemonic_untuned(path), vec![UNTUNED_BYTES]));
    }
    for path in [Mnemonic::Short, Mnemonic::Long] {
        for congestion in CONGESTION {
            all.push((
                setting::mnemonic_tuned(path, congestion),
                vec![TUNED_BYTES, TUNED_BYTES_10S],
            ));
        }
    }
    all.push((setting::clean_long(), vec![TUNED_BYTES]));
    all
}

fn setting_of(cell: &Cell) -> Result<Setting> {
    let found = settings()
        .into_iter()
        .find(|(setting, _)| setting.id == cell.setting);
    found
        .map(|(setting, _)| setting)
        .ok_or_else(|| anyhow::anyhow!("there is no setting {}", cell.setting))
}

impl Experiment for Depots {
    type Cell = Cell;
    type Observation = Copied;
    type Setup = ();

    fn name(&self) -> &'static str {
        "depots"
    }

    fn title(&self) -> &'static str {
        "What depots gain: copies over the papers' paths, direct and through depots"
    }

    fn cells(&self) -> Vec<Cell> {
        let sizes = |(setting, sizes): (Setting, Vec<u64>)| {
            sizes.into_iter().flat_map(move |bytes| {
                CopyRoute::BOTH.map(|way| Cell {
                    setting: setting.id.into(),
                    bytes,
                    way,
                })
            })
        };
        settings().into_iter().flat_map(sizes).collect()
    }

    fn seeds(&self, cell: &Cell) -> u64 {
        // Long copies between fast hosts need the whole machine. If a window is the limit, seeds
        // differ little.
        let binds = cell.setting.ends_with("64k");
        if cell.bytes >= TUNED_BYTES || binds {
            1
        } else {
            2
        }
    }

    fn cost(&self, cell: &Cell) -> Cost {
        setting_of(cell).map_or(
            Cost {
                share: 1.0,
                seconds: 0.0,
            },
            |setting| setting.cost(cell.way, cell.bytes),
        )
    }

    fn prepare(&self, tools: &Tools) -> Result<()> {
        // Before the first lab is up, because making a file loads the processor for a while.
        self.cells()
            .iter()
            .map(|cell| cell.bytes)
            .try_for_each(|bytes| Source::sized(tools, bytes).map(drop))
    }

    fn network(&self, tools: &Tools, (): &(), cell: &Cell, _seed: u64) -> Result<Network> {
        setting_of(cell)?.network(tools, cell.way)
    }

    fn run(&self, here: &Here<'_, ()>, cell: &Cell) -> Result<Copied> {
        let source = Source::sized(here.tools, cell.bytes)?;
        copy(here, &setting_of(cell)?, cell.way, &source, Some(1))
    }

    fn outcome(&self, seen: &Copied) -> String {
        seen.words()
    }

    fn under_noise(&self, cell: &Cell) -> bool {
        let largest = LSL_SIZES.last() == Some(&cell.bytes);
        cell.bytes == TUNED_BYTES || (largest && cell.setting != "lsl-ucsd-utk-64k")
    }

    fn noisy_links(&self, cell: &Cell) -> &'static [&'static str] {
        setting_of(cell).map_or(&[], |setting| setting.noisy_links)
    }

    fn page(&self, runs: &Runs<'_, Cell, Copied>) -> Result<Page> {
        let mut page = Page::new(HEAD).heading("LSL: rate by size");
        for (setting, name) in [
            (setting::anl_utk(), "lsl-path1"),
            (setting::ucsd_utk(), "lsl-path2"),
            (setting::ucsd_utk_64k(), "lsl-path2-64k"),
        ] {
            let table = by_size(&setting, runs);
            if !table.is_empty() {
                page = page
                    .paragraph(&format!(
                        "### {}\n\n{}, {}; Mbit/s.",
                        setting.title, setting.congestion, setting.hosts
                    ))
                    .table(&table)
                    .plot(
                        name,
                        plot::rate_by_size(setting.title, &curves(&setting, runs))?,
                    );
            }
        }
        let (table, strips) = ratios(runs);
        if !table.is_empty() {
            page = page
                .heading("MNEMONIC and the clean path: one stream, Mbit/s")
                .table(&table)
                .plot(
                    "ratios",
                    plot::ratio_strips("through depots against direct", &strips)?,
                );
        }
        Ok(page)
    }

    fn figures(&self, runs: &Runs<'_, Cell, Copied>) -> Vec<Figure> {
        let mut short = Table::new([
            "path, one stream",
            "hosts",
            "size",
            "direct, Mbit/s",
            "depots, Mbit/s",
            "gain",
            "runs",
        ]);
        let mut figures = vec![];
        for (setting, bytes) in short_settings() {
            let Some(both) = Both::from_runs(&setting, bytes, runs) else {
                continue;
            };
            short.row([
                setting.title.to_owned(),
                format!("{}, {}", setting.hosts, setting.congestion),
                size(bytes),
                median(Some(both.direct), 1),
                median(Some(both.depots), 1),
                both.basis().mark(format!("**{:.2}x**", both.gain())),
                both.counts(),
            ]);
            figures.push(Figure::new(
                format!("{}-{}", setting.id, size(bytes)),
                format!("gain, {}, {}", setting.title, size(bytes)),
                format!(
                    "{:.2} ({:.1} by {:.1} Mbit/s, {} runs)",
                    both.gain(),
                    both.depots.median,
                    both.direct.median,
                    both.counts()
                ),
                both.basis(),
            ));
        }
        for (setting, bytes) in short_settings() {
            figures.extend(Both::from_runs(&setting, bytes, runs).map(|both| {
                Figure::quoted(
                    format!("{}-{}-gain", setting.id, size(bytes)),
                    format!("{:.1}", both.gain()),
                    both.basis(),
                )
            }));
        }
        // The rows have their marks.
        let text = format!("\n\n{}\n", short.markdown());
        figures.push(Figure::quoted("short", text, Basis::Counted));
        figures
    }
}

/// Both routes of a setting and size.
struct Both {
    direct: Spread,
    depots: Spread,
    ratios: Vec<f64>,
}

impl Both {
    fn from_runs(setting: &Setting, bytes: u64, runs: &Runs<'_, Cell, Copied>) -> Option<Self> {
        let [direct, depots] = CopyRoute::BOTH.map(|way| Cell {
            setting: setting.id.into(),
            bytes,
            way,
        });
        Some(Self {
            direct: runs.spread(&direct, Copied::mbps)?,
            depots: runs.spread(&depots, Copied::mbps)?,
            ratios: runs.ratios(&depots, &direct, Copied::mbps),
        })
    }

    /// Returns the ratio of the medians.
    fn gain(&self) -> f64 {
        self.depots.median / self.direct.median
    }

    const fn basis(&self) -> Basis {
        let (direct, depots) = (self.direct.count, self.depots.count);
        Basis::Runs(if direct < depots { direct } else { depots })
    }

    fn counts(&self) -> String {
        format!("{}+{}", self.direct.count, self.depots.count)
    }
}

/// Returns the rows of the short table: the LSL paths at their largest size, then all of MNEMONIC
/// and the clean path.
fn short_settings() -> Vec<(Setting, u64)> {
    let largest = |sizes: &[u64]| sizes.iter().copied().max().unwrap_or(0);
    settings()
        .into_iter()
        .filter(|(setting, _)| setting.id != "lsl-ucsd-utk-64k")
        .flat_map(|(setting, sizes)| {
            let sizes = if setting.paper.is_some() {
                vec![largest(&sizes)]
            } else {
                sizes
            };
            sizes.into_iter().map(move |bytes| (setting.clone(), bytes))
        })
        .collect()
}

/// Formats a size in the papers' units: `16K`, `4M`.
pub fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 => format!("{}M", b >> 20),
        b if b >= 1 << 10 => format!("{}K", b >> 10),
        b => format!("{b}"),
    }
}

/// Returns the table of rates by size with the paper's averages. It has means, because the paper
/// printed averages.
fn by_size(setting: &Setting, runs: &Runs<'_, Cell, Copied>) -> Table {
    let mut table = Table::new([
        "size",
        "direct mean (min..max)",
        "depots mean (min..max)",
        "ratio of means",
        "paper direct",
        "paper depots",
        "paper ratio",
        "runs",
    ]);
    for bytes in LSL_SIZES {
        let Some(both) = Both::from_runs(setting, bytes, runs) else {
            continue;
        };
        let points = setting.paper.map_or(&[][..], |curve| curve.points);
        let paper = points.iter().find(|point| point.0 == bytes);
        table.row([
            size(bytes),
            mean(Some(both.direct), 3),
            mean(Some(both.depots), 3),
            both.basis()
                .mark(format!("**{:.2}**", both.depots.mean / both.direct.mean)),
            number(paper.map(|point| point.1), 3),
            number(paper.map(|point| point.2), 3),
            number(paper.map(|point| point.2 / point.1), 2),
            both.counts(),
        ]);
    }
    table
}

/// Returns the table and the plot of settings without figures of a paper.
fn ratios(runs: &Runs<'_, Cell, Copied>) -> (Table, Vec<Strip>) {
    let mut table = Table::new([
        "setting",
        "hosts",
        "size",
        "direct median (min..max)",
        "depots median (min..max)",
        "ratio of medians",
        "ratio seed by seed, median (min..max)",
        "runs",
    ]);
    let mut strips = vec![];
    for (setting, bytes) in short_settings()
        .into_iter()
        .filter(|(setting, _)| setting.paper.is_none())
    {
        let Some(both) = Both::from_runs(&setting, bytes, runs) else {
            continue;
        };
        table.row([
            setting.title.to_owned(),
            setting.hosts.to_owned(),
            size(bytes),
            cell(Some(both.direct), 1),
            cell(Some(both.depots), 1),
            both.basis().mark(format!("**{:.2}**", both.gain())),
            cell(Spread::from_samples(&both.ratios), 2),
            both.counts(),
        ]);
        strips.push(Strip {
            name: format!("{} {}", setting.id, size(bytes)),
            ratios: both.ratios,
        });
    }
    (table, strips)
}

fn curves(setting: &Setting, runs: &Runs<'_, Cell, Copied>) -> Vec<Curve> {
    const COLOURS: [(CopyRoute, RGBColor); 2] = [
        (CopyRoute::Direct, RGBColor(200, 60, 40)),
        (CopyRoute::Depots, RGBColor(30, 90, 200)),
    ];
    let mut curves = vec![];
    for (way, colour) in COLOURS {
        let mean = |bytes: u64| {
            let cell = Cell {
                setting: setting.id.into(),
                bytes,
                way,
            };
            Some((bytes, runs.spread(&cell, Copied::mbps)?.mean))
        };
        curves.push(Curve {
            name: format!("{}, measured", way.word()),
            points: LSL_SIZES.into_iter().filter_map(mean).collect(),
            colour,
            from_paper: false,
        });
        if let Some(paper::PaperCurve { points }) = setting.paper {
            let of_way = |(bytes, direct, depots): &(u64, f64, f64)| {
                (
                    *bytes,
                    if way == CopyRoute::Direct {
                        *direct
                    } else {
                        *depots
                    },
                )
            };
            curves.push(Curve {
                name: format!("{}, paper", way.word()),
                points: points.iter().map(of_way).collect(),
                colour,
                from_paper: true,
            });
        }
    }
    curves
}

const HEAD: &str = "Rates are goodput of `longhaul cp` with one stream, set-up, TLS and \
    verification included. Both ways of a seed draw their losses from the same \
     stream where they cross the same links (MNEMONIC, the clean path, part of LSL path 2); on \
     LSL path 1 they share no wide-area link, and a ratio \
     seed by seed says no more there than the ratio of the medians. Losses and where they come \
     from are in each scenario file.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::tests::record;

    fn copied(mbps: f64) -> Copied {
        Copied {
            bytes: 1,
            files: 1,
            seconds: 1.0,
            goodput_bps: mbps * 1e6,
            streams: 1,
            retransmits: 0,
            limited_by: None,
        }
    }

    #[test]
    fn the_short_table_has_what_both_ways_have_measured() {
        let [direct, depots] = CopyRoute::BOTH.map(|way| Cell {
            setting: "clean-long".into(),
            bytes: TUNED_BYTES,
            way,
        });
        let records = [
            record(direct.clone(), 1, copied(100.0), true),
            record(depots, 1, copied(150.0), true),
            record(direct, 2, copied(1000.0), false),
        ];
        let figures = Depots.figures(&Runs::select_valid(&records));
        let text = |key: &str| {
            figures
                .iter()
                .find(|figure| figure.key == key)
                .unwrap()
                .text
                .as_str()
        };
        assert_eq!(
            text("clean-long-512M"),
            "1.50 (150.0 by 100.0 Mbit/s, 1+1 runs; single)"
        );
        assert_eq!(text("clean-long-512M-gain"), "1.5 (single)");
        let row = "| 100.0 (single) | 150.0 (single) | **1.50x** (single) | 1+1 |";
        assert!(text("short").contains(row), "{}", text("short"));
    }

    #[test]
    fn sizes_print_as_in_the_papers() {
        assert_eq!([size(16384), size(4 << 20), size(10)], ["16K", "4M", "10"]);
    }
}
