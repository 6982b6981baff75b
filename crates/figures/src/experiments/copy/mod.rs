//! Comparison of `longhaul cp` without options with programs of others: the same data between the
//! same two hosts, over clean and lossy paths, between small hosts, over paths that change, without
//! any limit, and in all shapes.
//!
//! A run is named `WAY@CASE`, so that `--only @clean-20ms-1gib` measures a case,
//! `--only gridftp-16@` a program in all cases, and `--only gridftp-16@clean-20ms-1gib` one of
//! both.

mod bottleneck;
mod cases;
pub mod data;
mod standing;
mod tables;
mod ways;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::comparison::Comparison;
use crate::experiment::{Cost, Experiment, Here};
use crate::network::Network;
use crate::page::{Figure, Page};
use crate::peers::longhaul::streams_of;
use crate::peers::one_copy::{Job, PeerDirection, copy_within};
use crate::runs::Runs;
use crate::tools::Tools;
use bottleneck::{Changing, payload_share};
use cases::{Bottleneck, Case};
use data::Sources;
use ways::{CopyContender, WAYS};

/// Cases that are measured by default, one of each kind, so that all experiments together take
/// minutes.
const CASES_BY_DEFAULT: [&str; 3] = [
    "loss-0.01-60ms-cubic-256mib",
    "windows-64kb-100ms-16mib",
    "source-tree-100ms",
];
/// Programs that are measured by default in these cases, the first of each kind.
const WAYS_BY_DEFAULT: [&str; 6] = [
    "longhaul",
    "longhaul-16",
    "rsync-ssh",
    "gridftp-16",
    "xrdcp-1",
    "lftp-16",
];

/// The experiment.
pub struct Copy {
    /// Programs that are compared.
    ways: &'static [CopyContender],
}

/// The experiment with all programs.
pub const COPY: Copy = Copy { ways: &WAYS };
/// The experiment with the demonstrated programs over ssh.
pub const OVER_SSH: Copy = Copy {
    ways: &[ways::OWN_OVER_SSH, ways::SCP],
};
/// The case that is demonstrated.
const DEMONSTRATED_CASE: &str = "loss-0.01-60ms-cubic-256mib";

impl Copy {
    /// Returns the cells of these programs that are demonstrated.
    pub fn demonstrated(&self) -> Vec<Cell> {
        let is_shown = |cell: &Cell| cell.copy.ends_with(DEMONSTRATED_CASE);
        self.cells().into_iter().filter(is_shown).collect()
    }
}

/// One copy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// `WAY@CASE`.
    copy: String,
}

impl Cell {
    fn new(way: &CopyContender, case: &Case) -> Self {
        Self {
            copy: format!("{}@{}", way.name, case.name),
        }
    }

    fn found(&self) -> Result<(CopyContender, Case)> {
        let (way, case) = self.copy.split_once('@').unwrap_or_default();
        let way = WAYS.into_iter().find(|one| one.name == way);
        let case = cases::all().into_iter().find(|one| one.name == case);
        way.zip(case)
            .with_context(|| format!("there is no copy {:?}", self.copy))
    }
}

/// Result of a copy: everything arrived unchanged, or it was stopped.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observation {
    /// Files of the source.
    files: u64,
    /// Their bytes.
    bytes: u64,
    /// Seconds from the start of the client's command to its end or to the time limit.
    seconds: f64,
    /// If true, it was stopped at the time limit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    stopped: bool,
    /// Payload rate of the narrowest link during the copy, in bit/s; `None` if no link has a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bottleneck_bps: Option<f64>,
    /// Number of streams that `longhaul cp` chose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    streams: Option<u32>,
}

impl Observation {
    /// Returns the rate in Mbit/s; for a stopped copy, the rate below which it stayed.
    fn at_most_mbps(&self) -> f64 {
        8.0 * self.bytes as f64 / self.seconds / 1e6
    }

    /// Returns the rate in Mbit/s; zero for a stopped copy.
    fn at_least_mbps(&self) -> f64 {
        if self.stopped {
            0.0
        } else {
            self.at_most_mbps()
        }
    }

