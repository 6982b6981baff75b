//! Experiments of all kinds in one list.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;

use crate::comparison::Comparison;
use crate::experiment::Experiment;
use crate::history::LostCommits;
use crate::ip::IpVersion;
use crate::noise::Noise;
use crate::origins;
use crate::page::{Figure, Page, Table};
use crate::record::Record;
use crate::runner::{self, Extent};
use crate::runs::Runs;
use crate::single::{self, SINGLE};
use crate::store::Store;
use crate::tools::Tools;

/// An experiment with erased types.
pub trait Listed: Sync {
    /// See [`Experiment::name`].
    fn name(&self) -> &'static str;

    /// See [`Experiment::title`].
    fn title(&self) -> &'static str;

    /// Returns the number of runs in an extent, and their duration.
    fn size(&self, extent: &Extent) -> (usize, Duration);

    /// See [`runner::measure`].
    ///
    /// # Errors
    /// As there.
    fn measure(&self, tools: &Tools, extent: &Extent, out: &Path, commit: &str) -> Result<()>;

    /// Renders the runs in `out`. Returns `None` if there are none. The page names the commit of
    /// each run; runs of `lost` commits are marked, because their code cannot be looked up.
    ///
    /// # Errors
    /// The runs cannot be read, or a plot cannot be drawn.
    fn render(&self, out: &Path, lost: &LostCommits) -> Result<Option<Rendered>>;
}

/// Page and figures of an experiment's runs.
pub struct Rendered {
    /// Name of the experiment.
    pub name: &'static str,
    /// Subject in one line.
    pub title: &'static str,
    /// The whole page.
    pub page: Page,
    /// Figures that documents quote.
    pub figures: Vec<Figure>,
    /// The same figures under each measured kind of noise.
    pub noisy: Vec<(Noise, Vec<Figure>)>,
    /// Number of valid runs, and of all runs.
    pub runs: (usize, usize),
    /// `longhaul cp` compared with other programs.
    pub comparisons: Vec<Comparison>,
    /// Summary of the days and the code of the runs.
    pub made: String,
}

impl Rendered {
    /// Returns the figure of a key, or of `KEY@NOISE` under that noise.
    pub fn figure(&self, key: &str) -> Option<&Figure> {
        let (key, figures) = match key.split_once('@') {
            None => (key, &self.figures),
            Some((key, noise)) => {
                let noise = Noise::from_str(noise, false).ok()?;
                let under = self.noisy.iter().find(|(other, _)| *other == noise);
                (key, under.map(|(_, figures)| figures)?)
            }
        };
        figures.iter().find(|figure| figure.key == key)
    }
}

impl<E: Experiment> Listed for E {
    fn name(&self) -> &'static str {
        Experiment::name(self)
    }

    fn title(&self) -> &'static str {
        Experiment::title(self)
    }

    fn size(&self, extent: &Extent) -> (usize, Duration) {
        let keys = extent.keys(self);
        (keys.len(), runner::about(self, &keys))
    }

    fn measure(&self, tools: &Tools, extent: &Extent, out: &Path, commit: &str) -> Result<()> {
        runner::measure(
            self,
            tools,
            extent,
            &Store::open(out, Experiment::name(self)),
            commit,
        )
    }

    fn render(&self, out: &Path, lost: &LostCommits) -> Result<Option<Rendered>> {
        let (name, title) = (Experiment::name(self), Experiment::title(self));
        let records: Vec<Record<E::Cell, E::Observation>> = Store::open(out, name).read()?;
        if records.is_empty() {
            return Ok(None);
        }
        let of = |noise, ip| {
            Runs::select_valid(
                records
                    .iter()
                    .filter(move |record| record.cell.noise == noise && record.cell.ip == ip),
            )
        };
        let clean = of(Noise::None, IpVersion::Ipv4);
        let figures = self.figures(&clean);
        let inner = self.page(&clean)?;
        let mut page = Page::new(&format!(
            "# {title}\n\nWritten by `longhaul-figures figures {name}`; every run is in \
             [{name}.json]({name}.json)."
        ));
        page.text.push_str(&inner.text);
        page.plots = inner.plots;
        let noisy: Vec<(Noise, Vec<Figure>)> = Noise::ALL
            .into_iter()
            .map(|noise| (noise, of(noise, IpVersion::Ipv4)))
            .filter(|(_, runs)| !runs.is_empty())
            .map(|(noise, runs)| (noise, self.figures(&runs)))
            .collect();
        if !noisy.is_empty() {
            page = page
                .heading("Under noise")
                .paragraph(UNDER_NOISE)
                .table(&noise_table(&figures, &noisy));
        }
        let ipv6_runs = of(Noise::None, IpVersion::Ipv6);
        if !ipv6_runs.is_empty() {
            let over_ipv6 = self.figures(&ipv6_runs);
            page = page
                .heading("Over IPv6")
                .paragraph(OVER_IPV6)
                .table(&comparison_table(
                    "over IPv4",
                    &figures,
                    &[("over IPv6", &over_ipv6)],
                ));
        }
        let mut page = page.heading("Validity").paragraph(&validity(&records));
        if page.text.contains(&format!("{SINGLE})")) {
            page = page.paragraph(single::LEGEND);
        }
        let page = page
            .paragraph(&made(&records, lost))
            .table(&origins::table(&records, lost));
        Ok(Some(Rendered {
            name,
            title,
            page,
            figures,
            noisy,
            runs: (
                records.iter().filter(|record| record.gate.valid).count(),
                records.len(),
            ),
            comparisons: self.comparisons(&clean),
            made: origins::summary(&records, lost),
        }))
    }
}

const UNDER_NOISE: &str = "The same figures where the links are not as steady as the scenario has \
    them (`docs/wanbed.md` says how each is made).";

