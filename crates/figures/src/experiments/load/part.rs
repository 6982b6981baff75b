//! One run, in a process of its own: it starts the relays and is both ends of every session.

use std::path::PathBuf;

use anyhow::{Context, Result};

use super::ends::BlockServer;
use super::ping::EchoServer;
use super::relay::{Relay, RelayKind, RelaySettings};
use super::requests::{ClientKeys, Requests};
use super::{Cell, Observation, churn, ping, sessions};

/// The run of one cell.
#[derive(clap::Args)]
pub struct LoadPart {
    /// The cell, as in the stored runs.
    #[arg(long)]
    cell: String,
    /// Seed of all random choices.
    #[arg(long)]
    seed: u64,
    /// The program that is measured.
    #[arg(long)]
    longhaul: PathBuf,
    /// Folder that the ordinary user may enter.
    #[arg(long)]
    folder: PathBuf,
}

impl LoadPart {
    /// Makes the run, and prints its observation as one line of JSON.
    ///
    /// # Errors
    /// A relay does not start, or no session is established.
    pub fn run(&self) -> Result<()> {
        let cell: Cell = serde_json::from_str(&self.cell).context("--cell")?;
        // One thread, so that the ends never take both processors from the relay.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let seen = runtime.block_on(self.observe(cell))?;
        println!("{}", serde_json::to_string(&seen)?);
        Ok(())
    }

    async fn observe(&self, cell: Cell) -> Result<Observation> {
        let (kind, hops) = match cell {
            Cell::Sessions { relay, .. } => (relay, 1),
            Cell::Ping { relay, hops } => (relay, hops),
            Cell::Churn { .. } => (RelayKind::Depot, 1),
        };
        let reads_open = kind == RelayKind::Depot;
        let server = BlockServer::start(reads_open).await?;
        let address = match cell {
            Cell::Ping { .. } => EchoServer::start(reads_open)?.address,
            _ => server.address,
        };
        let keys = ClientKeys::generate()?;
        let settings = RelaySettings {
            longhaul: &self.longhaul,
            folder: &self.folder,
            principals: &keys.public(),
            server: address,
        };
        let chain = Relay::start_chain(&settings, kind, hops)?;
        let requests = Requests::new(kind, &chain, address, keys);
        let relay = || chain.first().context("the cell has no relay");
        Ok(match cell {
            Cell::Sessions { sessions, .. } => Observation::Sessions(
                sessions::run(sessions, relay()?, requests, &server, self.seed).await?,
            ),
            Cell::Ping { .. } => Observation::Ping(ping::run(&requests).await?),
            Cell::Churn { minutes } => {
                Observation::Churn(churn::run(minutes, relay()?, requests, self.seed).await?)
            }
        })
    }
}
