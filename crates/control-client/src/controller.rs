//! Requests to a controller. Each has a time limit, so that the caller is never held up.

mod domains;
mod reservations;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::http::uri::PathAndQuery;
use longhaul_api_common::tls::TlsError;
use longhaul_control_api::map::{KnownMap, Registered, Registration};
use longhaul_control_api::measurements::{Batch, BatchKept};
use longhaul_control_api::probes::{ProbeList, ProbeResult};
use longhaul_control_api::routes::{RouteAnswer, RouteQuestion, RouteTable, TableQuery};
use longhaul_control_api::service::ControllerInfo;
use longhaul_control_api::transfers::{ReportKept, TransferReport};
use longhaul_proto::{PublicKey, SigningKey};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout};

use crate::client::ServiceClient;
use crate::error::ClientError;
use crate::settings::{ControllerSettings, SERVICE};

/// Client of a controller, or of several that share a store. With several, it asks the next one if
/// one does not answer or is unavailable.
#[derive(Debug)]
pub struct ControllerClient {
    /// Clients of the controllers; never empty.
    clients: Vec<ServiceClient>,
    /// Index of the controller that answered last.
    at: AtomicUsize,
    within: Duration,
}

pub use reservations::{ReservationAction, ReservationAnswer};

/// Maximum number of attempts with a single controller.
const MAX_ATTEMPTS: u32 = 3;
/// Time for which several controllers are retried, until a new leader has replaced one that failed.
const FAILOVER_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause between two rounds of attempts.
const FAILOVER_PAUSE: Duration = Duration::from_millis(500);

/// Default time limit of an answer.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

impl ControllerClient {
    /// Creates a client of the controllers in `settings`, which signs with `key`.
    ///
    /// # Errors
    /// The root certificates cannot be read.
    pub fn new(settings: &ControllerSettings, key: &SigningKey) -> Result<Self, TlsError> {
        let clients = settings.sites().map(|site| site.client(key));
        Ok(Self {
            clients: clients.collect::<Result<_, TlsError>>()?,
            at: AtomicUsize::new(0),
            within: ANSWER_TIMEOUT,
        })
    }

    /// Creates a client of a single controller.
    #[must_use]
    pub fn from_client(client: ServiceClient) -> Self {
        Self {
            clients: vec![client],
            at: AtomicUsize::new(0),
            within: ANSWER_TIMEOUT,
        }
    }

    /// Sets the time limit of an answer.
    #[must_use]
    pub fn with_timeout(self, within: Duration) -> Self {
        Self { within, ..self }
    }

