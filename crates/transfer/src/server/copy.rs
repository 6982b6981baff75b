//! One copy at the server: the permission to begin it, the state that its streams share, and its
//! end after they leave.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, mpsc};

use longhaul_proto::PublicKey;
use longhaul_proto::text::printable;
use tokio::sync::{OnceCell, watch};

use super::received::LastReceived;
use super::{Refusal, Server, full, refusal};
use crate::account::{Account, Held, Resource};
use crate::error::Error;
use crate::grants::Access;
use crate::progress::{Event, Observer, Progress, StreamCounters};
use crate::receive::StreamEnd;
use crate::receive::{Asked, Receiver};
use crate::send::{Presence, Queue, Sources};
use crate::store::{Destination, WriteOptions};
use crate::wire::{CopyInstance, Hello, Placement, RefusalKind, Request, Token};
use crate::workers::blocking;

/// A running copy.
pub(super) struct Copy {
    pub principal: PublicKey,
    pub hello: Hello,
    /// Number of copies that were begun before it.
    pub order: u64,
    /// Identity of this copy, regardless of its token. `None` if the operating system had no random
    /// numbers.
    pub instance: Option<CopyInstance>,
    pub side: OnceCell<Side>,
    /// True if some of the files of a push may exist already.
    pub present: AtomicBool,
    /// Placement of the sources of a push.
    pub placement: OnceLock<Placement>,
    pub streams: AtomicU32,
    pub numbers: AtomicU32,
    pub progress: Arc<Progress>,
    /// Reason why it ends although its client is connected, if it does.
    early_end: watch::Sender<Option<EarlyEnd>>,
    pub received: Arc<LastReceived>,
    account: Arc<Account>,
    /// Its unit among the copies, held also while it waits for a stream, and the memory for its
    /// HELLO.
    _held: (Held, Held),
}

/// Reason why a copy ends although its client is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EarlyEnd {
    /// Its grant was withdrawn.
    Revoked,
    /// Its client was presumed gone, and another copy of the same request took over its files.
    Superseded,
    /// The path of the server's root leads elsewhere. The client learns of it when it opens its
    /// next stream.
    RootDisplaced,
}

pub(super) enum Side {
    Send(Arc<Queue>),
    Receive(Arc<Receiver>),
}

impl Drop for Side {
    fn drop(&mut self) {
        if let Side::Send(queue) = self {
            queue.close();
        }
    }
}

/// Memory overhead of a path or name of HELLO, in bytes. It is kept as received, as a name, and as
/// a label.
const NAME_BYTES: u64 = 200;

/// Returns the memory that HELLO takes while its copy exists, in bytes.
fn hello_bytes(hello: &Hello) -> u64 {
    let of = |bytes: &[u8]| NAME_BYTES + 4 * bytes.len() as u64;
    match &hello.request {
        Request::Push {
            destination, names, ..
        } => {
            let names = names
                .iter()
                .map(|name| of(name) + destination.as_bytes().len() as u64);
            names.sum::<u64>() + of(destination.as_bytes())
        }
        Request::Pull { sources, .. } => sources.iter().map(|source| of(source.as_bytes())).sum(),
    }
}

impl Copy {
    fn new(
        hello: Hello,
        account: &Arc<Account>,
        principal: PublicKey,
        order: u64,
    ) -> Result<Arc<Self>, Refusal> {
        let take = |what, units| {
            account
                .take(what, units)
                .map_err(|exhausted| full(&exhausted))
        };
        let held = (
            take(Resource::Copies, 1)?,
            take(Resource::Bookkeeping, hello_bytes(&hello))?,
        );
        Ok(Arc::new(Self {
            principal,
            hello,
            order,
            instance: Token::random()
                .ok()
                .and_then(|token| token.0.first_chunk().copied()),
            side: OnceCell::new(),
            present: AtomicBool::new(false),
            placement: OnceLock::new(),
            streams: AtomicU32::new(0),
            numbers: AtomicU32::new(0),
            progress: Arc::default(),
            early_end: watch::Sender::new(None),
            received: Arc::new(LastReceived::new()),
            account: account.clone(),
            _held: held,
        }))
    }

    /// Returns true if everything that a push brings is in place.
    pub(super) fn has_all_in_place(&self) -> bool {
        match self.side.get() {
            Some(Side::Receive(receiver)) => receiver.conclusion().is_some(),
            _ => false,
        }
    }

    /// Returns a channel that disconnects when the copy has released the files that it receives.
    pub(super) fn ended(&self) -> Option<mpsc::Receiver<()>> {
        match self.side.get() {
            Some(Side::Receive(receiver)) => receiver.ended(),
            _ => None,
        }
    }

