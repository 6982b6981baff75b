//! Comparison of a circuit with best effort: a hop between two depots that is paced by a grant,
//! alone and with others' flows on the shared link, with and without a router that keeps its rate
//! free.

mod network;
mod page;
mod run;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::experiment::{Cost, Experiment, Here};
use crate::network::Network;
use crate::page::{Figure, Page};
use crate::runs::Runs;
use crate::tools::{Tools, installed};

/// The experiment.
pub struct Circuit;

/// A path of the papers, scaled down in rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// Path of the Land Speed Record, at a tenth of its rate.
    Lsr,
    /// Path of MNEMONIC, at a quarter of its rate.
    Mnemonic25,
    Mnemonic10,
}

impl Path {
    const ALL: [Self; 3] = [Self::Lsr, Self::Mnemonic25, Self::Mnemonic10];

    const fn title(self) -> &'static str {
        match self {
            Self::Lsr => "Land Speed Record, 180 ms, 240 Mbit/s",
            Self::Mnemonic25 => "MNEMONIC 25/100/25 ms, 250 Mbit/s",
            Self::Mnemonic10 => "MNEMONIC 10/50/10 ms, 250 Mbit/s",
        }
    }

    /// Returns the rate of the shared link, in bit/s.
    const fn shared_bps(self) -> f64 {
        match self {
            Self::Lsr => 240e6,
            Self::Mnemonic25 | Self::Mnemonic10 => 250e6,
        }
    }
}

/// Flow over the depots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flow {
    /// There is no flow and no reservation.
    None,
    /// There is no flow, but a reservation.
    Idle,
    /// A flow with a grant, whose rate the router keeps free.
    Circuit,
    /// A flow with a grant, of which no router knows.
    Granted,
    /// A flow without a grant.
    BestEffort,
}

impl Flow {
    const ALL: [Self; 5] = [
        Self::None,
        Self::Idle,
        Self::Circuit,
        Self::Granted,
        Self::BestEffort,
    ];

    const fn title(self) -> &'static str {
        match self {
            Self::None => "nothing",
            Self::Idle => "reserved, unused",
            Self::Circuit => "circuit: grant and router",
            Self::Granted => "grant alone",
            Self::BestEffort => "best effort",
        }
    }

    /// Returns true if the router keeps a rate free.
    const fn has_class(self) -> bool {
        matches!(self, Self::Idle | Self::Circuit)
    }
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    path: Path,
    flow: Flow,
    /// If true, there are flows of others.
    cross: bool,
}

/// Observation over [`MEASURED_SECONDS`], after [`SETTLE_SECONDS`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Observation {
    /// Reserved rate in bit/s, including packet headers; `None` without a reservation.
    reserved_bps: Option<f64>,
    /// Rate of the flow in bit/s, including packet headers.
    flow_bps: Option<f64>,
    /// Standard deviation of its rates over each tenth of a second, in percent of their mean.
    deviation_percent: Option<f64>,
    /// Minimum and maximum of its rate over a second, in bit/s.
    second_bps: Option<[f64; 2]>,
    /// Segments retransmitted by the depot before the shared link, and by the sender.
    resent: Option<[u64; 2]>,
    /// Rate of the others' flows in bit/s, including packet headers.
    cross_bps: Option<f64>,
}

/// Reserved share of the shared link.
const RESERVED: f64 = 0.4;
/// Share of its link's rate that a router uses: slightly less than all, so that the queue is at the
/// router.
const ROUTED: f64 = 0.99;
/// Number of others' flows.
const CROSS_FLOWS: u32 = 4;
/// Time for slow start and the first round trips next to others, in seconds.
const SETTLE_SECONDS: f64 = 6.0;
const MEASURED_SECONDS: f64 = 15.0;

impl Path {
    /// Returns the reserved rate in bit/s.
    fn reserved_bps(self) -> f64 {
        self.shared_bps() * RESERVED
    }
}

impl Experiment for Circuit {
    type Cell = Cell;
    type Observation = Observation;
    type Setup = ();

    fn name(&self) -> &'static str {
        "circuit"
    }

    fn title(&self) -> &'static str {
        "A circuit beside best effort: a hop that a grant paces, with others on the shared link"
    }

    fn cells(&self) -> Vec<Cell> {
        // Without a flow, only the others are measured.
        let is_measured = |cell: &Cell| cell.cross || !matches!(cell.flow, Flow::None | Flow::Idle);
        let both = |path, flow| [false, true].map(|cross| Cell { path, flow, cross });
        let of = |path| Flow::ALL.into_iter().flat_map(move |flow| both(path, flow));
        Path::ALL
            .into_iter()
            .flat_map(of)
            .filter(is_measured)
            .collect()
    }

    fn seeds(&self, _cell: &Cell) -> u64 {
        1
    }

    fn cost(&self, _cell: &Cell) -> Cost {
        Cost::new(1.0, SETTLE_SECONDS + MEASURED_SECONDS + 8.0)
    }

    fn prepare(&self, _tools: &Tools) -> Result<()> {
        installed("iperf3", "iperf3").map(|_| ())
    }

    fn network(&self, _tools: &Tools, _setup: &(), cell: &Cell, _seed: u64) -> Result<Network> {
        let relays: &[&str] = if cell.flow == Flow::None {
            &[]
        } else {
            &["west", "east"]
        };
        Ok(Network::of_text("circuit", &network::text(cell.path)).relays(relays))
    }

    fn run(&self, here: &Here<'_, ()>, cell: &Cell) -> Result<Observation> {
        run::run(here, *cell)
    }

    fn outcome(&self, seen: &Observation) -> String {
        let mbps = |bps: Option<f64>| bps.map_or("-".to_owned(), |bps| format!("{:.1}", bps / 1e6));
        let others = mbps(seen.cross_bps);
        let Some(deviation) = seen.deviation_percent else {
            return format!("no flow; others {others} Mbit/s");
        };
        let [depot, sender] = seen.resent.unwrap_or_default();
        format!(
            "{} Mbit/s of {} reserved, deviation {deviation:.1} %, sent again {depot} + {sender}; \
             others {others} Mbit/s",
            mbps(seen.flow_bps),
            mbps(seen.reserved_bps),
        )
    }

    fn page(&self, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
        page::page(runs)
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        page::figures(runs)
    }
}
