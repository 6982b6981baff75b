//! By which routes a copy with a server goes when the command line doesn't say, and what is told of it afterwards.
//!
//! Nothing here is waited for: the copy begins with what is known on this machine, the controller is asked beside it, and routes that it names join the
//! copy that is under way. What a copy did it leaves on the disk, and a process of its own, which goes on behind it, tells the controller.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use longhaul_control_api::measurements::Batch;
use longhaul_control_api::transfers::{Outcome, RouteUsed, TransferReport};
use longhaul_control_client::spool::Entry;
use longhaul_control_client::{Controller, Spool};
use longhaul_hop::unix_ms;
use longhaul_proto::{Endpoint, Route, SessionId, SigningKey};
use longhaul_route_source::belief::SMALL_BYTES;
use longhaul_route_source::{Choice, ChosenRoute, ClientSource, NoRoutes, Origin, Question, Spread};
use longhaul_transfer::{Progress, RouteStanding, depots_of, is_reserved};
use serde::Serialize;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::measured::{Whole, measured};
use crate::controller::sync;
use crate::exit::Exit;
use crate::report::Report;
use crate::trust::Remembering;

/// From so many bytes on it does not matter to a choice of routes how many there are.
const MANY_BYTES: u64 = 64 << 20;

/// The pause before routes to fall back to are looked for again, where a copy stands still in spite of them.
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
    /// Whether routes are chosen at all: else the command line names them, and only what they did is told.
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
    /// Routes that the copy went over to because the direct one was silent. They stay, whatever is chosen afterwards.
    fallen_back: Vec<Route>,
}

/// The same in the report of a copy.
#[derive(Debug, Serialize)]
pub struct RoutingReport {
    /// The routes that were chosen, by the names of their depots.
    chosen: Vec<String>,
    /// Who chose: `file`, `controller`, `cache`, or `nobody`.
    by: &'static str,
    /// How old the table was, in seconds; null where it was none.
    table_age_seconds: Option<u64>,
    /// Why, for people.
    why: Vec<String>,
    /// How long it was to take, in seconds.
    promised_seconds: Option<Spread>,
    /// How long after the copy began that was said, in seconds.
    promised_after_seconds: Option<f64>,
    /// Whether it took between p10 and p90 of that; null where nothing was promised, or it did not come to its end.
    kept_promise: Option<bool>,
    /// How the routes did beside the direct one, in the order in which that showed.
    judged: Vec<Judged>,
    /// For people.
    #[serde(skip)]
    lines: Vec<String>,
}

/// That a route had another share of the streams from then on.
#[derive(Debug, Clone, Serialize)]
pub struct Judged {
    /// Which, as `--route` takes it.
    pub route: String,
    /// How it stood.
    pub standing: RouteStanding,
    /// Why, for people.
    pub reason: String,
}

impl Routing {
    /// For a copy with a server. `chooses` says whether the command line leaves it to somebody to choose.
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

    /// The route that a person's file names, if it does, and whether a direct connection takes its place where it fails.
    pub fn settled(&self) -> Option<(Route, bool)> {
        let choice = self.source.settled(&self.question).filter(|_| self.chooses)?;
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

    /// Has the copy go by what is known here, and by what the controller says as soon as it does. What is as large as nobody knows yet begins directly.
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
        *self.asking.lock().unwrap_or_else(PoisonError::into_inner) = Some(Asking { task, looked_up });
    }

    /// Waits until what is known on this machine has been looked up, where the size of the copy is known: a small one can be over before. It takes no
    /// longer than reading a table that is in memory.
    pub async fn looked_up(&self, progress: &Progress) {
        let asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let looked_up = asking.as_ref().map(|asking| asking.looked_up.clone());
        drop(asking);
        if let Some(mut looked_up) = looked_up
            && progress.walk_complete.load(Ordering::Acquire)
        {
            // An error says that the task has ended.
            let _ = looked_up.wait_for(|is_done| *is_done).await;
        }
    }

