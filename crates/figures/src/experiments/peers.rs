//! Other programs over one long clean path, each with its documented best options, compared with
//! `longhaul cp` without options.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::comparison::Comparison;
use crate::copy::{Source, copy};
use crate::experiment::{Cost, Experiment, Here};
use crate::network::Network;
use crate::page::{Figure, Page};
use crate::peers::iperf3::Iperf3;
use crate::peers::one_copy::{Job, PeerDirection, one_copy};
use crate::peers::place::PeerNode;
use crate::peers::table::{self, TablePeer};
use crate::peers::{self, Peer, Program, Relay, RelayKind};
use crate::runs::Runs;
use crate::setting::{self, CopyRoute};
use crate::stats::Gain;
use crate::template::page;
use crate::tools::Tools;

/// Setting of the copies.
const PATH: &str = "clean-long";
/// Copied bytes.
const BYTES: u64 = 128 << 20;
/// Numbers of streams for a peer with such an option.
const STREAMS: [u32; 3] = [1, 4, 16];
/// Streams of an upload or a relayed copy, for peers with such an option.
const SOME_STREAMS: u32 = 4;
/// Name of this project's program in the list of peers.
const LONGHAUL: &str = "longhaul";

/// The experiment.
pub struct Peers;

/// One copy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Name of a peer, or `longhaul`.
    program: String,
    /// Number of streams that is set. `None` if the program has no such option, or chooses by
    /// itself.
    streams: Option<u32>,
    /// Relay in the middle node.
    through: Through,
    /// Direction of the data.
    direction: PeerDirection,
}

/// Relay in the middle node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Through {
    /// No relay: one end-to-end connection.
    Nothing,
    /// A depot for `longhaul`, HAProxy for the other programs.
    Relay,
    /// A SOCKS server.
    Socks,
}

/// Result of a copy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observation {
    goodput_bps: f64,
}

impl Observation {
    fn mbps(&self) -> f64 {
        self.goodput_bps / 1e6
    }
}

fn peer(name: &str) -> Option<TablePeer> {
    table::peers().into_iter().find(|peer| peer.name() == name)
}

fn relay(kind: RelayKind) -> Result<Box<dyn Relay>> {
    let found = peers::relays()
        .into_iter()
        .find(|relay| relay.kind() == kind);
    found.with_context(|| format!("there is no relay of the kind {kind:?}"))
}

/// Returns the cells of one peer.
fn cells_of(peer: &dyn Peer) -> Vec<Cell> {
    let able = peer.abilities();
    let cell = |streams, through, direction| Cell {
        program: peer.name().into(),
        streams,
        through,
        direction,
    };
    let fetch = |streams, through| cell(streams, through, PeerDirection::Fetch);
    let mut cells: Vec<Cell> = match able.streams {
        true => STREAMS
            .map(|number| fetch(Some(number), Through::Nothing))
            .into(),
        false => vec![fetch(None, Through::Nothing)],
    };
    let some = able.streams.then_some(SOME_STREAMS);
    cells.extend(
        able.send
            .then(|| cell(some, Through::Nothing, PeerDirection::Send)),
    );
    cells.extend(able.forward.then(|| fetch(some, Through::Relay)));
    cells.extend(able.socks.then(|| fetch(some, Through::Socks)));
    cells
}

impl Experiment for Peers {
    type Cell = Cell;
    type Observation = Observation;
    type Setup = Source;

