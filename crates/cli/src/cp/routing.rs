//! Chooses the routes of a copy with a server unless the command line names them, and reports on
//! them afterwards.
//!
//! The copy waits for no other machine. It starts with what is known here while the controller is
//! asked, and routes from the answer join the running copy. At its end the copy leaves its report
//! on the disk, and a separate process sends it to the controller.

pub mod report;
mod reported;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use longhaul_control_client::ControllerClient;
use longhaul_control_client::routes::belief::SMALL_BYTES;
use longhaul_control_client::routes::{Choice, ClientSource, NoRoutes, Origin, RouteQuery, Spread};
use longhaul_hop::unix_ms;
use longhaul_proto::{Endpoint, Route, SigningKey};
use longhaul_transfer::TransferProgress;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::trust::RememberingConnector;

/// Size from which the exact number of bytes does not affect a choice of routes.
const MIN_UNSIZED_BYTES: u64 = 64 << 20;

/// Pause before fallback routes are looked for again if a copy stalls in spite of them.
const FALL_BACK_PAUSE: Duration = Duration::from_secs(3);

/// Maximum number of fallback routes of a copy.
const MAX_FALLBACK_ROUTES: usize = 6;

/// Route selection of one copy, with its latest result.
pub struct Routing {
    source: ClientSource,
    question: RouteQuery,
    key: SigningKey,
    /// The file of that key, if it is not the default one.
    identity: Option<PathBuf>,
    push: bool,
    begun_ms: u64,
    begun: Instant,
    /// If true, routes are chosen. Otherwise the command line names them, and only their
    /// performance is reported.
    chooses: bool,
    said: Mutex<RoutingState>,
    /// The task that asks the controller.
    asking: Mutex<Option<RoutingTask>>,
}

/// The task that runs beside the copy.
struct RoutingTask {
    task: JoinHandle<()>,
    /// True once local knowledge was looked up for the size of the copy.
    looked_up: watch::Receiver<bool>,
}

#[derive(Default)]
struct RoutingState {
    /// The latest choice.
    choice: Option<Choice>,
    /// The first promised duration, and seconds from the start to that promise.
    promised: Option<(Spread, f64)>,
    /// Routes that the copy fell back to when the direct one was silent. They stay, whatever is
    /// chosen afterwards.
    fallen_back: Vec<Route>,
}

impl Routing {
    /// Creates the routing of a copy with a server. `chooses` is true if the command line names no
    /// routes.
    pub fn new(
        source: ClientSource,
        question: RouteQuery,
        (key, identity): (SigningKey, Option<PathBuf>),
        push: bool,
        chooses: bool,
    ) -> Self {
        Self {
            source,
            question,
            key,
            identity,
            push,
            begun_ms: unix_ms(),
            begun: Instant::now(),
            chooses,
            said: Mutex::default(),
            asking: Mutex::default(),
        }
    }

    /// Returns the route that the user's routes.toml names, and true if a direct connection
    /// replaces it on failure.
    pub fn route_from_file(&self) -> Option<(Route, bool)> {
        let choice = self
            .source
            .choose_by_rules(&self.question)
            .filter(|_| self.chooses)?;
        let route = choice.routes.first()?.route.clone();
        let Origin::File { fall_back, .. } = choice.origin else {
            return None;
        };
        self.said().choice = Some(choice);
        Some((route, fall_back))
    }

    /// Returns true if routes may join the running copy.
    pub fn is_planned(&self) -> bool {
        self.chooses && self.source.has_controller() && self.said().choice.is_none()
    }

    /// Starts with locally known routes, and adds the controller's when it answers. A copy of
    /// unknown size starts directly.
    pub async fn begin(
        self: &Arc<Self>,
        connector: &Arc<RememberingConnector>,
        progress: &Arc<TransferProgress>,
    ) {
        if self.question.bytes.is_some() {
            let choice = self.source.choose_locally(&self.question).await;
            self.use_choice(choice, &self.question, connector);
        }
        connector.await_routes(true);
        let (routing, connector, progress) = (self.clone(), connector.clone(), progress.clone());
        let (here, looked_up) = watch::channel(self.question.bytes.is_some());
        let task = tokio::spawn(async move {
            tokio::join!(
                routing.ask(&connector, &progress, &here),
                routing.fall_back(&connector, &progress)
            );
        });
        *self.asking() = Some(RoutingTask { task, looked_up });
    }

    /// Waits until local knowledge was looked up, if the size of the copy is known, as a small copy
    /// may be over before. This takes no longer than reading a table in memory.
    pub async fn looked_up(&self, progress: &TransferProgress) {
        let looked_up = self
            .asking()
            .as_ref()
            .map(|asking| asking.looked_up.clone());
        if let Some(mut looked_up) = looked_up
            && progress.walk_complete.load(Ordering::Acquire)
        {
            // An error means that the task has ended.
            let _ = looked_up.wait_for(|is_done| *is_done).await;
        }
    }

