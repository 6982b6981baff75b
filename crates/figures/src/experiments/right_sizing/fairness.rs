//! Many connections on one bottleneck: fairness of a memory budget.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use super::program::PORT;
use super::{ends, payload, rates};
use crate::children::{Server, succeed_within};
use crate::experiment::{Cost, Experiment, Here};
use crate::network::Network;
use crate::page::{Figure, Page};
use crate::runs::Runs;
use crate::template::page;
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
const CROWD: &str = include_str!("../../../labs/fairness.toml");
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
        Cost::new(1.0, f64::from(SETTLE_SECONDS + COUNTED_SECONDS) + 8.0)
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

    fn page(&self, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
        let mut table = runs
            .table(self.cells())
            .measured()
            .text("budget, MB", |row| row.cell.budget_mb)
            .text("sharing", |row| match row.cell.sharing {
                Sharing::Equal => "equal fixed shares",
                Sharing::Budget => "paper+ under a budget",
            })
            .column("total, Mbit/s", 1, Observation::total);
        for (_, rtt) in SENDERS {
            let rate = move |seen: &Observation| seen.rate_at_distance(rtt);
            table = table.column(format!("at {rtt} ms"), 1, rate);
        }
        let table = table
            .column("Jain's index of goodput", 3, |seen| jain(&seen.rates))
            .column("buffers mean, MB", 1, |seen| {
                seen.buffers_mean / f64::from(1 << 20)
            })
            .runs()
            .table();
        page!("fairness", table)
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        let figure = |budget_mb| {
            let both = [Sharing::Equal, Sharing::Budget].map(|sharing| Cell { sharing, budget_mb });
            let rate = runs.gain([&both[0], &both[1]], Observation::total)?;
            let index = runs.gain([&both[0], &both[1]], |seen| jain(&seen.rates))?;
            let title = format!(
                "one budget of {budget_mb} MB beside equal shares of it: all goodput, Jain's index"
            );
            let text = format!(
                "{:.0} beside {:.0} Mbit/s, {:.2} beside {:.2}",
                rate.after.median, rate.before.median, index.after.median, index.before.median
            );
            Some(Figure::new(
                format!("{budget_mb}-mb"),
                title,
                text,
                rate.basis(),
            ))
        };
        BUDGETS_MB.into_iter().filter_map(figure).collect()
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
            .map(|command| scope.spawn(move || succeed_within(command, "a sender", limit)))
            .collect();
        for sender in senders {
            sender
                .join()
                .unwrap_or_else(|_| bail!("a sender's thread ended badly"))?;
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
