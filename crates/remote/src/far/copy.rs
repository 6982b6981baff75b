//! A far side as the client of another one. The data goes between the two, and the side that
//! started them receives reports.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use data_encoding::HEXLOWER;
use longhaul_proto::Host;
use longhaul_session::{
    ConnectOptions, Endpoint, Identity, Route, ServerTrust, ServiceName, Session,
};
use longhaul_transfer::path::RelPath;
use longhaul_transfer::{
    AttributeSettings, Client, Compare, ConnectError, Connector, CopyDestination, CopyOutcome,
    CopyRequest, CopyToken, DEFAULT_PATIENCE, Error, ExistingPolicy, Filter, FilterRules, Hello,
    MetadataChanges, Observer, Portion, RouteInfo, SessionConnector, Sources, TransferEvent,
    TransferProgress, WriteOptions,
};
use parking_lot::Mutex;
use tokio::sync::mpsc::UnboundedSender;

use super::resolve;
use crate::connector::{open_host, parse_paths};
use crate::message::{
    CopyAsk, CopyDirection, CopyEnd, CopyErrorKind, CopyEvent, CopyProgress, FarAnswer, PathBytes,
};
use crate::search::{DIRECTION_TIMEOUT, SETUP_TIMEOUT, connect_to_host};

/// Interval between progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// Copies, and reports events and at last the result.
pub(super) async fn run(
    ask: CopyAsk,
    identity: Arc<Identity>,
    answers: UnboundedSender<FarAnswer>,
) {
    let server = match reach(&ask, identity).await {
        Ok(server) => server,
        Err(reason) => {
            let _ = answers.send(FarAnswer::NotReached { reason });
            return;
        }
    };
    let progress = Arc::new(TransferProgress::default());
    let reporting = Arc::new(EventReporter {
        answers: answers.clone(),
        report_done: ask.report_done,
        report_waiting: ask.patience_ms.is_some(),
    });
    let carried = carry_out(&ask, server, progress.clone(), reporting);
    let ended = reporting_progress(carried, &progress, &answers).await;
    let end = match ended {
        Ok(mut outcome) => {
            let manifest = Some(HEXLOWER.encode(&outcome.manifest));
            while outcome.closing.join_next().await.is_some() {}
            CopyEnd {
                manifest,
                error: None,
                kind: None,
            }
        }
        Err(error) => CopyEnd {
            manifest: None,
            error: Some(error.to_string()),
            kind: Some(kind(&error)),
        },
    };
    let _ = answers.send(FarAnswer::Progress(counts(&progress)));
    let _ = answers.send(FarAnswer::Ended(end));
}

async fn reporting_progress<T>(
    copy: impl Future<Output = T>,
    progress: &TransferProgress,
    answers: &UnboundedSender<FarAnswer>,
) -> T {
    tokio::pin!(copy);
    let mut tick = tokio::time::interval(PROGRESS_INTERVAL);
    loop {
        tokio::select! {
            ended = &mut copy => return ended,
            _ = tick.tick() => drop(answers.send(FarAnswer::Progress(counts(progress)))),
        }
    }
}

/// Sessions to the other far side, with the first one established.
struct ReachedServer {
    sessions: SessionConnector,
    first: Mutex<Option<Session>>,
}

impl Connector for ReachedServer {
    type Stream = Session;

    fn routes(&self) -> Vec<RouteInfo> {
        self.sessions.routes()
    }

    async fn connect(&self, route: usize) -> Result<Session, ConnectError> {
        let first = self.first.lock().take();
        match first {
            Some(session) => Ok(session),
            None => self.sessions.connect(route).await,
        }
    }
}

