//! `longhaul controller`: the controller that this machine uses for routes, and how it is
//! authenticated.

pub mod sync;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use clap::{Args, Subcommand};
use longhaul_config::routes::controllers::without_trusted_settings;
use longhaul_control_client::routes::cache::FILE_NAMES;
use longhaul_control_client::settings::{self, ControllerEntry, ControllerTrust, MAX_CONTROLLERS};
use longhaul_control_client::{ControllerClient, ControllerSettings, ServiceClient, ServiceUrl};
use longhaul_proto::PublicKey;
use longhaul_proto::text::printable;

use crate::agent_client::{run_in_runtime, socket};
use crate::exit::Exit;
use crate::known_service::ServiceTrust;
use crate::local_controller::{SERVICE, control_dir};
use crate::trust::HostKeyOptions;
use crate::{answer, home};
use sync::SyncCommand;

/// Choose the controller that plans routes and receives reports of copies, or show it.
///
/// The choice is kept in controller.toml beside the keys, with the controller's key. Copies run
/// without it when it does not answer.
#[derive(Args)]
pub struct ControllerCommand {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Subcommand)]
enum Action {
    /// Use this controller.
    Use(UseArguments),
    /// Use this one as well: it shares the store of the current one, and is used when that one does
    /// not answer or does not lead.
    Add(UseArguments),
    /// Use no controller any more, and forget what the last one answered.
    Forget,
    /// Report to the controller what copies of this machine have measured, and fetch its tables of
    /// routes; copies start this by themselves when they end.
    Sync(SyncCommand),
    /// Print the controller's rules for this machine as routes.toml, for an on-ramp, which reads
    /// that file again when it changes.
    Routes {
        /// The key to authenticate with [default: the default key, made when first needed].
        #[arg(long, value_name = "FILE")]
        identity: Option<PathBuf>,
    },
}

/// The controller, and how to authenticate it.
#[derive(Args)]
struct UseArguments {
    /// URL of the controller: https://HOST[:PORT], or unix:/PATH on this machine; the default port
    /// is 7513.
    url: ServiceUrl,
    /// The controller's key, as `longhaul control` prints it; nothing else is trusted then.
    #[arg(long, value_name = "KEY")]
    host_key: Option<PublicKey>,
    /// Trust a controller that is not known yet, and remember its key.
    #[arg(long, conflicts_with = "host_key")]
    accept_new: bool,
    /// Trust only a controller whose certificate an authority in this file has signed.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["host_key", "accept_new"])]
    ca: Option<PathBuf>,
    /// The key to authenticate with [default: the default key, made when first needed].
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
}

impl ControllerCommand {
    /// Runs the command.
    pub fn run(self) -> Result<Exit> {
        let file = home::make_dir()?.join(settings::FILE_NAME);
        match self.action {
            Some(Action::Use(action)) => run_in_runtime(action.run(file, None)),
            Some(Action::Add(action)) => {
                let settings =
                    ControllerSettings::load(&file)?.ok_or_else(explain_missing_controller)?;
                run_in_runtime(action.run(file, Some(settings)))
            }
            Some(Action::Forget) => {
                let tables = FILE_NAMES.map(|name| state_dir().map(|state| state.join(name)));
                for file in [Some(file)].into_iter().chain(tables) {
                    match file.map(std::fs::remove_file) {
                        Some(Err(error)) if error.kind() != std::io::ErrorKind::NotFound => {
                            return Err(error).context("cannot forget the controller");
                        }
                        _ => {}
                    }
                }
                Ok(Exit::Success)
            }
            Some(Action::Sync(action)) => run_in_runtime(action.run()),
            Some(Action::Routes { identity }) => {
                let settings =
                    ControllerSettings::load(&file)?.ok_or_else(explain_missing_controller)?;
                let identity = home::identity(identity.as_deref())?;
                let controller = ControllerClient::new(&settings, identity.signing_key())?;
                let text = run_in_runtime(async { Ok(controller.routes_file().await?) })?;
                // Nothing is passed on that an on-ramp would not read, and no key: in a file of the
                // user's own it would be trusted.
                answer::write_line(without_trusted_settings(&text)?.trim_end());
                Ok(Exit::Success)
            }
            None => {
                let settings =
                    ControllerSettings::load(&file)?.ok_or_else(explain_missing_controller)?;
                answer::write_line(format_args!("{}", printable_lines(&settings.text())));
                Ok(Exit::Success)
            }
        }
    }
}

