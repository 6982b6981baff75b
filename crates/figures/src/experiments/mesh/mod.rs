//! A mesh of six sites whose links change. Copies on the controller's routes are compared with
//! direct ones, fixed depots, minimax by bandwidth, and an oracle.

mod conditions;
mod page;
pub mod paired;
mod run;

use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::experiment::{Cost, Experiment, Here};
use crate::network::Network;
use crate::page::{Figure, Page};
use crate::runs::Runs;
use crate::tools::Tools;
use conditions::{DETOURS, SITES, Transfer, links, transfers};

/// Copies of one run as it is published. Four seeds have two hundred.
const COPIES: usize = 50;
/// Time for which the controller of a published run observes the links before the first copy, in
/// seconds.
const LEARNING_SECONDS: f64 = 300.0;

/// The failing link, by the numbers of its sites, and the length of the failure.
const FAILING: (usize, usize) = (1, 5);
const FAILING_SECONDS: f64 = 60.0;

/// The experiment.
pub struct Mesh {
    /// Copies of one run.
    pub copies: usize,
    /// Time for which the controller and its depots observe the links before the first copy, in
    /// seconds.
    pub learning_seconds: f64,
}

/// Published extent of the experiment.
pub const MESH: Mesh = Mesh {
    copies: COPIES,
    learning_seconds: LEARNING_SECONDS,
};

/// Route of the copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MeshRoute {
    /// Each over the link between its sites.
    Direct,
    /// Each by the depot of one site; copies that begin or end there go directly. Earlier runs have
    /// these instead of detours, of which none repeats a direct copy.
    Depot(usize),
    /// Each by the depot of one of the sites at which it neither begins nor ends: the first, the
    /// second, and so on.
    Detour(usize),
    /// On the controller's route.
    Routed,
    /// The same with faults halfway: a depot dies, a link fails, and the forecasts of a link are
    /// wrong by a factor of ten.
    Faults,
}

/// One pass over all copies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    way: MeshRoute,
}

/// Result of one copy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MeshCopy {
    /// Time of the command from start to end, in seconds.
    seconds: f64,
    /// If true, every byte arrived.
    whole: bool,
    /// Reason of the failure, if the copy failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lost: Option<String>,
    /// Sites of the depots on the route. Empty for a direct copy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    depots: Vec<String>,
    /// Promised time in seconds: p10 and p90.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    promised: Option<(f64, f64)>,
}

impl MeshCopy {
    /// Returns true if it took as long as was promised. `None` if nothing was promised.
    fn keeps_promise(&self) -> Option<bool> {
        let (p10, p90) = self.promised?;
        Some((p10..=p90).contains(&self.seconds))
    }
}

/// Results of all copies, in order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observation {
    copies: Vec<MeshCopy>,
}

impl Cell {
    /// Demonstrated cells.
    pub const DEMONSTRATED: [Self; 2] = [
        Self {
            way: MeshRoute::Direct,
        },
        Self {
            way: MeshRoute::Routed,
        },
    ];
}

impl MeshRoute {
    /// Returns true if the controller picks the routes.
    const fn is_routed(self) -> bool {
        matches!(self, Self::Routed | Self::Faults)
    }

    fn all() -> Vec<Self> {
        let mut all = vec![Self::Direct];
        all.extend((0..DETOURS).map(Self::Detour));
        all.extend([Self::Routed, Self::Faults]);
        all
    }

    /// Returns the site whose depot a copy uses. `None` if the copy goes directly or on the
    /// controller's route.
    fn depot(self, transfer: &Transfer) -> Option<usize> {
        match self {
            Self::Depot(site) => {
                Some(site).filter(|site| ![transfer.from, transfer.to].contains(site))
            }
            Self::Detour(number) => transfer.between().nth(number),
            Self::Direct | Self::Routed | Self::Faults => None,
        }
    }
}

impl Mesh {
    /// Returns the offset in the links' trace at which the lab starts, in seconds. A controller
    /// observes the links for a while before the first copy.
    const fn begins_at_s(&self, way: MeshRoute) -> f64 {
        match way.is_routed() {
            true => 0.0,
            false => self.learning_seconds,
        }
    }

