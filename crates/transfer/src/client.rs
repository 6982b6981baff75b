//! The client's side of a copy: opens streams over the routes, replaces lost ones, and detects the
//! end of the copy.
//!
//! The first stream starts at once and carries data. Others join when the copy turns out large
//! enough to need them. A lost stream is reopened on its route with growing pauses, while the
//! others continue. If no stream is left, the client waits for as long as the user's patience lasts
//! ([`patience`]). If the server has lost the copy by then, another copy replaces it in the same
//! run: files that are complete are offered, and partial large files are resumed.
//!
//! A controller may choose the routes. They then join and leave during the copy
//! ([`Connector::plan`]), and each is compared with the direct one ([`steering`]).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use drs::FlowWatch;
use longhaul_session::PlaintextRanges;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::account::Account;
use crate::bearer::TokenSource;
use crate::error::Error;
use crate::half::Half;
use crate::part::{PartFilter, Portion};
use crate::process_limits::ProcessLimits;
use crate::progress::{Observer, TransferEvent, TransferProgress};
use crate::receipt::{ReceiptRecorder, ReceiptRole};
use crate::receive::{Receiver, RequestedEntries};
use crate::remembered::StreamMemory;
use crate::route_info::RouteInfo;
use crate::send::{Presence, Sources, WorkQueue};
use crate::store::CopyDestination;
use crate::stripe::MemberId;
use crate::tree_hash::Hash;
use crate::wire::{Compare, CopyRequest, CopyToken, Hello, Placement};

mod attempt;
mod joining;
mod patience;
#[cfg(test)]
mod retire_tests;
mod route_observation;
mod steering;
pub(crate) mod stream_count;
mod stream_tokens;
mod supervisor;
mod transport_trial;

pub(crate) use attempt::close;
use patience::OutagePatience;
pub use stream_count::MAX_STREAMS;
use stream_count::StreamCount;
use stream_tokens::StreamTokens;
use supervisor::Supervisor;

/// Default time that a copy waits during an outage.
pub const DEFAULT_PATIENCE: Duration = Duration::from_secs(300);
/// Time for which a copy tries other routes if its first stream was never established.
const OPEN_TIMEOUT: Duration = Duration::from_secs(6);

/// A byte stream to the server, as the engine needs it.
pub trait Transport: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Returns the number of segments that this host's connection has retransmitted so far, if the
    /// kernel reports it.
    fn retransmits(&self) -> Option<u64> {
        None
    }

    /// Starts to watch this end's connection, and right-sizes its buffers where that helps. `side`
    /// is this end's role in the copy. Returns `None` if there is no connection to watch.
    fn watch(&mut self, _side: drs::Side) -> Option<Arc<FlowWatch>> {
        None
    }

    /// Returns the addresses of both ends of the first hop, if there are any.
    fn addresses(&self) -> Option<(IpAddr, IpAddr)> {
        None
    }

    /// Returns where a stream that this end accepted comes from, if that is known.
    fn origin(&self) -> Option<StreamOrigin> {
        None
    }

    /// Returns the handle that announces plaintext byte ranges, if the stream supports them. It is
    /// requested before the stream is used.
    fn plaintext(&self) -> Option<Arc<PlaintextRanges>> {
        None
    }
}

/// Origin of an accepted stream, as its session stated it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamOrigin {
    /// Address of the client, or of the last depot.
    pub from: Option<SocketAddr>,
    /// Local address.
    pub local: Option<SocketAddr>,
    /// True if the last hop is a TCP connection, and false if it is a stream of another transport.
    pub is_tcp: bool,
    /// Route: `direct`, or the depots.
    pub route: String,
    /// Purpose that the client stated.
    pub purpose: Option<String>,
}

/// A pipe without protection, which carries plaintext without announcement.
impl Transport for tokio::io::DuplexStream {
    fn plaintext(&self) -> Option<Arc<PlaintextRanges>> {
        Some(Arc::default())
    }
}

/// Error of an attempt to open a stream.
#[derive(Debug, Clone)]
pub struct ConnectError {
    /// One line that names the hop and the remedy.
    pub message: String,
    /// Kind of failure.
    pub kind: ConnectFailure,
    /// If true, a later attempt may succeed.
    pub retry: bool,
    /// If true, the server does not know this key, and knows nothing else of the client.
    pub is_unknown_key: bool,
}

