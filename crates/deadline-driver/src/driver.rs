//! The task that observes a copy, feeds the planner and carries out its decisions.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use jiff::{Timestamp, Zoned};
use longhaul_control_api::reservations::Offers;
use longhaul_copy_api::{CopyEvent, DeadlineDetails, DeadlineEvent, DeadlineStatus};
use longhaul_deadline::{Outlook, Planner, PlannerAction, PlannerEvent, ReservationMode};
use longhaul_hop::unix_ms;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::ends::MapEnds;
use crate::report::{self, DeadlineReport};
use crate::request::{DeadlineRequest, DeadlineSettings, ObservedCopy};
use crate::reservation::{ActionResult, CopyReservation};
use crate::routes::{ReservedRouteReport, ReservedRoutes, StreamStates};
use crate::sampler::{ConcurrentReservation, ProgressSampler};

/// Interval between observations of the copy.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// Time for which the end of a copy waits: while reservations are returned, and when there are
/// none.
const END_TIMEOUT: Duration = Duration::from_secs(3);
const CLEAR_END_TIMEOUT: Duration = Duration::from_millis(50);
/// Maximum number of steps in the report.
const MAX_STEPS: usize = 20;

/// A deadline that is being monitored.
pub struct Deadline {
    over: watch::Sender<bool>,
    shared: Arc<Mutex<DeadlineState>>,
    task: Mutex<Option<JoinHandle<()>>>,
    settings: DeadlineSettings,
}

/// State that the report is built from.
struct DeadlineState {
    planner: Planner,
    ends: Option<MapEnds>,
    reservation: Option<u64>,
    offers: Option<Offers>,
    error: Option<String>,
    steps: Vec<String>,
    routes: Vec<ReservedRouteReport>,
}

impl Deadline {
    /// Starts to observe `copy`. Must be called on a runtime.
    #[must_use]
    pub fn begin(request: DeadlineRequest, copy: Arc<dyn ObservedCopy>) -> Self {
        let by = request.settings.by.as_ref();
        let by_ms = by.and_then(|by| u64::try_from(by.timestamp().as_millisecond()).ok());
        let planner = Planner::new(unix_ms(), by_ms, request.settings.mode);
        let shared = Arc::new(Mutex::new(DeadlineState {
            planner,
            ends: None,
            reservation: None,
            offers: None,
            error: None,
            steps: Vec::new(),
            routes: Vec::new(),
        }));
        let (over, is_over) = watch::channel(false);
        let settings = request.settings.clone();
        let task = DeadlineTask {
            shared: shared.clone(),
            sampler: ProgressSampler::new(&request, copy.progress().clone()),
            reservation: CopyReservation::new(request),
            routes: ReservedRoutes::default(),
            copy,
            is_over,
            mode: settings.mode,
            received_over: false,
        };
        let task = tokio::spawn(task.run());
        Self {
            over,
            shared,
            task: Mutex::new(Some(task)),
            settings,
        }
    }

    /// Ends the deadline with the copy: returns what is still reserved, and builds the report.
    pub async fn end(&self, is_done: bool) -> DeadlineReport {
        let ended = Timestamp::now();
        self.over.send_replace(true);
        let task = self.task.lock().take();
        let is_clear = self.with(|shared| shared.planner.is_settled());
        let within = if is_clear {
            CLEAR_END_TIMEOUT
        } else {
            END_TIMEOUT
        };
        if let Some(mut task) = task
            && timeout(within, &mut task).await.is_err()
        {
            task.abort();
        }
        self.with(|shared| self.report(shared, ended, is_done))
    }

    fn with<T>(&self, what: impl FnOnce(&DeadlineState) -> T) -> T {
        what(&self.shared.lock())
    }