    /// Asks the controller, and applies its answer. A small copy goes direct and asks nobody.
    /// `here` becomes true once local knowledge was looked up.
    async fn ask(
        self: &Arc<Self>,
        connector: &RememberingConnector,
        progress: &TransferProgress,
        here: &watch::Sender<bool>,
    ) {
        let mut question = self.question.clone();
        if question.bytes.is_none() {
            // Without local knowledge, an answer arrives soonest while the copy does not fill the
            // path yet. It holds if the copy turns out to be large.
            let early = match self.source.choose_locally(&question).await.origin {
                Origin::Cache { is_old: false, .. } => None,
                _ => {
                    let (asks, unknown) = (self.clone(), question.clone());
                    Some(tokio::spawn(async move {
                        asks.source.ask_controller(&unknown).await
                    }))
                }
            };
            question.bytes = progress.total_bytes(MIN_UNSIZED_BYTES).await;
            let choice = self.source.choose_locally(&question).await;
            self.use_choice(choice, &question, connector);
            here.send_replace(true);
            if let Some(early) = early {
                match question
                    .bytes
                    .is_none_or(|bytes| bytes >= MIN_UNSIZED_BYTES)
                {
                    true => {
                        if let Ok(answer) = early.await {
                            self.received(answer, &self.question, connector);
                        }
                        if question.bytes.is_none() {
                            return;
                        }
                    }
                    false => early.abort(),
                }
            }
        }
        if question.bytes.is_none_or(|bytes| bytes > SMALL_BYTES) {
            let answer = self.source.ask_controller(&question).await;
            self.received(answer, &question, connector);
        }
    }

    /// Adds the available fallback routes when the direct route does not open in time, or when the
    /// copy stalls. This includes copies that are otherwise too small for other routes.
    async fn fall_back(&self, connector: &RememberingConnector, progress: &TransferProgress) {
        let question = RouteQuery {
            bytes: None,
            ..self.question.clone()
        };
        let mut standstill = progress.standstill();
        loop {
            let found = standstill
                .wait_for(Option::is_some)
                .await
                .map(|found| *found);
            let Ok(Some(found)) = found else { return };
            let reason = found.to_string();
            // The table may predate the failure, and the controller may be unavailable.
            let known = self.source.choose_locally(&question).await;
            self.fall_back_to(known, &reason, &question, connector);
            match self.source.ask_controller(&question).await {
                Ok(answer) => self.fall_back_to(answer, &reason, &question, connector),
                Err(error) => {
                    tracing::info!(
                        %error,
                        "the controller knows no alternative to the direct route"
                    )
                }
            }
            // All available routes have joined: a copy of which no route opens is over.
            connector.await_routes(false);
            sleep(FALL_BACK_PAUSE).await;
        }
    }

    /// Uses the routes of a choice and its fallback routes, in addition to earlier fallback routes.
    fn fall_back_to(
        &self,
        choice: Choice,
        reason: &str,
        question: &RouteQuery,
        connector: &RememberingConnector,
    ) {
        let choice = choice.with_fallbacks_in_use(reason.to_owned());
        if choice.is_direct() {
            return;
        }
        let routes = routes_of(&choice);
        self.use_choice(choice, question, connector);
        let mut said = self.said();
        for route in routes {
            if said.fallen_back.len() < MAX_FALLBACK_ROUTES && !said.fallen_back.contains(&route) {
                said.fallen_back.push(route);
            }
        }
    }

    fn received(
        &self,
        answer: Result<Choice, NoRoutes>,
        question: &RouteQuery,
        connector: &RememberingConnector,
    ) {
        match answer {
            Ok(choice) => self.use_choice(choice, question, connector),
            Err(error) => tracing::info!(%error, "the controller chooses no route"),
        }
    }

    fn said(&self) -> MutexGuard<'_, RoutingState> {
        self.said.lock()
    }

    fn asking(&self) -> MutexGuard<'_, Option<RoutingTask>> {
        self.asking.lock()
    }

    fn use_choice(&self, choice: Choice, question: &RouteQuery, connector: &RememberingConnector) {
        let mut routes = routes_of(&choice);
        tracing::info!(
            routes = choice.used_names(),
            by = choice.origin.word(),
            "routes are chosen"
        );
        let mut said = self.said();
        if said.fallen_back.is_empty() {
            // Without a size, no duration can be promised.
            if question.bytes.is_some() {
                let now = self.begun.elapsed().as_secs_f64();
                said.promised = said
                    .promised
                    .or(choice.seconds.map(|seconds| (seconds, now)));
            }
            said.choice = Some(choice);
        }
        routes.extend(said.fallen_back.iter().cloned());
        drop(said);
        connector.use_beside(&routes);
    }

    /// Returns the controller, the directory of its state, and its URL.
    pub fn controller(&self) -> Option<(Arc<ControllerClient>, PathBuf, String)> {
        let (controller, state) = self.source.controller()?;
        let url = self.source.controller_url()?;
        Some((controller.clone(), state.to_owned(), url.to_owned()))
    }
}

/// Returns the routes that a choice uses.
fn routes_of(choice: &Choice) -> Vec<Route> {
    choice
        .used_routes()
        .iter()
        .map(|chosen| chosen.route.clone())
        .collect()
}

/// Builds the question about a copy with `server`. `push` is true if files go to the server.
pub fn question(
    server: &Endpoint,
    push: bool,
    bytes: Option<u64>,
    streams: Option<u32>,
    congestion: Option<&str>,
) -> RouteQuery {
    RouteQuery {
        destination: server.clone(),
        receives: !push,
        bytes,
        streams,
        congestion: congestion.map(str::to_owned),
        urgency: longhaul_control_client::routes::Urgency::Usual,
    }
}

/// Returns the number of bytes to copy, if all sources are files and no walk is needed.
pub fn total_size(sources: &[PathBuf]) -> Option<u64> {
    let mut bytes = 0u64;
    for source in sources {
        let found = std::fs::metadata(source)
            .ok()
            .filter(std::fs::Metadata::is_file)?;
        bytes = bytes.saturating_add(found.len());
    }
    Some(bytes)
}