/// Kinds of [`ConnectError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectFailure {
    /// The server could not be reached over any route.
    NoRoute,
    /// A depot or the server refuses this key, or the server's key is not the expected one.
    Unauthorised,
    /// The server does not offer the service that was requested.
    NotOffered,
}

impl ConnectError {
    /// Converts this into the error that ends a copy, with `text` as its message.
    pub fn into_error(self, text: String) -> Error {
        match self.kind {
            ConnectFailure::NoRoute => Error::Connect(text),
            ConnectFailure::Unauthorised => Error::Unauthorised(text),
            ConnectFailure::NotOffered => Error::Refused(text),
        }
    }
}

/// Maximum number of streams by a transport other than TCP. All of them share one connection and
/// its rate, so more of them only occupy memory.
pub(crate) const MAX_OTHER_TRANSPORT_STREAMS: usize = 2;

/// Routes that a copy uses in addition to the direct one, by their numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoutePlan {
    /// Routes that are used and compared with the direct one.
    pub beside: Vec<usize>,
    /// Reserved routes, which are used in addition.
    pub reserved: Vec<usize>,
    /// Route 0 by another transport, which is tried beside TCP and may replace it.
    pub other_transport: Option<usize>,
    /// If true, other routes are still being looked for. A copy that can open no route waits for
    /// them.
    pub awaited: bool,
}

/// Opens streams to one server over several routes.
pub trait Connector: Send + Sync + 'static {
    /// Type of the streams that are opened.
    type Stream: Transport;
    /// Returns the routes, at least one. They keep their numbers. With a [`Self::plan`], more may
    /// follow.
    fn routes(&self) -> Vec<RouteInfo>;
    /// Returns the routes in use, if these may change while a copy runs. Otherwise all routes are
    /// used. With a plan, route 0 is the direct one or the one that the user named: it opens the
    /// copy, and the others are compared with it.
    fn plan(&self) -> Option<watch::Receiver<RoutePlan>> {
        None
    }
    /// Returns true if [`Self::on_random_loss`] adds another transport to the plan.
    fn has_other_transport(&self) -> bool {
        false
    }
    /// Returns true if the first route has depots. Neither end sees what is lost between them.
    fn hides_losses(&self) -> bool {
        false
    }
    /// Called once losses without a queue slow the copy down, or may do so unseen. The plan then
    /// gains another transport if there is one.
    fn on_random_loss(&self) {}
    /// Returns the maximum number of streams that help on route number `route`.
    fn max_streams(&self, _route: usize) -> usize {
        usize::MAX
    }
    /// Called when the server has accepted a stream of the copy, with the member that has the copy
    /// if the server is striped. Called again with the same member.
    fn on_accepted(&self, _member: Option<MemberId>) {}
    /// Called when another copy replaces a lost one.
    fn on_next_copy(&self) {}
    /// Opens a stream over route number `route`.
    fn connect(
        &self,
        route: usize,
    ) -> impl Future<Output = Result<Self::Stream, ConnectError>> + Send;
}

/// Outcome of a copy.
#[derive(Debug)]
pub struct CopyOutcome {
    /// BLAKE3 hash over the record of every entry (path, kind, size, content hash). It is equal on
    /// both sides.
    pub manifest: Hash,
    /// Streams that are closing. The caller may wait for them after it has shown the outcome.
    pub closing: JoinSet<()>,
}

/// Everything a copy needs besides its files.
pub struct Client<C> {
    /// Connector that reaches the server.
    pub connector: Arc<C>,
    /// First message on every stream.
    pub hello: Hello,
    /// Method that detects files which are already at the destination.
    pub compare: Compare,
    /// Number of streams. If `None`, [`stream_count`] adapts it to the path.
    pub streams: Option<u32>,
    /// Store for the number of streams that a destination needed, if any.
    pub memory: Option<StreamMemory>,
    /// Time to wait during an outage, once a stream has been established. Time for which the
    /// machine was suspended does not count.
    pub patience: Duration,
    /// Counters of the copy.
    pub progress: Arc<TransferProgress>,
    /// Receiver of events.
    pub observer: Arc<dyn Observer>,
    /// Recorder of the copy's receipt, if there is to be one.
    pub receipt: Option<Arc<ReceiptRecorder>>,
    /// Source of the token that streams bring, if the server is to receive one.
    pub tokens: Option<Arc<dyn TokenSource>>,
}

