//! The client's side of a copy: opens streams over the routes, keeps them going, and knows when it
//! is over.
//!
//! The first stream starts at once and carries data; others join when the copy turns out large
//! enough to be worth them. A stream that is lost is opened again on its route, with growing
//! pauses, while the others go on. If none is left, the outage is waited out for as long as the
//! user's patience lasts ([`patience`]). If the server has lost the copy by then, another one takes
//! its place in the same run: what is in place is offered, and what is kept of large files is
//! resumed.
//!
//! Where somebody else than the user chooses the routes, they may join and leave in mid-copy
//! ([`Connector::plan`]), and each is held against the direct one ([`steering`]).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use longhaul_session::{Clear, FlowWatch};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::account::Account;
use crate::error::Error;
use crate::part::{PartFilter, Portion};
use crate::process_limits::ProcessLimits;
use crate::progress::{Event, Observer, Progress};
use crate::receive::{Asked, Receiver};
use crate::remembered::StreamMemory;
use crate::send::{Presence, Queue, Sources};
use crate::store::Destination;
use crate::tree_hash::Hash;
use crate::wire::{Compare, Hello, Placement, Request, Token};

mod attempt;
mod joining;
mod patience;
#[cfg(test)]
mod retire_tests;
mod steering;
mod stream_count;
mod supervisor;

pub(crate) use attempt::close;
use patience::Patience;
use stream_count::StreamCount;
pub(crate) use stream_count::{LearnedStreams, PathConditions};
use supervisor::Supervisor;

/// How long an outage is waited out if the user does not say.
pub const DEFAULT_PATIENCE: Duration = Duration::from_secs(300);
/// How long a copy whose first stream never stood tries others.
const OPEN_TIMEOUT: Duration = Duration::from_secs(6);
/// Most streams one copy opens.
pub const MAX_STREAMS: u32 = 64;

/// A byte stream to the server, as the engine needs it.
pub trait Transport: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Segments this host's connection sent again so far, if the kernel reports them.
    fn retransmits(&self) -> Option<u64> {
        None
    }

    /// Watches this end's connection from now on, and right-sizes it where that helps; `side` is
    /// this end's part in moving the files. None where there is no connection to watch.
    fn watch(&mut self, _side: drs::Side) -> Option<Arc<FlowWatch>> {
        None
    }

    /// Addresses at this end and at the other end of the first hop, if there are any.
    fn addresses(&self) -> Option<(IpAddr, IpAddr)> {
        None
    }

    /// Where it is said which bytes travel in the clear, if that can be. Asked for before the
    /// stream is used.
    fn clear(&self) -> Option<Arc<Clear>> {
        None
    }
}

/// Nothing in it is protected, so that it need not know of what is not.
impl Transport for tokio::io::DuplexStream {
    fn clear(&self) -> Option<Arc<Clear>> {
        Some(Arc::default())
    }
}

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

/// Which routes a copy uses beside the direct one, by their numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoutePlan {
    /// Those that are used, and held against the direct one.
    pub beside: Vec<usize>,
    /// Those that were reserved, and are used in addition.
    pub reserved: Vec<usize>,
    /// Others are still looked for: where no route opens, a copy waits for them.
    pub awaited: bool,
}

/// Opens streams to one server over several routes.
pub trait Connector: Send + Sync + 'static {
    /// What it opens.
    type Stream: Transport;
    /// The routes by name, at least one. They keep their numbers; where there is a [`Self::plan`],
    /// more may follow.
    fn routes(&self) -> Vec<String>;
    /// Which of the routes are used, where that may change while a copy runs; else all of them are.
    /// Route 0 is then the direct one, which opens the copy, and which the others are held against.
    fn plan(&self) -> Option<watch::Receiver<RoutePlan>> {
        None
    }
    /// Opens a stream over route number `route`.
    fn connect(
        &self,
        route: usize,
    ) -> impl Future<Output = Result<Self::Stream, ConnectError>> + Send;
}

/// What the copy came to, once it is over.
#[derive(Debug)]
pub struct Outcome {
    /// BLAKE3 over the record of every entry (path, kind, size, hash of content), the same on both
    /// sides.
    pub manifest: Hash,
    /// Streams that are closing; to be waited for, if at all, after the outcome has been shown to
    /// the user.
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
    /// How it is found that a file is there already, and need not be sent.
    pub compare: Compare,
    /// Number of streams; when none, as many as the path turns out to need ([`stream_count`]).
    pub streams: Option<u32>,
    /// Where the number that a destination needed is remembered, if anywhere.
    pub memory: Option<StreamMemory>,
    /// How long an outage is waited out, once a stream has stood: running time, without that for
    /// which the machine was suspended.
    pub patience: Duration,
    /// Counts.
    pub progress: Arc<Progress>,
    /// Receives what happens.
    pub observer: Arc<dyn Observer>,
}

impl<C: Connector> Client<C> {
    /// Sends `sources`; `names` is what each is called in messages.
    pub async fn push(self, sources: Sources, names: Vec<String>) -> Result<Outcome, Error> {
        let sources = Arc::new(sources.only(self.hello.portion, self.hello.hard_links));
        let mut run = Run::new(&self);
        loop {
            let queue = Queue::new(
                sources.clone(),
                self.hello.resume,
                Account::alone(),
                self.progress.clone(),
                self.observer.clone(),
                Sources::labels(names.clone()),
            )?;
            // LH-COPY-52.
            let presence = match self.hello.portion {
                Portion::Rest => Presence::Something,
                Portion::Whole | Portion::Part(_) => Presence::Unknown,
            };
            queue.expect(presence, self.compare);
            if self.hello.hard_links {
                queue.keep_links(false);
            }
            let close = CloseQueue(queue.clone());
            let walk = queue.start_walk();
            let carried = self.carry(Side::Push(queue.clone()), &mut run).await;
            let error = match carried {
                Ok(closing) => {
                    let manifest = queue.manifest();
                    return Ok(Outcome { manifest, closing });
                }
                Err(error) => error,
            };
            let next = run.next_copy(error, queue.placement())?;
            drop(close);
            // It counts what it finds as the next one does.
            let _ = walk.await;
            self.begin_again(&mut run, next).await?;
        }
    }

