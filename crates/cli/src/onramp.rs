//! `longhaul onramp`: carries connections of unmodified programs over routes.

mod entries;
mod follow;
mod install;
mod reserved;
mod status;

use std::convert::Infallible;
use std::future::pending;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use longhaul_config::routes::Author;
use longhaul_onramp::{Onramp, OnrampAddresses, OnrampConfig};
use longhaul_proto::PublicKey;
use longhaul_ramp_protocol::SOCKET_VARIABLE;
use longhaul_service::Hangup;
use longhaul_session::Identity;
use longhaul_wishes::CircuitBroker;

use crate::circuits::ControllerBroker;
use crate::exit::Exit;
use crate::logging::LogOptions;
use crate::service::{Announcement, ServicePlan, StartedService, StopReceiver, run_in_own_runtime};
use crate::{descriptors, home};
pub use entries::Entries;
use follow::Follower;
use reserved::ReservedSource;

/// Carry connections of other programs over routes.
///
/// The file of routes says which destinations are reached by which depots; all others are connected
/// to directly, and so are those that gain nothing from a route. It is read again when it changes,
/// and on SIGHUP. SIGTERM or SIGINT lets connections under way finish, then ends.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct OnrampCommand {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    entries: Entries,
    /// Print one JSON object on standard output when ready, with the addresses it listens at.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    log: LogOptions,
}

#[derive(Subcommand)]
enum Action {
    /// Write a systemd unit that runs the on-ramp for this user, with these options, and print how
    /// to start it.
    Install(Box<Install>),
    /// Print what the running on-ramp has done, its rules, and what it knows of destinations.
    Status(status::StatusCommand),
}

#[derive(Args)]
struct Install {
    #[command(flatten)]
    entries: Entries,
}

/// Broker of circuits, and the key of its controller if that is known and the only one.
type BrokerAndKey = (Option<Arc<dyn CircuitBroker>>, Option<PublicKey>);

impl OnrampCommand {
    /// Serves until a signal.
    pub fn run(self) -> Result<Exit> {
        match &self.action {
            Some(Action::Install(install)) => return install::install(&install.entries),
            Some(Action::Status(status)) => return status.run(),
            None => {}
        }
        self.log.start("info");
        descriptors::raise();
        run_in_own_runtime(self.json, |stop| start(self.entries, stop))
    }
}

/// Returns what an on-ramp with these entries would use.
pub fn plan(entries: &Entries) -> ServicePlan {
    let mut plan = ServicePlan::default();
    plan.listen("SOCKS", &entries.socks, None);
    plan.listen("HTTP", &entries.http, None);
    for forward in &entries.forward {
        plan.listen(
            &format!("a forward to {}", forward.to),
            &[forward.listen],
            None,
        );
    }
    plan.listen("redirected connections", &entries.redirect, None);
    plan.listen("tproxy", &entries.tproxy, None);
    plan.listen("metrics", entries.metrics.as_slice(), None);
    plan.key(entries.identity.as_deref());
    if let Some(routes) = &entries.routes {
        plan.file("routes", routes, |file| {
            std::fs::metadata(file).map(|_| "exists".to_owned())
        });
    }
    plan
}

/// Opens the entries, and returns how they are served.
pub async fn start(entries: Entries, stop: StopReceiver) -> Result<StartedService> {
    let hangup = Hangup::take()?;
    let mut config = entries.config()?;
    let follower = match entries.follow_controller {
        true => Some(Follower::new(&config.identity)?),
        false => None,
    };
    if let Some(follower) = &follower {
        config.routes = follower.file().to_owned();
        config.author = Author::Controller;
        // Fetched before it starts, so that it does not begin with old rules if that can be
        // avoided.
        follower.fetch_once().await;
    }
    (config.circuits, config.controller) = broker(&entries, &config)?;
    let ids = &entries.reservation;
    let reserved = match ids.is_empty() {
        true => None,
        false => Some(ReservedSource::open(ids, entries.identity.as_deref()).await?),
    };
    let onramp = Onramp::start(config)?;
    if let Some(reserved) = &reserved {
        // Before the first connection can ask.
        onramp.set_reserved_paths(reserved.paths());
    }
    let announcement = announcement(&entries, onramp.addresses());
    let (metrics, readiness) = (onramp.metrics(), onramp.readiness());
    let work = async move {
        tokio::select! {
            never = serve_reloads(&onramp, follower, reserved, hangup) => match never {},
            () = stop.wait() => {}
        }
        tracing::info!("draining: waiting for connections to finish");
        onramp.stop().await;
        Ok(())
    };
    Ok(StartedService {
        announcement,
        metrics: Some(metrics),
        readiness,
        work: Box::pin(work),
    })
}

