//! An on-ramp's life: open the entries, serve, read the rules again, drain.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::config::OnrampConfig;
use crate::engine::Engine;
use crate::error::OnrampError;
use crate::peers::Peers;
use crate::phase::{Phase, Said, phases};
use crate::table::Table;
use crate::unix::{Programs, Socket};
use crate::waiting::WaitingRoom;

/// An on-ramp that runs. Dropped, it ends at once: what it carries is reset.
#[derive(Debug)]
pub struct Onramp {
    entries: JoinSet<()>,
    engine: Arc<Engine>,
    said: Said,
    drain: Duration,
    places: Places,
}

/// Where an on-ramp listens, with the ports that port 0 became.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places {
    /// The Unix socket.
    pub socket: Option<PathBuf>,
    /// SOCKS.
    pub socks: Vec<SocketAddr>,
    /// HTTP.
    pub http: Vec<SocketAddr>,
    /// Forwards, in the order of the configuration.
    pub forwards: Vec<SocketAddr>,
    /// Redirected connections.
    pub redirect: Vec<SocketAddr>,
    /// Connections handed over as they are.
    pub tproxy: Vec<SocketAddr>,
}

impl Onramp {
    /// Opens the entries and serves them, in tasks of the current tokio runtime.
    ///
    /// # Errors
    /// [`OnrampError`], which says what cannot be had. Once it runs, what goes wrong with a connection is that connection's error.
    pub fn start(config: OnrampConfig) -> Result<Self, OnrampError> {
        let (said, phases) = phases();
        let table = Table::open(&config.routes)?;
        let peers = Arc::new(Peers::new(
            config.authorized_keys.clone(),
            config.identity.public(),
        ));
        let engine = Arc::new(Engine::new(&config, table, phases.clone()));
        let mut entries = JoinSet::new();
        let mut places = Places::default();
        if let Some(path) = &config.socket {
            let socket = Socket::open(path)?;
            let programs = Arc::new(Programs {
                engine: Arc::clone(&engine),
                waiting: WaitingRoom::open(&mut entries)?,
                peers,
            });
            places.socket = Some(path.clone());
            entries.spawn(socket.serve(programs, phases.clone()));
        }
        if entries.is_empty() {
            return Err(OnrampError::NoEntry);
        }
        Ok(Self {
            entries,
            engine,
            said,
            drain: config.drain,
            places,
        })
    }

    /// Where it listens.
    #[must_use]
    pub const fn places(&self) -> &Places {
        &self.places
    }

    /// Reads the table of routes again; one with a mistake changes nothing, and is told of in the log. It is read again by itself when its
    /// file changes, too.
    pub fn reload(&self) {
        self.engine.table().reload();
    }

    /// Takes no more connections, lets those under way finish for as long as the configuration says, and resets what is left.
    pub async fn stop(self) {
        let Self {
            mut entries,
            engine,
            mut said,
            drain,
            places: _,
        } = self;
        drop(engine);
        said.say(Phase::Draining);
        // With their listeners, and the socket's name.
        entries.shutdown().await;
        if tokio::time::timeout(drain, said.all_gone()).await.is_err() {
            tracing::warn!("the time to finish is over: what is left is reset");
            said.say(Phase::Aborting);
            said.all_gone().await;
        }
    }
}
