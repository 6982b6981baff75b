//! `longhaul offramp`: ends sessions at ordinary servers, for the keys its policy allows.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use longhaul_offramp::{ListenerConfig, Offramp, OfframpConfig};
use longhaul_policy::Policy;
use longhaul_proto::OFFRAMP_PORT;
use quantities::Time;

use crate::exit::Exit;
use crate::stop::StopSignals;
use crate::{answer, home, logging};

/// End sessions at ordinary servers, which know nothing of Longhaul.
///
/// Programs on other machines reach the servers near it by routes through depots. It denies by
/// default: the rules of the policy file that have `servers` say which keys may go to which
/// servers. The protection of the session ends here: the server receives the program's bytes as
/// they are. SIGHUP reads the policy again; SIGTERM or SIGINT lets the sessions under way finish,
/// then ends.
#[derive(Args)]
pub struct OfframpCommand {
    /// Address to listen at; repeatable [default: every address, port 7512]. Port 0 takes a free
    /// one, which is printed.
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<SocketAddr>,
    /// Policy of keys and their destinations (TOML; see docs/offramp.md).
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// The off-ramp's own key [default: the default key].
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// TCP congestion control of accepted connections [default: the system's].
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Address of the OpenMetrics page [default: none]. Anyone who can connect there can read it.
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
    /// Maximum simultaneous sessions.
    #[arg(long, value_name = "N")]
    max_sessions: Option<usize>,
    /// Time for sessions to finish once the off-ramp is told to stop: 90s, 10min; a bare number is
    /// seconds.
    #[arg(long, value_name = "TIME")]
    drain: Option<Time>,
    /// Print addresses and key as one JSON object.
    #[arg(long)]
    json: bool,
}

impl OfframpCommand {
    /// Serves until a signal.
    pub fn run(self) -> Result<Exit> {
        logging::start("info");
        let runtime = crate::runtime::start()?;
        runtime.block_on(self.serve())
    }

    async fn serve(self) -> Result<Exit> {
        let policy = Policy::load(&self.policy)?;
        let identity = Arc::new(home::identity(self.identity.as_deref())?);
        let key = identity.public();
        let mut config = OfframpConfig::new(identity, policy);
        config.metrics = self.metrics;
        if let Some(sessions) = self.max_sessions {
            config.limits.sessions = sessions;
        }
        if let Some(Time(drain)) = self.drain {
            config.timeouts.drain = drain;
        }
        let mut stop_signals = StopSignals::take()?;
        let offramp = self.bind(config)?;
        let addresses: Vec<String> = offramp
            .local_addresses()
            .iter()
            .map(SocketAddr::to_string)
            .collect();
        let metrics = offramp.metrics_address().map(|address| address.to_string());
        if self.json {
            let line = serde_json::json!({
                "event": "listening", "addresses": addresses, "key": key.to_string(),
                "metrics": metrics
            });
            answer::write_line(line);
        } else {
            for address in addresses {
                answer::write_line(format_args!("listening on {address}"));
            }
            answer::write_line(format_args!("key {key}"));
            if let Some(metrics) = metrics {
                answer::write_line(format_args!("metrics on http://{metrics}/metrics"));
            }
        }
        offramp
            .run(async move {
                stop_signals.received().await;
            })
            .await;
        Ok(Exit::Success)
    }

    fn bind(&self, mut config: OfframpConfig) -> Result<Offramp> {
        let at = |addresses: &[SocketAddr]| {
            let listen = |address: &SocketAddr| ListenerConfig {
                address: *address,
                congestion: self.congestion.clone(),
            };
            addresses.iter().map(listen).collect()
        };
        if !self.listen.is_empty() {
            config.listen = at(&self.listen);
            return Ok(Offramp::bind(config)?);
        }
        // One socket for both families, if the system has IPv6.
        config.listen = at(&[(Ipv6Addr::UNSPECIFIED, OFFRAMP_PORT).into()]);
        match Offramp::bind(config.clone()) {
            Err(longhaul_offramp::Error::Listen { .. }) => {
                config.listen = at(&[(Ipv4Addr::UNSPECIFIED, OFFRAMP_PORT).into()]);
                Ok(Offramp::bind(config)?)
            }
            other => Ok(other?),
        }
    }
}
