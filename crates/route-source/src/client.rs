//! All sources of a client as one: what is known here is answered at once, and what the controller
//! says comes meanwhile.
//!
//! Nobody waits for a controller. What is known on this machine takes a read of two files of
//! bounded length; the controller is asked beside, and what it says is used when it is there.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longhaul_config::home;
use longhaul_config::routes::{RouteTable, RoutesError};
use longhaul_control_client::{ClientError, Controller, Settings, SettingsError, settings};
use longhaul_proto::{Endpoint, Route, SigningKey};

use crate::cache::{Cache, CacheSource};
use crate::controller::ControllerSource;
use crate::file::FileSource;
use crate::held::HeldFile;
use crate::question::{Choice, Question};
use crate::source::{NoRoutes, RouteSource};

/// A table that is younger than this is not fetched again.
const FETCHED_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// The file of rules, beside the keys.
const ROUTES_FILE: &str = "routes.toml";
/// What is kept of controllers, beneath what commands leave for each other.
const STATE: &str = "control";

/// Why a file that a person wrote is of no use.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Which controller is asked.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The rules.
    #[error(transparent)]
    Routes(#[from] RoutesError),
    /// Where they lie.
    #[error(transparent)]
    Home(#[from] home::HomeError),
    /// The certificates of authorities.
    #[error(transparent)]
    Tls(#[from] longhaul_control_client::TlsError),
}

/// See the module.
#[derive(Debug, Clone)]
pub struct ClientSource {
    file: FileSource,
    asked: Option<Asked>,
}

/// A controller that is asked, and what is kept of it.
#[derive(Debug, Clone)]
struct Asked {
    cache: CacheSource,
    controller: ControllerSource,
    /// What is kept of it lies here.
    state: PathBuf,
}

impl ClientSource {
    /// That of this user: `routes.toml` and `controller.toml` beside the keys, asked as `key`.
    ///
    /// # Errors
    /// [`SourceError`]: a file is there and of no use.
    pub fn of_home(key: &SigningKey) -> Result<Self, SourceError> {
        let dir = home::dir()?;
        let state = home::state_dir().map(|state| state.join(STATE));
        Self::of(&dir, state, key)
    }

    /// With the files of `dir`, keeping what there is to keep in `state`.
    ///
    /// # Errors
    /// As [`Self::of_home`].
    pub fn of(dir: &Path, state: Option<PathBuf>, key: &SigningKey) -> Result<Self, SourceError> {
        let file = FileSource::new(RouteTable::load(&dir.join(ROUTES_FILE))?);
        let settings = Settings::load(&dir.join(settings::FILE))?;
        let asked = match (settings, state) {
            (Some(settings), Some(state)) => {
                home::make_private(&state)?;
                let controller = Controller::new(&settings, key)?;
                Some(Asked::new(
                    controller,
                    settings.first.url.to_string(),
                    state,
                ))
            }
            _ => None,
        };
        Ok(Self { file, asked })
    }

    /// Whether there is anybody to ask but the file.
    #[must_use]
    pub const fn has_controller(&self) -> bool {
        self.asked.is_some()
    }

    /// Who is asked, and where what is kept of it lies.
    #[must_use]
    pub fn controller(&self) -> Option<(&Arc<Controller>, &Path)> {
        let asked = self.asked.as_ref()?;
        Some((asked.controller.controller(), &asked.state))
    }

    /// Where the controller is that is asked.
    #[must_use]
    pub fn controller_url(&self) -> Option<&str> {
        Some(self.asked.as_ref()?.cache.cache.controller.as_str())
    }

    /// What is known on this machine: by the file, else by the last table, else that nothing is.
    /// Asks nobody.
    pub async fn at_once(&self, question: &Question) -> Choice {
        if let Ok(choice) = self.file.routes(question).await {
            return choice;
        }
        let Some(asked) = &self.asked else {
            return Choice::direct("no controller is asked (longhaul controller use URL)");
        };
        match asked.cache.routes(question).await {
            Ok(choice) => choice,
            Err(why) => Choice::direct(why.to_string()),
        }
    }

    /// What the file says; nobody else is asked then.
    #[must_use]
    pub fn settled(&self, question: &Question) -> Option<Choice> {
        self.file.choose(question).ok()
    }

    /// What the controller says now.
    ///
    /// # Errors
    /// [`NoRoutes`]; the answer takes no longer than [`crate::controller::ANSWER_TIMEOUT`].
    pub async fn asked(&self, question: &Question) -> Result<Choice, NoRoutes> {
        match &self.asked {
            Some(asked) => asked.controller.routes(question).await,
            None => Err(NoRoutes::Nothing),
        }
    }

    /// Fetches the table for what is sent, or fetched, again, if the one that is kept has an age by
    /// now.
    ///
    /// # Errors
    /// [`ClientError`]: the controller does not give it.
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
        if age < FETCHED_AGAIN_AFTER && made <= now {
            return Ok(());
        }
        asked.controller.refresh(receives, &asked.cache.cache).await
    }

    /// Leaves a route alone for a while: it failed.
    pub fn hold(&self, to: &Endpoint, route: &Route) {
        if let Some(asked) = &self.asked {
            asked.cache.held.hold(to, route, (asked.cache.now_ms)());
        }
    }
}

impl Asked {
    fn new(controller: Controller, url: String, state: PathBuf) -> Self {
        let held = HeldFile(state.join("held.json"));
        let cache = CacheSource {
            cache: Cache {
                dir: state.clone(),
                controller: url,
            },
            held: held.clone(),
            now_ms: longhaul_control_client::unix_ms,
        };
        Self {
            cache,
            controller: ControllerSource::new(controller, held, longhaul_control_client::unix_ms),
            state,
        }
    }
}
