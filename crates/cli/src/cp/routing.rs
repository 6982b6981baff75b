//! By which routes a copy with a server goes when the command line doesn't say, and what is
//! reported of it afterwards.
//!
//! Nobody else is waited for: the copy begins with what is known on this machine, the controller is
//! asked beside it, and routes that it names join the copy that is under way. What a copy did it
//! leaves on the disk, and a process of its own, which goes on behind it, reports to the
//! controller.

mod report;
mod reported;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use longhaul_control_client::Controller;
use longhaul_hop::unix_ms;
use longhaul_proto::{Endpoint, Route, SigningKey};
use longhaul_route_source::belief::SMALL_BYTES;
use longhaul_route_source::{Choice, ClientSource, NoRoutes, Origin, Question, Spread};
use longhaul_transfer::Progress;
use parking_lot::{Mutex, MutexGuard};
pub use report::{Judged, RoutingReport};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

pub use reported::reports_dir;

use crate::trust::Remembering;

/// From so many bytes on it does not matter to a choice of routes how many there are.
const MIN_UNSIZED_BYTES: u64 = 64 << 20;

/// The pause before routes to fall back to are looked for again, where a copy stands still in spite
/// of them.
const FALL_BACK_PAUSE: Duration = Duration::from_secs(3);

/// Routes that a copy falls back to, at most.
const MAX_FALLEN_BACK: usize = 6;

/// Who chooses the routes of a copy, and what they said.
pub struct Routing {
    source: ClientSource,
    question: Question,
    key: SigningKey,
    /// The file of that key, where it is not the default one.
    identity: Option<PathBuf>,
    push: bool,
    begun_ms: u64,
    begun: Instant,
    /// Whether routes are chosen at all: else the command line names them, and only what they did
    /// is reported.
    chooses: bool,
    said: Mutex<Said>,
    /// Asks the controller.
    asking: Mutex<Option<Asking>>,
}

/// What goes on beside the copy.
struct Asking {
    task: JoinHandle<()>,
    /// Whether what is known on this machine has been looked up for the size of the copy.
    looked_up: watch::Receiver<bool>,
}

#[derive(Default)]
struct Said {
    /// The latest choice.
    choice: Option<Choice>,
    /// What was promised first, and how many seconds after the beginning.
    promised: Option<(Spread, f64)>,
    /// Routes that the copy went over to because the direct one was silent. They stay, whatever is
    /// chosen afterwards.
    fallen_back: Vec<Route>,
}