async fn reach(ask: &CopyAsk, identity: Arc<Identity>) -> Result<ReachedServer, String> {
    let host = ask.hosts.first().map_or("", String::as_str);
    let base = ConnectOptions {
        congestion: ask.congestion.clone(),
        is_fetch: ask.direction == CopyDirection::Pull,
        ..ConnectOptions::new(
            ServiceName::COPY,
            Route::direct(),
            Endpoint::new(open_host(host), ask.port),
            identity,
            ServerTrust::Pinned(ask.server),
        )
    };
    let (session, address) = connect_to_host(
        ask.hosts.clone(),
        Some(ask.port),
        base.clone(),
        None,
        DIRECTION_TIMEOUT,
        None,
    )
    .await?;
    let base = ConnectOptions {
        destination: Endpoint::new(Host::Ip(address.ip()), address.port()),
        setup_timeout: SETUP_TIMEOUT,
        ..base
    };
    Ok(ReachedServer {
        sessions: SessionConnector::new(base, vec![]),
        first: Mutex::new(Some(session)),
    })
}

async fn carry_out(
    ask: &CopyAsk,
    server: ReachedServer,
    progress: Arc<TransferProgress>,
    reporting: Arc<EventReporter>,
) -> Result<CopyOutcome, Error> {
    let bytes = |paths: &[PathBytes]| paths.iter().map(|path| path.0.clone()).collect::<Vec<_>>();
    let home = resolve::home();
    let request = match ask.direction {
        CopyDirection::Push => CopyRequest::Push {
            destination: plain(&ask.destination)?,
            into: ask.into,
            overwrite: ask.overwrite,
            fsync: ask.fsync,
            names: bytes(&ask.names),
        },
        CopyDirection::Pull => CopyRequest::Pull {
            recursive: ask.recursive,
            sources: parse_paths(&ask.sources)
                .map_err(|error| Error::Refused(error.to_string()))?,
        },
    };
    let token = CopyToken::random()?;
    let hello = Hello {
        token,
        request,
        resume: ask.resume,
        clear: ask.no_encrypt,
        offer: None,
        hard_links: ask.hard_links,
        single: ask.streams == Some(1),
        portion: Portion::Whole,
        placement: None,
        reports_not_kept: false,
        filter: match ask.direction {
            CopyDirection::Push => FilterRules::default(),
            CopyDirection::Pull => ask.filter.clone(),
        },
        receipt: false,
        compression: ask.compression,
        delta: ask.delta,
        existing: match ask.direction {
            CopyDirection::Push => ask.existing_policy(),
            CopyDirection::Pull => ExistingPolicy::default(),
        },
        keep: ask.keep,
        bearer: None,
    };
    let client = Client {
        connector: Arc::new(server),
        hello,
        compare: match ask.checksum {
            true => Compare::Content,
            false => Compare::SizeAndTime,
        },
        streams: ask.streams,
        // A far side leaves nothing behind but the copy.
        memory: None,
        patience: ask
            .patience_ms
            .map_or(DEFAULT_PATIENCE, Duration::from_millis),
        progress,
        observer: reporting,
        receipt: None,
        tokens: None,
    };
    match ask.direction {
        CopyDirection::Push => {
            let paths: Vec<PathBuf> = ask
                .sources
                .iter()
                .map(|path| resolve::typed(&home, &path.0))
                .collect();
            let (sources, _) = Sources::local(&paths, ask.recursive)?;
            let filter = Filter::new(ask.filter.clone());
            let filter = filter.map_err(|error| Error::Refused(error.to_string()))?;
            let sources = sources
                .filtered(Some(Arc::new(filter)))
                .keeping(ask.keep, MetadataChanges::default());
            client.push(sources, ask.labels.clone()).await
        }
        CopyDirection::Pull => {
            let options = WriteOptions {
                overwrite: ask.overwrite,
                fsync: ask.fsync,
                resume: ask.resume,
            };
            let path = resolve::typed(&home, &ask.destination.0);
            let destination = CopyDestination::local(&path, bytes(&ask.names), options, token)?
                .with_existing(ask.existing_policy())
                .with_attributes(AttributeSettings {
                    keep: ask.keep,
                    changes: MetadataChanges::default(),
                    is_privileged: true,
                    corrects_existing: ask.keep.has_attributes(),
                });
            client.pull(destination, ask.labels.clone()).await
        }
    }
}

