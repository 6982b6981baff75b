//! The client's side of a copy: opens streams over the routes, keeps them going, and knows when it is over.
//!
//! The first stream starts at once and carries data; others join when the copy turns out large enough to be worth
//! them. A stream that is lost is opened again on its route, with growing pauses, while the others go on; when none is left
//! and none comes back within [`ALONE`], the copy ends with an error that names what failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use longhaul_session::FlowWatch;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::account::Account;
use crate::error::Error;
use crate::progress::{Event, Observer, Progress};
use crate::receive::StreamEnd;
use crate::receive::{Asked, Receiver};
use crate::send::Queue;
use crate::send::Sources;
use crate::store::Destination;
use crate::tree_hash::Hash;
use crate::wire::{Hello, Request};

mod attempt;
mod stream_count;

pub(crate) use attempt::close;
use attempt::{Attempt, Ended, Lost};
use stream_count::{StreamCount, View};

/// How long a copy without any stream tries to get one back.
pub const ALONE: Duration = Duration::from_secs(6);
/// First pause before a lost stream is opened again; it doubles each time up to the second.
const RETRY_FIRST: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(4);
/// How long the report of a finished copy waits for its streams to end on this side.
const ENDING: Duration = Duration::from_millis(30);
/// How long streams of a finished copy may take to close.
const CLOSING: Duration = Duration::from_secs(1);
/// Total from which every given route gets a stream.
const ALL_ROUTES_FROM: u64 = 1 << 20;
/// Most streams one copy opens.
pub const MAX_STREAMS: u32 = 64;

/// A byte stream to the server, as the engine needs it.
pub trait Transport: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Segments this host's connection sent again so far, if the kernel tells.
    fn retransmits(&self) -> Option<u64> {
        None
    }

    /// Watches this end's connection from now on, and right-sizes it where that helps; `side` is this end's part in
    /// moving the files. None where there is no connection to watch.
    fn watch(&mut self, _side: drs::Side) -> Option<Arc<FlowWatch>> {
        None
    }
}

impl Transport for tokio::io::DuplexStream {}

/// Why a stream couldn't be opened.
#[derive(Debug, Clone)]
pub struct ConnectError {
    /// One line that names the hop and what to do.
    pub message: String,
    /// What kind of failure it is.
    pub kind: ConnectFailure,
    /// Whether trying again later can help.
    pub retry: bool,
}

/// Kinds of [`ConnectError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectFailure {
    /// No way led to the server.
    NoRoute,
    /// Somebody on the way knows who asks, and says no.
    Unauthorised,
    /// The server does something else than what it was asked for.
    NotOffered,
}

impl ConnectError {
    /// As what ends a copy; `text` is its one line.
    pub fn into_error(self, text: String) -> Error {
        match self.kind {
            ConnectFailure::NoRoute => Error::Connect(text),
            ConnectFailure::Unauthorised => Error::Unauthorised(text),
            ConnectFailure::NotOffered => Error::Refused(text),
        }
    }
}

/// Opens streams to one server over several routes.
pub trait Connector: Send + Sync + 'static {
    /// What it opens.
    type Stream: Transport;
    /// The routes by name, at least one.
    fn routes(&self) -> Vec<String>;
    /// Opens a stream over route number `route`.
    fn connect(&self, route: usize) -> impl Future<Output = Result<Self::Stream, ConnectError>> + Send;
}

/// What the copy came to, once it is over.
#[derive(Debug)]
pub struct Outcome {
    /// BLAKE3 over the record of every entry (path, kind, size, hash of content), the same on both sides.
    pub manifest: Hash,
    /// Streams that are closing; to be waited for, if at all, after the user has been told.
    pub closing: JoinSet<()>,
}

/// Which side of the copy this client is.
#[derive(Clone)]
enum Side {
    Push(Arc<Queue>),
    Pull(Arc<Receiver>),
}

/// Everything a copy needs besides its files.
pub struct Client<C> {
    /// How to reach the server.
    pub connector: Arc<C>,
    /// Said first on every stream.
    pub hello: Hello,
    /// Number of streams; when none, as many as pay ([`stream_count`]).
    pub streams: Option<u32>,
    /// Counts.
    pub progress: Arc<Progress>,
    /// Hears.
    pub observer: Arc<dyn Observer>,
}

impl<C: Connector> Client<C> {
    /// Sends `sources`; `names` is what each is called in messages.
    pub async fn push(self, sources: Sources, names: Vec<String>) -> Result<Outcome, Error> {
        let queue = Queue::new(
            sources,
            Account::alone(),
            self.progress.clone(),
            self.observer.clone(),
            Sources::labels(names),
        )?;
        let _close = CloseQueue(queue.clone());
        let walk = queue.clone();
        tokio::task::spawn_blocking(move || walk.walk());
        let closing = self.run(Side::Push(queue.clone())).await?;
        Ok(Outcome {
            manifest: queue.manifest(),
            closing,
        })
    }

