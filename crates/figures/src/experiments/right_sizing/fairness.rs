//! Many connections on one bottleneck: fairness of a memory budget.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use super::program::PORT;
use super::{ends, payload, rates};
use crate::children::{Server, output_within};
use crate::experiment::{Cost, Experiment, Here, Network};
use crate::page::{Figure, Page, Table, cell};
use crate::runs::Runs;
use crate::single::Basis;
use crate::tools::Tools;

/// Connections from each of the four senders.
const CONNECTIONS_PER_SENDER: usize = 50;
/// Ample and scarce buffer memory of the receiver for all connections, as the kernel accounts it,
/// in megabytes.
const BUDGETS_MB: [u64; 2] = [64, 16];
/// Counted seconds, and the seconds before them in which the connections settle.
const COUNTED_SECONDS: u32 = 25;
const SETTLE_SECONDS: u32 = 15;

/// Four senders at different distances, one receiver behind a bottleneck of 500 Mbit/s.
const CROWD: &str = r#"
title = "200 connections of four round trips on one bottleneck"
[nodes.near]
[nodes.middle]
[nodes.far]
[nodes.farthest]
[nodes.hub]
[nodes.receiver]
[links.a]
ends = ["near", "hub"]
delay = "4 ms"
rate = "unlimited"
[links.b]
ends = ["middle", "hub"]
delay = "24 ms"
rate = "unlimited"
[links.c]
ends = ["far", "hub"]
delay = "74 ms"
rate = "unlimited"
[links.d]
ends = ["farthest", "hub"]
delay = "149 ms"
rate = "unlimited"
[links.bottleneck]
ends = ["hub", "receiver"]
delay = "1 ms"
rate = "500 Mbit/s"
queue = "1 bdp of 100 ms"
"#;
/// Senders and their round trips in milliseconds.
const SENDERS: [(&str, u32); 4] = [
    ("near", 10),
    ("middle", 50),
    ("far", 150),
    ("farthest", 300),
];

/// The experiment.
pub struct Fairness;

/// Sharing of the receiver's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Sharing {
    /// The same fixed buffer for each.
    Equal,
    /// `Mode::PaperPlus` under one budget.
    Budget,
}

/// One set of connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    sharing: Sharing,
    budget_mb: u64,
}

/// Result of a crowd.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observation {
    /// Goodput of each connection, in Mbit/s.
    rates: Vec<f64>,
    /// Round trip of each connection, in milliseconds.
    round_trips_ms: Vec<u32>,
    /// Sums over all connections of their mean buffers and of their largest ones, in bytes.
    buffers_mean: f64,
    buffers_max: u64,
}

impl Observation {
    fn total(&self) -> f64 {
        self.rates.iter().sum()
    }

    /// Returns the total rate of the connections with this round trip, in Mbit/s.
    fn rate_at_distance(&self, distance: u32) -> f64 {
        let of = self.rates.iter().zip(&self.round_trips_ms);
        of.filter(|(_, rtt)| **rtt == distance)
            .map(|(rate, _)| rate)
            .sum()
    }
}

impl Experiment for Fairness {
    type Cell = Cell;
    type Observation = Observation;
    type Setup = PathBuf;

