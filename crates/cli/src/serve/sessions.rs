//! Sessions of a server: each goes to the service that its OPEN names.

use std::sync::Arc;

use longhaul_hop::EventLog;
use longhaul_session::{Listener, ServiceName};
use longhaul_transfer::{
    Fetcher, Server, StreamKind, StripeMembers, serve_fetch, serve_files, serve_session,
    serve_striped,
};

use crate::account_workers::WorkerPool;
use crate::metrics::ServeMetrics;
use crate::{doctor, perf};

/// Clients of other servers, which sessions of this one need.
pub(super) struct Relays {
    /// Fetches from servers, if the operator permits it.
    pub fetcher: Option<Arc<Fetcher>>,
    /// The members of the striped server that this one belongs to.
    pub members: Option<Arc<StripeMembers>>,
}

/// Dispatches each session to the service that its OPEN names. Returns the error that ended the
/// listener.
pub(super) async fn serve_sessions(
    server: Arc<Server>,
    workers: &WorkerPool,
    listener: &Listener,
    metrics: &ServeMetrics,
    relays: Relays,
) -> longhaul_session::Error {
    let meter = longhaul_perf::MeasurementServer::new(longhaul_perf::MeasurementLimits::default());
    let events = Arc::new(EventLog::new());
    let doctor = Arc::new(doctor::FactsService::new(
        server.grants().clone(),
        events.clone(),
    ));
    loop {
        let session = match listener.accept().await {
            Ok(session) => session,
            Err(error) => return error,
        };
        let held = metrics.count_session(&session.info().service);
        let service = &session.info().service;
        let account = server.grants().current();
        // The server refuses delegates for the keys of accounts.
        let account = match session.info().delegation {
            None => account.account_of(&session.info().peer).cloned(),
            Some(_) => None,
        };
        if let (Some(account), Some(kind)) = (account, stream_kind(service)) {
            let workers = workers.clone();
            spawn_counted(
                held,
                async move { workers.serve(account, kind, session).await },
            );
        } else if *service == ServiceName::PERF {
            let (grants, key) = (server.grants().clone(), session.info().peer);
            let withdrawn = async move { grants.withdrawn(|now| now.has_key(&key)).await };
            perf::answer(meter.clone(), events.clone(), session, withdrawn, held);
        } else if *service == ServiceName::DOCTOR {
            let doctor = doctor.clone();
            spawn_counted(held, async move { doctor.answer(session).await });
        } else if let (true, Some(members)) = (*service == ServiceName::STRIPE, &relays.members) {
            spawn_counted(
                held,
                serve_striped(server.clone(), session, members.clone()),
            );
        } else if let (true, Some(fetcher)) = (*service == ServiceName::FETCH, &relays.fetcher) {
            spawn_counted(held, serve_fetch(server.clone(), session, fetcher.clone()));
        } else if *service == ServiceName::FILES {
            spawn_counted(held, serve_files(server.clone(), session));
        } else {
            spawn_counted(held, serve_session(server.clone(), session));
        }
    }
}

/// Serves a session in a task. `counted` counts it until its end.
fn spawn_counted(counted: impl Send + 'static, serving: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(async move {
        serving.await;
        drop(counted);
    });
}

/// Returns the protocol of a service that works with files, and `None` for any other.
fn stream_kind(service: &ServiceName) -> Option<StreamKind> {
    match service {
        service if *service == ServiceName::COPY => Some(StreamKind::Copy),
        service if *service == ServiceName::FILES => Some(StreamKind::Files),
        _ => None,
    }
}