/// Returns the controller that this machine uses. If none is configured, returns the one that this
/// user runs here.
pub fn configured_controller(identity: Option<&Path>) -> Result<ControllerClient> {
    let file = home::make_dir()?.join(settings::FILE_NAME);
    if let Some(settings) = ControllerSettings::load(&file)? {
        let identity = home::identity(identity)?;
        return Ok(ControllerClient::new(&settings, identity.signing_key())?);
    }
    let here = socket(&control_dir()?);
    if !here.exists() {
        return Err(explain_missing_controller());
    }
    Ok(ControllerClient::from_client(ServiceClient::at_socket(
        SERVICE, here,
    )))
}

fn explain_missing_controller() -> anyhow::Error {
    anyhow!("no controller is configured: name one with longhaul controller use URL")
}

fn printable_lines(text: &str) -> String {
    let lines: Vec<String> = text
        .lines()
        .map(|line| printable(line.as_bytes()))
        .collect();
    lines.join("\n")
}

/// Returns the directory of state kept about the controller.
pub fn state_dir() -> Option<PathBuf> {
    home::state_dir().map(|state| state.join("control"))
}

impl UseArguments {
    /// Makes it the controller to use: alone, or in addition to `beside`.
    async fn run(self, file: PathBuf, beside: Option<ControllerSettings>) -> Result<Exit> {
        let identity = home::identity(self.identity.as_deref())?;
        let (site, client) = match &self.url {
            ServiceUrl::Unix(path) => {
                let client = ServiceClient::at_socket(SERVICE, path.clone());
                client.check_reachable().await?;
                let site = ControllerEntry {
                    url: self.url.clone(),
                    known: None,
                };
                (site, client)
            }
            ServiceUrl::Https(server) => {
                let known = ServiceTrust {
                    service: SERVICE,
                    program: "longhaul control",
                    wanted: HostKeyOptions {
                        key: self.host_key,
                        accept_new: self.accept_new,
                        ca: None,
                    },
                    authority: self.ca.clone(),
                };
                let https = known
                    .https_client(server.clone(), identity.signing_key())
                    .await?;
                https.connect().await?;
                let known = match (&self.ca, https.shown_key()) {
                    (Some(file), _) => ControllerTrust::Authority(std::path::absolute(file)?),
                    (None, Some(key)) => ControllerTrust::Key(key),
                    (None, None) => {
                        return Err(anyhow!(
                            "the controller's certificate is signed by an authority: name the file \
                             of that authority with --ca FILE"
                        ));
                    }
                };
                let site = ControllerEntry {
                    url: self.url.clone(),
                    known: Some(known),
                };
                (site, ServiceClient::over_https(SERVICE, https))
            }
        };
        let url = site.url.clone();
        let settings = match beside {
            None => ControllerSettings::from(site),
            Some(mut settings) if settings.first.url == url => {
                settings.first = site;
                settings
            }
            Some(mut settings) => {
                settings.others.retain(|other| other.url != url);
                if settings.sites().count() >= MAX_CONTROLLERS {
                    return Err(anyhow!(
                        "{MAX_CONTROLLERS} controllers are configured already: start over with \
                         longhaul controller use URL"
                    ));
                }
                settings.others.push(site);
                settings
            }
        };
        settings.save(&file)?;
        match ControllerClient::from_client(client).info().await {
            Ok(info) => {
                let name = printable(info.name.as_bytes());
                answer::write_line(format_args!("using controller {url}: {name}"));
            }
            // It is the right controller; whether it accepts this key is its operator's business.
            Err(error) => answer::write_line(format_args!(
                "using controller {url}, which answers: {error}\n\
                 its operator can authorize this key with: longhaul control grant {} client",
                identity.public()
            )),
        }
        Ok(Exit::Success)
    }
}
