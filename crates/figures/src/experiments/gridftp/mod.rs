//! GridFTP through gateways: MNEMONIC's Figures 3 to 5, with the paper's program, unmodified.

mod page;
mod run;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::experiment::{Cost, Experiment, Here};
use crate::network::Network;
use crate::page::{Figure, Page};
use crate::runs::Runs;
use crate::setting::{CopyRoute, Mnemonic};
use crate::tools::Tools;

/// Moments, in seconds, at which the arrived bytes are counted: the paper's timed transfers.
pub const SECONDS: [u32; 5] = [10, 20, 30, 45, 60];

/// Name among the peers.
pub const PROGRAM: &str = "gridftp";
/// The client's program.
pub const CLIENT: &str = "globus-url-copy";

/// Compared numbers of streams.
const STREAMS: [u32; 2] = [1, 4];

/// The experiment.
pub struct GridFtp {
    /// Moments, in seconds, at which the arrived bytes are counted.
    pub seconds: &'static [u32],
}

/// Published extent of the experiment.
pub const GRIDFTP: GridFtp = GridFtp { seconds: &SECONDS };

/// Tuning of the end hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hosts {
    /// Windows of 64 KB, as the paper's Windows XP hosts.
    Untuned,
    /// 16 MB by the number of streams, Reno: the paper's tuned hosts.
    Reno,
    /// The same with CUBIC.
    Cubic,
    /// The same with BBR, which is common on today's hosts.
    Bbr,
}

/// Losses of the LANs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Losses {
    /// Each segment is lost independently.
    Independent,
    /// In bursts of ten on average.
    Bursts,
}

/// One transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// The path: `short` (10, 50, 10 ms) or `long` (25, 100, 25 ms).
    path: Mnemonic,
    hosts: Hosts,
    losses: Losses,
    streams: u32,
    way: CopyRoute,
}

/// Arrival of the bytes over time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observation {
    /// Seconds, and the payload that the last link had delivered by then, in bytes.
    arrived: Vec<(u32, u64)>,
}

impl Observation {
    /// Returns the rate over the first `seconds`, in Mbit/s, as a transfer of that duration would
    /// have reported it.
    fn mbps(&self, seconds: u32) -> f64 {
        let found = self.arrived.iter().find(|(after, _)| *after == seconds);
        found.map_or(0, |(_, bytes)| *bytes) as f64 * 8.0 / 1e6 / f64::from(seconds)
    }
}

impl Hosts {
    const ALL: [Self; 4] = [Self::Untuned, Self::Reno, Self::Cubic, Self::Bbr];

    fn congestion(self) -> &'static str {
        match self {
            Self::Untuned | Self::Reno => "reno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        }
    }
}

impl Losses {
    const ALL: [Self; 2] = [Self::Independent, Self::Bursts];

    fn words(self) -> &'static str {
        match self {
            Self::Independent => "independent",
            Self::Bursts => "in bursts of 10",
        }
    }
}

impl Cell {
    /// Demonstrated cells: untuned hosts, direct and through depots.
    pub const DEMONSTRATED: [Self; 2] = [
        Self::untuned(CopyRoute::Direct),
        Self::untuned(CopyRoute::Depots),
    ];

    const fn untuned(way: CopyRoute) -> Self {
        Self {
            path: Mnemonic::Short,
            hosts: Hosts::Untuned,
            losses: Losses::Independent,
            streams: 1,
            way,
        }
    }

    /// Returns the share of the machine that a transfer needs, by its maximum rate. Five transfers
    /// of together 517 Mbit/s through gateways left the lab's lag at 0.3 ms, so those of untuned
    /// hosts run in parallel up to about 600. With one stream, the shares of tuned hosts are those
    /// of copies over the same paths (`plans/settings.toml`).
    fn share(&self) -> f64 {
        match (self.hosts, self.way, self.streams, self.path) {
            // At most 29 Mbit/s each, 13 on average.
            (Hosts::Untuned, CopyRoute::Direct, ..) => 1.0 / 16.0,
            // 50, 79 and 199 Mbit/s.
            (Hosts::Untuned, CopyRoute::Depots, 1, _) => 0.1,
            (Hosts::Untuned, CopyRoute::Depots, _, Mnemonic::Long) => 0.15,
            (Hosts::Untuned, CopyRoute::Depots, _, Mnemonic::Short) => 0.3,
            (Hosts::Reno, CopyRoute::Direct, 1, _) => 0.2,
            (Hosts::Reno, CopyRoute::Direct, ..) | (Hosts::Reno, CopyRoute::Depots, 1, _) => 0.5,
            (Hosts::Cubic, CopyRoute::Direct, 1, _) => 0.5,
            // Independent losses hold these to half the path or less. They kept two processors half
            // and a quarter busy.
            (Hosts::Cubic, CopyRoute::Direct, _, path)
            | (Hosts::Cubic, CopyRoute::Depots, 1, path)
                if self.losses == Losses::Independent =>
            {
                match path {
                    Mnemonic::Short => 0.6,
                    Mnemonic::Long => 0.4,
                }
            }
            _ => 1.0,
        }
    }

    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for hosts in Hosts::ALL {
            for path in [Mnemonic::Short, Mnemonic::Long] {
                for losses in Losses::ALL {
                    for streams in STREAMS {
                        all.extend(CopyRoute::BOTH.map(|way| Self {
                            path,
                            hosts,
                            losses,
                            streams,
                            way,
                        }));
                    }
                }
            }
        }
        all
    }
}