    /// Ends the streams of the copy.
    pub(super) fn end_early(&self, why: EarlyEnd) {
        self.early_end.send_replace(Some(why));
    }

    /// Waits until the streams must end. Returns the error to report to the client.
    pub(super) async fn ended_early(&self) -> Error {
        let mut early_end = self.early_end.subscribe();
        let why = early_end.wait_for(Option::is_some).await;
        // `self` holds the sender, so it cannot be gone.
        match why.ok().and_then(|why| *why) {
            Some(EarlyEnd::Superseded) => {
                Error::Refused("another copy of the same goes on in its place".into())
            }
            // This is not a refusal. The client waits until the directory is back, as for a server
            // that is unreachable.
            Some(EarlyEnd::RootDisplaced) => Error::StreamsLost(
                "the served directory was moved, replaced or mounted over".into(),
            ),
            _ => Error::Unauthorised(
                "the server's operator has withdrawn the grant for this copy".into(),
            ),
        }
    }
}

impl Server {
    /// Returns the copy that a stream belongs to. The first stream to arrive begins it.
    pub(super) async fn join(
        self: &Arc<Self>,
        hello: Hello,
        account: &Arc<Account>,
        principal: PublicKey,
    ) -> Result<Arc<Copy>, Refusal> {
        self.authorise(&hello.request, &principal)?;
        self.require_root().await?;
        let token = hello.token;
        let copy = {
            let mut copies = self.copies.lock();
            if copies.over.contains(&token) {
                return Err(refusal("this copy is over"));
            }
            let copy = match copies.running.get(&token) {
                Some(copy) => copy.clone(),
                None => {
                    let copy = Copy::new(hello.clone(), account, principal, copies.begun)?;
                    copies.begun += 1;
                    copies.running.insert(token, copy.clone());
                    copy
                }
            };
            // LH-COPY-10.
            if copy.principal != principal
                || copy.hello.request != hello.request
                || copy.hello.portion != hello.portion
            {
                return Err(Refusal {
                    kind: RefusalKind::WhoAsks,
                    detail: "this stream does not belong to that copy".into(),
                });
            }
            if copy.streams.fetch_add(1, Ordering::Relaxed)
                >= u32::from(self.limits.streams_per_copy)
            {
                copy.streams.fetch_sub(1, Ordering::Relaxed);
                return Err(Refusal {
                    kind: RefusalKind::When,
                    detail: format!(
                        "this copy has as many streams as the server allows ({})",
                        self.limits.streams_per_copy
                    ),
                });
            }
            copy
        };
        let begun = copy
            .side
            .get_or_try_init(|| self.begin(&copy))
            .await
            .map(|_| ());
        match begun {
            Ok(()) => Ok(copy),
            Err(error) => {
                copy.streams.fetch_sub(1, Ordering::Relaxed);
                self.copies.lock().running.remove(&token);
                Err(Refusal::for_error(&error))
            }
        }
    }

    /// LH-COPY-11.
    pub(super) fn authorise(
        &self,
        request: &Request,
        principal: &PublicKey,
    ) -> Result<(), Refusal> {
        let grants = self.grants.now();
        let denied = match request {
            Request::Push {
                destination,
                overwrite,
                ..
            } => {
                let denied = !grants.allow(principal, access_of(*overwrite), destination);
                let creates = grants.allow(principal, Access::Create, destination);
                let verb = if creates {
                    "replace what is in"
                } else {
                    "write"
                };
                denied.then_some((verb, destination))
            }
            Request::Pull { sources, .. } => sources
                .iter()
                .find(|s| !grants.allow(principal, Access::Read, s))
                .map(|s| ("read", s)),
        };
        match denied {
            None => Ok(()),
            Some((verb, path)) => Err(Refusal {
                kind: RefusalKind::WhoAsks,
                detail: format!(
                    "the server does not let key {principal} {verb} /{}; ask its operator",
                    printable(path.as_bytes())
                ),
            }),
        }
    }

