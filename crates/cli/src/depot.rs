//! `longhaul depot`: relays sessions between hops, for the keys its policy allows.

mod hops;
mod registered;
mod renewals;

use std::future::pending;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use longhaul_control_api::map::DepotLimits;
use longhaul_depot::{Depot, DepotConfig, ListenerConfig, NextCongestion, NextTransport};
use longhaul_offramp::{Offramp, OfframpConfig};
use longhaul_policy::{ForwardingTable, Policy};
use longhaul_session::Identity;
use quantities::Time;
use tokio::sync::watch;

use crate::exit::Exit;
use crate::stop::StopSignals;
use crate::{answer, home, logging};
use renewals::GrantRenewer;

/// Relay sessions towards servers and further depots.
///
/// A depot denies by default: the policy file says which keys may go where. It sees the client's
/// key and the destination, and nothing of the content. SIGHUP reads the policy and the forwarding
/// table again; SIGTERM or SIGINT lets the sessions under way finish, then ends.
#[derive(Args)]
pub struct DepotCommand {
    /// Address to listen at; repeatable [default: every address, port 7510]. Port 0 takes a free
    /// one, which is printed.
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<SocketAddr>,
    /// Policy of keys and their destinations (TOML; see docs/depot.md).
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// Table of the depots to add before loose hops (TOML; see docs/depot.md) [default: none].
    #[arg(long, value_name = "FILE")]
    forwarding: Option<PathBuf>,
    /// The depot's own key [default: the default key].
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// TCP congestion control of accepted connections [default: the system's].
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// TCP congestion control towards some next hops, such as `*=bbr` or `10.0.0.0/8=cubic`;
    /// repeatable, the first match counts.
    #[arg(long, value_name = "HOP=NAME")]
    next_congestion: Vec<NextCongestion>,
    /// Transport towards some next hops, such as `*=quic` or `depot.example=tcp`; repeatable, the
    /// first match counts [default: tcp]. Where QUIC does not get through, TCP is used.
    #[arg(long, value_name = "HOP=tcp|quic")]
    next_transport: Vec<NextTransport>,
    /// Neither accept nor dial QUIC, which uses the UDP ports of the addresses.
    #[arg(long)]
    no_quic: bool,
    /// Address of the OpenMetrics page [default: none]. Anyone who can connect there can read it.
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
    /// Maximum simultaneous sessions.
    #[arg(long, value_name = "N")]
    max_sessions: Option<usize>,
    /// Be an off-ramp as well, at this address: end sessions at ordinary servers, by the rules of
    /// the policy that have `servers` (see docs/offramp.md). Repeatable. Port 0 takes a free one,
    /// which is printed.
    #[arg(long, value_name = "ADDRESS")]
    offramp: Vec<SocketAddr>,
    /// Time for sessions to finish once the depot is told to stop: 90s, 10min; a bare number is
    /// seconds.
    #[arg(long, value_name = "TIME")]
    drain: Option<Time>,
    /// Print addresses and key as one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    register: registered::RegisterOptions,
}

impl DepotCommand {
    /// Relays sessions until a signal.
    pub fn run(self) -> Result<Exit> {
        logging::start("info");
        let runtime = crate::runtime::start()?;
        runtime.block_on(self.relay())
    }

