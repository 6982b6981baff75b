//! The service `fetch`: this server is the client of another one, in the name of a client of its
//! own (`docs/fetch-protocol.md`). The copy counts and ends like one that the client sends itself.

mod ask;
mod counted;
mod reports;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use longhaul_accounts::CopyResult;
use longhaul_proto::{Delegation, Endpoint, PublicKey};
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
use crate::fetch::message::{FetchMessage, FetchReport, MAX_ASK_BYTES};
use crate::files::{LineError, LineReader, write_lines};
use crate::receive::Receiver;
use crate::remote_copy::{self, CopyProgress, PROGRESS_INTERVAL};
use crate::tree_hash::Hash;
use crate::wire::{CopyToken, Hello, RefusalKind};

use ask::{CheckedAsk, FetchKeys, read_delegation};
use counted::{CountedConnector, SparePermit};
use reports::{FetchObserver, MAX_QUEUED_BYTES, QueuedReports, ReportQueue};

/// Time limit for a client to receive a report (LH-FETCH-5).
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time for which an outage of the other server is tolerated.
const MAX_PATIENCE: Duration = Duration::from_secs(24 * 3600);
/// Maximum length of a renewal, in bytes (LH-FETCH-1).
const MAX_RENEWAL_BYTES: usize = 4 << 10;
/// Memory for the first line and what it is read into, in bytes.
const PARSING_BYTES: u64 = 8 * MAX_ASK_BYTES as u64;

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
        let parsing_memory = account.take(Resource::Bookkeeping, PARSING_BYTES)?;
        let ask = timeout(self.limits.hello_timeout, lines.next()).await;
        let ask = ask.map_err(|_| Error::Protocol("no first line in time".into()))?;
        let ask = ask.map_err(unexpected)?.ok_or_else(left)?;
        let ask = CheckedAsk::read(&ask, keys)?;
        drop(parsing_memory);
        lines.limit(MAX_RENEWAL_BYTES);
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
            Ok(_) | Err(Error::Stream(_)) => CopyEnd::Left,
            Err(error @ (Error::Connect(_) | Error::StreamsLost(_) | Error::CopyLost(_))) => {
                CopyEnd::Failed(CopyResult::SourceLost, error.to_string())
            }
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
        let spare = SparePermit::new(account.take(Resource::Streams, 1)?);
        let (queue, queued) = ReportQueue::new();
        let destination = self.open_destination(copy).await?;
        let client = Client {
            connector: Arc::new(CountedConnector {
                inner: connector,
                account: account.clone(),
                spare,
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
            // Tokens are for their owner's own sessions.
            tokens: None,
        };
        let labels = ask.labels();
        let (of_copy, of_task) = (Arc::downgrade(copy), Arc::downgrade(copy));
        let begins = move |receiver: &Arc<Receiver>| note_receiver(&of_copy, receiver);
        let mut copying = JoinSet::new();
        copying.spawn(async move {
            let pulling = client.pull_with(destination, labels, move || account.clone(), begins);
            let mut outcome = pulling.await?;
            // From now on the copy counts as complete, even if its client leaves.
            if let Some(copy) = of_task.upgrade() {
                let _ = copy.fetched.set(outcome.manifest);
            }
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
        // At most one line in each interval.
        let mut reads = true;
        let ended = loop {
            tokio::select! {
                ended = copying.join_next() => break match ended {
                    Some(Ok(ended)) => ended,
                    Some(Err(error)) => Err(Error::Stream(std::io::Error::other(error))),
                    None => Err(left()),
                },
                error = copy.ended_early() => return Err(error),
                line = self.lines.next(), if reads => {
                    let line = line.map_err(unexpected)?.ok_or_else(left)?;
                    self.renew(&line)?;
                    reads = false;
                }
                events = queued.next() => send(self.writer, &events).await?,
                _ = ticks.tick() => {
                    reads = true;
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
        self.renewed.send_if_modified(|newest| {
            let is_later = delegation.end_unix_ms > newest.end_unix_ms;
            if is_later {
                *newest = delegation;
            }
            is_later
        });
        Ok(())
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
        RefusalKind::Token => Error::Token(detail),
    }
}