    /// Returns the share of the narrowest link's bytes, 0 to 1, or `None` if no link has a limit or
    /// the copy was stopped.
    fn share(&self) -> Option<f64> {
        let bottleneck = self.bottleneck_bps.filter(|_| !self.stopped)?;
        Some(1e6 * self.at_most_mbps() / bottleneck)
    }
}

impl Experiment for Copy {
    type Cell = Cell;
    type Observation = Observation;
    type Setup = Sources;

    fn name(&self) -> &'static str {
        "copy"
    }

    fn title(&self) -> &'static str {
        "`longhaul cp` with nothing set beside others' programs, in every case"
    }

    fn cells(&self) -> Vec<Cell> {
        let ways = |case: Case| {
            let able = self
                .ways
                .iter()
                .filter(|way| way.cannot(case.data).is_none());
            able.map(|way| Cell::new(way, &case)).collect::<Vec<_>>()
        };
        cases::all().into_iter().flat_map(ways).collect()
    }

    fn seeds(&self, cell: &Cell) -> u64 {
        let by_default = cell.found().is_ok_and(|(way, case)| {
            WAYS_BY_DEFAULT.contains(&way.name) && CASES_BY_DEFAULT.contains(&case.name.as_str())
        });
        u64::from(by_default)
    }

    fn cost(&self, cell: &Cell) -> Cost {
        cell.found()
            .map_or(Cost::NONE, |(way, case)| case.cost(&way))
    }

    fn prepare(&self, tools: &Tools) -> Result<Sources> {
        for way in self.ways {
            way.peer(tools)?.installed()?;
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
        let (_, case) = cell.found()?;
        // Before there is a lab, because making it loads the processor for a while.
        sources.prepare(tools, case.data)?;
        let network = Network::load(tools, case.scenario)?;
        let set = case.set.into_iter();
        Ok(set.fold(network, |network, (path, value)| network.set(path, value)))
    }

    fn run(&self, here: &Here<'_, Sources>, cell: &Cell) -> Result<Observation> {
        let (way, case) = cell.found()?;
        let source = here.setup.prepare(here.tools, case.data)?;
        let peer = way.peer(here.tools)?;
        let job = Job {
            lab: here.lab,
            client: case.client,
            server: case.server,
            relay: None,
            scratch: here.folder,
            source: &source,
            direction: PeerDirection::Fetch,
            // Options of `longhaul cp` are its own.
            streams: if way.is_own() {
                1
            } else {
                way.streams.unwrap_or(1)
            },
        };
        let (files, bytes) = case.data.extent();
        let from = here.lab.links()?.seconds;
        let timed = copy_within(peer.as_ref(), &job, case.time_limit)?;
        if let Some(timed) = &timed {
            let arrived = (timed.contents.files, timed.contents.bytes);
            ensure!(
                arrived == (files, bytes),
                "{arrived:?} files and bytes arrived"
            );
        }
        let streams = match &timed {
            Some(timed) if way.is_own() => Some(streams_of(&timed.printed)?),
            _ => None,
        };
        let stopped = timed.is_none();
        let seconds = timed.map_or(case.time_limit.as_secs_f64(), |timed| timed.seconds);
        let bottleneck_bps = match case.bottleneck {
            Bottleneck::Steady => Some(case.hop.rate.bits_per_second()),
            Bottleneck::Changing(trace) => {
                let trace = Changing::read(&here.tools.scenarios.join(trace))?;
                Some(trace.mean(from, from + seconds) * payload_share(1500))
            }
            Bottleneck::Hosts => None,
        };
        Ok(Observation {
            files,
            bytes,
            seconds,
            stopped,
            bottleneck_bps,
            streams,
        })
    }

    fn outcome(&self, seen: &Observation) -> String {
        match seen.stopped {
            true => format!(
                "stopped after {:.0} s: under {:.1} Mbit/s",
                seen.seconds,
                seen.at_most_mbps()
            ),
            false => format!("{:.1} Mbit/s, {:.1} s", seen.at_most_mbps(), seen.seconds),
        }
    }

    fn page(&self, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
        tables::page(runs)
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        tables::figures(runs)
    }

    fn comparisons(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Comparison> {
        tables::comparisons(runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::IpVersion;
    use crate::noise::Noise;
    use crate::record::Record;
    use crate::runner::Extent;
    use crate::runs::tests::record;

    /// Returns a run with this rate.
    pub fn ran(
        way: &CopyContender,
        case: &Case,
        seed: u64,
        mbps: f64,
    ) -> Record<Cell, Observation> {
        let (files, bytes) = case.data.extent();
        let seen = Observation {
            files,
            bytes,
            seconds: 8.0 * bytes as f64 / (1e6 * mbps),
            stopped: false,
            bottleneck_bps: Some(case.hop.rate.bits_per_second()),
            streams: way.is_own().then_some(3),
        };
        record(Cell::new(way, case), seed, seen, true)
    }

    /// Returns a run that was stopped.
    pub fn stopped(way: &CopyContender, case: &Case, seed: u64) -> Record<Cell, Observation> {
        let mut record = ran(way, case, seed, 1.0);
        record.seen.seconds = case.time_limit.as_secs_f64();
        record.seen.stopped = true;
        record
    }

    fn keys(seeds: Option<u64>, only: &[&str]) -> Vec<String> {
        let extent = Extent {
            seeds,
            first_seed: 1,
            resume: false,
            until: None,
            retries: 0,
            noises: vec![Noise::None],
            ip: IpVersion::Ipv4,
            only: only.iter().map(|word| (*word).to_owned()).collect(),
        };
        let keys = extent.keys(&COPY);
        keys.into_iter().map(|key| key.factors.copy).collect()
    }

    #[test]
    fn every_cell_is_found_by_its_name() {
        for cell in COPY.cells() {
            let (way, case) = cell.found().unwrap();
            assert_eq!(Cell::new(&way, &case), cell);
        }
    }

    #[test]
    fn only_picks_a_case_a_way_or_one_of_both() {
        assert_eq!(keys(Some(1), &["@clean-20ms-1gib"]).len(), WAYS.len());
        let one = keys(Some(1), &["gridftp-1@clean-200ms-1gib"]);
        assert_eq!(one, ["gridftp-1@clean-200ms-1gib"]);
        let cases = cases::all().len();
        assert_eq!(keys(Some(1), &["rsync@"]).len(), cases);
        assert_eq!(keys(Some(1), &["longhaul@", "scp@"]).len(), 2 * cases);
    }

    #[test]
    fn a_few_cases_are_measured_where_nobody_asks_for_seeds() {
        let names = keys(None, &[]);
        assert_eq!(names.len(), CASES_BY_DEFAULT.len() * WAYS_BY_DEFAULT.len());
        let seconds: f64 = names
            .iter()
            .map(|copy| COPY.cost(&Cell { copy: copy.clone() }))
            .map(|cost| cost.share * cost.seconds)
            .sum();
        assert!(seconds < 300.0, "{seconds:.0} s");
    }

    #[test]
    fn large_cases_are_measured_when_seeds_are_asked_for() {
        assert!(keys(None, &["@clean-20ms-4gib"]).is_empty());
        assert_eq!(keys(Some(2), &["@clean-20ms-4gib"]).len(), 2 * WAYS.len());
    }

    #[test]
    fn the_scenarios_of_all_cases_are_sound() {
        for case in cases::all() {
            let scenarios =
                std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
            let scenario = wanbed::Scenario::read(scenarios.join(case.scenario)).unwrap();
            let set = case.set.iter().cloned();
            let overrides = set.fold(wanbed::Overrides::default(), |all, (path, value)| {
                all.set(path, value)
            });
            let resolved = scenario.resolve(&overrides);
            assert!(resolved.is_ok(), "{}: {:?}", case.name, resolved.err());
        }
    }
}
