//! `longhaul router`: sets up circuits on the Linux machine that it runs on, for a controller.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use longhaul_hop::read_trusted_file;
use longhaul_provisioning::agent;
use longhaul_provisioning::linux::{LinuxRouter, RouterConfig, this_machine};
use tokio::sync::watch;

use crate::exit::Exit;
use crate::stop::StopSignals;
use crate::{answer, home, logging};

/// Prefix of a socket's address.
const SOCKET_SCHEME: &str = "unix:";
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
        logging::start("info");
        let runtime = crate::runtime::start()?;
        let ended = runtime.block_on(self.serve());
        // A read of standard input is under way, which nothing can end.
        runtime.shutdown_background();
        ended
    }

    async fn serve(self) -> Result<Exit> {
        let config = read(&self.config)?;
        let router = LinuxRouter::open(config, &self.state, this_machine())
            .with_context(|| format!("router of {}", home::display_path(&self.config)))?;
        let mut stop_signals = StopSignals::take()?;
        for (link, error) in router.install_standing_disciplines().await {
            tracing::warn!(%link, %error, "cannot prepare this link for circuits");
        }
        let Some(path) = self.listen else {
            tokio::select! {
                served = agent::serve(tokio::io::stdin(), tokio::io::stdout(), &router) => {
                    served.context("standard input and output")?;
                }
                () = stop_signals.received() => {}
            }
            return Ok(Exit::Success);
        };
        let listener = agent::bind(&path)?;
        answer::write_line(format_args!(
            "listening on {SOCKET_SCHEME}{}",
            home::display_path(&path)
        ));
        let (stop, stopped) = watch::channel(false);
        let listening = agent::listen(listener, Arc::new(router), stopped);
        let signalled = async {
            stop_signals.received().await;
            stop.send_replace(true);
        };
        let (ended, ()) = tokio::join!(listening, signalled);
        // No other router owns the socket while this one holds its record.
        let _ = std::fs::remove_file(&path);
        ended.with_context(|| format!("cannot keep listening at {}", home::display_path(&path)))?;
        Ok(Exit::Success)
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