impl<C: Connector> Client<C> {
    /// Sends `sources`. `names` are the names of the sources in messages.
    pub async fn push(self, sources: Sources, names: Vec<String>) -> Result<CopyOutcome, Error> {
        let sources = Arc::new(sources.restricted_to(self.hello.portion, self.hello.hard_links));
        let mut run = RunState::new(&self);
        run.hello.late_sizes = sources.source().has_late_sizes();
        loop {
            let queue = WorkQueue::new(
                sources.clone(),
                self.hello.resume,
                Account::unshared(),
                self.progress.clone(),
                self.observer.clone(),
                Sources::labels(names.clone()),
            )?;
            // LH-COPY-52.
            let presence = match self.hello.portion {
                Portion::Rest => Presence::Something,
                Portion::Whole | Portion::Part(_) => Presence::Unknown,
            };
            queue.set_presence(presence, self.compare);
            // Blocks sent before the signature of an existing file would travel whole.
            if !self.hello.existing.is_default() || self.hello.delta {
                queue.hold_until_reported();
            }
            if self.hello.in_place {
                queue.patch_in_place();
            }
            if self.hello.hard_links {
                queue.keep_links(false);
            }
            if let Some(recorder) = &self.receipt {
                queue.keep_receipt(ReceiptRole::Records(recorder.clone()));
            }
            let close = CloseQueue(queue.clone());
            let walk = queue.start_walk();
            let carried = self.run_copy(Half::Sending(queue.clone()), &mut run).await;
            let error = match carried {
                Ok(closing) => {
                    let manifest = queue.manifest();
                    return Ok(CopyOutcome { manifest, closing });
                }
                Err(error) => error,
            };
            let error = run.with_renewed_token(error).await;
            let next = run.next_copy(error, queue.placement())?;
            drop(close);
            // The walk counts what it finds for this copy and the next one.
            let _ = walk.await;
            self.replace_copy(&mut run, next).await?;
        }
    }

    /// Receives into `destination`. `names` are the names of the sources in messages.
    ///
    /// # Errors
    /// [`Error::NotAsked`] if the server sends something that the request does not ask for, among
    /// others.
    pub async fn pull(
        self,
        destination: CopyDestination,
        names: Vec<String>,
    ) -> Result<CopyOutcome, Error> {
        let pulling = self.pull_with(destination, names, Account::unshared, |_| ());
        pulling.await
    }

    /// Receives as [`Self::pull`] does, with memory and files on the account that `account`
    /// returns. Each copy of the run calls it, and passes its receiver to `begins`.
    pub(crate) async fn pull_with(
        self,
        destination: CopyDestination,
        names: Vec<String>,
        account: impl Fn() -> Arc<Account> + Send,
        begins: impl Fn(&Arc<Receiver>) + Send,
    ) -> Result<CopyOutcome, Error> {
        let recursive = !matches!(
            self.hello.request,
            CopyRequest::Pull {
                recursive: false,
                ..
            }
        );
        let asked = || match (self.hello.portion, recursive) {
            (Portion::Part(part), _) => {
                let links_together = self.hello.hard_links;
                RequestedEntries::Part(
                    PartFilter {
                        part,
                        links_together,
                    },
                    recursive,
                )
            }
            (_, false) => RequestedEntries::Files,
            (_, true) => RequestedEntries::Trees,
        };
        let mut run = RunState::new(&self);
        run.hello.reports_not_kept = true;
        // A server that waits for answers about one file opens others in the meantime.
        run.hello.resume &= ProcessLimits::current().may_wait_for_files();
        if self.hello.portion == Portion::Rest {
            // The portion concerns the receiver, which is this side.
            run.hello.portion = Portion::Whole;
        }
        let mut next = destination;
        loop {
            let successor = next.successor(CopyToken::random()?);
            let destination = std::mem::replace(&mut next, successor);
            run.hello.offer = destination.has_something().then_some(self.compare);
            let labels = Sources::labels(names.clone());
            let (progress, observer) = (self.progress.clone(), self.observer.clone());
            let receiver =
                Receiver::new(destination, asked(), account(), progress, observer, labels)?;
            begins(&receiver);
            if self.hello.delta {
                receiver.request_delta();
            }
            if let Some(recorder) = &self.receipt {
                receiver.keep_receipt(ReceiptRole::Records(recorder.clone()));
            }
            let carried = self
                .run_copy(Half::Receiving(receiver.clone()), &mut run)
                .await;
            let error = match carried {
                Ok(closing) => {
                    // A filter may leave nothing of a source.
                    if self.hello.filter.is_empty() {
                        receiver.check_complete()?;
                    }
                    let manifest = receiver.conclusion().unwrap_or_default();
                    return Ok(CopyOutcome { manifest, closing });
                }
                Err(error) => error,
            };
            let error = run.with_renewed_token(error).await;
            let again = run.next_copy(error, None)?;
            let ended = receiver.take_end_signal();
            drop(receiver);
            // Two receivers must not write the same file. Nothing is ever sent on this channel: it
            // disconnects when the last handle to the copy is dropped.
            let let_go = tokio::task::spawn_blocking(move || ended.map(|ended| ended.recv()));
            let _ = let_go.await;
            self.replace_copy(&mut run, again).await?;
        }
    }

