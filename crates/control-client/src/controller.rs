//! What can be asked of a controller. Each question has a bound in time of its own: who asks has
//! something else to do.

mod reservations;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::http::uri::PathAndQuery;
use longhaul_api::tls::TlsError;
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
use crate::settings::{SERVICE, Settings};

/// A controller that can be asked, or several that share a store: then the next is asked when one
/// does not answer, or cannot do it now.
#[derive(Debug)]
pub struct Controller {
    /// One at least.
    clients: Vec<ServiceClient>,
    /// Which of them answered last.
    at: AtomicUsize,
    within: Duration,
}

pub use reservations::{Action, Granted};

/// How often something is sent to one controller before that counts as no answer.
const SENT_AT_MOST: u32 = 3;
/// For how long several are asked for what only the one that leads does: until another leads in
/// place of one that is gone.
const FAILOVER_TIME: Duration = Duration::from_secs(30);
/// The pause until they are asked again.
const FAILOVER_PAUSE: Duration = Duration::from_millis(500);

/// How long an answer may take unless less is said.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

impl Controller {
    /// The one that `settings` name, asked with `key`.
    ///
    /// # Errors
    /// The certificates of authorities cannot be read.
    pub fn new(settings: &Settings, key: &SigningKey) -> Result<Self, TlsError> {
        let clients = settings.sites().map(|site| site.client(key));
        Ok(Self {
            clients: clients.collect::<Result<_, TlsError>>()?,
            at: AtomicUsize::new(0),
            within: ANSWER_TIMEOUT,
        })
    }

    /// The one that `client` asks.
    #[must_use]
    pub fn of(client: ServiceClient) -> Self {
        Self {
            clients: vec![client],
            at: AtomicUsize::new(0),
            within: ANSWER_TIMEOUT,
        }
    }

    /// The same, with no more time than this for an answer.
    #[must_use]
    pub fn within(self, within: Duration) -> Self {
        Self { within, ..self }
    }

    /// What it is.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn info(&self) -> Result<ControllerInfo, ClientError> {
        self.ask("GET", "/controller", None::<&()>).await
    }

    /// The map as it is now.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn map(&self) -> Result<KnownMap, ClientError> {
        self.ask("GET", "/map", None::<&()>).await
    }

    /// By which depots a transfer goes.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn question(&self, question: &RouteQuestion) -> Result<RouteAnswer, ClientError> {
        self.ask("POST", "/routes/question", Some(question)).await
    }

    /// A page of the table of routes.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn table(&self, query: &TableQuery) -> Result<RouteTable, ClientError> {
        let mut path = String::from("/routes/table");
        let limit = query.limit.map(|limit| limit.to_string());
        let receives = query.receives.map(|receives| receives.to_string());
        let fields = [
            ("receives", receives.as_deref()),
            ("from", query.from.as_deref()),
            ("to", query.to.as_deref()),
            ("after", query.after.as_deref()),
            ("limit", limit.as_deref()),
        ];
        let mut before = '?';
        for (name, value) in fields {
            if let Some(value) = value {
                path.push(before);
                path.push_str(name);
                path.push('=');
                path.push_str(&encoded(value));
                before = '&';
            }
        }
        self.ask("GET", &path, None::<&()>).await
    }

    /// The rules of `routes.toml` for whoever asks, as on-ramps read them.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn routes_file(&self) -> Result<String, ClientError> {
        self.each(|client| async move {
            let response = client
                .send("GET", "/routes.toml", None::<&()>, None)
                .await?;
            let bytes = client.content(response).await?;
            String::from_utf8(bytes.into())
                .map_err(|_| client.not_understood("it is no text".to_owned()))
        })
        .await
    }

    /// Reports what a transfer took.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn report_transfer(
        &self,
        report: &TransferReport,
    ) -> Result<ReportKept, ClientError> {
        self.ask("POST", "/transfers", Some(report)).await
    }

    /// Reports what was measured.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn report_measurements(&self, batch: &Batch) -> Result<BatchKept, ClientError> {
        self.ask("POST", "/measurements", Some(batch)).await
    }

    /// Says that a depot is there; signed with its key.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn register(&self, registration: &Registration) -> Result<Registered, ClientError> {
        let path = format!("/depots/{}", encoded(&registration.key.to_string()));
        self.ask("PUT", &path, Some(registration)).await
    }

    /// Says that the depot with that key is there no longer.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn unregister(&self, key: &PublicKey) -> Result<(), ClientError> {
        let path = format!("/depots/{}", encoded(&key.to_string()));
        self.ask("DELETE", &path, None::<&()>).await
    }

    /// What is to be measured next.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn probes(&self) -> Result<ProbeList, ClientError> {
        self.ask("GET", "/probes", None::<&()>).await
    }

    /// Reports what came of a probe.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn probe_result(&self, id: &str, result: &ProbeResult) -> Result<(), ClientError> {
        let path = format!("/probes/{}/result", encoded(id));
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
        self.each(|client| client.ask(method, path, body, None))
            .await
    }

    /// Asks one after the other, beginning with the one that answered last, until one answers. All
    /// share the time.
    async fn each<'a, T, F>(
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
                Err(error) if error.is_passing() && left > 0 => last = Some(error),
                answer => {
                    if !answer.as_ref().is_err_and(ClientError::is_passing) {
                        self.at.store(at, Ordering::Relaxed);
                    }
                    return answer;
                }
            }
        }
        // There is one at least.
        Err(last.unwrap_or(ClientError::Request {
            service: SERVICE,
            why: "none is named".to_owned(),
        }))
    }

    /// The same, again and again where no answer came: of one, a few times; of several, for as long
    /// as they may take to agree on who leads.
    async fn insist<'a, T, F>(
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
                true => began.elapsed() < FAILOVER_TIME,
                false => sent < SENT_AT_MOST,
            };
            match self.each(&ask).await {
                Err(error) if error.is_passing() && goes_on => sent += 1,
                answer => return answer,
            }
            if is_several {
                sleep(FAILOVER_PAUSE).await;
            }
        }
    }
}

/// A text as a part of a path or a query (RFC 3986, section 2.3).
#[must_use]
pub fn encoded(text: &str) -> String {
    use std::fmt::Write;
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string can't fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_a_path_is_encoded() {
        assert_eq!(encoded("depot-1.example"), "depot-1.example");
        assert_eq!(encoded("lhk1:a/b c\u{e9}"), "lhk1%3Aa%2Fb%20c%C3%A9");
    }
}
