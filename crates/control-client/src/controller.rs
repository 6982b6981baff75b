//! What can be asked of a controller. Each question has a bound in time of its own: who asks has something else to do.

mod reservations;

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
use tokio::time::timeout;

use crate::client::ServiceClient;
use crate::error::ClientError;
use crate::settings::Settings;

/// A controller that can be asked.
#[derive(Debug)]
pub struct Controller {
    client: ServiceClient,
    within: Duration,
}

pub use reservations::{Action, Granted};

/// How long an answer may take unless less is said.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

impl Controller {
    /// The one that `settings` name, asked with `key`.
    ///
    /// # Errors
    /// The certificates of authorities cannot be read.
    pub fn new(settings: &Settings, key: &SigningKey) -> Result<Self, TlsError> {
        Ok(Self::of(settings.client(key)?))
    }

    /// The one that `client` asks.
    #[must_use]
    pub const fn of(client: ServiceClient) -> Self {
        Self {
            client,
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
        let asked = async {
            let response = self.client.send("GET", "/routes.toml", None::<&()>, None).await?;
            let bytes = self.client.content(response).await?;
            String::from_utf8(bytes.into())
                .map_err(|_| self.client.not_understood("it is no text".to_owned()))
        };
        self.in_time(asked).await
    }

    /// Tells what a transfer took.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn report_transfer(&self, report: &TransferReport) -> Result<ReportKept, ClientError> {
        self.ask("POST", "/transfers", Some(report)).await
    }

    /// Tells what was measured.
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

    /// Tells what came of a probe.
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
        self.in_time(self.client.ask(method, path, body, None)).await
    }

    async fn in_time<T>(
        &self,
        asked: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        timeout(self.within, asked).await.unwrap_or_else(|_| {
            Err(ClientError::Silent {
                service: self.client.service(),
                within: self.within,
            })
        })
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
