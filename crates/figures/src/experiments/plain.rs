//! Copies from and to servers that know nothing of `longhaul`: OpenSSH alone, and an S3 object
//! store. Each with `longhaul cp` and with the programs that people use there.

use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::copy::data::{Data, Sources};
use crate::columns::Columns;
use crate::comparison::{self, Comparison};
use crate::experiment::{Cost, Experiment, Here};
use crate::network::Network;
use crate::page::{Figure, Page, Table};
use crate::peers::longhaul_plain::{LonghaulPlain, PlainServer};
use crate::peers::one_copy::{Job, PeerDirection, copy_within};
use crate::peers::{self, Peer, Program};
use crate::runs::Runs;
use crate::single::Basis;
use crate::stats::Gain;
use crate::template::page;
use crate::tools::Tools;

/// Scenario, with the loss that is added to it.
const SCENARIO: &str = "copy.toml";
const LOSS: &str = "\"0.01%\"";
/// Data of the copies, by their names.
const DATA: [(&str, Data); 2] = [
    ("large", Data::File(256 << 20)),
    ("small", Data::SmallFiles(5000)),
];
/// A copy that takes longer is stopped, and counts as slower than that.
const TIME_LIMIT: Duration = Duration::from_secs(120);
/// Streams of every program with such an option.
const STREAMS: u32 = 16;
/// Name of this project's program.
const OWN: &str = "longhaul";
/// The programs for each server; the first is compared with the others.
const PROGRAMS: [(PlainServer, &[&str]); 2] = [
    (
        PlainServer::Sshd,
        &[OWN, "lftp-sftp", "rclone-sftp", "sftp", "scp"],
    ),
    (PlainServer::S3, &[OWN, "rclone-s3", "s5cmd", "aws"]),
];

/// The experiment.
pub struct Plain;

/// One copy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    server: PlainServer,
    data: String,
    direction: PeerDirection,
    program: String,
}

/// Result of a copy: everything arrived unchanged, or it was stopped.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observation {
    /// Bytes of the source.
    bytes: u64,
    /// Seconds from the start of the client's command to its end or to the time limit.
    seconds: f64,
    /// If true, it was stopped at the time limit.
    stopped: bool,
}

impl Observation {
    /// Returns the rate in Mbit/s; for a stopped copy, the rate below which it stayed.
    fn mbps(&self) -> f64 {
        8.0 * self.bytes as f64 / self.seconds / 1e6
    }
}

/// Copies that are compared with each other.
#[derive(Clone, Debug, PartialEq)]
struct Case {
    server: PlainServer,
    data: &'static str,
    direction: PeerDirection,
}

impl Case {
    fn all() -> Vec<Self> {
        let mut all = vec![];
        for (server, _) in PROGRAMS {
            for direction in [PeerDirection::Fetch, PeerDirection::Send] {
                all.extend(DATA.map(|(data, _)| Self {
                    server,
                    data,
                    direction,
                }));
            }
        }
        all
    }

    fn programs(&self) -> &'static [&'static str] {
        let found = PROGRAMS.iter().find(|(server, _)| *server == self.server);
        found.map_or(&[], |(_, programs)| programs)
    }

    fn cell(&self, program: &str) -> Cell {
        Cell {
            server: self.server,
            data: self.data.to_owned(),
            direction: self.direction,
            program: program.to_owned(),
        }
    }

    fn title(&self) -> String {
        let server = match self.server {
            PlainServer::Sshd => "an SSH server",
            PlainServer::S3 => "an S3 server",
        };
        let data = match self.data {
            "large" => "a file of 256 MiB",
            _ => "5,000 files of 4 KiB",
        };
        match self.direction {
            PeerDirection::Fetch => format!("{data} from {server}"),
            PeerDirection::Send => format!("{data} to {server}"),
        }
    }

    /// Returns the best of the others beside `longhaul cp`, with its title.
    fn best(&self, runs: &Runs<'_, Cell, Observation>) -> Option<(Gain, &'static str)> {
        let rate = |program: &&str| runs.spread(&self.cell(program), Observation::mbps);
        let others = self.programs().iter().filter(|program| **program != OWN);
        let rates = others.filter_map(|program| Some((rate(program)?, *program)));
        let (before, best) = rates.max_by(|a, b| a.0.median.total_cmp(&b.0.median))?;
        let after = rate(&OWN)?;
        Some((Gain { before, after }, title(best)))
    }
}

/// Returns a program's name on the page.
fn title(program: &'static str) -> &'static str {
    peers::find(program).map_or("longhaul cp", |peer| peer.title())
}

/// Returns the table of the other programs' options.
fn options() -> Table {
    let names = PROGRAMS.iter().flat_map(|(_, programs)| *programs);
    Columns::of(names.filter_map(|name| peers::find(name).ok()))
        .text("program", |peer| peer.title())
        .text("options", |peer| peer.options())
        .table()
}

/// Returns a program.
fn peer<'a>(tools: &'a Tools, server: PlainServer, program: &str) -> Result<Box<dyn Peer + 'a>> {
    Ok(match program {
        OWN => Box::new(LonghaulPlain { tools, server }),
        _ => Box::new(peers::find(program)?),
    })
}

fn data(name: &str) -> Result<Data> {
    let found = DATA.into_iter().find(|(other, _)| *other == name);
    Ok(found
        .with_context(|| format!("there are no data {name}"))?
        .1)
}

impl Experiment for Plain {
    type Cell = Cell;
    type Observation = Observation;
    type Setup = Sources;

