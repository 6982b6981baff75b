//! The service `fetch`: this server is the client of another one, in the name of a client of its
//! own (`docs/fetch-protocol.md`). The copy counts and ends like one that the client sends itself.

mod counted;
mod reports;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use longhaul_proto::{Delegation, Endpoint, Host, PublicKey};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

use super::copy::{CopyKeys, ServerCopy};
use super::ending::CopyEnd;
use super::{CopyRefusal, Server};
use crate::account::{Account, Resource};
use crate::client::{Client, Connector, Transport, close};
use crate::error::Error;
use crate::fetch::FETCH_VERSION;
use crate::fetch::message::{FetchAsk, FetchMessage, FetchReport, MAX_ASK_BYTES};
use crate::files::{LineError, LineReader, write_lines};
use crate::path::RelPath;
use crate::receive::Receiver;
use crate::remote_copy::{self, CopyAsk, CopyDirection, CopyProgress, PROGRESS_INTERVAL};
use crate::tree_hash::Hash;
use crate::wire::{CopyRequest, CopyToken, Hello, RefusalKind};

use counted::CountedConnector;
use reports::{FetchObserver, MAX_QUEUED_BYTES, QueuedReports, ReportQueue};

/// Time limit for a client to receive a report (LH-FETCH-5).
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time for which an outage of the other server is tolerated.
const MAX_PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// The server to fetch from.
#[derive(Debug, Clone)]
pub struct FetchSource {
    /// Its endpoint, as the client named it.
    pub server: Endpoint,
    /// Its key, as the client knows it.
    pub key: PublicKey,
    /// The newest delegation of the client to this server.
    pub delegation: watch::Receiver<Delegation>,
}

/// What a client asked for, checked as far as this server can.
struct CheckedAsk {
    copy: CopyAsk,
    delegation: Delegation,
    server: Endpoint,
    /// Request as if the client sent the files itself: it decides about rights here.
    here: CopyRequest,
    /// Request to the other server.
    there: CopyRequest,
    /// Name of what the delegation must permit.
    name: String,
}

/// The principal of a session, and this server's own key.
#[derive(Debug, Clone, Copy)]
struct FetchKeys {
    principal: PublicKey,
    me: PublicKey,
}

/// Removes a copy, however its session ends.
struct RunningFetch<'a> {
    server: &'a Arc<Server>,
    copy: Arc<ServerCopy>,
}

impl Drop for RunningFetch<'_> {
    fn drop(&mut self) {
        self.server.forget(self.copy.hello.token, &CopyEnd::Left);
    }
}

impl Server {
    /// Fetches from another server what an authenticated principal asks for, until the end of the
    /// copy or of its stream. `me` is this server's own key. `connect` returns the connector to the
    /// other server, or refuses it.
    ///
    /// # Errors
    /// The error that ended the copy early; it has been reported to the client.
    pub async fn serve_fetch<C: Connector>(
        self: &Arc<Self>,
        stream: impl Transport,
        principal: PublicKey,
        me: PublicKey,
        connect: impl FnOnce(FetchSource) -> Result<C, Error>,
    ) -> Result<(), Error> {
        let account = self.account(principal);
        let (reader, mut writer) = tokio::io::split(stream);
        let mut lines = LineReader::new(reader, MAX_ASK_BYTES);
        let keys = FetchKeys { principal, me };
        let ended = match account.take(Resource::Streams, 1) {
            Ok(_held) => {
                self.fetch_for(&mut lines, &mut writer, keys, &account, connect)
                    .await
            }
            Err(exhausted) => Err(exhausted.into()),
        };
        let end = FetchReport::Ended(remote_copy::CopyEnd::new(&ended));
        // The client may be gone.
        let _ = send(&mut writer, &[end]).await;
        close(lines.into_inner().unsplit(writer)).await;
        ended.map(drop)
    }

    async fn fetch_for<C: Connector>(
        self: &Arc<Self>,
        lines: &mut LineReader<impl AsyncRead + Unpin>,
        writer: &mut (impl AsyncWrite + Unpin),
        keys: FetchKeys,
        account: &Arc<Account>,
        connect: impl FnOnce(FetchSource) -> Result<C, Error>,
    ) -> Result<Hash, Error> {
        let ask = timeout(self.limits.hello_timeout, lines.next()).await;
        let ask = ask.map_err(|_| Error::Protocol("no first line in time".into()))?;
        let ask = ask.map_err(unexpected)?.ok_or_else(left)?;
        let ask = CheckedAsk::read(&ask, keys)?;
        // LH-FETCH-2.
        self.authorise(&ask.here, &keys.principal, None)
            .map_err(into_error)?;
        self.require_root().await.map_err(into_error)?;
        let (renewed, delegation) = watch::channel(ask.delegation.clone());
        let connector = connect(FetchSource {
            server: ask.server.clone(),
            key: ask.copy.server,
            delegation,
        })?;
        let copy = self.begin_fetch(&ask, keys, account)?;
        let running = RunningFetch { server: self, copy };
        let session = RunningSession {
            lines,
            writer,
            keys,
            key: ask.copy.server,
            name: &ask.name,
            renewed,
        };
        let ended = self
            .run_fetch(&ask, &running.copy, connector, session)
            .await;
        let end = match &ended {
            Ok(manifest) => {
                let _ = running.copy.fetched.set(*manifest);
                CopyEnd::Left
            }
            Err(Error::Stream(_)) => CopyEnd::Left,
            Err(error) => CopyEnd::for_error(error),
        };
        self.forget(running.copy.hello.token, &end);
        ended
    }

