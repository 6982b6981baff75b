//! Resources of very large copies: millions of files, and a file of terabytes, on one machine.

mod page;
mod run;
mod tree;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::comparison::Comparison;
use crate::experiment::{Cost, Experiment, Here};
use crate::network::Network;
use crate::page::{Figure, Page};
use crate::runs::Runs;
use crate::tools::Tools;

/// The experiment.
pub struct Scale;

/// One copy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    what: CopiedData,
    way: ScaleMethod,
}

/// Copied data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CopiedData {
    /// 2,000,000 empty files, 1,000 in a folder.
    MillionsInFolders,
    /// 2,000,000 empty files in one folder.
    MillionsInOneFolder,
    /// 100,000 files of 1 KiB, 1,000 in a folder.
    SmallFiles,
    /// One file of 2 GiB, over the maximum number of streams of a copy.
    ManyStreams,
    /// One file of 64 GiB with a block of data at its start and one at its end.
    Sparse,
}

/// Program and route of the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScaleMethod {
    /// `longhaul cp` to a server.
    Push,
    /// `longhaul cp` from a server.
    Pull,
    /// rsync from its own daemon.
    Rsync,
}

/// Result of one copy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observation {
    /// Number of arrived files, and their bytes.
    files: u64,
    bytes: u64,
    /// Time of the command from start to end.
    seconds: f64,
    /// Resources of the client and of the server, if they are Longhaul's.
    client: Option<Usage>,
    server: Option<Usage>,
}

/// Resources of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Maximum resident memory (`VmHWM`), in MiB.
    peak_mib: f64,
    /// Processor time in seconds.
    cpu_seconds: f64,
}

impl CopiedData {
    const ALL: [Self; 5] = [
        Self::MillionsInFolders,
        Self::MillionsInOneFolder,
        Self::SmallFiles,
        Self::ManyStreams,
        Self::Sparse,
    ];

    /// Returns the number of streams that it is told to use.
    fn streams(self) -> Option<u32> {
        (self == Self::ManyStreams).then_some(64)
    }

    fn words(self) -> &'static str {
        match self {
            Self::MillionsInFolders => "2,000,000 empty files, 1,000 in a folder",
            Self::MillionsInOneFolder => "2,000,000 empty files in one folder",
            Self::SmallFiles => "100,000 files of 1 KiB, 1,000 in a folder",
            Self::ManyStreams => "a file of 2 GiB, `--streams 64`",
            Self::Sparse => "a file of 64 GiB, all a hole but for 2 MiB",
        }
    }

    /// Returns the number of files, the files in a folder, and the bytes of each file.
    fn shape(self) -> (u64, u64, u64) {
        match self {
            Self::MillionsInFolders => (2_000_000, 1000, 0),
            Self::MillionsInOneFolder => (2_000_000, 2_000_000, 0),
            Self::SmallFiles => (100_000, 1000, 1 << 10),
            Self::ManyStreams => (1, 1, 2 << 30),
            Self::Sparse => (1, 1, 64 << 30),
        }
    }
}

impl ScaleMethod {
    fn words(self) -> &'static str {
        match self {
            Self::Push => "`longhaul cp`, push",
            Self::Pull => "`longhaul cp`, pull",
            Self::Rsync => "rsync from its daemon",
        }
    }
}

impl Observation {
    fn files_per_second(&self) -> f64 {
        self.files as f64 / self.seconds
    }

    fn peaks(&self) -> impl Iterator<Item = f64> {
        let both = [self.client, self.server];
        both.into_iter().flatten().map(|usage| usage.peak_mib)
    }
}

impl Experiment for Scale {
    type Cell = Cell;
    type Observation = Observation;
    type Setup = ();

    fn name(&self) -> &'static str {
        "scale"
    }

    fn title(&self) -> &'static str {
        "Millions of files and a file of terabytes: memory, and files a second"
    }

    fn cells(&self) -> Vec<Cell> {
        let of = |what| {
            let ways: &[ScaleMethod] = match what {
                CopiedData::SmallFiles => {
                    &[ScaleMethod::Push, ScaleMethod::Pull, ScaleMethod::Rsync]
                }
                _ => &[ScaleMethod::Push, ScaleMethod::Pull],
            };
            ways.iter().map(move |&way| Cell { what, way })
        };
        CopiedData::ALL.into_iter().flat_map(of).collect()
    }

    /// The default is the short copies. `--seeds 1` asks for every cell.
    fn seeds(&self, cell: &Cell) -> u64 {
        u64::from(matches!(cell.what, CopiedData::SmallFiles))
    }

    fn cost(&self, cell: &Cell) -> Cost {
        let seconds = match cell.what {
            CopiedData::MillionsInFolders | CopiedData::MillionsInOneFolder => 200.0,
            CopiedData::SmallFiles | CopiedData::ManyStreams => 15.0,
            CopiedData::Sparse => 25.0,
        };
        Cost {
            share: 1.0,
            seconds,
        }
    }

    fn prepare(&self, _tools: &Tools) -> Result<()> {
        Ok(())
    }

    fn network(&self, _tools: &Tools, (): &(), _cell: &Cell, _seed: u64) -> Result<Network> {
        Ok(Network::of_text("scale", run::LAB))
    }

    fn run(&self, here: &Here<'_, ()>, cell: &Cell) -> Result<Observation> {
        run::run(here, *cell)
    }

    fn outcome(&self, seen: &Observation) -> String {
        let peaks: Vec<String> = seen.peaks().map(|mib| format!("{mib:.0} MiB")).collect();
        let rate = match seen.files {
            1 => format!("{:.0} MB/s", seen.bytes as f64 / seen.seconds / 1e6),
            _ => format!("{:.0} files a second", seen.files_per_second()),
        };
        let peaks = match peaks.is_empty() {
            true => String::new(),
            false => format!("; peaks of client and server: {}", peaks.join(" and ")),
        };
        format!(
            "{} files in {:.1} s, {rate}{peaks}",
            seen.files, seen.seconds
        )
    }

    fn page(&self, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
        page::page(runs)
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        page::figures(runs)
    }

    fn comparisons(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Comparison> {
        page::comparisons(runs)
    }
}