    /// Returns the start of the first copy, in seconds after the lab's start.
    const fn first_after_s(&self, way: MeshRoute) -> f64 {
        self.first_copy_s() - self.begins_at_s(way)
    }

    /// Returns the offset in the trace of the first copy, the same for every route, in seconds.
    const fn first_copy_s(&self) -> f64 {
        self.learning_seconds + run::STARTING_SECONDS
    }
}

impl Experiment for Mesh {
    type Cell = Cell;
    type Observation = Observation;
    type Setup = run::MeshFiles;

    fn name(&self) -> &'static str {
        "mesh"
    }

    fn title(&self) -> &'static str {
        "Routes that pick themselves: copies over a mesh of six sites whose links change"
    }

    fn cells(&self) -> Vec<Cell> {
        MeshRoute::all()
            .into_iter()
            .map(|way| Cell { way })
            .collect()
    }

    fn seeds(&self, _cell: &Cell) -> u64 {
        1
    }

    fn cost(&self, cell: &Cell) -> Cost {
        let last = transfers(2001, COPIES)
            .last()
            .map_or(0.0, |transfer| transfer.at_s);
        Cost::new(0.33, self.first_after_s(cell.way) + last)
    }

    fn prepare(&self, tools: &Tools) -> Result<run::MeshFiles> {
        run::MeshFiles::make(tools)
    }

    fn network(
        &self,
        tools: &Tools,
        _setup: &run::MeshFiles,
        cell: &Cell,
        seed: u64,
    ) -> Result<Network> {
        let folder = tools.scratch.path().join(format!(
            "mesh-{seed}-{}-{}",
            cell.way.is_routed(),
            cell.way == MeshRoute::Faults
        ));
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        let mut text = "title = \"six sites, a link between any two, which change\"\n".to_owned();
        for (site, ..) in SITES {
            let _ = writeln!(text, "[nodes.{site}]\nrelays = true");
        }
        let mut routes = String::new();
        let begins_at_s = self.begins_at_s(cell.way);
        for mut link in links(seed) {
            if cell.way == MeshRoute::Faults && link.ends == FAILING {
                let middle = transfers(seed, self.copies)[self.copies / 2].at_s;
                link.fail(self.first_copy_s() + middle, FAILING_SECONDS);
            }
            let (name, [from, to]) = (
                link.name(),
                [link.ends.0, link.ends.1].map(|end| SITES[end].0),
            );
            let file = folder.join(format!("{name}.csv"));
            // Runs are parallel, so a half-written file must not be visible.
            let partial =
                tempfile::NamedTempFile::new_in(&folder).context("cannot make a trace")?;
            std::fs::write(partial.path(), link.trace(begins_at_s))
                .context("cannot write a trace")?;
            partial.persist(&file).context("cannot name a trace")?;
            let state = link.state_at(begins_at_s);
            let _ = write!(
                text,
                "[links.{name}]\nends = [\"{from}\", \"{to}\"]\ndelay = \"{:.2} ms\"\n\
                 rate = \"{:.2} Mbit/s\"\nqueue = \"1 bdp, at least 256 KB\"\n\
                 trace = {{ file = {:?}, repeat_after = \"{} s\" }}\n",
                link.delay_ms,
                state.rate_mbps,
                file,
                conditions::TRACE_SECONDS
            );
            for (from, to) in [(from, to), (to, from)] {
                let _ = write!(
                    routes,
                    "[[route]]\nfrom = \"{from}\"\nto = \"{to}\"\nvia = [\"{name}\"]\n\
                     one_way = true\n"
                );
            }
        }
        Ok(Network::of_text("mesh", &(text + &routes)))
    }

    fn run(&self, here: &Here<'_, run::MeshFiles>, cell: &Cell) -> Result<Observation> {
        let first_s = self.first_after_s(cell.way);
        let copies = run::run(here, cell.way, first_s, &transfers(here.seed, self.copies))?;
        Ok(Observation { copies })
    }

    fn outcome(&self, seen: &Observation) -> String {
        let seconds: f64 = seen.copies.iter().map(|made| made.seconds).sum();
        let lost = seen.copies.iter().filter(|made| !made.whole).count();
        format!(
            "{seconds:.1} s in all, {lost} of {} lost",
            seen.copies.len()
        )
    }

    fn page(&self, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
        page::page(runs)
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        page::figures(runs)
    }
}
