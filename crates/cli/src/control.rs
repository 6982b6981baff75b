//! `longhaul control`: the controller, and the keys that may use it.

mod daemon;
mod inherited;
mod names;
mod principals;
mod setup;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use longhaul_control_client::ServiceUrl;
use longhaul_identity::PrincipalPattern;

use crate::exit::Exit;
use crate::failure::format_line;
use crate::home;
use crate::local_controller::control_dir;
use crate::logging::LogOptions;
use crate::principals::PrincipalsOptions;
use crate::service::ServicePlan;
use crate::systemd::{self, Unit};
pub use daemon::{PreparedController, start};

/// Run the controller: it keeps a map and measurements of its paths, and answers with forecasts and
/// routes.
///
/// The user who runs it reaches it over a socket that nobody else can open, and may do everything.
/// Other machines use TLS, with requests signed by their keys; `longhaul control grant` grants what
/// a key may do. All is kept in a file of the user's, or with --store in PostgreSQL. SIGTERM ends
/// it when requests under way are answered; SIGUSR2 does the same and then restarts it as the
/// program installed at that time, without refusing a connection.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ControlCommand {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    service: ControllerOptions,
}

/// Options of the controller service.
#[derive(Args, Clone)]
pub struct ControllerOptions {
    /// PostgreSQL to keep everything in, as postgres://user@host/name (also
    /// $LONGHAUL_CONTROL_STORE; put a password into that or into ~/.pgpass) [default: a file].
    #[arg(
        long,
        value_name = "URL",
        env = "LONGHAUL_CONTROL_STORE",
        hide_env_values = true
    )]
    store: Option<String>,
    /// Serve other machines at this address, by TLS, for keys that were granted a role; 7513 is the
    /// usual port [default: the socket only].
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// A name by which other machines reach it, with the port if it differs. Repeatable. [default:
    /// the addresses that it listens at, and this host's name]
    #[arg(long, value_name = "HOST[:PORT]", requires = "listen")]
    server_name: Vec<String>,
    /// The address given to other machines while this controller leads those that share its store,
    /// as https://HOST:PORT [default: its first name].
    #[arg(long, value_name = "URL", requires = "listen")]
    advertise: Option<ServiceUrl>,
    /// A certificate of this site, in PEM form, with the chain to its authority [default: one made
    /// of the controller's own key]. SIGHUP reads it again.
    #[arg(long, value_name = "FILE", requires_all = ["listen", "tls_key"])]
    tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert, in PEM form.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Serve metrics in the OpenMetrics format at this address, without access control: leave it on
    /// loopback.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// Accept what pScheduler's HTTP archiver sends to /api/v1/pscheduler at this loopback address,
    /// from clients that present the token (in the file `token` of the controller's directory) as
    /// `Authorization: Bearer TOKEN`.
    #[arg(long, value_name = "ADDRESS:PORT")]
    archive: Option<SocketAddr>,
    /// The controller's name [default: this host's name].
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// Days for which single measurements are kept; after that they are merged into spans of five
    /// minutes for 90 days, and of an hour for two years.
    #[arg(
        long,
        value_name = "DAYS",
        default_value_t = 7,
        value_parser = clap::value_parser!(u16).range(1..=3650),
    )]
    keep: u16,
    /// The nodes provisioned for circuits, and their settings [default: control.toml in the
    /// controller's directory, if it exists].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    principals: PrincipalsOptions,
    /// Print one JSON object on standard output when ready, with the addresses it listens at.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    log: LogOptions,
}

#[derive(Subcommand)]
enum Action {
    /// Grant a role to a key: operator, depot, client, reader, reserver, peer (another domain), or
    /// one that an operator made.
    Grant {
        /// The key, as `longhaul keys show` prints it, or name:NAME or group:NAME of --principals.
        key: PrincipalPattern,
        /// The role.
        role: String,
        /// A name for the holder of the key. With the name of a host on the map, the key speaks for
        /// that host.
        #[arg(long, value_name = "TEXT")]
        name: Option<String>,
    },
    /// Take a role, or all of them, from a key.
    Revoke {
        /// The key, name or group.
        key: PrincipalPattern,
        /// The role [default: all].
        role: Option<String>,
    },
    /// List the names that depots registered, with the keys they belong to.
    Names {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Release a name that a depot registered: the next key that registers it gets it.
    Release {
        /// The name, as `longhaul control names` prints it.
        name: String,
    },
    /// List the keys that may use the controller, with their roles.
    Principals {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Write a systemd unit that runs the controller for this user, and print how to start it.
    Install,
}

impl ControllerOptions {
    /// Returns what it would use.
    pub fn plan(&self) -> ServicePlan {
        let mut plan = ServicePlan::default();
        plan.listen("HTTP by TLS", self.listen.as_slice(), None);
        plan.listen("pScheduler's archives", self.archive.as_slice(), None);
        plan.listen("metrics", self.metrics.as_slice(), None);
        self.principals.plan(&mut plan);
        match control_dir() {
            Ok(dir) => {
                plan.facts
                    .push(format!("directory {}", home::display_path(&dir)));
                if let Err(error) = setup::read(self.config.as_deref(), &dir) {
                    plan.faults.push(format_line(&error));
                }
            }
            Err(error) => plan.faults.push(format_line(&error)),
        }
        plan
    }
}

impl ControlCommand {
    /// Runs the controller until it is told to stop, or asks a running one.
    pub fn run(self) -> Result<Exit> {
        match self.action {
            None => daemon::run(&self.service),
            Some(Action::Grant { key, role, name }) => principals::grant(&key, &role, name),
            Some(Action::Revoke { key, role }) => principals::revoke(&key, role.as_deref()),
            Some(Action::Names { json }) => names::list(json),
            Some(Action::Release { name }) => names::release(&name),
            Some(Action::Principals { json }) => principals::list(json),
            Some(Action::Install) => systemd::install(&Unit {
                name: "longhaul-control",
                description: "Longhaul controller: map, measurements, forecasts, routes",
                arguments: &["control".to_owned()],
                stop: (30, "Requests in progress are answered before it ends."),
            }),
        }
    }
}