const OVER_IPV6: &str = "The same figures where the programs talk over IPv6 (`--ipv6`). Its \
    headers are 20 bytes longer.";

fn noise_table(clean: &[Figure], noisy: &[(Noise, Vec<Figure>)]) -> Table {
    let others: Vec<(&str, &[Figure])> = noisy
        .iter()
        .map(|(noise, figures)| (noise.title(), figures.as_slice()))
        .collect();
    comparison_table(Noise::None.title(), clean, &others)
}

/// Returns the table of the figures under `title`, and of the same figures under other titles.
fn comparison_table(title: &str, clean: &[Figure], others: &[(&str, &[Figure])]) -> Table {
    let heads = others.iter().map(|(title, _)| *title);
    let mut table = Table::new(["figure", title].into_iter().chain(heads));
    for figure in clean.iter().filter(|figure| !figure.title.is_empty()) {
        let others: Vec<&str> = others
            .iter()
            .map(|(_, figures)| {
                let same = figures.iter().find(|other| other.key == figure.key);
                same.map_or("-", |other| other.text.as_str())
            })
            .collect();
        // A figure without other measurements has nothing to compare.
        if others.iter().any(|text| *text != "-") {
            table.row(
                [figure.title.as_str(), &figure.text]
                    .into_iter()
                    .chain(others),
            );
        }
    }
    table
}

/// Returns the text on valid runs, and on the number of runs per cell.
fn validity<C: PartialEq, S>(records: &[Record<C, S>]) -> String {
    let valid = records.iter().filter(|record| record.gate.valid).count();
    let discarded: u32 = records.iter().map(|record| record.gate.discarded).sum();
    let worst = records
        .iter()
        .map(|record| record.gate.lag_p99_us)
        .max()
        .unwrap_or(0);
    let counted = match records.len() - valid {
        0 => format!("All {valid} runs count."),
        others => format!(
            "{valid} runs of {} count; with {others} the lab did not keep up.",
            records.len()
        ),
    };
    let cells = cells(records);
    let single = cells.iter().filter(|(.., runs)| *runs == 1).count();
    format!(
        "{counted} {discarded} were thrown away and repeated because the lab did not keep up: \
         late deliveries, drops of its own, or over 1 % of the \
         processors' time taken by other guests of the host. The worst lag (99th percentile of a \
         link) was {:.1} ms. \
         {} cells have runs that count, \
         {single} of them a single one.",
        worst as f64 / 1e3,
        cells.len(),
    )
}

/// Returns the cells with valid runs, each with its noise, version of IP and number of runs.
fn cells<C: PartialEq, S>(records: &[Record<C, S>]) -> Vec<(&C, Noise, IpVersion, usize)> {
    let mut cells: Vec<(&C, Noise, IpVersion, usize)> = vec![];
    for Record { cell, gate, .. } in records {
        let same = cells.iter_mut().find(|(factors, noise, ip, _)| {
            **factors == cell.factors && *noise == cell.noise && *ip == cell.ip
        });
        match same {
            _ if !gate.valid => {}
            Some((.., runs)) => *runs += 1,
            None => cells.push((&cell.factors, cell.noise, cell.ip, 1)),
        }
    }
    cells
}

/// Describes the days, the code and the machines of the runs.
fn made<C, S>(records: &[Record<C, S>], lost: &LostCommits) -> String {
    let distinct = |of: &dyn Fn(&Record<C, S>) -> &String| {
        let mut all: Vec<&str> = records.iter().map(|record| of(record).as_str()).collect();
        all.sort_unstable();
        all.dedup();
        all.join(", ")
    };
    format!(
        "Made {} from {}, on Linux {}, links by {}, {}.",
        origins::days(records),
        origins::commits(records, lost),
        distinct(&|record| &record.made.kernel),
        distinct(&|record| &record.made.backend),
        distinct(&|record| &record.made.processor),
    ) + &kept_awake(
        records.iter().filter(|record| record.made.awake).count(),
        records.len(),
    )
}

/// Returns the text on how many of `all` runs were made with the processors kept awake; empty if
/// none were.
fn kept_awake(awake: usize, all: usize) -> String {
    let runs = match awake {
        0 => return String::new(),
        some if some == all => "all runs".to_owned(),
        some => format!("{some} of the runs"),
    };
    format!(
        " The machine is a guest; in {runs} its processors were kept from halting \
         (`docs/wanbed.md`)."
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::tests::record;
    use crate::single::Basis;

    #[test]
    fn cells_are_counted_with_runs_that_count() {
        let records = [
            record("a", 1, (), true),
            record("a", 2, (), true),
            record("b", 1, (), true),
            record("c", 1, (), false),
        ];
        assert_eq!(
            cells(&records),
            [
                (&"a", Noise::None, IpVersion::Ipv4, 2),
                (&"b", Noise::None, IpVersion::Ipv4, 1)
            ]
        );
        let text = validity(&records);
        assert!(
            text.ends_with("2 cells have runs that count, 1 of them a single one."),
            "{text}"
        );
    }

    #[test]
    fn only_what_was_measured_under_noise_is_compared() {
        let clean = [
            Figure::new("a", "gain", "2.0", Basis::Runs(3)),
            Figure::new("b", "rate", "9", Basis::Runs(3)),
            Figure::quoted("c", "quoted", Basis::Counted),
        ];
        let noisy = [(
            Noise::Codel,
            vec![Figure::new("a", "gain", "1.5", Basis::Runs(1))],
        )];
        let text = noise_table(&clean, &noisy).markdown();
        assert!(text.contains("| gain | 2.0 | 1.5 (single) |"), "{text}");
        assert_eq!(text.lines().count(), 3, "{text}");
    }
}
