//! A far side as the client of another one. The data goes between the two, and the side that
//! started them receives reports.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use longhaul_proto::Host;
use longhaul_session::{
    ConnectOptions, Endpoint, Identity, Route, ServerTrust, ServiceName, Session,
};
use longhaul_transfer::remote_copy::{EventReporter, PROGRESS_INTERVAL};
use longhaul_transfer::{
    AttributeSettings, Client, ConnectError, Connector, CopyDestination, CopyOutcome, CopyToken,
    Error, Filter, MetadataChanges, Observer, RouteInfo, SessionConnector, Sources,
    TransferProgress,
};
use parking_lot::Mutex;
use tokio::sync::mpsc::UnboundedSender;

use super::resolve;
use crate::connector::open_host;
use crate::message::{CopyAsk, CopyDirection, CopyEnd, CopyProgress, FarAnswer};
use crate::search::{DIRECTION_TIMEOUT, SETUP_TIMEOUT, connect_to_host};

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
    let events = answers.clone();
    let reporting = Arc::new(EventReporter {
        send: move |event| drop(events.send(FarAnswer::Event(event))),
        report_done: ask.report_done,
        report_waiting: ask.patience_ms.is_some(),
    });
    let carried = carry_out(&ask, server, progress.clone(), reporting);
    let ended = reporting_progress(carried, &progress, &answers).await;
    let ended = match ended {
        Ok(mut outcome) => {
            while outcome.closing.join_next().await.is_some() {}
            Ok(outcome.manifest)
        }
        Err(error) => Err(error),
    };
    let _ = answers.send(FarAnswer::Progress(CopyProgress::read(&progress)));
    let _ = answers.send(FarAnswer::Ended(CopyEnd::new(&ended)));
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
            _ = tick.tick() => {
                drop(answers.send(FarAnswer::Progress(CopyProgress::read(progress))));
            }
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
    reporting: Arc<dyn Observer>,
) -> Result<CopyOutcome, Error> {
    let home = resolve::home();
    let request = ask
        .request()
        .map_err(|error| Error::Refused(error.to_string()))?;
    let token = CopyToken::random()?;
    let client = Client {
        connector: Arc::new(server),
        hello: ask.hello(request, token),
        compare: ask.compare(),
        streams: ask.streams,
        // A far side leaves nothing behind but the copy.
        memory: None,
        patience: ask.patience(),
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
            let path = resolve::typed(&home, &ask.destination.0);
            let (names, options) = (ask.source_names(), ask.write_options());
            let destination = CopyDestination::local(&path, names, options, token)?
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
