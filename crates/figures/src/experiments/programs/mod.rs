//! Programs without knowledge of routes, through two depots: which of them work by which entry, and
//! why others do not.

mod run;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::copy::Source;
use crate::experiment::{Cost, Experiment, Here, Network};
use crate::page::{Figure, Page, Table};
use crate::peers::one_copy::PeerDirection;
use crate::peers::{self, Peer, fetchers};
use crate::runs::Runs;
use crate::single::Basis;
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
    cases.extend(fetchers::ALL.map(|fetcher| fetch(peers::Program::name(&fetcher))));
    cases
}

/// Returns a program by its name.
///
/// # Errors
/// There is no such program.
pub fn peer(name: &str) -> Result<Box<dyn Peer>> {
    let others = peers::all().into_iter().find(|peer| peer.name() == name);
    let fetchers = || {
        let found = fetchers::ALL
            .into_iter()
            .find(|fetcher| peers::Program::name(fetcher) == name)?;
        Some(Box::new(found) as Box<dyn Peer>)
    };
    others
        .or_else(fetchers)
        .with_context(|| format!("there is no program {name}"))
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
        let cells = |case: Case| {
            let is_connected_to = case.is_connected_to();
            Entry::ALL
                .into_iter()
                .filter(move |entry| match entry {
                    Entry::Run | Entry::Isolate | Entry::Redirect => true,
                    Entry::Socks => peer(case.program).is_ok_and(|peer| peer.abilities().socks),
                    Entry::Connect => fetchers::tunnels(case.program),
                    Entry::BothEnds => is_connected_to,
                })
                .map(move |entry| Cell {
                    program: case.program.to_owned(),
                    streams: case.streams,
                    direction: case.direction,
                    entry,
                })
        };
        cases().into_iter().flat_map(cells).collect()
    }

    fn seeds(&self, _cell: &Cell) -> u64 {
        1
    }

    fn cost(&self, _cell: &Cell) -> Cost {
        Cost {
            share: 0.5,
            seconds: 5.0,
        }
    }

    fn prepare(&self, tools: &Tools) -> Result<Source> {
        for case in cases() {
            peer(case.program)?.installed()?;
        }
        run::FILTER.find()?;
        Source::sized(tools, BYTES)
    }

    fn network(&self, tools: &Tools, _setup: &Source, _cell: &Cell, _seed: u64) -> Result<Network> {
        let network = Network::load(tools, "mnemonic-10-50-10.toml")?.relays(&["gw1", "gw2"]);
        Ok(network.set("nodes.*.congestion", "cubic"))
    }

    fn run(&self, here: &Here<'_, Source>, cell: &Cell) -> Result<Observation> {
        run::run(here, peer(&cell.program)?.as_ref(), cell)
    }

    fn outcome(&self, seen: &Observation) -> String {
        seen.failed
            .clone()
            .unwrap_or_else(|| "every byte arrived".to_owned())
    }

    fn under_noise(&self, _cell: &Cell) -> bool {
        false
    }

    fn page(&self, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
        let mut heads = vec!["program".to_owned(), "data".to_owned()];
        heads.extend(Entry::ALL.map(|entry| entry.words().to_owned()));
        let mut table = Table::new(heads);
        let mut reasons = Vec::new();
        for case in cases() {
            let mut row = vec![title(&case)?, direction(&case).to_owned()];
            for entry in Entry::ALL {
                let found = runs.pick(|cell| {
                    cell.program == case.program
                        && cell.streams == case.streams
                        && cell.direction == case.direction
                        && cell.entry == entry
                });
                row.push(match found.first().map(|record| &record.seen.failed) {
                    None => "-".to_owned(),
                    Some(None) => "yes".to_owned(),
                    Some(Some(why)) => {
                        let place = reasons
                            .iter()
                            .position(|other| other == why)
                            .unwrap_or_else(|| {
                                reasons.push(why.clone());
                                reasons.len() - 1
                            });
                        format!("no ({})", place + 1)
                    }
                });
            }
            table.row(row);
        }
        let mut page = Page::new(HEAD).table(&table);
        for (index, why) in reasons.iter().enumerate() {
            page = page.paragraph(&format!("({}) {why}", index + 1));
        }
        Ok(page.paragraph(FOOT))
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
    let title = peer(case.program)?.title().to_owned();
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

const HEAD: &str = "Programs of the distribution, none of them changed, move a file of 8 MiB \
    between a client and a server over 70 ms, through two depots and an off-ramp beside the \
    server, and every byte is compared. The server's side has nothing of \
    Longhaul; the packet filter of the client's host rejects whatever would go to the server \
    directly, so what arrives has taken the route. *`longhaul run`* starts the program with the \
    preload library, *`longhaul run --isolate`* in a network namespace of its own; *redirected*, \
    the packet filter sends \
    its connections to the on-ramp's transparent entry; *SOCKS5* and *HTTP CONNECT* are entries \
    that a program's own option names. With *an on-ramp at the server*, the packet filter of the \
    server's host sends the connections that the server itself makes to the client to an on-ramp \
    there, which brings them through both depots to an off-ramp beside \
    the client. `-`: the program has no such option, or no need of it.";

const FOOT: &str = "GridFTP with one stream uses stream mode, with 4 and 8 extended block mode \
    (`-fast`), which has the sender open the data connections: to the client, that is the server, \
    on whose side nothing takes them onto the route unless an on-ramp does.";

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
