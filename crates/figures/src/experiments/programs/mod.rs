//! Programs without knowledge of routes, through two depots: which of them work by which entry, and
//! why others do not.

mod run;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::columns::Columns;
use crate::copy::Source;
use crate::experiment::{Cost, Experiment, Here};
use crate::network::Network;
use crate::page::{Figure, Page};
use crate::peers::one_copy::PeerDirection;
use crate::peers::{self, Peer, Program, table};
use crate::runs::Runs;
use crate::single::Basis;
use crate::template::page;
use crate::tools::Tools;

/// Size of the file that each moves.
const BYTES: u64 = 8 << 20;

/// The experiment.
pub struct Programs;

/// Entry of a program's connections to the route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Entry {
    /// Started by `longhaul run`.
    Run,
    /// Started by `longhaul run --isolate`.
    Isolate,
    /// Redirected by the packet filter to the on-ramp's transparent entry.
    Redirect,
    /// Sent to the on-ramp's SOCKS5 entry by the program's own option.
    Socks,
    /// Sent to the on-ramp's HTTP CONNECT entry by the program's own option.
    Connect,
    /// Started by `longhaul run`, with an on-ramp at the server that returns the server's own
    /// connections.
    BothEnds,
}

/// One program and its entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    program: String,
    /// Data connections, for programs with such an option.
    streams: Option<u32>,
    direction: PeerDirection,
    entry: Entry,
}

/// Result of the program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observation {
    /// Reason of the failure. `None` if every byte arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
}

impl Entry {
    /// All entries, in the order of the table.
    pub const ALL: [Self; 6] = [
        Self::Run,
        Self::Isolate,
        Self::Redirect,
        Self::Socks,
        Self::Connect,
        Self::BothEnds,
    ];

    fn words(self) -> &'static str {
        match self {
            Self::Run => "`longhaul run`",
            Self::Isolate => "`longhaul run --isolate`",
            Self::Redirect => "redirected",
            Self::Socks => "SOCKS5",
            Self::Connect => "HTTP CONNECT",
            Self::BothEnds => "`longhaul run`, and an on-ramp at the server",
        }
    }
}

/// One line of the table.
struct Case {
    program: &'static str,
    streams: Option<u32>,
    direction: PeerDirection,
}

impl Case {
    fn cell(&self, entry: Entry) -> Cell {
        Cell {
            program: self.program.to_owned(),
            streams: self.streams,
            direction: self.direction,
            entry,
        }
    }

    /// Returns true if its server connects to the client.
    fn is_connected_to(&self) -> bool {
        self.direction == PeerDirection::Fetch && self.streams.is_some_and(|streams| streams > 1)
    }
}

/// Returns the lines of the table.
fn cases() -> Vec<Case> {
    let fetch = |program| Case {
        program,
        streams: None,
        direction: PeerDirection::Fetch,
    };
    let gridftp = |direction| {
        [1, 4, 8].map(|streams| Case {
            program: "gridftp",
            streams: Some(streams),
            direction,
        })
    };
    let mut cases = Vec::from(gridftp(PeerDirection::Send));
    cases.extend(gridftp(PeerDirection::Fetch));
    let peers = [
        "rsync-ssh",
        "scp",
        "rsync",
        "rclone-http",
        "rclone-sftp",
        "lftp",
        "xrdcp",
    ];
    cases.extend(peers.map(fetch));
    cases.extend(table::fetchers().iter().map(|peer| fetch(peer.name())));
    cases
}

impl Experiment for Programs {
    type Cell = Cell;
    type Observation = Observation;
    type Setup = Source;

