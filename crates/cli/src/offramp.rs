//! `longhaul offramp`: ends sessions at ordinary servers, for the keys its policy allows.

use std::future::ready;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use longhaul_offramp::{ListenerConfig, Offramp, OfframpConfig};
use longhaul_policy::{Policy, Role};
use longhaul_proto::OFFRAMP_PORT;
use longhaul_service::bind_everywhere;
use quantities::Time;

use crate::accounts::AccountsOptions;
use crate::exit::Exit;
use crate::logging::LogOptions;
use crate::principals::PrincipalsOptions;
use crate::resume::resume_limits;
use crate::service::{Announcement, ServicePlan, StartedService, StopReceiver, run_in_own_runtime};
use crate::{accounts, home};

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
    /// Maximum time for which a session may be without a connection when a depot dies, before its
    /// server gets a reset: 30s, 5min; a bare number is seconds [default: 60 s]. The client's limit
    /// applies if it is shorter.
    #[arg(long, value_name = "TIME")]
    resume_within: Option<Time>,
    /// End sessions with their connection, instead of letting clients resume them.
    #[arg(long, conflicts_with = "resume_within")]
    no_resume: bool,
    /// Print addresses and key as one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    principals: PrincipalsOptions,
    #[command(flatten)]
    accounts: AccountsOptions,
    #[command(flatten)]
    log: LogOptions,
}

impl OfframpCommand {
    /// Serves until a signal.
    pub fn run(self) -> Result<Exit> {
        self.log.start("info");
        run_in_own_runtime(self.json, |stop| self.start(stop))
    }

    /// Returns what it would use.
    pub fn plan(&self) -> ServicePlan {
        let mut plan = ServicePlan::default();
        let everywhere = (Ipv6Addr::UNSPECIFIED, OFFRAMP_PORT).into();
        plan.listen("sessions", &self.listen, Some(everywhere));
        plan.listen("metrics", self.metrics.as_slice(), None);
        plan.key(self.identity.as_deref());
        plan.file("policy", &self.policy, |file| {
            Policy::load(file)
                .map(|policy| format!("{} rules with servers", policy.count_rules(Role::Offramp)))
        });
        self.principals.plan(&mut plan);
        plan
    }

    /// Opens its listeners, and returns how it runs.
    pub async fn start(self, stop: StopReceiver) -> Result<StartedService> {
        let policy = Policy::load(&self.policy)?.with_identities(self.principals.load()?);
        let identity = Arc::new(home::identity(self.identity.as_deref())?);
        let key = identity.public();
        let mut config = OfframpConfig::new(identity, policy);
        config.metrics = self.metrics;
        let accounts = self.accounts.open()?;
        config.accounts.clone_from(&accounts);
        if let Some(sessions) = self.max_sessions {
            config.limits.sessions = sessions;
        }
        if let Some(Time(drain)) = self.drain {
            config.timeouts.drain = drain;
        }
        config.resume = resume_limits(self.resume_within, self.no_resume);
        let offramp = self.bind(config).await?;
        let addresses: Vec<String> = offramp
            .local_addresses()
            .iter()
            .map(SocketAddr::to_string)
            .collect();
        let page = offramp.metrics_address().map(|address| address.to_string());
        let mut lines: Vec<String> = addresses
            .iter()
            .map(|at| format!("listening on {at}"))
            .collect();
        lines.push(format!("key {key}"));
        lines.extend(
            page.iter()
                .map(|at| format!("metrics on http://{at}/metrics")),
        );
        Ok(StartedService {
            announcement: Announcement {
                json: serde_json::json!({
                    "event": "listening", "addresses": addresses, "key": key.to_string(),
                    "metrics": page
                }),
                lines,
                hint: None,
            },
            metrics: Some(offramp.metrics()),
            readiness: offramp.readiness(),
            work: Box::pin(async move {
                offramp.run(stop.wait()).await;
                accounts::flush(accounts.as_ref());
                Ok(())
            }),
        })
    }

    async fn bind(&self, config: OfframpConfig) -> Result<Offramp> {
        let at = |addresses: &[SocketAddr]| {
            let listen = |address: &SocketAddr| ListenerConfig {
                address: *address,
                congestion: self.congestion.clone(),
            };
            let listen = addresses.iter().map(listen).collect();
            let config = config.clone();
            Offramp::bind(OfframpConfig { listen, ..config })
        };
        match self.listen.as_slice() {
            [] => Ok(bind_everywhere(OFFRAMP_PORT, |address| ready(at(&[address]))).await?),
            addresses => Ok(at(addresses)?),
        }
    }
}