    fn name(&self) -> &'static str {
        "plain"
    }

    fn title(&self) -> &'static str {
        "Copies with servers that have no `longhaul`: SSH alone, and S3"
    }

    fn cells(&self) -> Vec<Cell> {
        let cells = |case: Case| {
            let programs = case.programs().iter();
            programs.map(|name| case.cell(name)).collect::<Vec<_>>()
        };
        Case::all().into_iter().flat_map(cells).collect()
    }

    fn seeds(&self, _cell: &Cell) -> u64 {
        1
    }

    fn cost(&self, cell: &Cell) -> Cost {
        // Programs that wait for each file are stopped.
        let waits = cell.server == PlainServer::Sshd && cell.data == "small" && cell.program != OWN;
        let seconds = if waits {
            TIME_LIMIT.as_secs_f64()
        } else {
            20.0
        };
        Cost::new(1.0, seconds)
    }

    fn prepare(&self, tools: &Tools) -> Result<Sources> {
        for (server, programs) in PROGRAMS {
            for program in programs {
                peer(tools, server, program)?.installed()?;
            }
        }
        Ok(Sources::default())
    }

    fn network(
        &self,
        tools: &Tools,
        sources: &Sources,
        cell: &Cell,
        _seed: u64,
    ) -> Result<Network> {
        // Before there is a lab, because making it loads the processor for a while.
        sources.prepare(tools, data(&cell.data)?)?;
        Ok(Network::load(tools, SCENARIO)?.set("links.path.loss", LOSS))
    }

    fn run(&self, here: &Here<'_, Sources>, cell: &Cell) -> Result<Observation> {
        let data = data(&cell.data)?;
        let source = here.setup.prepare(here.tools, data)?;
        let peer = peer(here.tools, cell.server, &cell.program)?;
        let job = Job {
            lab: here.lab,
            client: "client",
            server: "server",
            relay: None,
            scratch: here.folder,
            source: &source,
            direction: cell.direction,
            streams: if peer.abilities().streams { STREAMS } else { 1 },
        };
        let timed = copy_within(peer.as_ref(), &job, TIME_LIMIT)?;
        Ok(Observation {
            bytes: data.extent().1,
            stopped: timed.is_none(),
            seconds: timed.map_or(TIME_LIMIT.as_secs_f64(), |timed| timed.seconds),
        })
    }

    fn outcome(&self, seen: &Observation) -> String {
        let stopped = if seen.stopped { "stopped after " } else { "" };
        format!("{stopped}{:.1} s, {:.1} Mbit/s", seen.seconds, seen.mbps())
    }

    fn page(&self, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
        let rows = Case::all().into_iter().flat_map(|case| {
            let programs = case.programs().iter();
            programs.map(move |program| (case.clone(), *program))
        });
        let measured = rows.filter(|(case, name)| !runs.cell(&case.cell(name)).is_empty());
        let spread = |(case, name): &(Case, &'static str), value: fn(&Observation) -> f64| {
            runs.spread(&case.cell(name), value)
        };
        let table = Columns::of(measured)
            .text("copy", |(case, _)| case.title())
            .text("program", |(_, name)| title(name))
            .spread("seconds", 1, |row| spread(row, |seen| seen.seconds))
            .spread("Mbit/s", 1, |row| spread(row, Observation::mbps))
            .spread("`longhaul cp` by it", 2, |(case, name)| {
                let ratio = runs.ratio(&case.cell(OWN), &case.cell(name), Observation::mbps);
                ratio.filter(|_| *name != OWN)
            })
            .text("stopped", |(case, name)| {
                let all = runs.cell(&case.cell(name));
                all.iter().filter(|run| run.seen.stopped).count()
            })
            .text("runs", |(case, name)| runs.cell(&case.cell(name)).len())
            .table();
        page!("plain", table, options => options(), streams => STREAMS,
            seconds => TIME_LIMIT.as_secs())
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        let compared = self.comparisons(runs);
        let counted = comparison::first(&compared).zip(comparison::extremes(&compared));
        let Some((first, extremes)) = counted else {
            return vec![];
        };
        let text = format!("first in {first}; by the best of the others {extremes}");
        let title = "`longhaul cp` with servers that have no `longhaul`";
        vec![Figure::new("first", title, text, Basis::Counted)]
    }

    fn comparisons(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Comparison> {
        let compared = |case: Case| {
            let (gain, rival) = case.best(runs)?;
            Some(gain.compare(case.title(), rival.to_owned()))
        };
        Case::all().into_iter().filter_map(compared).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::tests::record;

    #[test]
    fn every_program_is_one_that_can_make_its_copies() {
        for cell in Plain.cells().iter().filter(|cell| cell.program != OWN) {
            let able = peers::find(&cell.program).unwrap().abilities();
            assert!(able.send && able.trees, "{cell:?}");
        }
    }

    #[test]
    fn the_page_compares_each_program_with_longhaul() {
        let case = &Case::all()[0];
        let run = |program: &str, seconds: f64| {
            let seen = Observation {
                bytes: 100_000_000,
                seconds,
                stopped: false,
            };
            record(case.cell(program), 1, seen, true)
        };
        let records = [run(OWN, 2.0), run("scp", 8.0), run("rclone-sftp", 5.0)];
        let runs = Runs::select_valid(&records);
        let text = Plain.page(&runs).unwrap().text;
        assert!(
            text.contains("| scp | 8.0 (single) | 100.0 (single) | 4.00 (single) |"),
            "{text}"
        );
        let best = &Plain.comparisons(&runs)[0];
        assert!(best.is_first && best.ratio == 2.5, "{best:?}");
    }
}