    /// Registers the copy, which counts like one that the client sends.
    fn begin_fetch(
        &self,
        ask: &CheckedAsk,
        keys: FetchKeys,
        account: &Arc<Account>,
    ) -> Result<Arc<ServerCopy>, Error> {
        let hello = ask.copy.hello(ask.here.clone(), CopyToken::random()?);
        let hello = Hello {
            existing: ask.copy.existing_policy(),
            keep: ask.copy.keep.for_receiver(),
            ..hello
        };
        let keys = CopyKeys {
            principal: keys.principal,
            delegate: Some(keys.me),
        };
        let mut copies = self.copies.lock();
        let copy = self.begin_copy(&mut copies, hello, account, keys, None);
        let copy = copy.map_err(into_error)?;
        // The session that asked carries it.
        copy.streams.store(1, Ordering::Relaxed);
        Ok(copy)
    }

    /// Copies until the end, or until the client leaves.
    async fn run_fetch<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        self: &Arc<Self>,
        ask: &CheckedAsk,
        copy: &Arc<ServerCopy>,
        connector: impl Connector,
        mut session: RunningSession<'_, R, W>,
    ) -> Result<Hash, Error> {
        let account = self.account(copy.principal);
        let _queue_memory = account.take(Resource::Bookkeeping, MAX_QUEUED_BYTES)?;
        let (queue, queued) = ReportQueue::new();
        let destination = self.open_destination(copy).await?;
        let client = Client {
            connector: Arc::new(CountedConnector {
                inner: connector,
                account: account.clone(),
                copy: Arc::downgrade(copy),
                max_streams: self.limits.streams_per_copy.into(),
            }),
            hello: ask.copy.hello(ask.there.clone(), CopyToken::random()?),
            compare: ask.copy.compare(),
            streams: ask.copy.streams,
            memory: None,
            patience: ask.copy.patience().min(MAX_PATIENCE),
            progress: copy.progress.clone(),
            observer: Arc::new(FetchObserver::new(
                &ask.copy,
                account.clone(),
                queue.clone(),
            )),
            receipt: None,
        };
        let labels = ask.labels();
        let of_copy = Arc::downgrade(copy);
        let begins = move |receiver: &Arc<Receiver>| note_receiver(&of_copy, receiver);
        let mut copying = JoinSet::new();
        copying.spawn(async move {
            let pulling = client.pull_with(destination, labels, move || account.clone(), begins);
            let mut outcome = pulling.await?;
            while outcome.closing.join_next().await.is_some() {}
            Ok(outcome.manifest)
        });
        let ended = session.watch(copy, &mut copying, (&queue, queued)).await;
        // Files are released before the copy is forgotten.
        copying.shutdown().await;
        ended
    }
}

fn note_receiver(copy: &Weak<ServerCopy>, receiver: &Arc<Receiver>) {
    if let Some(copy) = copy.upgrade() {
        *copy.fetching.lock() = Arc::downgrade(receiver);
    }
}

/// The client's session while the copy runs.
struct RunningSession<'a, R, W> {
    lines: &'a mut LineReader<R>,
    writer: &'a mut W,
    keys: FetchKeys,
    /// Key of the server that is read from.
    key: PublicKey,
    /// Name of what the delegation must permit.
    name: &'a str,
    renewed: watch::Sender<Delegation>,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> RunningSession<'_, R, W> {
    /// Reports until the copy ends. If the client leaves, the copy ends (LH-FETCH-4).
    async fn watch(
        &mut self,
        copy: &ServerCopy,
        copying: &mut JoinSet<Result<Hash, Error>>,
        (queue, mut queued): (&ReportQueue, QueuedReports),
    ) -> Result<Hash, Error> {
        let mut ticks = interval(PROGRESS_INTERVAL);
        let ended = loop {
            tokio::select! {
                ended = copying.join_next() => break match ended {
                    Some(Ok(ended)) => ended,
                    Some(Err(error)) => Err(Error::Stream(std::io::Error::other(error))),
                    None => Err(left()),
                },
                error = copy.ended_early() => return Err(error),
                line = self.lines.next() => {
                    let line = line.map_err(unexpected)?.ok_or_else(left)?;
                    self.renew(&line)?;
                }
                events = queued.next() => send(self.writer, &events).await?,
                _ = ticks.tick() => {
                    let counts = CopyProgress::read(&copy.progress);
                    send(self.writer, &[FetchReport::Progress(counts)]).await?;
                }
            }
        };
        let mut last = queued.drain();
        last.push(FetchReport::Progress(CopyProgress::read(&copy.progress)));
        if let events @ 1.. = queue.left_out() {
            last.push(FetchReport::LeftOut { events });
        }
        // A client that is gone by now changes nothing about what is in place.
        let _ = send(self.writer, &last).await;
        ended
    }

    /// LH-FETCH-4.
    fn renew(&self, line: &[u8]) -> Result<(), Error> {
        let FetchMessage::Renew { delegation } = serde_json::from_slice(line)
            .map_err(|_| Error::Protocol("a line that is not understood".into()))?;
        let delegation = read_delegation(&delegation, self.keys, self.key, self.name)?;
        self.renewed.send_replace(delegation);
        Ok(())
    }
}