    fn name(&self) -> &'static str {
        "peers"
    }

    fn title(&self) -> &'static str {
        "Others' programs over a long clean path, beside `longhaul cp`"
    }

    fn cells(&self) -> Vec<Cell> {
        let own = [Through::Nothing, Through::Relay].map(|through| Cell {
            program: LONGHAUL.into(),
            streams: None,
            through,
            direction: PeerDirection::Fetch,
        });
        let memory = Cell {
            program: Iperf3.name().into(),
            streams: Some(SOME_STREAMS),
            through: Through::Nothing,
            direction: PeerDirection::Fetch,
        };
        let others = peers::all()
            .into_iter()
            .flat_map(|peer| cells_of(peer.as_ref()));
        own.into_iter().chain(others).chain([memory]).collect()
    }

    fn seeds(&self, _cell: &Cell) -> u64 {
        1
    }

    fn cost(&self, _cell: &Cell) -> Cost {
        // The path carries 155 Mbit/s. A copy over it needs a quarter of this machine.
        Cost::new(0.25, 15.0)
    }

    fn prepare(&self, tools: &Tools) -> Result<Source> {
        peers::all().iter().try_for_each(|peer| peer.installed())?;
        peers::relays()
            .iter()
            .try_for_each(|relay| relay.installed())?;
        Iperf3.installed()?;
        Source::sized(tools, BYTES)
    }

    fn network(&self, tools: &Tools, _source: &Source, cell: &Cell, _seed: u64) -> Result<Network> {
        let way = match cell.through {
            Through::Nothing => CopyRoute::Direct,
            Through::Relay | Through::Socks => CopyRoute::Depots,
        };
        setting::named(PATH)?.network(tools, way)
    }

    fn run(&self, here: &Here<'_, Source>, cell: &Cell) -> Result<Observation> {
        let goodput_bps = match peer(&cell.program) {
            Some(peer) => copy_with(&peer, here, cell)?,
            None if cell.program == LONGHAUL => {
                let way = match cell.through {
                    Through::Nothing => CopyRoute::Direct,
                    _ => CopyRoute::Depots,
                };
                copy(here, setting::named(PATH)?, way, here.setup, cell.streams)?.goodput_bps
            }
            None => memory_to_memory(here, cell)?,
        };
        Ok(Observation { goodput_bps })
    }

    fn outcome(&self, seen: &Observation) -> String {
        format!("{:.1} Mbit/s", seen.mbps())
    }

    fn page(&self, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
        let described = |cell: &Cell| match peer(&cell.program) {
            Some(peer) => (peer.title(), peer.options()),
            None if cell.program == LONGHAUL => ("longhaul cp", "none"),
            None => (Iperf3.title(), Iperf3.options()),
        };
        let table = runs
            .table(self.cells())
            .text("program", |row| described(&row.cell).0.to_owned())
            .text("options", |row| described(&row.cell).1.to_owned())
            .text("streams", |row| {
                row.cell
                    .streams
                    .map_or("-".to_owned(), |number| number.to_string())
            })
            .text("through", |row| {
                match (row.cell.through, row.cell.program == LONGHAUL) {
                    (Through::Nothing, _) => "-",
                    (_, true) => "a depot",
                    (Through::Relay, _) => "HAProxy",
                    (Through::Socks, _) => "a SOCKS server",
                }
            })
            .text("data", |row| match row.cell.direction {
                PeerDirection::Fetch => "fetched",
                PeerDirection::Send => "sent",
            })
            .column("Mbit/s", 1, Observation::mbps)
            .runs()
            .table();
        page!("peers", table)
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        let figure = |(key, is_relayed)| {
            let (gain, rival) = self.best(runs, is_relayed)?;
            let (own, other) = (gain.after.median, gain.before.median);
            Some(Figure::new(
                key,
                format!(
                    "`longhaul cp` by the best of the others, long clean path{}",
                    through(is_relayed)
                ),
                format!(
                    "{:.2} ({own:.1} by {other:.1} Mbit/s, {rival})",
                    gain.ratio()
                ),
                gain.basis(),
            ))
        };
        [("best", false), ("best-relayed", true)]
            .into_iter()
            .filter_map(figure)
            .collect()
    }

    fn comparisons(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Comparison> {
        let compared = |is_relayed| {
            let (gain, rival) = self.best(runs, is_relayed)?;
            let through = through(is_relayed);
            let case = format!("one file of 128 MiB over a long clean path{through}");
            Some(gain.compare(case, rival))
        };
        [false, true].into_iter().filter_map(compared).collect()
    }
}

impl Peers {
    /// Returns the fastest `longhaul cp` beside the fastest other program that fetch the file,
    /// directly or through a relay, and the name of that. iperf3 does not count, as it copies no
    /// file.
    fn best(&self, runs: &Runs<'_, Cell, Observation>, is_relayed: bool) -> Option<(Gain, String)> {
        let best = |is_own: bool| {
            let cells = self.cells().into_iter().filter(|one| {
                (one.through != Through::Nothing) == is_relayed
                    && one.direction == PeerDirection::Fetch
                    && one.program != Iperf3.name()
                    && (one.program == LONGHAUL) == is_own
            });
            let rates =
                cells.filter_map(|one| Some((runs.spread(&one, Observation::mbps)?, one.program)));
            rates.max_by(|a, b| a.0.median.total_cmp(&b.0.median))
        };
        let ((after, _), (before, rival)) = (best(true)?, best(false)?);
        Some((Gain { before, after }, rival))
    }
}

/// Words for a relay in the names of figures.
const fn through(is_relayed: bool) -> &'static str {
    if is_relayed {
        ", each through a relay"
    } else {
        ""
    }
}

/// Runs a copy with a peer, and returns its rate in bit/s.
fn copy_with(peer: &dyn Peer, here: &Here<'_, Source>, cell: &Cell) -> Result<f64> {
    let relay = match cell.through {
        Through::Nothing => None,
        Through::Relay => Some(relay(RelayKind::Forward)?),
        Through::Socks => Some(relay(RelayKind::Socks)?),
    };
    let job = Job {
        lab: here.lab,
        client: "client",
        server: "server",
        relay: relay.as_deref().map(|relay| (relay, "depot")),
        scratch: here.folder,
        source: here.setup,
        direction: cell.direction,
        streams: cell.streams.unwrap_or(1),
    };
    Ok(one_copy(peer, &job)?.goodput_bps())
}

/// Runs iperf3 between the same nodes, and returns its rate in bit/s.
fn memory_to_memory(here: &Here<'_, Source>, cell: &Cell) -> Result<f64> {
    let place = |node| PeerNode {
        lab: here.lab,
        node,
        scratch: here.folder,
    };
    let serving = Iperf3.serve(&place("server"))?;
    let streams = cell.streams.unwrap_or(1);
    Iperf3.goodput_bps(
        &place("client"),
        &serving,
        BYTES,
        PeerDirection::Fetch,
        streams,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_asked_only_for_their_abilities() {
        for one in Peers.cells() {
            let Some(peer) = peer(&one.program) else {
                continue;
            };
            let able = peer.abilities();
            assert_eq!(one.streams.is_some(), able.streams, "{one:?}");
            assert!(one.through != Through::Relay || able.forward, "{one:?}");
            assert!(one.through != Through::Socks || able.socks, "{one:?}");
        }
    }
}
