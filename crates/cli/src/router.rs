//! `longhaul router`: sets up circuits on the Linux machine that it runs on, for a controller.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use longhaul_hop::read_trusted_file;
use longhaul_provisioning::agent;
use longhaul_provisioning::linux::{LinuxRouter, RouterConfig, this_machine};

use crate::exit::Exit;
use crate::logging::LogOptions;
use crate::service::{Announcement, ServicePlan, StartedService, StopReceiver, run_alone};
use crate::stop::StopSignals;
use crate::{failure, home};

/// Prefix of a socket's address.
const SOCKET_SCHEME: &str = "unix:";
/// Error of a service without a socket.
const NO_SOCKET: &str = "no socket to listen on: give --listen unix:/PATH";
/// Maximum bytes of a configuration.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// Set up circuits on this Linux machine, for a controller.
///
/// The controller asks over a Unix socket (--listen), or over standard input and output, as through
/// ssh; its control.toml names either. Anyone who reaches it may ask for anything. It needs tc and
/// ip (iproute2) and the right to use them: root, or CAP_NET_ADMIN. What is set up stays when it
/// ends.
#[derive(Args)]
pub struct Router {
    /// Its owner and its links, in JSON (docs/circuits.md shows one).
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Listen on this Unix socket, unix:/PATH, in a directory that only its owner can enter
    /// [default: standard input and output].
    #[arg(long, value_name = "unix:PATH", value_parser = socket)]
    listen: Option<PathBuf>,
    /// Directory where it records the number of each part of a circuit. The directory must vanish
    /// at a restart of the machine, as everything set up does.
    #[arg(
        long,
        value_name = "DIRECTORY",
        default_value = "/run/longhaul-router/state"
    )]
    state: PathBuf,
    #[command(flatten)]
    log: LogOptions,
}

fn socket(text: &str) -> Result<PathBuf, String> {
    let path = text
        .strip_prefix(SOCKET_SCHEME)
        .filter(|path| !path.is_empty());
    path.map(PathBuf::from)
        .ok_or_else(|| "write unix:/PATH".to_owned())
}

impl Router {
    /// Runs until a signal, or the end of standard input.
    pub fn run(self) -> Result<Exit> {
        self.log.start("info");
        let runtime = crate::runtime::start()?;
        let ended = runtime.block_on(async {
            let mut signals = StopSignals::take()?;
            match self.listen.is_some() {
                true => run_alone(signals, None, false, |stop| self.start(stop)).await,
                false => self.answer_stdin(&mut signals).await,
            }
        });
        // A read of standard input may be under way, which nothing can end.
        runtime.shutdown_background();
        ended.map(|()| Exit::Success)
    }

    /// Returns what it would use.
    pub fn plan(&self) -> ServicePlan {
        let mut plan = ServicePlan::default();
        match &self.listen {
            Some(path) => plan.facts.push(format!(
                "listens on {SOCKET_SCHEME}{}",
                home::display_path(path)
            )),
            None => plan.faults.push(NO_SOCKET.to_owned()),
        }
        plan.file("links", &self.config, |file| {
            let read = read(file).map_err(|error| failure::format_line(&error));
            read.map(|_| "valid".to_owned())
        });
        plan
    }

    /// Answers standard input until its end, or a signal.
    async fn answer_stdin(&self, signals: &mut StopSignals) -> Result<()> {
        let router = self.open().await?;
        tokio::select! {
            served = agent::serve(tokio::io::stdin(), tokio::io::stdout(), &router) => {
                served.context("standard input and output")
            }
            () = signals.received() => Ok(()),
        }
    }

    async fn open(&self) -> Result<LinuxRouter> {
        let config = read(&self.config)?;
        let router = LinuxRouter::open(config, &self.state, this_machine())
            .with_context(|| format!("router of {}", home::display_path(&self.config)))?;
        for (link, error) in router.install_standing_disciplines().await {
            tracing::warn!(%link, %error, "cannot prepare this link for circuits");
        }
        Ok(router)
    }

    /// Opens its socket, and returns how it runs.
    pub async fn start(self, stop: StopReceiver) -> Result<StartedService> {
        let Some(path) = self.listen.clone() else {
            bail!(NO_SOCKET);
        };
        let router = self.open().await?;
        let listener = agent::bind(&path)?;
        let shown = home::display_path(&path);
        let announcement = Announcement {
            json: serde_json::json!({"event": "listening", "socket": shown}),
            lines: vec![format!("listening on {SOCKET_SCHEME}{shown}")],
            hint: None,
        };
        let readiness = stop.readiness();
        let work = async move {
            let ended = agent::listen(listener, Arc::new(router), stop.receiver()).await;
            // No other router owns the socket while this one holds its record.
            let _ = std::fs::remove_file(&path);
            ended.with_context(|| format!("cannot keep listening at {shown}"))
        };
        Ok(StartedService {
            announcement,
            metrics: None,
            readiness,
            work: Box::pin(work),
        })
    }
}

fn read(file: &Path) -> Result<RouterConfig> {
    let shown = home::display_path(file);
    let size = std::fs::metadata(file)
        .with_context(|| format!("cannot read {shown}"))?
        .len();
    if size > MAX_CONFIG_BYTES {
        bail!(
            "{shown}: {size} bytes are too many for a router's configuration: at most \
             {MAX_CONFIG_BYTES} are read"
        );
    }
    let text = read_trusted_file(file).with_context(|| format!("cannot read {shown}"))?;
    serde_json::from_str(&text).with_context(|| format!("{shown} is not a router's configuration"))
}
