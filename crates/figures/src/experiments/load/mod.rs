//! One relay under load on loopback: thousands of sessions, single bytes through a chain, and
//! set-ups and ends for an hour, beside HAProxy and Dante.
//!
//! A run is a process in a node of a lab ([`part`]). It starts the relays as an ordinary user with
//! the limits of the packaged service, and is both ends of every session.

mod churn;
mod ends;
mod page;
pub mod part;
mod ping;
mod relay;
mod requests;
mod sessions;
mod slope;
mod user;

use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::children::succeed_within;
use crate::experiment::{Cost, Experiment, Here};
use crate::network::Network;
use crate::page::{Figure, Page};
use crate::runs::Runs;
use crate::tools::{Tools, installed};
use churn::ChurnResult;
use ping::PingResult;
use relay::RelayKind;
use sessions::SessionsResult;

/// The experiment.
pub struct Load;

/// Sessions through one relay.
const SESSIONS: usize = 10_000;
/// Sessions on a machine whose hard limit is 20,000 open files, two for each session.
const FEWER_SESSIONS: usize = 9_500;
/// Open files that a relay needs besides those of its sessions.
const OTHER_FILES: usize = 500;
/// Node of the lab in which everything runs, over its own loopback device.
const NODE: &str = "one";
/// Time for starting, settling and ending, in seconds.
const OVERHEAD_SECONDS: f64 = 10.0;

/// Measured action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cell {
    /// Many sessions through one relay, a tenth of them busy.
    Sessions {
        /// The relay.
        relay: RelayKind,
        /// Number of sessions.
        sessions: usize,
    },
    /// One byte there and back, one at a time.
    Ping {
        /// The relays.
        relay: RelayKind,
        /// Number of relays, one behind the other.
        hops: usize,
    },
    /// Set-ups and ends at a bounded rate, through one depot.
    Churn {
        /// Duration.
        minutes: u64,
    },
}

/// Result of the action.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Observation {
    /// Result of [`Cell::Sessions`].
    Sessions(SessionsResult),
    /// Result of [`Cell::Ping`].
    Ping(PingResult),
    /// Result of [`Cell::Churn`].
    Churn(ChurnResult),
}

impl Cell {
    fn sessions() -> impl Iterator<Item = Self> {
        let relays = [RelayKind::Depot, RelayKind::Haproxy, RelayKind::Dante];
        let with = move |sessions| {
            let cell = move |relay| Self::Sessions { relay, sessions };
            relays.into_iter().map(cell)
        };
        [SESSIONS, FEWER_SESSIONS].into_iter().flat_map(with)
    }

    fn pings() -> impl Iterator<Item = Self> {
        let chains = [
            (RelayKind::None, 0),
            (RelayKind::Depot, 1),
            (RelayKind::Haproxy, 1),
            (RelayKind::Depot, 3),
            (RelayKind::Haproxy, 3),
        ];
        let ping = |(relay, hops)| Self::Ping { relay, hops };
        chains.into_iter().map(ping)
    }

    fn churns() -> impl Iterator<Item = Self> {
        [1, 10, 60]
            .into_iter()
            .map(|minutes| Self::Churn { minutes })
    }

    /// Returns the approximate duration of a run, in seconds.
    fn seconds(self) -> f64 {
        OVERHEAD_SECONDS
            + match self {
                Self::Sessions { .. } => sessions::SECONDS,
                Self::Ping { hops, .. } => 2.0 + 4.0 * hops as f64,
                Self::Churn { minutes } => 60.0 * minutes as f64 + 20.0,
            }
    }
}

impl Observation {
    fn sessions(&self) -> Option<&SessionsResult> {
        match self {
            Self::Sessions(seen) => Some(seen),
            _ => None,
        }
    }

    fn ping(&self) -> Option<&PingResult> {
        match self {
            Self::Ping(seen) => Some(seen),
            _ => None,
        }
    }

    fn churn(&self) -> Option<&ChurnResult> {
        match self {
            Self::Churn(seen) => Some(seen),
            _ => None,
        }
    }
}

impl Experiment for Load {
    type Cell = Cell;
    type Observation = Observation;
    type Setup = ();

    fn name(&self) -> &'static str {
        "load"
    }

    fn title(&self) -> &'static str {
        "A depot under load: thousands of sessions, single bytes, and an hour of set-ups"
    }

    fn cells(&self) -> Vec<Cell> {
        Cell::sessions()
            .chain(Cell::pings())
            .chain(Cell::churns())
            .collect()
    }

    /// `--seeds 1 --only '"minutes":60'` asks for the hour of set-ups and ends.
    fn seeds(&self, cell: &Cell) -> u64 {
        match cell {
            Cell::Sessions { sessions, .. } if *sessions != possible_sessions() => 0,
            Cell::Sessions { .. } | Cell::Ping { .. } => 3,
            Cell::Churn { minutes: 10 } => 1,
            Cell::Churn { .. } => 0,
        }
    }

    fn cost(&self, cell: &Cell) -> Cost {
        Cost::new(1.0, cell.seconds())
    }

    fn prepare(&self, _tools: &Tools) -> Result<()> {
        installed("prlimit", "util-linux")?;
        installed("setpriv", "util-linux").map(drop)
    }

    fn network(&self, _tools: &Tools, (): &(), _cell: &Cell, _seed: u64) -> Result<Network> {
        Ok(Network::none())
    }

    fn run(&self, here: &Here<'_, ()>, cell: &Cell) -> Result<Observation> {
        let own = std::env::current_exe().context("cannot find this program")?;
        // The run's own folder is below one that only this user may enter.
        let folder = user::folder()?;
        let mut command = here
            .lab
            .command(NODE, installed("prlimit", "util-linux")?)?;
        command
            .arg(user::limit_option(user::max_open_files()))
            .arg(own)
            .args(["load-part", "--cell", &serde_json::to_string(cell)?])
            .args(["--seed", &here.seed.to_string()])
            .arg("--longhaul")
            .arg(&here.tools.longhaul)
            .arg("--folder")
            .arg(folder.path());
        let limit = Duration::from_secs_f64(2.0 * cell.seconds() + 300.0);
        let printed = succeed_within(command, "the part of the load", limit)?;
        let result = printed.lines().last().unwrap_or_default();
        serde_json::from_str(result).with_context(|| format!("it printed no result: {printed}"))
    }

    fn outcome(&self, seen: &Observation) -> String {
        match seen {
            Observation::Sessions(seen) => seen.words(),
            Observation::Ping(seen) => seen.words(),
            Observation::Churn(seen) => seen.words(),
        }
    }

    fn page(&self, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
        page::page(runs)
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        page::figures(runs)
    }
}

/// Returns the number of sessions for which this machine lets a process open enough files.
fn possible_sessions() -> usize {
    let needed = |sessions: usize| (2 * sessions + OTHER_FILES) as u64;
    if user::max_open_files() >= needed(SESSIONS) {
        SESSIONS
    } else {
        FEWER_SESSIONS
    }
}
