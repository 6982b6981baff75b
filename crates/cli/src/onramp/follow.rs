//! Follows a controller's rules instead of a user's: fetches them regularly, and keeps them in the
//! file that the on-ramp reads. The controller cannot name keys of off-ramps.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, anyhow};
use longhaul_config::routes::controllers::without_trusted_settings;
use longhaul_config::routes::{RouteTable, SessionEnd};
use longhaul_control_client::settings::{self, ControllerSettings};
use longhaul_control_client::{ClientError, ControllerClient};
use longhaul_session::{Identity, KnownHosts};
use tokio::time::sleep;

use crate::home;

/// Interval between fetches.
const FETCH_INTERVAL: Duration = Duration::from_secs(30);
/// Age at which a file of unchanged rules is written again, to show that they still hold.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(3600);
/// Age at which rules that no controller has confirmed are dropped.
const MAX_AGE: Duration = Duration::from_secs(24 * 3600);

/// The file of rules, in the state directory.
const FILE: &str = "control/routes.toml";

/// Maintainer of a file of the controller's rules.
pub struct Follower {
    controller: ControllerClient,
    file: PathBuf,
    known_hosts: PathBuf,
}

/// Reasons why there are no new rules.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error(transparent)]
    Asked(#[from] ClientError),
    /// The controller sent rules that this release does not accept. Tell its operator; the rules in
    /// force stay.
    #[error("the controller's rules cannot be used: {0}")]
    Rules(#[from] longhaul_config::routes::RoutesError),
    /// The file of rules cannot be written: check its directory and permissions.
    #[error("{}: {error}", home::display_path(.file))]
    File {
        file: PathBuf,
        error: std::io::Error,
    },
}

impl Follower {
    /// Creates a follower of the default controller.
    ///
    /// # Errors
    /// No controller is configured, or there is no directory for the file.
    pub fn new(identity: &Identity) -> Result<Self> {
        let known = home::make_dir()?.join(settings::FILE_NAME);
        let settings = ControllerSettings::load(&known)?.ok_or_else(|| {
            anyhow!("no controller is configured: name one with longhaul controller use URL")
        })?;
        let state = home::state_dir().context(
            "neither LONGHAUL_STATE, LONGHAUL_HOME nor HOME is set: set LONGHAUL_STATE to the \
             directory for the controller's rules",
        )?;
        let file = state.join(FILE);
        if let Some(dir) = file.parent() {
            std::fs::create_dir_all(dir)
                .with_context(|| format!("cannot make {}", home::display_path(dir)))?;
        }
        Ok(Self {
            controller: ControllerClient::new(&settings, identity.signing_key())?,
            file,
            known_hosts: home::known_hosts_file()?,
        })
    }

    /// Returns the file of rules.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Fetches the rules regularly.
    pub async fn run(self) -> std::convert::Infallible {
        loop {
            self.fetch_once().await;
            sleep(FETCH_INTERVAL).await;
        }
    }

    /// Fetches once. While the controller does not answer, nothing changes until its last rules are
    /// too old.
    pub async fn fetch_once(&self) {
        let Err(error) = self.fetch().await else {
            return;
        };
        if age(&self.file).is_some_and(|age| age > MAX_AGE)
            && std::fs::remove_file(&self.file).is_ok()
        {
            tracing::warn!(
                %error,
                "the controller's last rules are too old: connections are made directly"
            );
        } else {
            tracing::info!(%error, "the controller's previous rules stay in use");
        }
    }

    async fn fetch(&self) -> Result<(), FetchError> {
        let text = without_trusted_settings(&self.controller.routes_file().await?)?;
        let is_new = age(&self.file).is_none_or(|age| age > RENEWAL_INTERVAL);
        if is_new || std::fs::read(&self.file).ok().as_deref() != Some(text.as_bytes()) {
            settings::replace_file(&self.file, text.as_bytes()).map_err(|error| {
                FetchError::File {
                    file: self.file.clone(),
                    error,
                }
            })?;
            self.report_unknown(&RouteTable::parse(&text, &self.file)?);
        }
        Ok(())
    }

    /// Logs which off-ramps of new rules are not used.
    fn report_unknown(&self, rules: &RouteTable) {
        let known = KnownHosts::open(&self.known_hosts).ok();
        for rule in rules.rules() {
            if let SessionEnd::Offramp { at, .. } = &rule.end
                && known.as_ref().is_none_or(|known| known.get(at).is_none())
            {
                tracing::warn!(
                    offramp = %at,
                    "the key of the controller's off-ramp is not in known_hosts: its destinations \
                     are connected to directly"
                );
            }
        }
    }
}

/// Returns the age of a file, or `None` if it does not exist or lies in the future.
fn age(file: &Path) -> Option<Duration> {
    let written = std::fs::metadata(file).ok()?.modified().ok()?;
    SystemTime::now().duration_since(written).ok()
}