    fn report(&self, shared: &DeadlineState, ended: Timestamp, is_done: bool) -> DeadlineReport {
        let input = report::ReportInput {
            by: self.settings.by.as_ref(),
            mode: self.settings.mode,
            planner: &shared.planner,
            ends: shared.ends.as_ref(),
            reservation: shared.reservation,
            offers: shared.offers.as_ref(),
            error: shared.error.as_deref(),
            steps: shared.steps.clone(),
            routes: shared.routes.clone(),
        };
        DeadlineReport::new(input, ended, is_done)
    }
}

/// The task that feeds the planner and carries out its decisions.
struct DeadlineTask {
    shared: Arc<Mutex<DeadlineState>>,
    sampler: ProgressSampler,
    reservation: CopyReservation,
    routes: ReservedRoutes,
    copy: Arc<dyn ObservedCopy>,
    is_over: watch::Receiver<bool>,
    mode: ReservationMode,
    /// True once the planner was told that the copy is over.
    received_over: bool,
}

impl DeadlineTask {
    async fn run(mut self) {
        let asks = self.mode != ReservationMode::Never;
        if asks && self.reservation.controller().is_none() {
            let none = "no controller is configured (longhaul controller use URL)";
            self.with(|shared| shared.error = Some(none.to_owned()));
            self.handle(PlannerEvent::Failed { is_passing: false })
                .await;
        }
        let mut ticks = interval(SAMPLE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_over = self.is_over.clone();
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                // The sender lives as long as the copy; when it is gone, the copy is over as well.
                () = async { drop(is_over.wait_for(|over| *over).await) } => {
                    self.handle(PlannerEvent::Over).await;
                    self.copy.use_reserved(&[]);
                    return;
                }
            }
            self.sample().await;
        }
    }

    async fn sample(&mut self) {
        self.sampler
            .ask_for_forecast(self.reservation.controller())
            .await;
        for event in self.reservation.poll_state().await {
            self.handle(event).await;
        }
        for event in self.reservation.take_verdicts(&self.copy.verdicts()) {
            self.handle(event).await;
        }
        let concurrent = self.with(|shared| match shared.planner.promise() {
            Some(promise) => self.reservation.concurrent_reservation(promise, unix_ms()),
            None => ConcurrentReservation::Routes(Vec::new()),
        });
        let sample = self.sampler.sample(concurrent);
        self.handle(PlannerEvent::Look(sample)).await;
        self.use_reserved_routes().await;
    }

    /// Has the copy use the reserved routes of this moment, and tells the planner which of them
    /// carry nothing.
    async fn use_reserved_routes(&mut self) {
        self.reservation.ask_for_grants(unix_ms()).await;
        let used = self.with(|shared| match shared.planner.promise() {
            Some(promise) => self.reservation.reserved_routes(promise, unix_ms()),
            None => Vec::new(),
        });
        let reserved: Vec<_> = used.iter().map(|(_, route, _)| route.clone()).collect();
        self.copy.use_reserved(&reserved);
        let streams = self.copy.progress().streams();
        let open = streams
            .iter()
            .filter(|stream| stream.open.load(Ordering::Relaxed));
        let streams = StreamStates {
            open: open.map(|stream| stream.route.to_string()).collect(),
            lost: self.copy.lost_on_reserved(),
        };
        let changed = self.routes.update(Instant::now(), &used, &streams);
        let report = self.routes.report();
        self.with(|shared| shared.routes = report);
        for change in changed {
            self.step(&change.line);
            let state = match change.works {
                true => DeadlineStatus::WayBack,
                false => DeadlineStatus::WayFailed,
            };
            self.report_state(state, self.reservation.id(), Some(change.line), None);
            let (path, works) = (change.path, change.works);
            self.handle(PlannerEvent::Path { path, works }).await;
        }
    }

    fn step(&self, line: &str) {
        self.with(|shared| {
            if shared.steps.len() < MAX_STEPS {
                shared.steps.push(line.to_owned());
            }
        });
    }

    fn with<T>(&self, what: impl FnOnce(&mut DeadlineState) -> T) -> T {
        what(&mut self.shared.lock())
    }

    /// Passes an event to the planner, and carries out the actions that follow.
    async fn handle(&mut self, event: PlannerEvent) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let mut actions = Vec::new();
            if *self.is_over.borrow() && !self.received_over {
                self.received_over = true;
                actions.extend(
                    self.with(|shared| shared.planner.handle_event(unix_ms(), PlannerEvent::Over)),
                );
            }
            if event != PlannerEvent::Over {
                actions.extend(self.with(|shared| shared.planner.handle_event(unix_ms(), event)));
            }
            for action in actions {
                if let PlannerAction::Warn(outlook) = action {
                    self.warn(&outlook);
                    continue;
                }
                let done = self.reservation.carry_out(&action).await;
                self.note(&action, &done);
                events.push_back(done.event);
            }
        }
    }

    /// Records an action for the report, and publishes it as an event.
    fn note(&mut self, action: &PlannerAction, done: &ActionResult) {
        let line = self.reservation.line(action, done);
        let (reservation, ends) = (self.reservation.id(), self.reservation.ends().cloned());
        let mut is_new = false;
        self.with(|shared| {
            shared.reservation = reservation.or(shared.reservation);
            shared.ends = ends;
            if let Some(offers) = &done.offers {
                shared.offers = Some(offers.clone());
            }
            if let Some(error) = &done.error {
                shared.error = Some(error.clone());
            }
            if matches!(done.event, PlannerEvent::Committed) {
                is_new = true;
                shared.error = None;
                shared.offers = None;
            }
            if let Some(line) = &line
                && shared.steps.len() < MAX_STEPS
            {
                shared.steps.push(line.clone());
            }
        });
        if is_new {
            self.routes.reset_failures();
        }
        if let Some(state) = done.state {
            self.report_state(state, reservation, line, done.error.clone());
        }
    }

    /// Publishes the state of a reservation as an event.
    fn report_state(
        &self,
        state: DeadlineStatus,
        reservation: Option<u64>,
        message: Option<String>,
        error: Option<String>,
    ) {
        let details = DeadlineDetails::Reservation { reservation, error };
        self.copy.print_event(CopyEvent::Deadline(DeadlineEvent {
            state,
            message,
            details,
        }));
    }

    /// Warns at once that the deadline is at risk.
    fn warn(&self, outlook: &Outlook) {
        let now = Zoned::now();
        let at = |ms: u64| {
            let at = i64::try_from(ms)
                .ok()
                .and_then(|ms| Timestamp::from_millisecond(ms).ok());
            at.map(|at| report::moment(at, &now))
        };
        let what = match outlook.is_missed {
            true => "cannot be met",
            false => "may be missed",
        };
        let mut line = format!("the deadline {what}");
        if let Some(end) = outlook.expected_end.and_then(at) {
            line.push_str(&format!(": by best effort the copy ends about {end}"));
        }
        if let Some(later) = outlook.instead.later.and_then(at) {
            line.push_str(&format!("; what it needs could be reserved by {later}"));
        }
        if let Some(volume) = outlook.instead.volume {
            let volume = quantities::ByteCount(volume);
            line.push_str(&format!("; {volume} could be reserved by the deadline"));
        }
        if let Some(error) = self.with(|shared| shared.error.clone()) {
            line.push_str(&format!("; nothing can be reserved: {error}"));
        }
        self.with(|shared| shared.steps.push(line.clone()));
        self.copy.notice(&line);
        self.copy.print_event(CopyEvent::Deadline(DeadlineEvent {
            state: DeadlineStatus::AtRisk,
            message: Some(line),
            details: DeadlineDetails::Outlook {
                is_missed: outlook.is_missed,
                expected_end_ms: outlook.expected_end,
                later_ms: outlook.instead.later,
                volume_bytes: outlook.instead.volume,
            },
        }));
    }
}
