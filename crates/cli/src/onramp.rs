//! `longhaul onramp`: brings connections of programs that know nothing of it onto routes.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use longhaul_onramp::{Onramp, OnrampConfig};
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::Exit;
use crate::{answer, descriptors, home, logging};

/// Bring connections of other programs onto routes.
///
/// The file of routes says which destinations are reached by which depots; what it does not name is connected to directly, and so is what gains nothing from
/// a route. It is read again when it changes, and on SIGHUP. SIGTERM or SIGINT lets connections under way finish, then ends.
#[derive(Args)]
pub struct OnrampCommand {
    /// Where programs ask that have a hook or the C API [default: onramp/socket in the state directory].
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The file of routes [default: routes.toml beside the keys].
    #[arg(long, value_name = "FILE")]
    routes: Option<PathBuf>,
    /// The key to be known by [default: the default key, made when first needed].
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Say in one JSON object on standard output when it is ready, and where it listens.
    #[arg(long)]
    json: bool,
}

impl OnrampCommand {
    /// Serves until a signal.
    pub fn run(self) -> Result<Exit> {
        logging::start("info");
        descriptors::raise();
        let runtime = tokio::runtime::Runtime::new().context("cannot start")?;
        runtime.block_on(self.serve())
    }

    async fn serve(self) -> Result<Exit> {
        let mut hangup = signal(SignalKind::hangup())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let onramp = Onramp::start(self.config()?)?;
        self.announce(&onramp);
        loop {
            tokio::select! {
                _ = hangup.recv() => onramp.reload(),
                _ = interrupt.recv() => break,
                _ = terminate.recv() => break,
            }
        }
        tracing::info!("lets connections finish");
        onramp.stop().await;
        Ok(Exit::Success)
    }

    fn config(&self) -> Result<OnrampConfig> {
        let identity = Arc::new(home::identity(self.identity.as_deref())?);
        let mut config = default_config(identity)?;
        if let Some(routes) = &self.routes {
            config.routes.clone_from(routes);
        }
        config.socket = Some(match &self.socket {
            Some(path) => path.clone(),
            None => default_socket()?,
        });
        Ok(config)
    }

    fn announce(&self, onramp: &Onramp) {
        let places = onramp.places();
        let socket = places.socket.as_deref().map(home::shown);
        if self.json {
            answer::line(serde_json::json!({ "event": "ready", "socket": socket }));
            return;
        }
        if let Some(socket) = socket {
            answer::line(format_args!("programs ask at {socket}"));
        }
    }
}

/// One with the files of this user, and without entries.
pub fn default_config(identity: Arc<longhaul_session::Identity>) -> Result<OnrampConfig> {
    let dir = home::make_dir()?;
    let file = |name| dir.join(name);
    Ok(OnrampConfig::new(
        identity,
        file("routes.toml"),
        home::known_hosts()?,
        file("authorized_keys"),
    ))
}

/// Where programs look for the on-ramp that are not told.
pub fn default_socket() -> Result<PathBuf> {
    let state = home::state_dir().context(
        "neither LONGHAUL_STATE, LONGHAUL_HOME nor HOME is set: say where the socket is to be with --socket",
    )?;
    Ok(state.join("onramp/socket"))
}