impl Experiment for GridFtp {
    type Cell = Cell;
    type Observation = Observation;
    type Setup = ();

    fn name(&self) -> &'static str {
        "gridftp"
    }

    fn title(&self) -> &'static str {
        "GridFTP through gateways: MNEMONIC's figures with its own program"
    }

    fn cells(&self) -> Vec<Cell> {
        Cell::all()
    }

    fn seeds(&self, _cell: &Cell) -> u64 {
        // Each run takes a minute. `--seeds 10` asks for the paper's ten.
        1
    }

    fn cost(&self, cell: &Cell) -> Cost {
        let share = cell.share();
        let seconds = f64::from(self.seconds.last().copied().unwrap_or(0)) + 4.0;
        Cost { share, seconds }
    }

    fn prepare(&self, _tools: &Tools) -> Result<()> {
        run::programs()
    }

    fn network(&self, tools: &Tools, (): &(), cell: &Cell, _seed: u64) -> Result<Network> {
        let (file, relays) = match (cell.path, cell.way) {
            (Mnemonic::Short, CopyRoute::Direct) => ("mnemonic-10-50-10.toml", &[][..]),
            (Mnemonic::Short, CopyRoute::Depots) => ("mnemonic-10-50-10.toml", &["gw1", "gw2"][..]),
            (Mnemonic::Long, CopyRoute::Direct) => ("mnemonic-25-100-25.toml", &[][..]),
            (Mnemonic::Long, CopyRoute::Depots) => ("mnemonic-25-100-25.toml", &["gw1", "gw2"][..]),
        };
        let buffers = match cell.hosts {
            Hosts::Untuned => "\"64 KB\"".to_owned(),
            _ => format!("\"{} MB\"", 16 / cell.streams),
        };
        let mut network = Network::load(tools, file)?
            .relays(relays)
            .set("nodes.*.congestion", cell.hosts.congestion());
        for host in ["client", "server"] {
            network = network.set(format!("nodes.{host}.buffers"), buffers.clone());
        }
        if cell.losses == Losses::Bursts {
            for lan in ["lan1", "lan2"] {
                network = network.set(format!("links.{lan}.loss"), "{mean=\"0.001%\", burst=10}");
            }
        }
        Ok(network)
    }

    fn run(&self, here: &Here<'_, ()>, cell: &Cell) -> Result<Observation> {
        let arrived = run::transfer(here, *cell, self.seconds)?;
        Ok(Observation { arrived })
    }

    fn outcome(&self, seen: &Observation) -> String {
        let rate = |(seconds, _): &(u32, u64)| {
            format!("{:.1} Mbit/s after {seconds} s", seen.mbps(*seconds))
        };
        seen.arrived.iter().map(rate).collect::<Vec<_>>().join(", ")
    }

    fn page(&self, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
        page::page(runs)
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        page::figures(runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::tests::record;

    #[test]
    fn rates_are_of_what_had_arrived_by_then() {
        let seen = |factor: u64| Observation {
            arrived: SECONDS
                .map(|seconds| (seconds, u64::from(seconds) * factor))
                .to_vec(),
        };
        assert_eq!(seen(125_000).mbps(30), 1.0);
        let [direct, through] = Cell::DEMONSTRATED;
        let records = [
            record(direct, 1, seen(125_000), true),
            record(through, 1, seen(500_000), true),
        ];
        let runs = Runs::select_valid(&records);
        let text = GRIDFTP.page(&runs).unwrap().text;
        assert!(
            text.contains("| 1.0 (single) | 4.0 (single) | **4.0** (single) |"),
            "{text}"
        );
        assert_eq!(GRIDFTP.figures(&runs)[0].text, "4.0 (single)");
    }

    #[test]
    fn every_cell_is_there_once() {
        let cells = GRIDFTP.cells();
        assert_eq!(cells.len(), 4 * 2 * 2 * 2 * 2);
        assert!(
            cells
                .iter()
                .all(|one| cells.iter().filter(|other| *other == one).count() == 1)
        );
    }
}
