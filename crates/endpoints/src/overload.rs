//! Notices when a store is overloaded. The client repeats such requests by itself, so their end
//! does not tell.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::BoxFuture;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};

/// Statuses by which a store says that it gets too many requests: Too Many Requests, and Service
/// Unavailable (`SlowDown` of S3).
const OVERLOAD_STATUSES: [u16; 2] = [429, 503];

/// Number of requests that a store refused because of its load, or did not answer in time.
#[derive(Debug, Default, Clone)]
pub(crate) struct OverloadCount(Arc<AtomicU64>);

impl OverloadCount {
    /// Returns the number so far.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Notes a request that was not answered in time.
    pub(crate) fn note_timeout(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes the status of an answer.
    pub(crate) fn note_status(&self, status: u16) {
        if OVERLOAD_STATUSES.contains(&status) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Connector of clients whose answers are counted.
#[derive(Debug)]
pub(crate) struct CountingConnector {
    pub overloads: OverloadCount,
    /// The client that carries the requests. `None` if the library makes it.
    pub client: Option<HttpClient>,
}

impl HttpConnector for CountingConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = match &self.client {
            Some(client) => client.clone(),
            None => ReqwestConnector::default().connect(options)?,
        };
        let overloads = self.overloads.clone();
        Ok(HttpClient::new(CountingService { client, overloads }))
    }
}

#[derive(Debug)]
struct CountingService {
    client: HttpClient,
    overloads: OverloadCount,
}

impl HttpService for CountingService {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> BoxFuture<'b, Result<HttpResponse, HttpError>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let answered = self.client.execute(request).await;
            match &answered {
                Ok(answer) => self.overloads.note_status(answer.status().as_u16()),
                Err(error) if is_timeout(error.kind()) => self.overloads.note_timeout(),
                Err(_) => {}
            }
            answered
        })
    }
}

/// Returns true if a server that has too much to do causes such errors.
const fn is_timeout(kind: HttpErrorKind) -> bool {
    matches!(kind, HttpErrorKind::Timeout | HttpErrorKind::Connect)
}
