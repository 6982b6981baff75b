//! Copies with deadlines next to cross traffic: by best effort alone, with reservations that the
//! copy itself makes and returns, and with the maximum reservation for each of them.

mod page;
mod plan;
mod run;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::experiment::{Cost, Experiment, Here};
use crate::network::Network;
use crate::page::{Figure, Page};
use crate::runs::Runs;
use crate::tools::{Tools, installed};
use run::DeadlineFiles;

/// Copies of one run as it is published: ten seeds have a hundred.
const COPIES: usize = 10;

/// Rate of the link that all share, in bit/s.
const SHARED_BPS: f64 = 200e6;
/// Rate that its router uses, in bit/s: slightly less, so that the queue is at the router.
const ROUTED_BPS: f64 = 190e6;

/// Both ends of the copies, both ends of the cross traffic, and the routers between which they
/// share a link.
const NETWORK: &str = include_str!("../../../labs/deadlines.toml");

/// The experiment.
pub struct Deadlines {
    /// Copies of one run.
    pub copies: usize,
}

/// Published extent of the experiment.
pub const DEADLINES: Deadlines = Deadlines { copies: COPIES };

/// Reservation of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReservationMethod {
    /// There is no reservation.
    BestEffort,
    /// The copy reserves what it finds that it needs.
    Auto,
    /// The maximum reservable rate of the link, for every copy.
    Peak,
}

impl ReservationMethod {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::BestEffort, Self::Auto, Self::Peak];

    /// Returns the head of a column.
    pub const fn title(self) -> &'static str {
        match self {
            Self::BestEffort => "best effort alone",
            Self::Auto => "`--by`",
            Self::Peak => "the most for everyone",
        }
    }
}

/// One pass over all copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    way: ReservationMethod,
}

impl Cell {
    /// Demonstrated cells.
    pub const DEMONSTRATED: [Self; 2] = [
        Self {
            way: ReservationMethod::BestEffort,
        },
        Self {
            way: ReservationMethod::Auto,
        },
    ];
}

/// Result of one copy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeadlineCopy {
    /// Its size.
    bytes: u64,
    /// Seconds from its start to its deadline.
    deadline_s: f64,
    /// Number of others' flows at the same time.
    others: u32,
    /// Seconds from the start of the command to its end.
    seconds: f64,
    /// If true, every byte arrived.
    whole: bool,
    /// If true, everything arrived by the deadline.
    met: bool,
    /// Last report on the deadline before it passed.
    said: Said,
    /// Bytes that were reserved, minus those returned early.
    reserved_bytes: u64,
    /// Bytes of others' flows meanwhile.
    others_bytes: u64,
}

/// Report of a copy on its deadline, and its time in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Said {
    /// The deadline is not at risk.
    Met,
    /// The deadline may be missed.
    AtRisk(f64),
    /// The deadline cannot be met.
    Missed(f64),
}

impl Said {
    const fn is_met(&self) -> bool {
        matches!(self, Self::Met)
    }

    const fn is_at_risk(&self) -> bool {
        matches!(self, Self::AtRisk(_))
    }

    const fn is_missed(&self) -> bool {
        matches!(self, Self::Missed(_))
    }
}

/// Results of all copies, in their order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observation {
    copies: Vec<DeadlineCopy>,
}

impl Experiment for Deadlines {
    type Cell = Cell;
    type Observation = Observation;
    type Setup = DeadlineFiles;

    fn name(&self) -> &'static str {
        "deadlines"
    }

    fn title(&self) -> &'static str {
        "Deadlines: copies beside cross traffic, with what they reserve for themselves"
    }

    fn cells(&self) -> Vec<Cell> {
        ReservationMethod::ALL.map(|way| Cell { way }).into()
    }

    fn seeds(&self, _cell: &Cell) -> u64 {
        10
    }

    fn cost(&self, _cell: &Cell) -> Cost {
        Cost::new(1.0, 10.0 + 30.0 * self.copies as f64)
    }

    fn prepare(&self, tools: &Tools) -> Result<DeadlineFiles> {
        installed("iperf3", "iperf3")?;
        DeadlineFiles::make(tools)
    }

    fn network(
        &self,
        _tools: &Tools,
        _files: &DeadlineFiles,
        _cell: &Cell,
        _seed: u64,
    ) -> Result<Network> {
        // Both routers only forward packets.
        Ok(Network::of_text("deadlines", NETWORK).relays(&[]))
    }

    fn run(&self, here: &Here<'_, DeadlineFiles>, cell: &Cell) -> Result<Observation> {
        let wanted = plan::copies(here.seed, self.copies);
        Ok(Observation {
            copies: run::run(here, cell.way, &wanted)?,
        })
    }

    fn outcome(&self, seen: &Observation) -> String {
        let of = |what: &dyn Fn(&DeadlineCopy) -> bool| {
            seen.copies.iter().filter(|copy| what(copy)).count()
        };
        format!(
            "{} copies, {} met their deadlines; said to be met {}, of which {} were; at risk {}, \
             of which {} were met; not to be met {}, of which {} were; {} not whole",
            seen.copies.len(),
            of(&|copy| copy.met),
            of(&|copy| copy.said.is_met()),
            of(&|copy| copy.said.is_met() && copy.met),
            of(&|copy| copy.said.is_at_risk()),
            of(&|copy| copy.said.is_at_risk() && copy.met),
            of(&|copy| copy.said.is_missed()),
            of(&|copy| copy.said.is_missed() && copy.met),
            of(&|copy| !copy.whole),
        )
    }

    fn page(&self, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
        page::page(runs)
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        page::figures(runs)
    }
}