impl Routing {
    /// For a copy with a server. `chooses` says whether the command line leaves it to somebody to
    /// choose.
    pub fn new(
        source: ClientSource,
        question: Question,
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

    /// The route that a person's file names, if it does, and whether a direct connection takes its
    /// place where it fails.
    pub fn settled(&self) -> Option<(Route, bool)> {
        let choice = self
            .source
            .settled(&self.question)
            .filter(|_| self.chooses)?;
        let route = choice.routes.first()?.route.clone();
        let Origin::File { fall_back, .. } = choice.origin else {
            return None;
        };
        self.said().choice = Some(choice);
        Some((route, fall_back))
    }

    /// Whether routes are to join a copy that is under way.
    pub fn is_planned(&self) -> bool {
        self.chooses && self.source.has_controller() && self.said().choice.is_none()
    }

    /// Has the copy go by what is known here, and by what the controller says as soon as it does.
    /// What is as large as nobody knows yet begins directly.
    pub async fn begin(self: &Arc<Self>, connector: &Arc<Remembering>, progress: &Arc<Progress>) {
        if self.question.bytes.is_some() {
            let choice = self.source.at_once(&self.question).await;
            self.go_by(choice, &self.question, connector);
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
        *self.asking() = Some(Asking { task, looked_up });
    }

    /// Waits until what is known on this machine has been looked up, where the size of the copy is
    /// known: a small one can be over before. It takes no longer than reading a table that is in
    /// memory.
    pub async fn looked_up(&self, progress: &Progress) {
        let looked_up = self
            .asking()
            .as_ref()
            .map(|asking| asking.looked_up.clone());
        if let Some(mut looked_up) = looked_up
            && progress.walk_complete.load(Ordering::Acquire)
        {
            // An error says that the task has ended.
            let _ = looked_up.wait_for(|is_done| *is_done).await;
        }
    }

    /// Asks the controller, and goes by what it says. What is small goes direct and asks nobody.
    /// `here` gets to know once this machine has been asked.
    async fn ask(
        self: &Arc<Self>,
        connector: &Remembering,
        progress: &Progress,
        here: &watch::Sender<bool>,
    ) {
        let mut question = self.question.clone();
        if question.bytes.is_none() {
            // Where nothing is known here, an answer comes soonest while the copy does not fill the
            // path yet; it holds for what turns out to be large.
            let early = match self.source.at_once(&question).await.origin {
                Origin::Cache { is_old: false, .. } => None,
                _ => {
                    let (asks, unknown) = (self.clone(), question.clone());
                    Some(tokio::spawn(
                        async move { asks.source.asked(&unknown).await },
                    ))
                }
            };
            question.bytes = progress.size(MIN_UNSIZED_BYTES).await;
            let choice = self.source.at_once(&question).await;
            self.go_by(choice, &question, connector);
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
            let answer = self.source.asked(&question).await;
            self.received(answer, &question, connector);
        }
    }

    /// Where the direct route does not open, or not in time, or the copy stands still, has it go by
    /// whichever routes there are to fall back to, also one that is too small to be worth them
    /// otherwise.
    async fn fall_back(&self, connector: &Remembering, progress: &Progress) {
        let question = Question {
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
            // The table may be from before whatever has happened, and the controller away.
            let known = self.source.at_once(&question).await;
            self.fall_back_to(known, &reason, &question, connector);
            match self.source.asked(&question).await {
                Ok(answer) => self.fall_back_to(answer, &reason, &question, connector),
                Err(error) => {
                    tracing::info!(%error, "the controller knows no way around the direct route")
                }
            }
            // What there is has joined: a copy of which no route opens is over.
            connector.await_routes(false);
            sleep(FALL_BACK_PAUSE).await;
        }
    }

    /// Has the copy go by the routes of a choice and those to fall back to, beside those that it
    /// fell back to before.
    fn fall_back_to(
        &self,
        choice: Choice,
        reason: &str,
        question: &Question,
        connector: &Remembering,
    ) {
        let choice = choice.falling_back(reason.to_owned());
        if choice.is_direct() {
            return;
        }
        let routes = routes_of(&choice);
        self.go_by(choice, question, connector);
        let mut said = self.said();
        for route in routes {
            if said.fallen_back.len() < MAX_FALLEN_BACK && !said.fallen_back.contains(&route) {
                said.fallen_back.push(route);
            }
        }
    }

    fn received(
        &self,
        answer: Result<Choice, NoRoutes>,
        question: &Question,
        connector: &Remembering,
    ) {
        match answer {
            Ok(choice) => self.go_by(choice, question, connector),
            Err(error) => tracing::info!(%error, "the controller chooses no route"),
        }
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock()
    }

    fn asking(&self) -> MutexGuard<'_, Option<Asking>> {
        self.asking.lock()
    }

    fn go_by(&self, choice: Choice, question: &Question, connector: &Remembering) {
        let mut routes = routes_of(&choice);
        tracing::info!(
            routes = choice.names(),
            by = choice.origin.word(),
            "routes are chosen"
        );
        let mut said = self.said();
        if said.fallen_back.is_empty() {
            // Of what nobody knows the size of, nobody can say how long it takes.
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

    /// Who can be asked, where what is kept of it lies, and where it is.
    pub fn controller(&self) -> Option<(Arc<Controller>, PathBuf, String)> {
        let (controller, state) = self.source.controller()?;
        let url = self.source.controller_url()?;
        Some((controller.clone(), state.to_owned(), url.to_owned()))
    }
}

/// The routes that a choice uses.
fn routes_of(choice: &Choice) -> Vec<Route> {
    choice
        .used()
        .iter()
        .map(|chosen| chosen.route.clone())
        .collect()
}

/// What is asked for a copy with `server`, to which files go, or else from which they come.
pub fn question(
    server: &Endpoint,
    push: bool,
    bytes: Option<u64>,
    streams: Option<u32>,
    congestion: Option<&str>,
) -> Question {
    Question {
        destination: server.clone(),
        receives: !push,
        bytes,
        streams,
        congestion: congestion.map(str::to_owned),
        urgency: longhaul_route_source::Urgency::Usual,
    }
}

/// How many bytes there are to copy, where that can be known without walking: all of them are
/// files.
pub fn size_of(sources: &[PathBuf]) -> Option<u64> {
    let mut bytes = 0u64;
    for source in sources {
        let found = std::fs::metadata(source)
            .ok()
            .filter(std::fs::Metadata::is_file)?;
        bytes = bytes.saturating_add(found.len());
    }
    Some(bytes)
}