fn plain(path: &PathBytes) -> Result<RelPath, Error> {
    RelPath::from_bytes(&path.0).map_err(|error| Error::Refused(error.to_string()))
}

fn counts(progress: &TransferProgress) -> CopyProgress {
    CopyProgress {
        entries_found: progress.entries_found.load(Ordering::Relaxed),
        bytes_found: progress.bytes_found.load(Ordering::Relaxed),
        walk_complete: progress.walk_complete.load(Ordering::Relaxed),
        entries_done: progress.entries_done.load(Ordering::Relaxed),
        files_done: progress.files_done.load(Ordering::Relaxed),
        bytes_done: progress.bytes_done.load(Ordering::Relaxed),
        bytes_resumed: Some(progress.bytes_resumed.load(Ordering::Relaxed)),
        bytes_saved: progress.bytes_saved.load(Ordering::Relaxed),
        bytes_clear: progress.bytes_plaintext.load(Ordering::Relaxed),
        files_unchanged: progress.files_unchanged.load(Ordering::Relaxed),
        bytes_unchanged: progress.bytes_unchanged.load(Ordering::Relaxed),
        files_linked: progress.files_linked.load(Ordering::Relaxed),
        bytes_linked: progress.bytes_linked.load(Ordering::Relaxed),
        failures: progress.failures.load(Ordering::Relaxed),
    }
}

fn kind(error: &Error) -> CopyErrorKind {
    match error {
        Error::Connect(_) => CopyErrorKind::Connect,
        Error::Unauthorised(_) | Error::Token(_) => CopyErrorKind::Unauthorised,
        Error::StreamsLost(_) | Error::Stream(_) | Error::CopyLost(_) => CopyErrorKind::BrokeOff,
        Error::Protocol(_) | Error::NotAsked(_) | Error::Disagreement => {
            CopyErrorKind::Disagreement
        }
        Error::Path { .. } => CopyErrorKind::Path,
        Error::Refused(_) | Error::Limit(_) => CopyErrorKind::Refused,
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Reporter of events. Completed entries are only reported to a side that wants them, which must
/// keep up.
struct EventReporter {
    answers: UnboundedSender<FarAnswer>,
    report_done: bool,
    /// True if the receiving side knows events about waiting.
    report_waiting: bool,
}

impl Observer for EventReporter {
    fn event(&self, event: TransferEvent) {
        let event = match event {
            TransferEvent::StreamOpened { stream, .. } => CopyEvent::StreamOpened { stream },
            TransferEvent::StreamLost {
                is_silent: true, ..
            } => return,
            TransferEvent::Waiting { .. }
            | TransferEvent::ArrivalResumed { .. }
            | TransferEvent::CopyReplaced { .. }
                if !self.report_waiting =>
            {
                return;
            }
            TransferEvent::Waiting { silence, patience } => CopyEvent::Waiting {
                silence_ms: millis(silence),
                patience_ms: millis(patience),
            },
            TransferEvent::ArrivalResumed { after } => CopyEvent::Back {
                after_ms: millis(after),
            },
            TransferEvent::CopyReplaced { reason } => CopyEvent::BegunAgain { reason },
            TransferEvent::StreamLost { stream, reason, .. } => {
                CopyEvent::StreamLost { stream, reason }
            }
            TransferEvent::Resumed { path, bytes, size } => {
                CopyEvent::Resumed { path, bytes, size }
            }
            TransferEvent::Done {
                path,
                bytes,
                hash,
                same,
            } if self.report_done => CopyEvent::Done {
                path,
                bytes,
                blake3: hash.map(|hash| HEXLOWER.encode(&hash)),
                same,
            },
            // Only the side that started the copy chooses routes.
            TransferEvent::Done { .. } | TransferEvent::RouteJudged { .. } => return,
            TransferEvent::Failed { path, failure } => CopyEvent::Failed {
                path,
                kind: failure.kind,
                detail: failure.detail,
            },
        };
        let _ = self.answers.send(FarAnswer::Event(event));
    }
}