    async fn begin(self: &Arc<Self>, copy: &Arc<Copy>) -> Result<Side, Error> {
        let account = copy.account.clone();
        let observer: Arc<dyn Observer> = Arc::new(Log(account.clone()));
        let server = self.clone();
        match &copy.hello.request {
            Request::Pull { recursive, sources } => {
                let labels = Sources::labels(sources.iter().map(|s| format!("/{s}")).collect());
                let root = blocking(move || server.current_root()).await??;
                let sources = Sources::beneath(root, sources, *recursive);
                // LH-COPY-49.
                let sources = sources.only(copy.hello.portion, copy.hello.hard_links);
                let (resume, progress) = (copy.hello.resume, copy.progress.clone());
                let queue = Queue::new(sources, resume, account, progress, observer, labels)?;
                // LH-COPY-39.
                if let Some(compare) = copy.hello.offer {
                    queue.expect(Presence::Something, compare);
                }
                // LH-COPY-45.
                if copy.hello.hard_links {
                    queue.keep_links(true);
                }
                if copy.hello.reports_not_kept {
                    queue.report_not_kept();
                }
                drop(queue.start_walk());
                Ok(Side::Send(queue))
            }
            Request::Push {
                destination,
                into,
                overwrite,
                fsync,
                names,
            } => {
                let labels = names
                    .iter()
                    .map(|name| format!("/{destination}: {}", printable(name)))
                    .collect();
                let options = WriteOptions {
                    overwrite: *overwrite,
                    fsync: *fsync,
                    resume: copy.hello.resume,
                };
                let grants = self.grants.now();
                let access = access_of(*overwrite);
                let within = grants.around(&copy.principal, access, destination).cloned();
                // The grant existed when it was checked before, and was withdrawn since.
                let within = within.ok_or(Error::Unauthorised("the grant was withdrawn".into()))?;
                let may_compare = grants.allow(&copy.principal, Access::Read, destination);
                let (target, into, names) = (destination.clone(), *into, names.clone());
                let (token, placement) = (copy.hello.token, copy.hello.placement);
                let opened = blocking(move || {
                    let root = server.current_root()?;
                    let base = root.clone();
                    let destination =
                        Destination::beneath(base, target, into, names, options, token)?;
                    // LH-COPY-53.
                    let destination = destination.placed(placement).held_to(within, may_compare);
                    let present = destination.has_something();
                    Ok::<_, Error>((destination, present, root))
                });
                let (destination, present, root) = opened.await??;
                let server = Arc::downgrade(self);
                let is_in_place = move || {
                    let server = server.upgrade();
                    server.is_none_or(|server| server.still_serves(&root))
                };
                let destination = destination
                    .beside(self.rivals_of(copy))
                    .concluded_if(Box::new(is_in_place));
                copy.present.store(present, Ordering::Relaxed);
                let _ = copy.placement.set(destination.placement());
                let receiver = Receiver::new(
                    destination,
                    Asked::Anything,
                    account,
                    copy.progress.clone(),
                    observer,
                    Sources::labels(labels),
                )?;
                Ok(Side::Receive(receiver))
            }
        }
    }
}

/// Returns the access that a push requires.
fn access_of(overwrite: bool) -> Access {
    if overwrite {
        Access::Write
    } else {
        Access::Create
    }
}

/// Membership of a stream in its copy. The last stream to leave decides whether the copy ends
/// (LH-COPY-27).
pub(super) struct Leave<'a> {
    pub server: &'a Arc<Server>,
    pub copy: &'a Arc<Copy>,
    pub counters: Arc<StreamCounters>,
}

impl Leave<'_> {
    /// Forgets a copy that is over, or whose client closed its last stream in an orderly manner.
    /// Any other copy waits for a stream to return, and is then dropped with its temporary files.
    pub(super) fn after(&self, result: &Result<StreamEnd, Error>) {
        let over = match self.copy.side.get() {
            Some(Side::Send(queue)) => queue.said_done(),
            Some(Side::Receive(receiver)) => receiver.conclusion().is_some(),
            None => true,
        };
        let last = self.copy.streams.load(Ordering::Relaxed) == 1;
        let abandoned = matches!(result, Ok(_) | Err(Error::Protocol(_) | Error::Limit(_)));
        if last && (over || abandoned) {
            self.server.forget(self.copy.hello.token);
        }
    }
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.copy.progress.remove_stream(&self.counters);
        if self.copy.streams.fetch_sub(1, Ordering::Relaxed) != 1 {
            return;
        }
        let (server, copy) = (Arc::downgrade(self.server), Arc::downgrade(self.copy));
        let grace = self.server.limits.grace;
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                tokio::time::sleep(grace).await;
                if let (Some(server), Some(copy)) = (server.upgrade(), copy.upgrade())
                    && copy.streams.load(Ordering::Relaxed) == 0
                {
                    server.forget(copy.hello.token);
                }
            });
        }
    }
}

/// Log of a copy at the server.
struct Log(Arc<Account>);

impl Observer for Log {
    fn event(&self, event: Event) {
        if let Event::Failed { path, failure } = event {
            self.0.log(|| tracing::info!(%path, %failure, "not copied"));
        }
    }
}
