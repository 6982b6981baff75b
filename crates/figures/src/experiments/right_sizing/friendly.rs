//! Right-sized flows next to untuned ones on one bottleneck.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use super::column::Column;
use super::program::PORT;
use super::{ends, payload, rates, word};
use crate::children::{Server, succeed_within};
use crate::columns::Columns;
use crate::experiment::{Cost, Experiment, Here};
use crate::network::Network;
use crate::page::{Figure, Page, cell};
use crate::runs::Runs;
use crate::template::page;
use crate::tools::Tools;

/// Flows of each kind.
const FLOWS_OF_A_KIND: usize = 4;
/// Duration of the flows, in seconds.
const SECONDS: u32 = 60;
/// Flows that run next to untuned flows. The first is untuned itself, and shows the noise.
const COLUMNS: [Column; 4] = [
    Column::Kernel,
    Column::Auto,
    Column::Classic,
    Column::PaperPlus,
];
const CONGESTION: [&str; 3] = ["reno", "cubic", "bbr"];

/// The experiment.
pub struct Friendly;

/// Flows of one kind next to as many untuned ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    column: Column,
    congestion: String,
}

/// Goodput of each flow, in Mbit/s.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observation {
    sized: Vec<f64>,
    stock: Vec<f64>,
}

impl Observation {
    /// Returns the right-sized flows' share of the total goodput.
    fn share(&self) -> f64 {
        let (sized, stock) = (
            self.sized.iter().sum::<f64>(),
            self.stock.iter().sum::<f64>(),
        );
        sized / (sized + stock)
    }
}

impl Cell {
    fn new(column: Column, congestion: &str) -> Self {
        let congestion = congestion.into();
        Self { column, congestion }
    }
}

impl Experiment for Friendly {
    type Cell = Cell;
    type Observation = Observation;
    type Setup = PathBuf;

    fn name(&self) -> &'static str {
        "friendly"
    }

    fn title(&self) -> &'static str {
        "Right-sized flows beside stock flows"
    }

    fn cells(&self) -> Vec<Cell> {
        let under = |column| CONGESTION.map(|congestion| Cell::new(column, congestion));
        COLUMNS.into_iter().flat_map(under).collect()
    }

    fn seeds(&self, _cell: &Cell) -> u64 {
        1
    }

    fn cost(&self, _cell: &Cell) -> Cost {
        Cost::new(0.1, f64::from(SECONDS) + 5.0)
    }

    fn prepare(&self, tools: &Tools) -> Result<PathBuf> {
        payload(tools)
    }

    fn network(
        &self,
        tools: &Tools,
        _payload: &PathBuf,
        _cell: &Cell,
        _seed: u64,
    ) -> Result<Network> {
        Ok(Network::load(tools, "drs.toml")?.set("nodes.*.buffers", "\"8 MB\""))
    }

    fn run(&self, here: &Here<'_, PathBuf>, cell: &Cell) -> Result<Observation> {
        let (sized, stock) = std::thread::scope(|scope| {
            let stock = scope.spawn(|| flows(here, Column::Kernel, &cell.congestion, PORT + 1));
            (
                flows(here, cell.column, &cell.congestion, PORT),
                stock
                    .join()
                    .unwrap_or_else(|_| bail!("the stock flows' thread ended badly")),
            )
        });
        Ok(Observation {
            sized: sized?,
            stock: stock?,
        })
    }

    fn outcome(&self, seen: &Observation) -> String {
        format!("share {:.3}", seen.share())
    }

    fn page(&self, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
        let mut table = Columns::of(COLUMNS).text("flows", |column| column.title());
        for congestion in CONGESTION {
            table = table.spread(congestion, 3, move |column| {
                runs.spread(&Cell::new(*column, congestion), Observation::share)
            });
        }
        page!("friendly", table => table.table())
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        let share = |column, name: &str| runs.spread(&Cell::new(column, name), Observation::share);
        let beside = |congestion| {
            let of = |column| share(column, congestion);
            let auto = of(Column::Auto)?;
            Some(Figure::new(
                congestion,
                format!("share of `auto` beside stock flows, {congestion} (stock beside stock)"),
                format!("{} ({})", cell(Some(auto), 3), cell(of(Column::Kernel), 3)),
                auto.basis(),
            ))
        };
        let quoted = |column| {
            let shares = CONGESTION
                .map(|name| Some(format!("{:.2} with {name}", share(column, name)?.median)));
            let shares: Option<Vec<String>> = shares.into_iter().collect();
            let basis = runs.basis(&CONGESTION.map(|name| Cell::new(column, name)));
            let key = format!("{}-shares", word(column));
            Some(Figure::quoted(key, shares?.join(", "), basis))
        };
        let beside = CONGESTION.into_iter().filter_map(beside);
        beside
            .chain(COLUMNS.into_iter().filter_map(quoted))
            .collect()
    }
}

/// Runs the flows of one kind until they end.
fn flows(
    here: &Here<'_, PathBuf>,
    column: Column,
    congestion: &str,
    port: u16,
) -> Result<Vec<f64>> {
    let limit = Duration::from_secs(u64::from(SECONDS) + 60);
    let own = std::env::current_exe()?;
    let (word, count) = (word(column), FLOWS_OF_A_KIND.to_string());
    let mut command = here.lab.command("receiver", &own)?;
    command
        .args(["drs-receive", "--column", &word, "--connections", &count])
        .args([
            "--port",
            &port.to_string(),
            "--seconds",
            &SECONDS.to_string(),
        ]);
    let receiver = Server::start(command, "the receiver", "listening")?;
    let mut command = here.lab.command("sender", &own)?;
    command
        .args(["drs-send", "--column", &word, "--connections", &count])
        .args(["--congestion", congestion])
        .args([
            "--to",
            &format!("{}:{port}", here.lab.address("receiver")?),
            "--file",
        ])
        .arg(here.setup);
    succeed_within(command, "the sender", limit)?;
    Ok(rates(&ends(&receiver.rest(limit)?.join("\n"))?, SECONDS))
}
