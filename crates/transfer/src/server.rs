//! The server's side: which copies are under way, who may do what where, and when a copy nobody comes back for is dropped.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul_proto::PublicKey;
use tokio::io::AsyncWriteExt;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::client::{Transport, close};
use crate::confine::Dir;
use crate::destination::{Destination, WriteOptions};
use crate::error::Error;
use crate::frame_io::{Buffers, FrameReader, Incoming};
use crate::grants::{Access, Grants};
use crate::lock::Locked;
use crate::progress::{Event, Observer, Progress};
use crate::queue::Queue;
use crate::receive::Receiver;
use crate::receive_stream::{AfterDone, StreamEnd, receive_stream};
use crate::send_stream::send_stream;
use crate::source::Sources;
use crate::wire::{Frame, Hello, Request, Token, VERSION};

/// Tokens of copies that are over, remembered so that a late stream doesn't begin one again.
const REMEMBERED: usize = 4096;

/// What a server bears.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Copies at once.
    pub copies: usize,
    /// Streams of one copy.
    pub streams_per_copy: u16,
    /// Streams of all copies.
    pub streams: usize,
    /// Time for HELLO after the session is up.
    pub hello: Duration,
    /// How long a copy without a stream waits for one.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let (hello, grace) = (Duration::from_secs(20), Duration::from_secs(20));
        Self {
            copies: 64,
            streams_per_copy: 64,
            streams: 512,
            hello,
            grace,
        }
    }
}

/// Serves one directory.
pub struct Server {
    root: Arc<Dir>,
    grants: Grants,
    limits: Limits,
    copies: Mutex<Copies>,
    streams: AtomicU32,
    buffers: Arc<Buffers>,
}

#[derive(Default)]
struct Copies {
    running: HashMap<Token, Arc<Copy>>,
    over: VecDeque<Token>,
}

struct Copy {
    principal: PublicKey,
    hello: Hello,
    side: OnceCell<Side>,
    streams: AtomicU32,
    numbers: AtomicU32,
    progress: Arc<Progress>,
}