/// Returns the broker of circuits, if a controller is configured and may be asked, and the
/// controller's key.
fn broker(entries: &Entries, config: &OnrampConfig) -> Result<BrokerAndKey> {
    if entries.no_reserve {
        return Ok((None, None));
    }
    let Some(broker) = ControllerBroker::from_home(config.identity.signing_key())? else {
        return Ok((None, None));
    };
    let key = broker.controller_key();
    Ok((Some(Arc::new(broker)), key))
}

fn announcement(entries: &Entries, places: &OnrampAddresses) -> Announcement {
    let socket = places.socket.as_deref().map(home::display_path);
    let mut lines = Vec::new();
    lines.extend(
        socket
            .iter()
            .map(|socket| format!("programs ask at {socket}")),
    );
    lines.extend(places.socks.iter().map(|at| format!("SOCKS at {at}")));
    let http = places.http.iter();
    lines.extend(http.map(|at| format!("HTTP at {at}, for browsers http://{at}/proxy.pac")));
    let forwards = places.forwards.iter().zip(&entries.forward);
    lines.extend(forwards.map(|(at, forward)| format!("{at} leads to {}", forward.to)));
    let redirected = places.redirect.iter().chain(&places.tproxy);
    lines.extend(
        redirected.map(|at| format!("accepts connections that a firewall redirects to {at}")),
    );
    let metrics = places.metrics.iter();
    lines.extend(metrics.map(|at| format!("metrics on http://{at}/metrics")));
    Announcement {
        json: serde_json::json!({
            "event": "ready",
            "socket": socket,
            "socks": places.socks,
            "http": places.http,
            "forwards": places.forwards,
            "redirect": places.redirect,
            "tproxy": places.tproxy,
            "metrics": places.metrics,
        }),
        lines,
        hint: None,
    }
}

/// Keeps the rules and the reserved paths of an on-ramp up to date.
async fn serve_reloads(
    onramp: &Onramp,
    follower: Option<Follower>,
    reserved: Option<ReservedSource>,
    hangup: Hangup,
) -> Infallible {
    let follows = async {
        match follower {
            Some(follower) => follower.run().await,
            None => pending().await,
        }
    };
    let updates = async {
        match reserved {
            Some(reserved) => reserved.follow(onramp).await,
            None => pending().await,
        }
    };
    tokio::select! {
        never = hangup.run_each(|| async { onramp.reload() }) => never,
        never = follows => never,
        never = updates => never,
    }
}

/// Returns a configuration with this user's files and without entries.
pub fn default_config(identity: Arc<Identity>) -> Result<OnrampConfig> {
    let dir = home::make_dir()?;
    let file = |name| dir.join(name);
    Ok(OnrampConfig::new(
        identity,
        file("routes.toml"),
        home::known_hosts_file()?,
        file("authorized_keys"),
    ))
}

/// Returns the socket of the on-ramp to ask: that of LONGHAUL_ONRAMP, or else the default one.
pub fn configured_socket() -> Result<PathBuf> {
    match std::env::var_os(SOCKET_VARIABLE).filter(|path| !path.is_empty()) {
        Some(path) => Ok(path.into()),
        None => default_socket(),
    }
}

/// Returns the path where programs look for the on-ramp by default.
pub fn default_socket() -> Result<PathBuf> {
    let state = home::state_dir().context(
        "neither LONGHAUL_STATE, LONGHAUL_HOME nor HOME is set: name the socket with --socket",
    )?;
    Ok(state.join(longhaul_ramp_protocol::SOCKET_IN_STATE))
}