    fn name(&self) -> &'static str {
        "programs"
    }

    fn title(&self) -> &'static str {
        "Programs that know nothing of routes, through two depots"
    }

    fn cells(&self) -> Vec<Cell> {
        let is_possible = |case: &Case, entry: Entry| match entry {
            Entry::Run | Entry::Isolate | Entry::Redirect => true,
            Entry::Socks => peers::find(case.program).is_ok_and(|peer| peer.abilities().socks),
            Entry::Connect => peers::find(case.program).is_ok_and(|peer| peer.tunnels()),
            Entry::BothEnds => case.is_connected_to(),
        };
        let mut cells = Vec::new();
        for case in cases() {
            let entries = Entry::ALL
                .into_iter()
                .filter(|entry| is_possible(&case, *entry));
            cells.extend(entries.map(|entry| case.cell(entry)));
        }
        cells
    }

    fn seeds(&self, _cell: &Cell) -> u64 {
        1
    }

    fn cost(&self, _cell: &Cell) -> Cost {
        Cost::new(0.5, 5.0)
    }

    fn prepare(&self, tools: &Tools) -> Result<Source> {
        for case in cases() {
            peers::find(case.program)?.installed()?;
        }
        peers::need(run::FILTER)?.find()?;
        Source::sized(tools, BYTES)
    }

    fn network(&self, tools: &Tools, _setup: &Source, _cell: &Cell, _seed: u64) -> Result<Network> {
        let network = Network::load(tools, "mnemonic-10-50-10.toml")?.relays(&["gw1", "gw2"]);
        Ok(network.set("nodes.*.congestion", "cubic"))
    }

    fn run(&self, here: &Here<'_, Source>, cell: &Cell) -> Result<Observation> {
        run::run(here, &peers::find(&cell.program)?, cell)
    }

    fn outcome(&self, seen: &Observation) -> String {
        seen.failed
            .clone()
            .unwrap_or_else(|| "every byte arrived".to_owned())
    }

    fn page(&self, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
        let failed = |case: &Case, entry| {
            let runs = runs.cell(&case.cell(entry));
            runs.first().map(|record| record.seen.failed.as_ref())
        };
        let mut reasons = Vec::new();
        for case in cases() {
            for why in Entry::ALL
                .into_iter()
                .filter_map(|entry| failed(&case, entry)?)
            {
                if !reasons.contains(&why) {
                    reasons.push(why);
                }
            }
        }
        let mut table = Columns::of(cases())
            .text("program", |case| title(case).unwrap_or_default())
            .text("data", direction);
        for entry in Entry::ALL {
            let reasons = &reasons;
            table = table.text(entry.words(), move |case| match failed(case, entry) {
                None => "-".to_owned(),
                Some(None) => "yes".to_owned(),
                Some(Some(why)) => {
                    let place = reasons.iter().position(|other| *other == why);
                    format!("no ({})", place.unwrap_or_default() + 1)
                }
            });
        }
        page!("programs", table => table.table(), reasons)
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        let all = runs.pick(|_| true);
        let worked = all
            .iter()
            .filter(|record| record.seen.failed.is_none())
            .count();
        vec![Figure::new(
            "worked",
            "programs by ways through which every byte arrived",
            format!("{worked} of {}", all.len()),
            Basis::Counted,
        )]
    }
}

fn title(case: &Case) -> Result<String> {
    let title = peers::find(case.program)?.title().to_owned();
    Ok(match case.streams {
        None => title,
        Some(1) => format!("{title}, 1 stream"),
        Some(streams) => format!("{title}, {streams} streams"),
    })
}

fn direction(case: &Case) -> &'static str {
    match case.direction {
        PeerDirection::Fetch => "to the client",
        PeerDirection::Send => "to the server",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::tests::record;

    #[test]
    fn every_line_has_a_program_and_ways() {
        let cells = Programs.cells();
        for case in cases() {
            assert!(
                cells
                    .iter()
                    .filter(|cell| cell.program == case.program)
                    .count()
                    >= 2,
                "{}",
                case.program
            );
            title(&case).unwrap();
        }
    }

    #[test]
    fn table_gives_reasons_for_failures() {
        let cell = |entry| Cell {
            program: "curl".into(),
            streams: None,
            direction: PeerDirection::Fetch,
            entry,
        };
        let failed = Some("it is away".to_owned());
        let records = [
            record(cell(Entry::Run), 1, Observation { failed: None }, true),
            record(cell(Entry::Socks), 1, Observation { failed }, true),
        ];
        let runs = Runs::select_valid(&records);
        let text = Programs.page(&runs).unwrap().text;
        assert!(
            text.contains("| curl | to the client | yes | - | - | no (1) | - | - |"),
            "{text}"
        );
        assert!(text.contains("(1) it is away"));
        assert_eq!(Programs.figures(&runs)[0].text, "1 of 2");
    }
}
