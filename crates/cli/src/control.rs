//! `longhaul control`: the controller, and who may ask it.

mod client;
mod daemon;
mod inherited;
mod names;
mod principals;
mod setup;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use longhaul_control_client::ServiceUrl;
use longhaul_proto::PublicKey;

pub use client::{ControlClient, ControlError, NOTHING};

use crate::exit::Exit;
use crate::home;
use crate::systemd::{self, Unit};

/// Run the controller: it keeps a map and what is measured of its paths, and answers with forecasts
/// and routes.
///
/// Whoever runs it asks it over a socket that nobody else can open, and may do all. Other machines
/// ask by TLS, with requests that their keys have signed; what a key may do is granted with
/// `longhaul control grant`. All is kept in a file of the user's, or with --store in PostgreSQL.
/// SIGTERM ends it when what was begun is answered; SIGUSR2 has it do that and start anew, as the
/// program that is installed then, without anybody being refused a connection.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Control {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    service: Service,
}

/// What the daemon is given.
#[derive(Args, Clone)]
struct Service {
    /// PostgreSQL to keep all in, as postgres://user@host/name (also $LONGHAUL_CONTROL_STORE; a
    /// password belongs into that or into ~/.pgpass) [default: a file].
    #[arg(
        long,
        value_name = "URL",
        env = "LONGHAUL_CONTROL_STORE",
        hide_env_values = true
    )]
    store: Option<String>,
    /// Answer other machines at this address, by TLS, for keys that were granted something; 7513 is
    /// the usual port [default: the socket only].
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// A name by which others reach it, with the port if that is another one. Repeatable. [default:
    /// the addresses that it listens at, and this host's name]
    #[arg(long, value_name = "HOST[:PORT]", requires = "listen")]
    server_name: Vec<String>,
    /// Where others are told to ask this controller while it leads those that share its store, as
    /// https://HOST:PORT [default: its first name].
    #[arg(long, value_name = "URL", requires = "listen")]
    advertise: Option<ServiceUrl>,
    /// A certificate of this site, in PEM form, with those that lead to its authority [default: one
    /// made of the controller's own key]. SIGHUP reads it again.
    #[arg(long, value_name = "FILE", requires_all = ["listen", "tls_key"])]
    tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert, in PEM form.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Serve metrics in the OpenMetrics format at this address, without access control: leave it on
    /// loopback.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// Take what pScheduler's HTTP archiver sends to /api/v1/pscheduler at this loopback address,
    /// from who brings the token (in the file `token` of the controller's directory) as
    /// `Authorization: Bearer TOKEN`.
    #[arg(long, value_name = "ADDRESS:PORT")]
    archive: Option<SocketAddr>,
    /// What it is known by [default: this host's name].
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// Days for which measurements are kept singly; then they are brought together in spans of five
    /// minutes for 90 days, and of an hour for two years.
    #[arg(long, value_name = "DAYS", default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=3650))]
    keep: u16,
    /// Which nodes are set up for circuits, and how [default: control.toml in the controller's
    /// directory, if it is there].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Say in one JSON object on standard output when it is ready, and where it listens.
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Action {
    /// Grant a role to a key: operator, depot, client, reader, reserver, or one that an operator
    /// made.
    Grant {
        /// The key, as `longhaul keys show` prints it.
        key: PublicKey,
        /// The role.
        role: String,
        /// What to call whoever has it. With the name of a host of the map it speaks for that host.
        #[arg(long, value_name = "TEXT")]
        name: Option<String>,
    },
    /// Take a role, or all of them, from a key.
    Revoke {
        /// The key.
        key: PublicKey,
        /// The role [default: all].
        role: Option<String>,
    },
    /// List the names that depots registered, with the keys they belong to.
    Names {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Release a name that a depot registered: the next key that registers it has it.
    Release {
        /// The name, as `longhaul control names` prints it.
        name: String,
    },
    /// List who may ask, with their roles.
    Principals {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Write a unit for systemd that runs the controller for this user, and say how to start it.
    Install,
}

impl Control {
    /// Runs until it is told to stop, or asks a controller that runs.
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
                stop: (30, "What was begun is answered before it ends."),
            }),
        }
    }
}

/// Where the controller keeps what is its own.
pub fn control_dir() -> Result<PathBuf> {
    let state = home::state_dir().context(
        "neither LONGHAUL_STATE, LONGHAUL_HOME nor HOME is set: say where the controller keeps its state",
    )?;
    Ok(state.join("control"))
}