    /// Runs one copy of a run to its end.
    async fn run_copy(&self, half: Half, run: &mut RunState) -> Result<JoinSet<()>, Error> {
        let routes = self.connector.routes();
        let push = matches!(half, Half::Sending(_));
        let memory = self.memory.as_ref().filter(|_| self.streams.is_none());
        let remembered = match memory {
            Some(memory) => memory.recall(push, &routes).await,
            None => None,
        };
        let most = ProcessLimits::current().streams(MAX_STREAMS as usize);
        let streams = self.streams.map(|streams| streams.min(most as u32));
        let count = StreamCount::new(streams, remembered, most);
        let mut supervisor = Supervisor::new(self, run, routes.clone(), half, count);
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

    /// Starts another copy that replaces a lost one, after a pause.
    async fn replace_copy(&self, run: &mut RunState, next: NextCopy) -> Result<(), Error> {
        run.hello.token = CopyToken::random()?;
        self.connector.on_next_copy();
        run.hello.placement = next.placement;
        self.progress.reset_for_next_copy();
        self.observer.event(TransferEvent::CopyReplaced {
            reason: next.reason,
        });
        tokio::time::sleep(next.pause).await;
        Ok(())
    }
}

/// State that a client keeps from one copy to the next of a run.
pub(crate) struct RunState {
    hello: Hello,
    patience: OutagePatience,
    tokens: StreamTokens,
}

/// Parameters of the copy that replaces a lost one.
struct NextCopy {
    reason: String,
    pause: Duration,
    placement: Option<Placement>,
}

impl RunState {
    fn new<C>(client: &Client<C>) -> Self {
        Self {
            hello: Hello {
                receipt: client.receipt.is_some(),
                packs: !client.hello.compression.is_none(),
                ..client.hello.clone()
            },
            patience: OutagePatience::new(client.patience),
            tokens: StreamTokens::new(client.tokens.clone()),
        }
    }

    /// Treats a copy whose token is not valid any more as lost, if there is another token.
    async fn with_renewed_token(&self, error: Error) -> Error {
        match error {
            Error::Token(why)
                if self.patience.was_established() && self.tokens.is_renewed().await =>
            {
                Error::CopyLost(why)
            }
            error => error,
        }
    }

    /// Returns the parameters of the next copy, if `error` says that this one is lost.
    ///
    /// # Errors
    /// Returns `error` if it ends the run.
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
            None => Err(self.explain(error)),
        }
    }

    /// Says what a server of an earlier release cannot do, if it refused because of that.
    fn explain(&self, error: Error) -> Error {
        match &error {
            Error::Refused(refusal) => match self.hello.missing_capability(refusal) {
                Some(missing) => Error::Refused(missing.to_owned()),
                None => error,
            },
            _ => error,
        }
    }
}

/// Closes the queue on drop, and so stops the walk however a push ends.
struct CloseQueue(Arc<WorkQueue>);

impl Drop for CloseQueue {
    fn drop(&mut self) {
        self.0.close();
    }
}
