//! `longhaul depot`: relays sessions between two connections, for the keys and to the places its policy names.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use longhaul_depot::{Depot as Relay, DepotConfig, Limits, Listen, NextCongestion, Policy, Timeouts};
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::Exit;
use crate::{home, logging};

/// Relay sessions of those whom a policy lets through.
///
/// A depot denies by default: nobody passes unless a rule of the policy names the key, the destination and the next hop. It moves
/// encrypted bytes and cannot read them. SIGTERM lets the sessions under way finish; SIGHUP reads the policy again.
#[derive(Args)]
pub struct Depot {
    /// Who may go where: `[[allow]]` with principals, to, ports, next_hops, max_rate, max_sessions.
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// Where to listen, with `=NAME` for a TCP congestion control of its own [default: every address, port 7510]. Repeatable.
    #[arg(long, value_name = "ADDRESS[=NAME]", value_parser = listen)]
    listen: Vec<Listen>,
    /// TCP congestion control towards next hops, such as `10.0.0.0/8=bbr` or `*=cubic`; the first that matches counts. Repeatable.
    #[arg(long, value_name = "HOP=NAME")]
    next_congestion: Vec<NextCongestion>,
    /// Serve counters (OpenMetrics, at /metrics) here; whoever can connect can read them [default: nowhere].
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
    /// The depot's own key [default: the default key].
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Sessions at a time.
    #[arg(long, value_name = "N", default_value_t = Limits::default().sessions)]
    max_sessions: usize,
    /// Seconds for sessions to finish once the depot is told to stop.
    #[arg(long, value_name = "SECONDS", default_value_t = Timeouts::default().drain.as_secs())]
    drain: u64,
    /// Seconds after which a session in which no byte moves is ended.
    #[arg(long, value_name = "SECONDS", default_value_t = Timeouts::default().idle.as_secs())]
    idle: u64,
}

/// `ADDRESS` or `ADDRESS=NAME`.
fn listen(text: &str) -> Result<Listen, String> {
    let (address, congestion) = match text.split_once('=') {
        Some((address, name)) => (address, Some(name.to_owned())),
        None => (text, None),
    };
    let address = address.parse().map_err(|_| format!("{address:?} is not an address with a port, such as 0.0.0.0:7510"))?;
    Ok(Listen { address, congestion })
}

impl Depot {
    /// Relays until a signal.
    pub fn run(self) -> Result<Exit> {
        logging::start("info");
        let runtime = tokio::runtime::Runtime::new().context("cannot start")?;
        runtime.block_on(self.relay())
    }

    async fn relay(self) -> Result<Exit> {
        let identity = home::identity(self.identity.as_deref())?;
        let mut config = DepotConfig::new(identity.public(), Policy::load(&self.policy)?);
        if !self.listen.is_empty() {
            config.listen = self.listen;
        }
        config.next_congestion = self.next_congestion;
        config.metrics = self.metrics;
        config.limits.sessions = self.max_sessions;
        config.timeouts.drain = Duration::from_secs(self.drain);
        config.timeouts.idle = Duration::from_secs(self.idle);
        let relay = Relay::bind(config)?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        for address in relay.local_addresses() {
            println!("listening on {address}");
        }
        println!("key {}", identity.public());
        if let Some(address) = relay.metrics_address() {
            println!("metrics at http://{address}/metrics");
        }
        let told_to_stop = async move {
            tokio::select! { _ = interrupt.recv() => (), _ = terminate.recv() => () }
        };
        relay.run(told_to_stop).await;
        Ok(Exit::Success)
    }
}