impl CheckedAsk {
    /// Reads the client's first line (LH-FETCH-1, LH-FETCH-2).
    fn read(line: &[u8], keys: FetchKeys) -> Result<Self, Error> {
        let ask: FetchAsk = serde_json::from_slice(line)
            .map_err(|_| Error::Protocol("the first line does not ask for a copy".into()))?;
        if !(ask.lowest..=ask.highest).contains(&FETCH_VERSION) {
            return Err(Error::Protocol(format!(
                "this server speaks version {FETCH_VERSION} of the fetch protocol"
            )));
        }
        let copy = ask.copy;
        let odd = |what: &str| Error::Protocol(format!("a copy with {what}"));
        if copy.direction != CopyDirection::Pull {
            return Err(odd("this server as the source"));
        }
        let is_plain = |name: &Vec<u8>| RelPath::from_bytes(name).is_ok() && !name.contains(&b'/');
        let names = copy.source_names();
        if names.len() != copy.sources.len() || !names.iter().all(is_plain) {
            return Err(odd("invalid names"));
        }
        let [host] = &copy.hosts[..] else {
            return Err(odd("other than one server"));
        };
        let host = Host::parse(host).map_err(|_| odd("an invalid server"))?;
        if copy.port == 0 {
            return Err(odd("an invalid port"));
        }
        let server = Endpoint::new(host, copy.port);
        let there = copy.request().map_err(|_| odd("an invalid source"))?;
        let here = CopyRequest::Push {
            destination: RelPath::from_bytes(&copy.destination.0)
                .map_err(|_| odd("an invalid destination"))?,
            into: copy.into,
            overwrite: copy.overwrite,
            fsync: copy.fsync,
            names,
        };
        // The bounds of a client's own copy hold for this one.
        let fits = |request: &CopyRequest| {
            let hello = copy.hello(request.clone(), CopyToken([0; 16]));
            hello.fits() && !copy.sources.is_empty()
        };
        if !fits(&there) || !fits(&here) {
            return Err(odd("no sources, or too many"));
        }
        let name = copy
            .hello(there.clone(), CopyToken([0; 16]))
            .delegated_name();
        let delegation = read_delegation(&ask.delegation, keys, copy.server, &name)?;
        Ok(Self {
            copy,
            delegation,
            server,
            here,
            there,
            name,
        })
    }

    /// Returns the names of the sources in reports.
    fn labels(&self) -> Vec<String> {
        let CopyRequest::Pull { sources, .. } = &self.there else {
            return Vec::new();
        };
        let label = |source: &RelPath| match source.is_root() {
            true => format!("lh://{}/", self.server),
            false => format!("lh://{}/{source}", self.server),
        };
        sources.iter().map(label).collect()
    }
}

/// Reads a delegation, and checks that the other server could accept it. That server decides.
fn read_delegation(
    text: &str,
    keys: FetchKeys,
    server: PublicKey,
    name: &str,
) -> Result<Delegation, Error> {
    let delegation: Delegation = text
        .parse()
        .map_err(|error: longhaul_proto::InvalidDelegation| Error::Protocol(error.to_string()))?;
    let is_for_this = delegation.principal == keys.principal
        && delegation.delegate == keys.me
        && delegation.audience == Some(server)
        && delegation.from == name;
    match is_for_this {
        true => Ok(delegation),
        false => Err(Error::Unauthorised(
            "the delegation is for another copy: its principal must sign one for this".into(),
        )),
    }
}

async fn send(
    writer: &mut (impl AsyncWrite + Unpin),
    reports: &[FetchReport],
) -> Result<(), Error> {
    match timeout(
        WRITE_TIMEOUT,
        write_lines(writer, None::<&FetchReport>, reports),
    )
    .await
    {
        Ok(written) => Ok(written?),
        Err(_) => Err(Error::Stream(std::io::ErrorKind::TimedOut.into())),
    }
}

/// Returns the error of a client that left.
fn left() -> Error {
    Error::Stream(std::io::ErrorKind::UnexpectedEof.into())
}

fn unexpected(error: LineError) -> Error {
    match error {
        LineError::Io(error) => Error::Stream(error),
        LineError::Cut => left(),
        error => Error::Protocol(error.to_string()),
    }
}

fn into_error(refusal: CopyRefusal) -> Error {
    let detail = refusal.detail;
    match refusal.kind {
        RefusalKind::Request => Error::Refused(detail),
        RefusalKind::Key => Error::Unauthorised(detail),
        RefusalKind::Limit => Error::Limit(detail),
    }
}