    /// Receives into `destination`; `names` is what each source is called in messages. The server is held to what the request
    /// asks for: [`Error::NotAsked`] when it sends something else.
    pub async fn pull(self, destination: Destination, names: Vec<String>) -> Result<Outcome, Error> {
        let labels = Sources::labels(names);
        let asked = match self.hello.request {
            Request::Pull { recursive: false, .. } => Asked::Files,
            _ => Asked::Trees,
        };
        let (progress, observer) = (self.progress.clone(), self.observer.clone());
        let receiver = Receiver::new(destination, asked, Account::alone(), progress, observer, labels)?;
        let closing = self.run(Side::Pull(receiver.clone())).await?;
        receiver.check_complete()?;
        Ok(Outcome {
            manifest: receiver.conclusion().unwrap_or_default(),
            closing,
        })
    }

    async fn run(&self, side: Side) -> Result<JoinSet<()>, Error> {
        let mut supervisor = Supervisor {
            client: self,
            routes: self.connector.routes(),
            side,
            tasks: JoinSet::new(),
            slots: Vec::new(),
            open: Arc::new(AtomicU32::new(0)),
            ever_open: false,
            alone_since: Instant::now(),
            last_error: None,
            begun: Instant::now(),
            count: StreamCount::new(self.streams, MAX_STREAMS as usize),
        };
        supervisor.supervise().await
    }
}

/// Stops the walk whatever way a push ends.
struct CloseQueue(Arc<Queue>);

impl Drop for CloseQueue {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A place for one stream on one route.
struct Slot {
    route: usize,
    running: bool,
    failures: u32,
    /// When to open it (again); never, if none.
    start: Option<Instant>,
}

struct Supervisor<'a, C> {
    client: &'a Client<C>,
    routes: Vec<String>,
    side: Side,
    tasks: JoinSet<Ended>,
    slots: Vec<Slot>,
    open: Arc<AtomicU32>,
    ever_open: bool,
    alone_since: Instant,
    last_error: Option<Error>,
    begun: Instant,
    count: StreamCount,
}