    /// Receives into `destination`; `names` is what each source is called in messages. The server
    /// is held to what the request asks for: [`Error::NotAsked`] when it sends something else.
    pub async fn pull(
        self,
        destination: Destination,
        names: Vec<String>,
    ) -> Result<Outcome, Error> {
        let recursive = !matches!(
            self.hello.request,
            Request::Pull {
                recursive: false,
                ..
            }
        );
        let asked = || match (self.hello.portion, recursive) {
            (Portion::Part(part), _) => {
                let links_together = self.hello.hard_links;
                Asked::Part(
                    PartFilter {
                        part,
                        links_together,
                    },
                    recursive,
                )
            }
            (_, false) => Asked::Files,
            (_, true) => Asked::Trees,
        };
        let mut run = Run::new(&self);
        run.hello.reports_not_kept = true;
        // A server that waits to hear what is there of a file opens others meanwhile.
        run.hello.resume &= ProcessLimits::current().may_wait_for_files();
        if self.hello.portion == Portion::Rest {
            // For who receives, which is this side.
            run.hello.portion = Portion::Whole;
        }
        let mut next = destination;
        loop {
            let successor = next.successor(Token::random()?);
            let destination = std::mem::replace(&mut next, successor);
            run.hello.offer = destination.has_something().then_some(self.compare);
            let labels = Sources::labels(names.clone());
            let (progress, observer) = (self.progress.clone(), self.observer.clone());
            let receiver = Receiver::new(
                destination,
                asked(),
                Account::alone(),
                progress,
                observer,
                labels,
            )?;
            let carried = self.carry(Side::Pull(receiver.clone()), &mut run).await;
            let error = match carried {
                Ok(closing) => {
                    receiver.check_complete()?;
                    let manifest = receiver.conclusion().unwrap_or_default();
                    return Ok(Outcome { manifest, closing });
                }
                Err(error) => error,
            };
            let again = run.next_copy(error, None)?;
            let ended = receiver.ended();
            drop(receiver);
            // Two receivers must not have one file. Nobody ever says anything: it is over when
            // nobody is left who could.
            let let_go = tokio::task::spawn_blocking(move || ended.map(|ended| ended.recv()));
            let _ = let_go.await;
            self.begin_again(&mut run, again).await?;
        }
    }

    /// Carries one copy of a run to its end.
    async fn carry(&self, side: Side, run: &mut Run) -> Result<JoinSet<()>, Error> {
        let routes = self.connector.routes();
        let push = matches!(side, Side::Push(_));
        let memory = self.memory.as_ref().filter(|_| self.streams.is_none());
        let remembered = match memory {
            Some(memory) => memory.recall(push, &routes).await,
            None => None,
        };
        let most = ProcessLimits::current().streams(MAX_STREAMS as usize);
        let streams = self.streams.map(|streams| streams.min(most as u32));
        let count = StreamCount::new(streams, remembered, most);
        let mut supervisor = Supervisor::new(self, run, routes.clone(), side, count);
        let closing = match supervisor.supervise().await {
            Ok(closing) => closing,
            Err(error) => {
                supervisor.abandon().await;
                return Err(error);
            }
        };
        if let (Some(memory), Some(streams)) = (memory, supervisor.streams_needed()) {
            memory.remember(push, &routes, streams).await;
        }
        Ok(closing)
    }

    /// Has another copy take the place of one that is lost, after a pause.
    async fn begin_again(&self, run: &mut Run, next: NextCopy) -> Result<(), Error> {
        run.hello.token = Token::random()?;
        run.hello.placement = next.placement;
        self.progress.begin_again();
        self.observer.event(Event::BegunAgain {
            reason: next.reason,
        });
        tokio::time::sleep(next.pause).await;
        Ok(())
    }
}

/// What a client keeps from one copy to the next of one run.
pub(crate) struct Run {
    hello: Hello,
    patience: Patience,
}

/// Another copy that is to take the place of one that is lost.
struct NextCopy {
    reason: String,
    pause: Duration,
    placement: Option<Placement>,
}

impl Run {
    fn new<C>(client: &Client<C>) -> Self {
        Self {
            hello: client.hello.clone(),
            patience: Patience::new(client.patience),
        }
    }

    /// How to begin another copy, if `error` says that this one is lost.
    ///
    /// # Errors
    /// `error`, if the run ends by it.
    fn next_copy(&mut self, error: Error, placement: Option<Placement>) -> Result<NextCopy, Error> {
        let placement = placement.or(self.hello.placement);
        let may_begin = matches!(error, Error::CopyLost(_)) && self.hello.is_placed(placement);
        let pause = may_begin.then(|| self.patience.next_copy()).flatten();
        match pause {
            Some(pause) => Ok(NextCopy {
                reason: error.to_string(),
                pause,
                placement,
            }),
            None => Err(error),
        }
    }
}

/// Stops the walk whatever way a push ends.
struct CloseQueue(Arc<Queue>);

impl Drop for CloseQueue {
    fn drop(&mut self) {
        self.0.close();
    }
}
