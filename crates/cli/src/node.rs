//! `longhaul node`: several services in one process, as a file says.

mod check;
mod config;
mod hosted;
mod join;
mod role;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use clap::{Args, Subcommand};
use longhaul_service::{
    Handover, Hangup, MetricsPage, Readiness, StatusListener, StatusPage, notify_ready, systemd,
};
use tokio::task::{JoinSet, LocalSet};

use crate::answer;
use crate::exit::Exit;
use crate::logging::LogOptions;
use crate::serve::CLEANUP_TIMEOUT;
use crate::service::{StartedService, StopReceiver, stop_requested};
use crate::stop::StopSignals;
use config::NodeConfig;

/// End of a metrics page without metrics.
const NO_METRICS: &str = "# EOF\n";

/// Run several services in one process: any of serve, depot, offramp, onramp, agent, control and
/// router.
///
/// Each section of the file has the name of a command, and its keys are that command's options:
/// `no-quic = true` for --no-quic. The section [node] may have `metrics`, the address of one page
/// for all of them. SIGHUP makes each service read its files again; SIGTERM or SIGINT lets them
/// drain, then ends. SIGUSR2 starts the installed program, which takes over the listeners, and lets
/// this process drain. If one ends by itself, all do.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct NodeCommand {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    file: ConfigFile,
    /// Print a JSON object for each service when all are ready.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    log: LogOptions,
}

/// The file with the services.
#[derive(Args)]
pub struct ConfigFile {
    /// The services and their options (TOML; see docs/node.md).
    #[arg(long, value_name = "FILE", default_value = "/etc/longhaul/node.toml")]
    config: PathBuf,
}

#[derive(Subcommand)]
enum Action {
    /// Say what the file would start: addresses, keys and files, and what is wrong.
    Check(ConfigFile),
    /// Verify that a controller accepts this machine's depot, and print what to add to its files.
    Join(join::JoinCommand),
}

impl NodeCommand {
    /// Runs the services until a signal.
    pub fn run(self) -> Result<Exit> {
        match self.action {
            Some(Action::Check(file)) => return check::run(&file.config),
            Some(Action::Join(join)) => return join.run(),
            None => {}
        }
        self.log.start("info");
        let config = NodeConfig::load(&self.file.config)?;
        let runtime = crate::runtime::start_with(config.blocking_threads()?)?;
        let local = LocalSet::new();
        let exit = local.block_on(&runtime, run_all(config, self.json));
        drop(local);
        // Unfinished files of copies are removed, or made durable.
        runtime.shutdown_timeout(CLEANUP_TIMEOUT);
        exit
    }
}

/// Runs all services, and a page for all of them, until a signal or until one ends.
async fn run_all(config: NodeConfig, json: bool) -> Result<Exit> {
    let mut signals = StopSignals::take()?;
    let handover = Handover::take()?;
    // The signal ends no node, even one whose services have nothing to read again.
    let _hangup = Hangup::take()?;
    let (stop, stopped) = StopReceiver::channel();
    let mut services = Vec::new();
    for role in config.roles {
        let name = role.name();
        let started = role.start(stopped.clone()).await;
        services.push((name, started.with_context(|| format!("[{name}]"))?));
    }
    let page = config.metrics.map(StatusListener::open).transpose()?;
    announce(
        &services,
        page.as_ref().map(StatusListener::local_addr),
        json,
    );
    notify_ready();
    let mut beside = JoinSet::new();
    beside.spawn(async { match systemd::keep_alive().await {} });
    if let Some(listener) = page {
        beside.spawn(listener.serve(status_page(&services)));
    }
    let mut running = JoinSet::new();
    for (name, service) in services {
        running.spawn_local(async move { (name, service.work.await) });
    }
    let failed = tokio::select! {
        ended = running.join_next() => ended.map(|ended| match ended {
            Ok((name, Ok(()))) => anyhow!("[{name}] ended"),
            Ok((name, Err(error))) => error.context(format!("[{name}]")),
            Err(error) => error.into(),
        }),
        () = stop_requested(&mut signals, Some(handover)) => None,
    };
    stop.send_replace(true);
    let drained = async {
        let mut failed = failed;
        while let Some(ended) = running.join_next().await {
            if let Ok((name, Err(error))) = ended {
                failed.get_or_insert(error.context(format!("[{name}]")));
            }
        }
        failed
    };
    let failed = tokio::select! {
        failed = drained => failed,
        // A second signal means that the user does not want to wait.
        () = signals.received() => None,
    };
    match failed {
        Some(error) => Err(error),
        None => Ok(Exit::Success),
    }
}

/// Prints where each service listens.
fn announce(services: &[(&'static str, StartedService)], page: Option<SocketAddr>, json: bool) {
    for (name, service) in services {
        let announcement = &service.announcement;
        if json {
            let mut line = announcement.json.clone();
            line["service"] = (*name).into();
            answer::write_line(line);
        } else {
            for line in &announcement.lines {
                answer::write_line(format_args!("{name}: {line}"));
            }
        }
    }
    let page = page.map(|at| at.to_string());
    match json {
        true => answer::write_line(serde_json::json!({
            "event": "ready", "service": "node", "metrics": page
        })),
        false => {
            if let Some(at) = page {
                answer::write_line(format_args!("metrics on http://{at}/metrics"));
            }
        }
    }
}

/// Returns the page with the metrics of all services. It is ready if all are.
fn status_page(services: &[(&'static str, StartedService)]) -> StatusPage {
    let pages = services
        .iter()
        .filter_map(|(_, service)| service.metrics.clone());
    let metrics = pages
        .reduce(MetricsPage::joined_with)
        .unwrap_or_else(|| MetricsPage::new(|| NO_METRICS.to_owned()));
    let each: Vec<(&'static str, Readiness)> = services
        .iter()
        .map(|(name, service)| (*name, service.readiness.clone()))
        .collect();
    let readiness = Readiness::new(move || {
        let mut reasons = each.iter().filter_map(|(name, readiness)| {
            let why = readiness.check().err()?;
            Some(format!("{name}: {why}"))
        });
        reasons.next().map_or(Ok(()), Err)
    });
    StatusPage::new(metrics, readiness)
}