impl<C: Connector> Supervisor<'_, C> {
    async fn supervise(&mut self) -> Result<JoinSet<()>, Error> {
        let mut closing = JoinSet::new();
        loop {
            self.grow();
            self.start_due();
            if self.over() {
                return Ok(self.wind_down(closing).await);
            }
            if self.open.load(Ordering::Relaxed) > 0 {
                self.ever_open = true;
                self.alone_since = Instant::now();
            } else if self.hopeless() {
                return Err(self.give_up());
            }
            // The tick looks for growth, for slots that are due, and for having been alone too long.
            let tick = sleep_until(Instant::now() + Duration::from_millis(50));
            tokio::select! {
                Some(ended) = self.tasks.join_next() => {
                    let Ok(mut ended) = ended else {
                        return Err(Error::StreamsLost("a stream's task failed on this side".into()));
                    };
                    if let Some(ended) = ended.closing.take() {
                        closing.spawn(async move { ended.join_all().await; });
                    }
                    self.ended(ended)?;
                }
                () = tick => {}
            }
        }
    }

    /// Adds slots while the copy is worth them.
    fn grow(&mut self) {
        let found = self.client.progress.bytes_found.load(Ordering::Relaxed);
        let routes = self.routes.len();
        if found >= ALL_ROUTES_FROM {
            self.count.at_least(routes);
        }
        self.count.look(&self.view());
        while self.slots.len() < self.count.wanted() {
            let route = self.slots.len() % routes.max(1);
            self.slots.push(Slot {
                route,
                running: false,
                failures: 0,
                start: Some(Instant::now()),
            });
        }
        // Before anything is open, a route that fails is replaced by the next one not tried yet.
        let tried = self.slots.len();
        if !self.ever_open
            && tried < routes
            && self
                .slots
                .iter()
                .all(|slot| !slot.running && slot.start.is_none())
        {
            self.slots.push(Slot {
                route: tried,
                running: false,
                failures: 0,
                start: Some(Instant::now()),
            });
        }
    }

    /// What the number of streams is decided by.
    fn view(&self) -> View {
        let progress = &self.client.progress;
        let done = progress.bytes_done.load(Ordering::Relaxed);
        let mut view = View {
            now: self.begun.elapsed(),
            left: progress.bytes_found.load(Ordering::Relaxed).saturating_sub(done),
            ..View::default()
        };
        for stream in progress.streams() {
            let ends = stream.ends();
            let (tally, advised) = match self.side {
                Side::Push(..) => (ends.here.tally, ends.here.advised_streams()),
                Side::Pull(_) => (ends.there, ends.advised_there),
            };
            view.tally.merge(&tally);
            view.rtt = view.rtt.max(ends.here.rtt);
            view.moved = view.moved.saturating_add(ends.here.moved);
            if stream.open.load(Ordering::Relaxed) {
                view.advised = view.advised.max(advised);
            }
        }
        view
    }

    fn start_due(&mut self) {
        let now = Instant::now();
        for (number, slot) in self.slots.iter_mut().enumerate() {
            if slot.running || slot.start.is_none_or(|start| start > now) {
                continue;
            }
            slot.running = true;
            let attempt = Attempt {
                connector: self.client.connector.clone(),
                route: slot.route,
                route_name: self.routes.get(slot.route).cloned().unwrap_or_default(),
                side: self.side.clone(),
                hello: self.client.hello.clone(),
                progress: self.client.progress.clone(),
                observer: self.client.observer.clone(),
                open: self.open.clone(),
            };
            self.tasks.spawn(attempt.run(number));
        }
    }

    fn over(&self) -> bool {
        match &self.side {
            Side::Push(queue) => queue.conclusion() == Some(true),
            Side::Pull(receiver) => receiver.conclusion().is_some(),
        }
    }

    /// No stream, and none to hope for.
    fn hopeless(&self) -> bool {
        let none_left = self
            .slots
            .iter()
            .all(|slot| !slot.running && slot.start.is_none());
        none_left || (self.ever_open && self.alone_since.elapsed() >= ALONE)
    }

    fn give_up(&mut self) -> Error {
        match self.last_error.take() {
            Some(Error::Connect(reason)) if self.ever_open => Error::StreamsLost(reason),
            Some(Error::Stream(error)) => Error::StreamsLost(error.to_string()),
            Some(error) => error,
            None => Error::StreamsLost("no stream came back in time".into()),
        }
    }

    fn ended(&mut self, ended: Ended) -> Result<(), Error> {
        let Some(slot) = self.slots.get_mut(ended.slot) else {
            return Ok(());
        };
        slot.running = false;
        if ended.opened.is_some() {
            slot.failures = 0;
            if !self.ever_open {
                self.ever_open = true;
                self.alone_since = Instant::now();
            }
        }
        let route = self.routes.get(slot.route).cloned().unwrap_or_default();
        let (error, retry) = match ended.result {
            Ok(StreamEnd::Finished) => {
                slot.start = None;
                return Ok(());
            }
            Ok(StreamEnd::Closed) => (
                Error::StreamsLost(format!("the server closed the stream over route {route}")),
                true,
            ),
            Err(Lost::Stream(Error::Disagreement)) => return Err(Error::Disagreement),
            Err(Lost::Stream(Error::Stream(error))) => (
                Error::StreamsLost(format!("the stream over route {route} was lost: {error}")),
                true,
            ),
            Err(Lost::Stream(error)) => (error, false),
            Err(Lost::Connect(error)) => {
                let retry = error.retry && (self.ever_open || self.open.load(Ordering::Relaxed) > 0);
                let text = format!("route {route}: {}", error.message);
                (error.into_error(text), retry)
            }
        };
        let reason = error.to_string();
        self.client.observer.event(Event::StreamLost {
            stream: ended.opened,
            route,
            reason,
        });
        slot.start = retry.then(|| {
            let pause = RETRY_FIRST
                .saturating_mul(1 << slot.failures.min(8))
                .min(RETRY_MAX);
            slot.failures += 1;
            Instant::now() + pause
        });
        // What was said of who asks, or by the hop itself, tells more than a later echo.
        if !matches!(
            (&self.last_error, &error),
            (
                Some(Error::Connect(_) | Error::Unauthorised(_)),
                Error::StreamsLost(_)
            )
        ) {
            self.last_error = Some(error);
        }
        Ok(())
    }

    /// The copy is over: streams close by themselves; one that hangs on a dead path is left behind.
    async fn wind_down(&mut self, mut closing: JoinSet<()>) -> JoinSet<()> {
        let mut tasks = std::mem::take(&mut self.tasks);
        // Those that are open end at once, and what they counted belongs in the report.
        let open = async {
            while self.open.load(Ordering::Relaxed) > 0
                && let Some(ended) = tasks.join_next().await
            {
                if let Ok(Ended {
                    closing: Some(ended), ..
                }) = ended
                {
                    closing.spawn(async move {
                        ended.join_all().await;
                    });
                }
            }
        };
        let _ = timeout(ENDING, open).await;
        closing.spawn(async move {
            let all = async {
                while let Some(ended) = tasks.join_next().await {
                    if let Ok(Ended {
                        closing: Some(closing),
                        ..
                    }) = ended
                    {
                        closing.join_all().await;
                    }
                }
            };
            let _ = timeout(CLOSING, all).await;
        });
        closing
    }
}