enum Side {
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

/// A refusal as it goes to the client.
struct Refusal {
    unauthorised: bool,
    detail: String,
}

impl Server {
    /// Serves `root` to whom `grants` names.
    pub fn new(root: Dir, grants: Grants, limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            root: Arc::new(root),
            grants,
            limits,
            copies: Mutex::default(),
            streams: AtomicU32::new(0),
            buffers: Arc::default(),
        })
    }

    /// Copies under way.
    pub fn copies(&self) -> usize {
        self.copies.locked().running.len()
    }

    /// Serves one stream of an authenticated principal to its end.
    pub async fn serve(
        self: &Arc<Self>,
        mut stream: impl Transport,
        principal: PublicKey,
    ) -> Result<(), Error> {
        let total = Count::up(&self.streams);
        // Which part this end has is known with HELLO.
        let watch = stream.watch(drs::Side::Receiving);
        let (reader, mut writer) = tokio::io::split(stream);
        let mut reader = FrameReader::new(reader);
        let hello = match timeout(self.limits.hello, reader.next()).await {
            Ok(Ok(Some(Incoming::Frame(Frame::Hello(hello))))) => hello,
            Ok(Ok(None)) => return Ok(()),
            Ok(Ok(Some(_))) => {
                return Err(Error::Protocol("it begins with something else than HELLO".into()));
            }
            Ok(Err(error)) => {
                if let Error::Protocol(detail) = &error {
                    let refusal = Refusal {
                        unauthorised: false,
                        detail: detail.clone(),
                    };
                    self.refuse(reader, writer, refusal).await;
                }
                return Err(error);
            }
            Err(_) => return Err(Error::Protocol("no HELLO in time".into())),
        };
        let joined = if total.number > self.limits.streams as u32 {
            Err(refusal(
                "the server carries as many streams as it can; try again later",
            ))
        } else {
            self.join(hello, principal).await
        };
        let (copy, side) = match &joined {
            Ok(copy) => match copy.side.get() {
                Some(side) => (copy, side),
                None => return Ok(()),
            },
            Err(_) => {
                if let Err(refusal) = joined {
                    self.refuse(reader, writer, refusal).await;
                }
                return Ok(());
            }
        };
        let number = copy.numbers.fetch_add(1, Ordering::Relaxed);
        let leave = Leave { server: self, copy };
        if let (Side::Send(_), Some(watch)) = (side, &watch) {
            watch.begin_anew(drs::Side::Sending);
        }
        let counters = copy.progress.add_stream(&principal.to_string(), watch, true);
        let mut greeting = Vec::new();
        Frame::Accept {
            version: VERSION,
            max_streams: self.limits.streams_per_copy,
        }
        .encode(&mut greeting);
        let result = match side {
            Side::Send(queue) => {
                send_stream(
                    queue,
                    number,
                    &self.buffers,
                    &counters,
                    &mut reader,
                    &mut writer,
                    greeting,
                )
                .await
            }
            Side::Receive(receiver) => {
                let after_done = AfterDone::Stay(&copy.numbers);
                receive_stream(
                    receiver,
                    &counters,
                    &mut reader,
                    &mut writer,
                    &greeting,
                    after_done,
                )
                .await
            }
        };
        leave.after(&result);
        match result {
            Ok(StreamEnd::Finished | StreamEnd::Closed) => {
                close(reader.into_inner().unsplit(writer)).await;
                Ok(())
            }
            Err(error) => {
                if let Error::Protocol(detail) = &error {
                    let refusal = Refusal {
                        unauthorised: false,
                        detail: detail.clone(),
                    };
                    self.refuse(reader, writer, refusal).await;
                }
                Err(error)
            }
        }
    }

    async fn refuse<S: Transport>(
        &self,
        reader: FrameReader<tokio::io::ReadHalf<S>>,
        mut writer: tokio::io::WriteHalf<S>,
        refusal: Refusal,
    ) {
        let mut out = Vec::new();
        Frame::Refuse {
            unauthorised: refusal.unauthorised,
            detail: refusal.detail,
        }
        .encode(&mut out);
        let said = async {
            writer.write_all(&out).await?;
            writer.flush().await
        };
        if matches!(timeout(Duration::from_secs(1), said).await, Ok(Ok(()))) {
            close(reader.into_inner().unsplit(writer)).await;
        }
    }

    /// The copy a stream belongs to, begun by whichever of its streams comes first.
    async fn join(self: &Arc<Self>, hello: Hello, principal: PublicKey) -> Result<Arc<Copy>, Refusal> {
        self.authorise(&hello.request, &principal)?;
        let token = hello.token;
        let copy = {
            let mut copies = self.copies.locked();
            if copies.over.contains(&token) {
                return Err(refusal("this copy is over"));
            }
            if !copies.running.contains_key(&token) && copies.running.len() >= self.limits.copies {
                return Err(refusal(
                    "the server carries as many copies as it can; try again later",
                ));
            }
            let copy = copies.running.entry(token).or_insert_with(|| {
                Arc::new(Copy {
                    principal,
                    hello: hello.clone(),
                    side: OnceCell::new(),
                    streams: AtomicU32::new(0),
                    numbers: AtomicU32::new(0),
                    progress: Arc::default(),
                })
            });
            if copy.principal != principal || copy.hello != hello {
                return Err(Refusal {
                    unauthorised: true,
                    detail: "this stream does not belong to that copy".into(),
                });
            }
            if copy.streams.fetch_add(1, Ordering::Relaxed) >= u32::from(self.limits.streams_per_copy) {
                copy.streams.fetch_sub(1, Ordering::Relaxed);
                return Err(refusal("this copy has as many streams as the server allows"));
            }
            copy.clone()
        };
        let begun = copy.side.get_or_try_init(|| self.begin(&copy)).await.map(|_| ());
        match begun {
            Ok(()) => Ok(copy),
            Err(error) => {
                copy.streams.fetch_sub(1, Ordering::Relaxed);
                self.copies.locked().running.remove(&token);
                Err(refusal(error.to_string()))
            }
        }
    }

    fn authorise(&self, request: &Request, principal: &PublicKey) -> Result<(), Refusal> {
        let denied = match request {
            Request::Push { destination, .. } => {
                (!self.grants.allow(principal, Access::Write, destination)).then_some(("write", destination))
            }
            Request::Pull { sources, .. } => sources
                .iter()
                .find(|s| !self.grants.allow(principal, Access::Read, s))
                .map(|s| ("read", s)),
        };
        match denied {
            None => Ok(()),
            Some((verb, path)) => {
                let detail = format!(
                    "the server does not let key {principal} {verb} /{}; ask its operator",
                    path.as_path().display()
                );
                Err(Refusal {
                    unauthorised: true,
                    detail: longhaul_proto::text::printable(detail.as_bytes()),
                })
            }
        }
    }

    async fn begin(&self, copy: &Copy) -> Result<Side, Error> {
        let observer: Arc<dyn Observer> = Arc::new(Log);
        match &copy.hello.request {
            Request::Pull { recursive, sources } => {
                let names = sources.iter().map(|s| format!("/{s}")).collect();
                let sources = Sources::beneath(self.root.clone(), sources, *recursive);
                let queue = Queue::new(sources, copy.progress.clone(), observer, Sources::labels(names));
                let walk = queue.clone();
                tokio::task::spawn_blocking(move || walk.walk());
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
                    .map(|name| format!("/{destination}: {}", longhaul_proto::text::printable(name)))
                    .collect();
                let options = WriteOptions {
                    overwrite: *overwrite,
                    fsync: *fsync,
                };
                let (root, target, into, names) =
                    (self.root.clone(), destination.clone(), *into, names.clone());
                let token = copy.hello.token;
                let opened = tokio::task::spawn_blocking(move || {
                    Destination::beneath(root, target, into, names, options, token)
                });
                let destination = opened
                    .await
                    .map_err(|error| Error::Stream(std::io::Error::other(error)))??;
                Ok(Side::Receive(Receiver::new(
                    destination,
                    copy.progress.clone(),
                    observer,
                    Sources::labels(labels),
                )))
            }
        }
    }

    fn forget(&self, token: Token) {
        let mut copies = self.copies.locked();
        if copies.running.remove(&token).is_some() {
            if copies.over.len() == REMEMBERED {
                copies.over.pop_front();
            }
            copies.over.push_back(token);
        }
    }
}

