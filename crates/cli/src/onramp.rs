//! `longhaul onramp`: carries connections of unmodified programs over routes.

mod entries;
mod follow;
mod install;
mod status;

use std::future::pending;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use longhaul_config::routes::Author;
use longhaul_onramp::{Onramp, OnrampAddresses, OnrampConfig};
use longhaul_ramp_protocol::SOCKET_VARIABLE;
use longhaul_session::Identity;
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::Exit;
use crate::stop::StopSignals;
use crate::{answer, descriptors, home, logging};
use entries::Entries;
use follow::Follower;

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

impl OnrampCommand {
    /// Serves until a signal.
    pub fn run(self) -> Result<Exit> {
        match &self.action {
            Some(Action::Install(install)) => return install::install(&install.entries),
            Some(Action::Status(status)) => return status.run(),
            None => {}
        }
        logging::start("info");
        descriptors::raise();
        let runtime = crate::runtime::start()?;
        runtime.block_on(self.serve())
    }

    async fn serve(self) -> Result<Exit> {
        let mut hangup = signal(SignalKind::hangup())?;
        let mut stop_signals = StopSignals::take()?;
        let mut config = self.entries.config()?;
        let follower = match self.entries.follow_controller {
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
        let onramp = Onramp::start(config)?;
        self.announce(onramp.addresses());
        let mut follows = pin!(async {
            match follower {
                Some(follower) => follower.run().await,
                None => pending().await,
            }
        });
        loop {
            tokio::select! {
                _ = hangup.recv() => onramp.reload(),
                () = stop_signals.received() => break,
                never = &mut follows => match never {},
            }
        }
        tracing::info!("draining: waiting for connections to finish");
        tokio::select! {
            () = onramp.stop() => {}
            // A second signal means that the user does not want to wait.
            () = stop_signals.received() => {}
        }
        Ok(Exit::Success)
    }

    fn announce(&self, places: &OnrampAddresses) {
        let socket = places.socket.as_deref().map(home::display_path);
        if self.json {
            answer::write_line(serde_json::json!({
                "event": "ready",
                "socket": socket,
                "socks": places.socks,
                "http": places.http,
                "forwards": places.forwards,
                "redirect": places.redirect,
                "tproxy": places.tproxy,
                "metrics": places.metrics,
            }));
            return;
        }
        if let Some(socket) = socket {
            answer::write_line(format_args!("programs ask at {socket}"));
        }
        for at in &places.socks {
            answer::write_line(format_args!("SOCKS at {at}"));
        }
        for at in &places.http {
            answer::write_line(format_args!(
                "HTTP at {at}, for browsers http://{at}/proxy.pac"
            ));
        }
        for (at, forward) in places.forwards.iter().zip(&self.entries.forward) {
            answer::write_line(format_args!("{at} leads to {}", forward.to));
        }
        for at in places.redirect.iter().chain(&places.tproxy) {
            answer::write_line(format_args!(
                "accepts connections that a firewall redirects to {at}"
            ));
        }
        if let Some(metrics) = places.metrics {
            answer::write_line(format_args!("metrics on http://{metrics}/metrics"));
        }
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