    async fn relay(self) -> Result<Exit> {
        let policy = Policy::load(&self.policy)?;
        let identity = home::identity(self.identity.as_deref())?;
        let offramp = self.offramp(&identity, &policy)?;
        let has_controllers = policy.has_controllers();
        let mut config = DepotConfig::new(identity.signing_key().clone(), policy);
        if let Some(file) = &self.forwarding {
            config.forwarding = ForwardingTable::load(file)?;
        }
        config.extra_metrics = offramp.as_ref().map(Offramp::metrics);
        if !self.listen.is_empty() {
            config.listen = self
                .listen
                .iter()
                .copied()
                .map(ListenerConfig::new)
                .collect();
        }
        for listen in &mut config.listen {
            listen.congestion.clone_from(&self.congestion);
        }
        config.next_congestion = self.next_congestion;
        config.next_transport = self.next_transport;
        if self.no_quic {
            config.quic = None;
        }
        config.metrics = self.metrics;
        if let Some(sessions) = self.max_sessions {
            config.limits.sessions = sessions;
        }
        if let Some(Time(drain)) = self.drain {
            config.timeouts.drain = drain;
        }
        let limits = DepotLimits {
            max_sessions: self
                .max_sessions
                .and_then(|sessions| u32::try_from(sessions).ok()),
            ..DepotLimits::default()
        };
        let settings = self.register.settings()?;
        if has_controllers && settings.is_none() {
            tracing::warn!(
                "the policy trusts controllers, but none is configured here to renew their grants, \
                 which lapse after a minute; run longhaul controller use URL, or give --controller \
                 URL"
            );
        }
        let registered =
            self.register
                .registration(settings.as_ref(), identity.signing_key(), limits)?;
        config.hop_observer = registered
            .as_ref()
            .map(registered::DepotRegistration::observer);
        let mut stop_signals = StopSignals::take()?;
        let depot = Depot::bind(config)?;
        let renewals = settings
            .map(|settings| GrantRenewer::new(&settings, identity.signing_key(), depot.grants()))
            .transpose()?;
        let texts = |addresses: Vec<SocketAddr>| -> Vec<String> {
            addresses.iter().map(SocketAddr::to_string).collect()
        };
        let addresses = texts(depot.local_addresses());
        let offramps = texts(
            offramp
                .as_ref()
                .map(Offramp::local_addresses)
                .unwrap_or_default(),
        );
        let (key, metrics) = (
            identity.public().to_string(),
            depot.metrics_address().map(|a| a.to_string()),
        );
        if self.json {
            let line = serde_json::json!({
                "event": "listening", "addresses": addresses, "offramps": offramps, "key": key,
                "metrics": metrics
            });
            answer::write_line(line);
        } else {
            for address in addresses {
                answer::write_line(format_args!("listening on {address}"));
            }
            for address in offramps {
                answer::write_line(format_args!("off-ramp on {address}"));
            }
            answer::write_line(format_args!("key {key}"));
            if let Some(metrics) = metrics {
                answer::write_line(format_args!("metrics on http://{metrics}/metrics"));
            }
        }
        let (stop, stopped) = watch::channel(false);
        // An error means that the sender is gone, which reported before.
        let stopped = || {
            let mut stopped = stopped.clone();
            async move { drop(stopped.wait_for(|stopped| *stopped).await) }
        };
        let signalled = async {
            stop_signals.received().await;
            stop.send_replace(true);
        };
        let offramp = async {
            if let Some(offramp) = offramp {
                offramp.run(stopped()).await;
            }
        };
        let registered = registered
            .map(|registered| registered.run(depot.local_addresses(), depot.activity(), stopped()));
        let registered = async {
            if let Some(registered) = registered {
                registered.await;
            }
        };
        let renewals = async {
            match renewals {
                Some(renewals) => renewals.run().await,
                None => pending().await,
            }
        };
        let relays = async {
            tokio::select! {
                () = depot.run(stopped()) => {}
                // Sessions that end while it drains keep their grants.
                never = renewals => match never {},
            }
        };
        tokio::join!(signalled, relays, offramp, registered);
        Ok(Exit::Success)
    }

    /// Creates the off-ramp that this depot also is, if it is one. It uses the same key, policy and
    /// limits.
    fn offramp(&self, identity: &Identity, policy: &Policy) -> Result<Option<Offramp>> {
        if self.offramp.is_empty() {
            return Ok(None);
        }
        let mut config = OfframpConfig::new(Arc::new(identity.clone()), policy.clone());
        config.listen = self
            .offramp
            .iter()
            .map(|address| ListenerConfig {
                address: *address,
                congestion: self.congestion.clone(),
            })
            .collect();
        if let Some(sessions) = self.max_sessions {
            config.limits.sessions = sessions;
        }
        if let Some(Time(drain)) = self.drain {
            config.timeouts.drain = drain;
        }
        Ok(Some(Offramp::bind(config)?))
    }
}
