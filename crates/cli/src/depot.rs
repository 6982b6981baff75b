//! `longhaul depot`: relays sessions between hops, for the keys its policy allows.

mod hops;
pub mod registered;
mod renewals;

use std::future::pending;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use longhaul_accounts::AccountLog;
use longhaul_control_api::map::DepotLimits;
use longhaul_depot::{
    Depot, DepotConfig, ListenerConfig, NextCongestion, NextTransport, RelayLimits,
};
use longhaul_offramp::{Offramp, OfframpConfig};
use longhaul_policy::{ForwardingTable, Policy};
use longhaul_proto::DEPOT_PORT;
use longhaul_service::MetricsPage;
use longhaul_session::Identity;
use quantities::Time;

use crate::accounts::AccountsOptions;
use crate::circuits::ControllerBroker;
use crate::exit::Exit;
use crate::logging::LogOptions;
use crate::principals::PrincipalsOptions;
use crate::scitags::ScitagsOptions;
use crate::service::{Announcement, ServicePlan, StartedService, StopReceiver, run_in_own_runtime};
use crate::{accounts, descriptors, home};
use renewals::GrantRenewer;

/// Descriptors of a depot besides those of its sessions: listeners, logs, threads, the controller.
const OTHER_DESCRIPTORS: u64 = 128;

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
    /// Transport towards some next hops, such as `*=quic` or `depot.example=paced:9.5G`;
    /// repeatable, the first match counts [default: tcp, or quic where random losses limit it].
    /// Where QUIC does not get through, TCP is used. A paced hop is TCP that sends no faster.
    #[arg(long, value_name = "HOP=tcp|quic|paced[:RATE]")]
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
    #[command(flatten)]
    principals: PrincipalsOptions,
    #[command(flatten)]
    accounts: AccountsOptions,
    #[command(flatten)]
    scitags: ScitagsOptions,
    #[command(flatten)]
    log: LogOptions,
}

impl DepotCommand {
    /// Relays sessions until a signal.
    pub fn run(self) -> Result<Exit> {
        self.log.start("info");
        run_in_own_runtime(self.json, |stop| self.start(stop))
    }

    /// Returns what it would use.
    pub fn plan(&self) -> ServicePlan {
        let mut plan = ServicePlan::default();
        let everywhere = (Ipv6Addr::UNSPECIFIED, DEPOT_PORT).into();
        plan.listen("sessions", &self.listen, Some(everywhere));
        plan.listen("sessions of its off-ramp", &self.offramp, None);
        plan.listen("metrics", self.metrics.as_slice(), None);
        plan.key(self.identity.as_deref());
        plan.file("policy", &self.policy, |file| {
            Policy::load(file).map(|policy| format!("{} rules", policy.len()))
        });
        if let Some(file) = &self.forwarding {
            plan.file("forwarding table", file, |file| {
                ForwardingTable::load(file).map(|table| format!("{} patterns", table.len()))
            });
        }
        self.principals.plan(&mut plan);
        self.register.plan(&mut plan);
        plan
    }

    /// Returns true if it is an off-ramp as well.
    pub fn is_offramp(&self) -> bool {
        !self.offramp.is_empty()
    }

    /// Returns the file of its key, if it is not the default one.
    pub fn identity_file(&self) -> Option<&Path> {
        self.identity.as_deref()
    }

    /// Returns the port that it listens on.
    pub fn port(&self) -> u16 {
        self.listen.first().map_or(DEPOT_PORT, SocketAddr::port)
    }

    /// Returns its options for a controller.
    pub const fn register(&self) -> &registered::RegisterOptions {
        &self.register
    }

    /// Opens its listeners, and returns how it runs.
    pub async fn start(self, stop: StopReceiver) -> Result<StartedService> {
        let policy = Policy::load(&self.policy)?.with_identities(self.principals.load()?);
        let identity = home::identity(self.identity.as_deref())?;
        let accounts = self.accounts.open()?;
        let offramp = self.offramp(&identity, &policy, accounts.clone())?;
        let has_controllers = policy.has_controllers();
        let mut config = DepotConfig::new(identity.signing_key().clone(), policy);
        if let Some(file) = &self.forwarding {
            config.forwarding = ForwardingTable::load(file)?;
        }
        let pages = [
            offramp.as_ref().map(Offramp::metrics),
            // An off-ramp's page has them already.
            accounts
                .as_ref()
                .filter(|_| offramp.is_none())
                .map(accounts::metrics),
        ];
        config.extra_metrics = pages.into_iter().flatten().reduce(MetricsPage::joined_with);
        config.accounts.clone_from(&accounts);
        config.marker = self.scitags.start()?;
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
        warn_of_few_descriptors(&config.limits);
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
        if let Some(settings) = &settings {
            let broker = ControllerBroker::new(settings, identity.signing_key())?;
            config.circuits = Some(Arc::new(broker));
        }
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
        let key = identity.public().to_string();
        let page = depot.metrics_address().map(|a| a.to_string());
        let mut lines: Vec<String> = addresses
            .iter()
            .map(|at| format!("listening on {at}"))
            .collect();
        lines.extend(offramps.iter().map(|at| format!("off-ramp on {at}")));
        lines.push(format!("key {key}"));
        lines.extend(
            page.iter()
                .map(|at| format!("metrics on http://{at}/metrics")),
        );
        let announcement = Announcement {
            json: serde_json::json!({
                "event": "listening", "addresses": addresses, "offramps": offramps, "key": key,
                "metrics": page
            }),
            lines,
            hint: None,
        };
        let (metrics, readiness) = (depot.metrics(), depot.readiness());
        let stopped = || stop.clone().wait();
        let registered = registered
            .map(|registered| registered.run(depot.local_addresses(), depot.activity(), stopped()));
        let (depot_stop, offramp_stop) = (stopped(), stopped());
        let work = async move {
            let offramp = async {
                if let Some(offramp) = offramp {
                    offramp.run(offramp_stop).await;
                }
            };
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
                    () = depot.run(depot_stop) => {}
                    // Sessions that end while it drains keep their grants.
                    never = renewals => match never {},
                }
            };
            tokio::join!(relays, offramp, registered);
            accounts::flush(accounts.as_ref());
            Ok(())
        };
        Ok(StartedService {
            announcement,
            metrics: Some(metrics),
            readiness,
            work: Box::pin(work),
        })
    }

    /// Creates the off-ramp that this depot also is, if it is one. It uses the same key, policy and
    /// limits.
    fn offramp(
        &self,
        identity: &Identity,
        policy: &Policy,
        accounts: Option<AccountLog>,
    ) -> Result<Option<Offramp>> {
        if self.offramp.is_empty() {
            return Ok(None);
        }
        let mut config = OfframpConfig::new(Arc::new(identity.clone()), policy.clone());
        config.accounts = accounts;
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

/// Warns if this process may not have the descriptors that the limits allow. Sessions beyond them
/// would wait to be accepted.
fn warn_of_few_descriptors(limits: &RelayLimits) {
    let needed = limits.max_descriptors().saturating_add(OTHER_DESCRIPTORS);
    let descriptors = descriptors::raise();
    if descriptors < needed {
        tracing::warn!(
            "this process may have {descriptors} descriptors, and needs {needed} for {} sessions: \
             raise the limit on open files (LimitNOFILE of a service, ulimit -n), or lower \
             --max-sessions",
            limits.sessions
        );
    }
}