    fn name(&self) -> &'static str {
        "fairness"
    }

    fn title(&self) -> &'static str {
        "200 connections that share a receiver's memory"
    }

    fn cells(&self) -> Vec<Cell> {
        let both = |budget_mb| {
            [Sharing::Equal, Sharing::Budget].map(|sharing| Cell { sharing, budget_mb })
        };
        BUDGETS_MB.into_iter().flat_map(both).collect()
    }

    fn seeds(&self, _cell: &Cell) -> u64 {
        1
    }

    fn cost(&self, _cell: &Cell) -> Cost {
        Cost {
            share: 1.0,
            seconds: f64::from(SETTLE_SECONDS + COUNTED_SECONDS) + 8.0,
        }
    }

    fn prepare(&self, tools: &Tools) -> Result<PathBuf> {
        payload(tools)
    }

    fn network(
        &self,
        _tools: &Tools,
        _payload: &PathBuf,
        _cell: &Cell,
        _seed: u64,
    ) -> Result<Network> {
        Ok(Network::of_text("crowd", CROWD)
            .set("nodes.*.buffers", "\"8 MB\"")
            .set("nodes.*.congestion", "cubic"))
    }

    fn run(&self, here: &Here<'_, PathBuf>, cell: &Cell) -> Result<Observation> {
        let limit = Duration::from_secs(u64::from(SETTLE_SECONDS + COUNTED_SECONDS) + 60);
        let receiver = receive(here, cell)?;
        send(here, limit)?;
        let ends = ends(&receiver.rest(limit)?.join("\n"))?;
        let from = |peer: &str| {
            SENDERS.iter().find(|(node, _)| {
                let address = here.lab.address(node);
                address.is_ok_and(|address| address.to_string() == peer)
            })
        };
        Ok(Observation {
            rates: rates(&ends, COUNTED_SECONDS),
            round_trips_ms: ends
                .iter()
                .map(|end| from(&end.peer).map_or(0, |(_, rtt)| *rtt))
                .collect(),
            buffers_mean: ends.iter().map(|end| end.buffer_mean).sum(),
            buffers_max: ends.iter().map(|end| end.buffer_max).sum(),
        })
    }

    fn outcome(&self, seen: &Observation) -> String {
        format!(
            "{:.1} Mbit/s, fairness {:.3}",
            seen.total(),
            jain(&seen.rates)
        )
    }

    fn under_noise(&self, _cell: &Cell) -> bool {
        false
    }

    fn page(&self, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
        let distances = SENDERS.map(|(_, rtt)| format!("at {rtt} ms"));
        let heads = ["budget, MB", "sharing", "total, Mbit/s"].map(str::to_owned);
        let last = ["Jain's index of goodput", "buffers mean, MB", "runs"].map(str::to_owned);
        let mut table = Table::new(heads.into_iter().chain(distances).chain(last));
        for one in self.cells() {
            let spread = |value: &dyn Fn(&Observation) -> f64| runs.spread(&one, value);
            let Some(count) = spread(&|_| 0.0).map(|spread| spread.count) else {
                continue;
            };
            let mut row = vec![
                one.budget_mb.to_string(),
                match one.sharing {
                    Sharing::Equal => "equal fixed shares".to_owned(),
                    Sharing::Budget => "paper+ under a budget".to_owned(),
                },
                cell(spread(&Observation::total), 1),
            ];
            row.extend(SENDERS.map(|(_, rtt)| cell(spread(&|seen| seen.rate_at_distance(rtt)), 1)));
            row.push(cell(spread(&|seen| jain(&seen.rates)), 3));
            row.push(cell(
                spread(&|seen| seen.buffers_mean / f64::from(1 << 20)),
                1,
            ));
            row.push(count.to_string());
            table.row(row);
        }
        Ok(Page::new(
            "50 connections each at 10, 50, 150 and 300 ms over one bottleneck of 500 Mbit/s, \
             CUBIC, 25 s after 15 s to settle. The receiver has so much for all \
             buffers, as the kernel accounts them. What the ways of sizing are stands in \
             `docs/right-sizing.md`.",
        )
        .table(&table))
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        BUDGETS_MB
            .into_iter()
            .filter_map(|budget_mb| {
                let total = |sharing| runs.spread(&Cell { sharing, budget_mb }, Observation::total);
                let (equal, budget) = (total(Sharing::Equal)?, total(Sharing::Budget)?);
                let index =
                    |sharing| runs.spread(&Cell { sharing, budget_mb }, |seen| jain(&seen.rates));
                Some(Figure::new(
                    format!("{budget_mb}-mb"),
                    format!(
                        "one budget of {budget_mb} MB beside equal shares of it: all goodput, \
                         Jain's index"
                    ),
                    format!(
                        "{:.0} beside {:.0} Mbit/s, {:.2} beside {:.2}",
                        budget.median,
                        equal.median,
                        index(Sharing::Budget)?.median,
                        index(Sharing::Equal)?.median
                    ),
                    Basis::Runs(budget.count.min(equal.count)),
                ))
            })
            .collect()
    }
}

/// Starts the receiving program.
fn receive(here: &Here<'_, PathBuf>, cell: &Cell) -> Result<Server> {
    let all = CONNECTIONS_PER_SENDER * SENDERS.len();
    let memory = cell.budget_mb << 20;
    let mut command = here.lab.command("receiver", std::env::current_exe()?)?;
    command
        .args(["drs-receive", "--connections", &all.to_string()])
        .args(["--seconds", &(SETTLE_SECONDS + COUNTED_SECONDS).to_string()])
        .args(["--settle", &SETTLE_SECONDS.to_string()]);
    match cell.sharing {
        // Half of a share, because the kernel doubles it.
        Sharing::Equal => {
            let share = memory / all as u64 / 2;
            command.args(["--column", "kernel", "--buffer", &share.to_string()])
        }
        Sharing::Budget => {
            command.args(["--column", "paper-plus", "--budget", &memory.to_string()])
        }
    };
    Server::start(command, "the receiver", "listening")
}

/// Runs all senders until they end.
fn send(here: &Here<'_, PathBuf>, limit: Duration) -> Result<()> {
    let to = format!("{}:{PORT}", here.lab.address("receiver")?);
    let mut commands = vec![];
    for (node, _) in SENDERS {
        let mut command = here.lab.command(node, std::env::current_exe()?)?;
        command
            .args([
                "drs-send",
                "--column",
                "kernel",
                "--connections",
                &CONNECTIONS_PER_SENDER.to_string(),
            ])
            .args(["--to", &to, "--file"])
            .arg(here.setup);
        commands.push(command);
    }
    std::thread::scope(|scope| {
        let senders: Vec<_> = commands
            .into_iter()
            .map(|command| scope.spawn(move || output_within(command, "a sender", limit)))
            .collect();
        for sender in senders {
            let (status, _, err) = sender
                .join()
                .unwrap_or_else(|_| bail!("a sender's thread ended badly"))?;
            if !status.success() {
                bail!("a sender ended with {status}: {}", err.trim());
            }
        }
        Ok(())
    })
}

/// Returns Jain's fairness index: 1 if all rates are equal, 1/n if one connection has everything.
fn jain(rates: &[f64]) -> f64 {
    let (sum, squares) = rates
        .iter()
        .fold((0.0, 0.0), |(a, b), x| (a + x, b + x * x));
    if squares == 0.0 {
        1.0
    } else {
        sum * sum / (rates.len() as f64 * squares)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_runs_from_one_to_one_in_n() {
        assert!((jain(&[3.0, 3.0, 3.0]) - 1.0).abs() < 1e-12);
        assert!((jain(&[0.0, 8.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
        assert!((jain(&[1.0, 2.0, 3.0]) - 36.0 / 42.0).abs() < 1e-12);
    }
}
