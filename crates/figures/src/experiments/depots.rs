//! Gain of depots: copies over the papers' paths, direct and through depots.

use anyhow::Result;
use minijinja::context;
use plotters::style::RGBColor;
use serde::{Deserialize, Serialize};

use crate::columns::Columns;
use crate::copy::{Copied, Source, copy};
use crate::experiment::{Cost, Experiment, Here};
use crate::network::Network;
use crate::page::{Figure, Page, Table, mean, median};
use crate::plot::{self, Curve, Strip};
use crate::runs::Runs;
use crate::setting::{self, CopyRoute, Setting};
use crate::single::Basis;
use crate::size::size;
use crate::stats::{Gain, Spread};
use crate::template::page;
use crate::tools::Tools;

/// Size of the copies between hosts with large buffers: several loss events in each.
const TUNED_BYTES: u64 = 512 << 20;

/// Setting whose window is the limit.
const SMALL_WINDOWS: &str = "lsl-ucsd-utk-64k";

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
        let mut cells = Vec::new();
        for setting in setting::all() {
            for &bytes in &setting.sizes {
                let cell = |way| Cell {
                    setting: setting.id.into(),
                    bytes,
                    way,
                };
                cells.extend(CopyRoute::BOTH.map(cell));
            }
        }
        cells
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
        setting::named(&cell.setting)
            .map_or(Cost::NONE, |setting| setting.cost(cell.way, cell.bytes))
    }

    fn prepare(&self, tools: &Tools) -> Result<()> {
        // Before the first lab is up, because making a file loads the processor for a while.
        self.cells()
            .iter()
            .map(|cell| cell.bytes)
            .try_for_each(|bytes| Source::sized(tools, bytes).map(drop))
    }

    fn network(&self, tools: &Tools, (): &(), cell: &Cell, _seed: u64) -> Result<Network> {
        setting::named(&cell.setting)?.network(tools, cell.way)
    }

    fn run(&self, here: &Here<'_, ()>, cell: &Cell) -> Result<Copied> {
        let source = Source::sized(here.tools, cell.bytes)?;
        copy(
            here,
            setting::named(&cell.setting)?,
            cell.way,
            &source,
            Some(1),
        )
    }

    fn outcome(&self, seen: &Copied) -> String {
        seen.words()
    }

    fn under_noise(&self, cell: &Cell) -> bool {
        let paper = setting::named(&cell.setting).map_or(&[][..], |setting| &setting.paper);
        let is_largest = paper.last().is_some_and(|point| point.0 == cell.bytes);
        cell.bytes == TUNED_BYTES || (is_largest && cell.setting != SMALL_WINDOWS)
    }

    fn over_ipv6(&self, cell: &Cell) -> bool {
        cell.bytes == TUNED_BYTES
    }

    fn noisy_links(&self, cell: &Cell) -> &'static [&'static str] {
        setting::named(&cell.setting).map_or(&[], |setting| &setting.noisy_links)
    }

    fn page(&self, runs: &Runs<'_, Cell, Copied>) -> Result<Page> {
        let (mut paths, mut plots) = (vec![], vec![]);
        for (setting, name) in [
            ("lsl-anl-utk", "lsl-path1"),
            ("lsl-ucsd-utk", "lsl-path2"),
            (SMALL_WINDOWS, "lsl-path2-64k"),
        ] {
            let setting = setting::named(setting)?;
            let Setting {
                title,
                congestion,
                hosts,
                ..
            } = setting;
            let table = by_size(setting, runs);
            if !table.is_empty() {
                plots.push((name, plot::rate_by_size(title, &curves(setting, runs))?));
                paths.push(context!(title, congestion, hosts, table, name));
            }
        }
        let pairs = pairs(runs, |setting| setting.paper.is_empty());
        let strips: Vec<Strip> = pairs.iter().map(Pair::strip).collect();
        if !strips.is_empty() {
            let title = "through depots against direct";
            plots.push(("ratios", plot::ratio_strips(title, &strips)?));
        }
        let others = ratios(pairs);
        Ok(page!("depots", paths, others)?.with_plots(plots))
    }

    fn figures(&self, runs: &Runs<'_, Cell, Copied>) -> Vec<Figure> {
        let pairs = pairs(runs, |_| true);
        let rates = |Pair { gain, .. }: &Pair| {
            let Gain { before, after } = gain;
            format!("{:.1} by {:.1} Mbit/s", after.median, before.median)
        };
        let gain = |one: &Pair| {
            let Pair {
                setting,
                bytes,
                gain,
                ..
            } = one;
            let size = size(*bytes);
            Figure::new(
                format!("{}-{size}", setting.id),
                format!("gain, {}, {size}", setting.title),
                format!(
                    "{:.2} ({}, {} runs)",
                    gain.ratio(),
                    rates(one),
                    gain.counts()
                ),
                gain.basis(),
            )
        };
        let short = |Pair {
                         setting,
                         bytes,
                         gain,
                         ..
                     }: &Pair| {
            let key = format!("{}-{}-gain", setting.id, size(*bytes));
            Figure::quoted(key, format!("{:.1}", gain.ratio()), gain.basis())
        };
        let mut figures: Vec<Figure> = pairs.iter().map(gain).collect();
        figures.extend(pairs.iter().map(short));
        let table = Columns::of(pairs)
            .text("path, one stream", |one| one.setting.title)
            .text("hosts", |one| {
                format!("{}, {}", one.setting.hosts, one.setting.congestion)
            })
            .text("size", |one| size(one.bytes))
            .text("direct, Mbit/s", |one| median(Some(one.gain.before), 1))
            .text("depots, Mbit/s", |one| median(Some(one.gain.after), 1))
            .text("gain", |one| one.gain.bold(2, "x"))
            .text("runs", |one| one.gain.counts())
            .table();
        // The rows have their marks.
        let text = format!("\n\n{}\n", table.markdown());
        figures.push(Figure::quoted("short", text, Basis::Counted));
        figures
    }
}