    /// Asks the controller, and goes by what it says. What is small goes direct and asks nobody. `here` gets to know once this machine has been asked.
    async fn ask(self: &Arc<Self>, connector: &Remembering, progress: &Progress, here: &watch::Sender<bool>) {
        let mut question = self.question.clone();
        if question.bytes.is_none() {
            // Where nothing is known here, an answer comes soonest while the copy does not fill the path yet; it holds for what turns out to be large.
            let early = match self.source.at_once(&question).await.origin {
                Origin::Cache { is_old: false, .. } => None,
                _ => {
                    let (asks, unknown) = (self.clone(), question.clone());
                    Some(tokio::spawn(async move { asks.source.asked(&unknown).await }))
                }
            };
            question.bytes = progress.size(MANY_BYTES).await;
            let choice = self.source.at_once(&question).await;
            self.go_by(choice, &question, connector);
            here.send_replace(true);
            if let Some(early) = early {
                match question.bytes.is_none_or(|bytes| bytes >= MANY_BYTES) {
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

    /// Where the direct route does not open, or not in time, or the copy stands still, has it go by whichever routes there are to fall back to, also one that is too
    /// small to be worth them otherwise.
    async fn fall_back(&self, connector: &Remembering, progress: &Progress) {
        let question = Question {
            bytes: None,
            ..self.question.clone()
        };
        let mut standstill = progress.standstill();
        loop {
            let found = standstill.wait_for(Option::is_some).await.map(|found| *found);
            let Ok(Some(found)) = found else { return };
            let reason = found.to_string();
            // The table may be from before whatever has happened, and the controller away.
            let known = self.source.at_once(&question).await;
            self.fall_back_to(known, &reason, &question, connector);
            match self.source.asked(&question).await {
                Ok(answer) => self.fall_back_to(answer, &reason, &question, connector),
                Err(error) => tracing::info!(%error, "the controller knows no way around the direct route"),
            }
            // What there is has joined: a copy of which no route opens is over.
            connector.await_routes(false);
            sleep(FALL_BACK_PAUSE).await;
        }
    }

    /// Has the copy go by the routes of a choice and those to fall back to, beside those that it fell back to before.
    fn fall_back_to(&self, choice: Choice, reason: &str, question: &Question, connector: &Remembering) {
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

    fn received(&self, answer: Result<Choice, NoRoutes>, question: &Question, connector: &Remembering) {
        match answer {
            Ok(choice) => self.go_by(choice, question, connector),
            Err(error) => tracing::info!(%error, "the controller chooses no route"),
        }
    }

    fn said(&self) -> std::sync::MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
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
                said.promised = said.promised.or(choice.seconds.map(|seconds| (seconds, now)));
            }
            said.choice = Some(choice);
        }
        routes.extend(said.fallen_back.iter().cloned());
        drop(said);
        connector.use_beside(&routes);
    }

    /// For the report.
    pub fn report(&self, judged: Vec<Judged>, seconds: f64, is_done: bool) -> Option<RoutingReport> {
        let said = self.said();
        let choice = said.choice.as_ref()?;
        let promised = said.promised.as_ref().map(|(promised, _)| promised);
        let kept = promised.filter(|_| is_done);
        let mut report = RoutingReport {
            chosen: choice.used().iter().map(ChosenRoute::name).collect(),
            by: choice.origin.word(),
            table_age_seconds: match &choice.origin {
                Origin::Cache { age, .. } => Some(age.as_secs()),
                _ => None,
            },
            why: choice.why.clone(),
            promised_seconds: promised.copied(),
            promised_after_seconds: said.promised.map(|(_, after)| after),
            kept_promise: kept.map(|promised| (promised.p10..=promised.p90).contains(&seconds)),
            judged,
            lines: vec![format!("route: {} ({})", choice.names(), choice.origin)],
        };
        report
            .lines
            .extend(report.why.iter().map(|why| format!("  {why}")));
        if let Some(promised) = promised {
            let shown = |seconds| quantities::Time::from_seconds(seconds);
            report.lines.push(format!(
                "  promised {} to {}, took {}",
                shown(promised.p10),
                shown(promised.p90),
                shown(seconds)
            ));
        }
        for judged in &report.judged {
            let word = judged.standing.word();
            report
                .lines
                .push(format!("  {}: {word}, {}", judged.route, judged.reason));
        }
        Some(report)
    }

    /// Who can be asked, where what is kept of it lies, and where it is.
    pub fn controller(&self) -> Option<(Arc<Controller>, PathBuf, String)> {
        let (controller, state) = self.source.controller()?;
        let url = self.source.controller_url()?;
        Some((controller.clone(), state.to_owned(), url.to_owned()))
    }

    /// Where that lies which the controller is to be told.
    fn spool(&self) -> Option<Spool> {
        let (_, state) = self.source.controller()?;
        Some(Spool(reports_dir(state)))
    }

    /// Leaves alone what failed, and has the controller told what the copy did, without waiting for that.
    pub fn end(&self, report: &Report, judged: &[Judged], progress: &Progress) {
        let asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner).take();
        // An answer is of no use any more.
        if let Some(asking) = asking {
            asking.task.abort();
        }
        if report.ok() {
            for route in failed(judged) {
                if let Ok(route) = depots_of(&route).parse() {
                    self.source.hold(&self.question.destination, &route);
                }
            }
        }
        let Some(spool) = self.spool() else {
            return;
        };
        let entries = self.entries(report, judged, progress);
        for entry in &entries {
            if let Err(error) = spool.put(entry) {
                tracing::info!(%error, "the controller will not hear of this copy");
            }
        }
        if !entries.is_empty() {
            sync::start(self.identity.as_deref());
        }
    }

    fn entries(&self, report: &Report, judged: &[Judged], progress: &Progress) -> Vec<Entry> {
        let bytes = progress.bytes_travelled();
        if bytes == 0 {
            return Vec::new();
        }
        let mut entries = Vec::new();
        let Ok(id) = SessionId::random() else {
            return entries;
        };
        let me = self.key.public().to_string();
        let host = self.question.destination.host.to_string();
        let failed = failed(judged);
        let (from, to) = match self.push {
            true => (None, Some(host.clone())),
            false => (Some(host.clone()), None),
        };
        let choice = self.said().choice.clone();
        let names = |route: &str| self.names(route, choice.as_ref());
        let routes = report.routes().iter().map(|sum| RouteUsed {
            via: names(&sum.route),
            bytes: sum.bytes,
            streams: u32::try_from(sum.streams).ok(),
            failed: failed.contains(&sum.route),
        });
        entries.push(Entry::Transfer(TransferReport {
            id: id.to_string(),
            from,
            to,
            bytes,
            began_ms: self.begun_ms,
            seconds: report.seconds,
            outcome: match report.exit() {
                Exit::Success => Outcome::Done,
                Exit::SomeFailed => Outcome::Incomplete,
                Exit::Interrupted => Outcome::Cancelled,
                _ => Outcome::Failed,
            },
            promised: self.said().promised.map(|(promised, _)| promised),
            routes: routes.collect(),
            error: report.error().map(str::to_owned),
        }));
        let whole = Whole {
            me: &me,
            host: &host,
            push: self.push,
            begun_ms: self.begun_ms,
            seconds: report.seconds,
            transfer: &id.to_string(),
        };
        let measurements = measured(&whole, &progress.streams(), names);
        if !measurements.is_empty() {
            entries.push(Entry::Measurements(Batch { measurements }));
        }
        entries
    }

    /// The depots of a route by their names on the map, where those are known, and else by their addresses.
    fn names(&self, route: &str, choice: Option<&Choice>) -> Vec<String> {
        let Ok(route) = depots_of(route).parse::<Route>() else {
            return Vec::new();
        };
        let chosen = choice.and_then(|choice| choice.routes.iter().find(|chosen| chosen.route == route));
        match chosen {
            Some(chosen) if !chosen.depots.is_empty() => chosen.depots.clone(),
            _ => route.hops().iter().map(|hop| hop.endpoint.to_string()).collect(),
        }
    }
}

/// The routes that a choice uses.
fn routes_of(choice: &Choice) -> Vec<Route> {
    choice.used().iter().map(|chosen| chosen.route.clone()).collect()
}

/// Routes that did not do what they were chosen for, as they stood last.
fn failed(judged: &[Judged]) -> Vec<String> {
    let mut failed: Vec<String> = Vec::new();
    // What the network does with reserved ways says nothing of routes.
    for one in judged.iter().filter(|one| !is_reserved(&one.route)) {
        failed.retain(|route| *route != one.route);
        if one.standing.is_bad() {
            failed.push(one.route.clone());
        }
    }
    failed
}

/// Where reports wait, beneath what is kept of the controller.
pub fn reports_dir(state: &std::path::Path) -> PathBuf {
    state.join("reports")
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

/// How many bytes there are to copy, where that can be told without walking: all of them are files.
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

/// For people, with `--explain`.
impl RoutingReport {
    /// The lines.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }
}