    /// Requests a description of the controller.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn info(&self) -> Result<ControllerInfo, ClientError> {
        self.ask("GET", "/controller", None::<&()>).await
    }

    /// Requests the current map.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn map(&self) -> Result<KnownMap, ClientError> {
        self.ask("GET", "/map", None::<&()>).await
    }

    /// Requests the routes of a transfer.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn question(&self, question: &RouteQuestion) -> Result<RouteAnswer, ClientError> {
        self.ask("POST", "/routes/question", Some(question)).await
    }

    /// Requests a page of the route table.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn table(&self, query: &TableQuery) -> Result<RouteTable, ClientError> {
        let path = path_with_query("/routes/table", query)?;
        self.ask("GET", &path, None::<&()>).await
    }

    /// Requests the caller's rules for `routes.toml`, as on-ramps read them.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn routes_file(&self) -> Result<String, ClientError> {
        self.ask_in_turn(|client| async move {
            let response = client
                .send("GET", "/routes.toml", None::<&()>, None)
                .await?;
            let bytes = client.read_success(response).await?;
            String::from_utf8(bytes.into())
                .map_err(|_| client.malformed_answer("it is not text".to_owned()))
        })
        .await
    }

    /// Reports a finished transfer.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn report_transfer(
        &self,
        report: &TransferReport,
    ) -> Result<ReportKept, ClientError> {
        self.ask("POST", "/transfers", Some(report)).await
    }

    /// Reports measurements.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn report_measurements(&self, batch: &Batch) -> Result<BatchKept, ClientError> {
        self.ask("POST", "/measurements", Some(batch)).await
    }

    /// Registers a depot; the request is signed with its key.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn register(&self, registration: &Registration) -> Result<Registered, ClientError> {
        let path = format!("/depots/{}", percent_encode(&registration.key.to_string()));
        self.ask("PUT", &path, Some(registration)).await
    }

    /// Removes the registration of the depot with that key.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn unregister(&self, key: &PublicKey) -> Result<(), ClientError> {
        let path = format!("/depots/{}", percent_encode(&key.to_string()));
        self.ask("DELETE", &path, None::<&()>).await
    }

    /// Requests the measurements to take next.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn probes(&self) -> Result<ProbeList, ClientError> {
        self.ask("GET", "/probes", None::<&()>).await
    }

    /// Reports the result of a probe.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn probe_result(&self, id: &str, result: &ProbeResult) -> Result<(), ClientError> {
        let path = format!("/probes/{}/result", percent_encode(id));
        let _: serde_json::Value = self.ask("POST", &path, Some(result)).await?;
        Ok(())
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, ClientError> {
        debug_assert!(path.parse::<PathAndQuery>().is_ok(), "{path}");
        self.ask_in_turn(|client| client.ask(method, path, body, None))
            .await
    }

    /// Asks the controllers in turn until one answers, beginning with the one that answered last.
    /// They share the time limit.
    async fn ask_in_turn<'a, T, F>(
        &'a self,
        ask: impl Fn(&'a ServiceClient) -> F,
    ) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let count = self.clients.len();
        let within = self.within / u32::try_from(count).unwrap_or(1).max(1);
        let first = self.at.load(Ordering::Relaxed);
        let in_turn = self
            .clients
            .iter()
            .enumerate()
            .cycle()
            .skip(first)
            .take(count);
        let mut left = count;
        let mut last = None;
        for (at, client) in in_turn {
            left -= 1;
            let answer = timeout(within, ask(client)).await.unwrap_or_else(|_| {
                Err(ClientError::Silent {
                    service: client.service(),
                    within,
                })
            });
            match answer {
                Err(error) if error.is_transient() && left > 0 => last = Some(error),
                answer => {
                    if !answer.as_ref().is_err_and(ClientError::is_transient) {
                        self.at.store(at, Ordering::Relaxed);
                    }
                    return answer;
                }
            }
        }
        // There is at least one client.
        Err(last.unwrap_or(ClientError::Request {
            service: SERVICE,
            why: "no controller is configured".to_owned(),
        }))
    }

    /// Like [`Self::ask_in_turn`], with retries if no answer came. A single controller is asked a
    /// few times, several for as long as they may take to agree on a leader.
    async fn ask_with_retries<'a, T, F>(
        &'a self,
        ask: impl Fn(&'a ServiceClient) -> F,
    ) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let (began, mut sent) = (Instant::now(), 1);
        loop {
            let is_several = self.clients.len() > 1;
            let goes_on = match is_several {
                true => began.elapsed() < FAILOVER_TIMEOUT,
                false => sent < MAX_ATTEMPTS,
            };
            match self.ask_in_turn(&ask).await {
                Err(error) if error.is_transient() && goes_on => sent += 1,
                answer => return answer,
            }
            if is_several {
                sleep(FAILOVER_PAUSE).await;
            }
        }
    }
}

/// Returns a path with the fields of a query that are set.
fn path_with_query(path: &str, query: &impl Serialize) -> Result<String, ClientError> {
    let fields = serde_urlencoded::to_string(query).map_err(|error| ClientError::Request {
        service: SERVICE,
        why: error.to_string(),
    })?;
    Ok(match fields.is_empty() {
        true => path.to_owned(),
        false => format!("{path}?{fields}"),
    })
}

/// Percent-encodes text for a segment of a path (RFC 3986, section 2.3).
#[must_use]
pub fn percent_encode(text: &str) -> String {
    use std::fmt::Write;
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_segments_are_percent_encoded() {
        assert_eq!(percent_encode("depot-1.example"), "depot-1.example");
        assert_eq!(percent_encode("lhk1:a/b c\u{e9}"), "lhk1%3Aa%2Fb%20c%C3%A9");
    }
}
