//! A far side as the client of another one. The data goes between the two, and the side that
//! started them receives reports.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use data_encoding::HEXLOWER;
use longhaul_proto::Host;
use longhaul_session::{ConnectOptions, Endpoint, Identity, Route, ServerTrust, Service, Session};
use longhaul_transfer::path::RelPath;
use longhaul_transfer::{
    Client, Compare, ConnectError, Connector, DEFAULT_PATIENCE, Destination, Error, Event, Hello,
    Observer, Outcome, Portion, Progress, Request, SessionConnector, Sources, Token, WriteOptions,
};
use parking_lot::Mutex;
use tokio::sync::mpsc::UnboundedSender;

use super::resolve;
use crate::connector::{beneath_root, named};
use crate::message::{
    Answer, CopyAsk, CopyEnd, CopyErrorKind, CopyEvent, CopyProgress, Direction, PathBytes,
};
use crate::search::{DIRECTION_TIME_LIMIT, SETUP_TIMEOUT, to_host};

/// Interval between progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// Copies, and reports events and at last the result.
pub(super) async fn run(ask: CopyAsk, identity: Arc<Identity>, answers: UnboundedSender<Answer>) {
    let server = match reach(&ask, identity).await {
        Ok(server) => server,
        Err(reason) => {
            let _ = answers.send(Answer::NotReached { reason });
            return;
        }
    };
    let progress = Arc::new(Progress::default());
    let reporting = Arc::new(Reporting {
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
    let _ = answers.send(Answer::Progress(counts(&progress)));
    let _ = answers.send(Answer::Ended(end));
}

async fn reporting_progress<T>(
    copy: impl Future<Output = T>,
    progress: &Progress,
    answers: &UnboundedSender<Answer>,
) -> T {
    tokio::pin!(copy);
    let mut tick = tokio::time::interval(PROGRESS_INTERVAL);
    loop {
        tokio::select! {
            ended = &mut copy => return ended,
            _ = tick.tick() => drop(answers.send(Answer::Progress(counts(progress)))),
        }
    }
}

/// Sessions to the other far side, with the first one established.
struct Reached {
    sessions: SessionConnector,
    first: Mutex<Option<Session>>,
}

impl Connector for Reached {
    type Stream = Session;

    fn routes(&self) -> Vec<String> {
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

async fn reach(ask: &CopyAsk, identity: Arc<Identity>) -> Result<Reached, String> {
    let host = ask.hosts.first().map_or("", String::as_str);
    let base = ConnectOptions {
        congestion: ask.congestion.clone(),
        is_fetch: ask.direction == Direction::Pull,
        ..ConnectOptions::new(
            Service::COPY,
            Route::direct(),
            Endpoint::new(named(host), ask.port),
            identity,
            ServerTrust::Pinned(ask.server),
        )
    };
    let (session, address) = to_host(
        ask.hosts.clone(),
        Some(ask.port),
        base.clone(),
        None,
        DIRECTION_TIME_LIMIT,
        None,
    )
    .await?;
    let base = ConnectOptions {
        destination: Endpoint::new(Host::Ip(address.ip()), address.port()),
        setup_timeout: SETUP_TIMEOUT,
        ..base
    };
    Ok(Reached {
        sessions: SessionConnector::new(base, vec![]),
        first: Mutex::new(Some(session)),
    })
}

async fn carry_out(
    ask: &CopyAsk,
    server: Reached,
    progress: Arc<Progress>,
    reporting: Arc<Reporting>,
) -> Result<Outcome, Error> {
    let bytes = |paths: &[PathBytes]| paths.iter().map(|path| path.0.clone()).collect::<Vec<_>>();
    let home = resolve::home();
    let request = match ask.direction {
        Direction::Push => Request::Push {
            destination: plain(&ask.destination)?,
            into: ask.into,
            overwrite: ask.overwrite,
            fsync: ask.fsync,
            names: bytes(&ask.names),
        },
        Direction::Pull => Request::Pull {
            recursive: ask.recursive,
            sources: beneath_root(&ask.sources)
                .map_err(|error| Error::Refused(error.to_string()))?,
        },
    };
    let token = Token::random()?;
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
    };
    match ask.direction {
        Direction::Push => {
            let paths: Vec<PathBuf> = ask
                .sources
                .iter()
                .map(|path| resolve::typed(&home, &path.0))
                .collect();
            let (sources, _) = Sources::local(&paths, ask.recursive)?;
            client.push(sources, ask.labels.clone()).await
        }
        Direction::Pull => {
            let options = WriteOptions {
                overwrite: ask.overwrite,
                fsync: ask.fsync,
                resume: ask.resume,
            };
            let path = resolve::typed(&home, &ask.destination.0);
            let destination = Destination::local(&path, bytes(&ask.names), options, token)?;
            client.pull(destination, ask.labels.clone()).await
        }
    }
}

fn plain(path: &PathBytes) -> Result<RelPath, Error> {
    RelPath::from_bytes(&path.0).map_err(|error| Error::Refused(error.to_string()))
}

fn counts(progress: &Progress) -> CopyProgress {
    CopyProgress {
        entries_found: progress.entries_found.load(Ordering::Relaxed),
        bytes_found: progress.bytes_found.load(Ordering::Relaxed),
        walk_complete: progress.walk_complete.load(Ordering::Relaxed),
        entries_done: progress.entries_done.load(Ordering::Relaxed),
        files_done: progress.files_done.load(Ordering::Relaxed),
        bytes_done: progress.bytes_done.load(Ordering::Relaxed),
        bytes_resumed: Some(progress.bytes_resumed.load(Ordering::Relaxed)),
        bytes_clear: progress.bytes_clear.load(Ordering::Relaxed),
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
        Error::Unauthorised(_) => CopyErrorKind::Unauthorised,
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
struct Reporting {
    answers: UnboundedSender<Answer>,
    report_done: bool,
    /// True if the receiving side knows events about waiting.
    report_waiting: bool,
}

impl Observer for Reporting {
    fn event(&self, event: Event) {
        let event = match event {
            Event::StreamOpened { stream, .. } => CopyEvent::StreamOpened { stream },
            Event::StreamLost {
                is_silent: true, ..
            } => return,
            Event::Waiting { .. } | Event::Back { .. } | Event::BegunAgain { .. }
                if !self.report_waiting =>
            {
                return;
            }
            Event::Waiting { silence, patience } => CopyEvent::Waiting {
                silence_ms: millis(silence),
                patience_ms: millis(patience),
            },
            Event::Back { after } => CopyEvent::Back {
                after_ms: millis(after),
            },
            Event::BegunAgain { reason } => CopyEvent::BegunAgain { reason },
            Event::StreamLost { stream, reason, .. } => CopyEvent::StreamLost { stream, reason },
            Event::Resumed { path, bytes, size } => CopyEvent::Resumed { path, bytes, size },
            Event::Done {
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
            Event::Done { .. } | Event::RouteJudged { .. } => return,
            Event::Failed { path, failure } => CopyEvent::Failed {
                path,
                kind: failure.kind,
                detail: failure.detail,
            },
        };
        let _ = self.answers.send(Answer::Event(event));
    }
}