fn refusal(detail: impl Into<String>) -> Refusal {
    Refusal {
        unauthorised: false,
        detail: detail.into(),
    }
}

/// A count that goes down again by itself.
struct Count<'a> {
    of: &'a AtomicU32,
    number: u32,
}

impl<'a> Count<'a> {
    fn up(of: &'a AtomicU32) -> Self {
        Self {
            of,
            number: of.fetch_add(1, Ordering::Relaxed) + 1,
        }
    }
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        self.of.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream's membership of its copy. The last one to leave decides what becomes of it.
struct Leave<'a> {
    server: &'a Arc<Server>,
    copy: &'a Arc<Copy>,
}

impl Leave<'_> {
    /// A copy that is over, or whose client closed its last stream in good order, is forgotten at once; otherwise it waits for
    /// a stream to come back, and then its temporary files go with it.
    fn after(&self, result: &Result<StreamEnd, Error>) {
        let over = match self.copy.side.get() {
            Some(Side::Send(queue)) => queue.said_done(),
            Some(Side::Receive(receiver)) => receiver.conclusion().is_some(),
            None => true,
        };
        let last = self.copy.streams.load(Ordering::Relaxed) == 1;
        let abandoned = matches!(result, Ok(_) | Err(Error::Protocol(_)));
        if last && (over || abandoned) {
            self.server.forget(self.copy.hello.token);
        }
    }
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
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

/// The server's log of a copy.
struct Log;

impl Observer for Log {
    fn event(&self, event: Event) {
        if let Event::Failed { path, failure } = event {
            tracing::info!(%path, %failure, "not copied");
        }
    }
}