/// A setting and size with both routes.
struct Pair {
    setting: &'static Setting,
    bytes: u64,
    /// Rates, direct and through depots.
    gain: Gain,
    /// Ratios of the rates, seed by seed.
    ratios: Vec<f64>,
}

impl Pair {
    fn from_runs(
        setting: &'static Setting,
        bytes: u64,
        runs: &Runs<'_, Cell, Copied>,
    ) -> Option<Self> {
        let cell = |way| Cell {
            setting: setting.id.into(),
            bytes,
            way,
        };
        let [direct, depots] = CopyRoute::BOTH.map(cell);
        Some(Self {
            gain: runs.gain([&direct, &depots], Copied::mbps)?,
            ratios: runs.ratios(&depots, &direct, Copied::mbps),
            setting,
            bytes,
        })
    }

    fn strip(&self) -> Strip {
        Strip {
            name: format!("{} {}", self.setting.id, size(self.bytes)),
            ratios: self.ratios.clone(),
        }
    }
}

/// Returns the pairs that have runs: those of the LSL paths at their largest size, and all of
/// MNEMONIC and the clean path.
fn pairs(runs: &Runs<'_, Cell, Copied>, wanted: fn(&Setting) -> bool) -> Vec<Pair> {
    let mut pairs = vec![];
    let shown = setting::all()
        .iter()
        .filter(|setting| setting.id != SMALL_WINDOWS);
    for setting in shown.filter(|setting| wanted(setting)) {
        let sizes = match setting.paper.is_empty() {
            true => &setting.sizes[..],
            false => setting.sizes.last().map_or(&[][..], std::slice::from_ref),
        };
        let pair = |bytes: &u64| Pair::from_runs(setting, *bytes, runs);
        pairs.extend(sizes.iter().filter_map(pair));
    }
    pairs
}

/// Returns the table of rates by size with the paper's averages. It has means, because the paper
/// printed averages.
fn by_size(setting: &'static Setting, runs: &Runs<'_, Cell, Copied>) -> Table {
    let paper = |one: &Pair| setting.paper.iter().find(|point| point.0 == one.bytes);
    let pair = |bytes: &u64| Pair::from_runs(setting, *bytes, runs);
    Columns::of(setting.sizes.iter().filter_map(pair))
        .text("size", |one| size(one.bytes))
        .text("direct mean (min..max)", |one| {
            mean(Some(one.gain.before), 3)
        })
        .text("depots mean (min..max)", |one| {
            mean(Some(one.gain.after), 3)
        })
        .text("ratio of means", |Pair { gain, .. }| {
            let ratio = format!("**{:.2}**", gain.after.mean / gain.before.mean);
            gain.basis().mark(ratio)
        })
        .number("paper direct", 3, |one| paper(one).map(|point| point.1))
        .number("paper depots", 3, |one| paper(one).map(|point| point.2))
        .number("paper ratio", 2, |one| {
            paper(one).map(|point| point.2 / point.1)
        })
        .text("runs", |one| one.gain.counts())
        .table()
}

/// Returns the table of settings without figures of a paper.
fn ratios(pairs: Vec<Pair>) -> Table {
    Columns::of(pairs)
        .text("setting", |one| one.setting.title)
        .text("hosts", |one| one.setting.hosts)
        .text("size", |one| size(one.bytes))
        .spread("direct median (min..max)", 1, |one| Some(one.gain.before))
        .spread("depots median (min..max)", 1, |one| Some(one.gain.after))
        .text("ratio of medians", |one| one.gain.bold(2, ""))
        .spread("ratio seed by seed, median (min..max)", 2, |one| {
            Spread::from_samples(&one.ratios)
        })
        .text("runs", |one| one.gain.counts())
        .table()
}

fn curves(setting: &Setting, runs: &Runs<'_, Cell, Copied>) -> Vec<Curve> {
    const COLOURS: [(CopyRoute, RGBColor); 2] = [
        (CopyRoute::Direct, RGBColor(200, 60, 40)),
        (CopyRoute::Depots, RGBColor(30, 90, 200)),
    ];
    let mut curves = vec![];
    for (way, colour) in COLOURS {
        let mut curve = |origin: &str, points| {
            let name = format!("{}, {origin}", way.word());
            curves.push(Curve {
                name,
                points,
                colour,
                from_paper: origin == "paper",
            });
        };
        let mean = |&bytes: &u64| {
            let cell = Cell {
                setting: setting.id.into(),
                bytes,
                way,
            };
            Some((bytes, runs.spread(&cell, Copied::mbps)?.mean))
        };
        curve("measured", setting.sizes.iter().filter_map(mean).collect());
        if !setting.paper.is_empty() {
            let of_way = |&(bytes, direct, depots): &(u64, f64, f64)| match way {
                CopyRoute::Direct => (bytes, direct),
                CopyRoute::Depots => (bytes, depots),
            };
            curve("paper", setting.paper.iter().map(of_way).collect());
        }
    }
    curves
}

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
}
