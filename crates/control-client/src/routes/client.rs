//! All sources of a client in one. It answers at once from local knowledge, and the controller's
//! answer follows.
//!
//! A client never waits for a controller. Local knowledge takes a read of two files of bounded
//! length. The controller is asked concurrently, and its answer is used when it arrives.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::{ClientError, ControllerClient, ControllerSettings, SettingsError, settings};
use longhaul_config::home;
use longhaul_config::routes::{RouteTable, RoutesError};
use longhaul_proto::{Endpoint, Route, SigningKey};

use crate::routes::cache::{CacheSource, RouteCache};
use crate::routes::controller::ControllerSource;
use crate::routes::file::FileSource;
use crate::routes::held::HeldFile;
use crate::routes::question::{Choice, RouteQuery};
use crate::routes::source::{NoRoutes, RouteSource};

/// Age of a table before which it is not fetched again.
const MIN_REFRESH_AGE: Duration = Duration::from_secs(60);

/// File of routing rules, in the directory of the keys.
const ROUTES_FILE: &str = "routes.toml";
/// Directory for the state of controllers, within the state directory of all commands.
const STATE_DIR: &str = "control";

/// Reason why a user's file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The settings of the controller are invalid.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The routing rules are invalid.
    #[error(transparent)]
    Routes(#[from] RoutesError),
    /// The directory of the files is unknown.
    #[error(transparent)]
    Home(#[from] home::HomeError),
    /// The certificates of authorities are invalid.
    #[error(transparent)]
    Tls(#[from] crate::TlsError),
}

/// Source of routes of a client: rules, the cached tables, and the controller.
#[derive(Debug, Clone)]
pub struct ClientSource {
    file: FileSource,
    asked: Option<AskedController>,
}

/// A controller and the local state about it.
#[derive(Debug, Clone)]
struct AskedController {
    cache: CacheSource,
    controller: ControllerSource,
    /// Directory of the state.
    state: PathBuf,
}

impl ClientSource {
    /// Creates the source of this user, from `routes.toml` and `controller.toml` in the directory
    /// of the keys. `key` authenticates to the controller.
    ///
    /// # Errors
    /// [`SourceError`] if a file exists but is invalid.
    pub fn from_home(key: &SigningKey) -> Result<Self, SourceError> {
        let dir = home::config_dir()?;
        let state = home::state_dir().map(|state| state.join(STATE_DIR));
        Self::from_dir(&dir, state, key)
    }

    /// Creates the source from the files in `dir`, with its state in `state`.
    ///
    /// # Errors
    /// As for [`Self::from_home`].
    pub fn from_dir(
        dir: &Path,
        state: Option<PathBuf>,
        key: &SigningKey,
    ) -> Result<Self, SourceError> {
        let file = FileSource::new(RouteTable::load(&dir.join(ROUTES_FILE))?);
        let settings = ControllerSettings::load(&dir.join(settings::FILE_NAME))?;
        let asked = match (settings, state) {
            (Some(settings), Some(state)) => {
                home::make_private(&state)?;
                let controller = ControllerClient::new(&settings, key)?;
                Some(AskedController::new(
                    controller,
                    settings.first.url.to_string(),
                    state,
                ))
            }
            _ => None,
        };
        Ok(Self { file, asked })
    }

    /// Returns true if a controller is configured.
    #[must_use]
    pub const fn has_controller(&self) -> bool {
        self.asked.is_some()
    }

    /// Returns the controller, and the directory of its state.
    #[must_use]
    pub fn controller(&self) -> Option<(&Arc<ControllerClient>, &Path)> {
        let asked = self.asked.as_ref()?;
        Some((asked.controller.controller(), &asked.state))
    }

    /// Returns the URL of the controller.
    #[must_use]
    pub fn controller_url(&self) -> Option<&str> {
        Some(self.asked.as_ref()?.cache.cache.controller.as_str())
    }

    /// Returns the choice by the file, else the controller's, else that by local knowledge. If the
    /// controller was asked in vain, its error follows.
    pub async fn choose(&self, question: &RouteQuery) -> (Choice, Option<NoRoutes>) {
        if let Some(choice) = self.choose_by_rules(question) {
            return (choice, None);
        }
        if !self.has_controller() {
            return (self.choose_locally(question).await, None);
        }
        match self.ask_controller(question).await {
            Ok(choice) => (choice, None),
            Err(error) => (self.choose_locally(question).await, Some(error)),
        }
    }

    /// Returns the choice by local knowledge: by the file, else by the last table, else direct.
    /// Sends no request.
    pub async fn choose_locally(&self, question: &RouteQuery) -> Choice {
        if let Ok(choice) = self.file.routes(question).await {
            return choice;
        }
        let Some(asked) = &self.asked else {
            return Choice::direct("no controller is configured (longhaul controller use URL)");
        };
        match asked.cache.routes(question).await {
            Ok(choice) => choice,
            Err(why) => Choice::direct(why.to_string()),
        }
    }

    /// Returns the choice by the file, if it has a rule. Then no other source is asked.
    #[must_use]
    pub fn choose_by_rules(&self, question: &RouteQuery) -> Option<Choice> {
        self.file.choose(question).ok()
    }

    /// Asks the controller.
    ///
    /// # Errors
    /// [`NoRoutes`]. The answer takes at most [`crate::routes::controller::ANSWER_TIMEOUT`].
    pub async fn ask_controller(&self, question: &RouteQuery) -> Result<Choice, NoRoutes> {
        match &self.asked {
            Some(asked) => asked.controller.routes(question).await,
            None => Err(NoRoutes::UnknownDestination),
        }
    }

    /// Fetches the table for fetching if `receives`, else for sending, unless the stored one is
    /// recent.
    ///
    /// # Errors
    /// [`ClientError`] if the controller does not return it.
    pub async fn refresh(&self, receives: bool) -> Result<(), ClientError> {
        let Some(asked) = &self.asked else {
            return Ok(());
        };
        let now = (asked.cache.now_ms)();
        let made = asked
            .cache
            .cache
            .table(receives)
            .map_or(0, |table| table.made_ms);
        let age = Duration::from_millis(now.saturating_sub(made));
        if age < MIN_REFRESH_AGE && made <= now {
            return Ok(());
        }
        asked.controller.refresh(receives, &asked.cache.cache).await
    }

    /// Holds a failed route back for a while.
    pub fn hold_back(&self, to: &Endpoint, route: &Route) {
        if let Some(asked) = &self.asked {
            asked
                .cache
                .held
                .hold_back(to, route, (asked.cache.now_ms)());
        }
    }
}

impl AskedController {
    fn new(controller: ControllerClient, url: String, state: PathBuf) -> Self {
        let held = HeldFile(state.join("held.json"));
        let cache = CacheSource {
            cache: RouteCache {
                dir: state.clone(),
                controller: url,
            },
            held: held.clone(),
            now_ms: crate::unix_ms,
        };
        Self {
            cache,
            controller: ControllerSource::new(controller, held, crate::unix_ms),
            state,
        }
    }
}
