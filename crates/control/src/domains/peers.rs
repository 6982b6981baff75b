//! Requests to the controllers of other domains: TLS to the key that the operator configured,
//! signed by this controller's key.

use std::collections::BTreeMap;
use std::time::Duration;

use longhaul_api::tls::TlsError;
use longhaul_control_api::domains::{DomainName, KnownDomains, Message};
use longhaul_control_client::settings::{ControllerEntry, ControllerTrust};
use longhaul_control_client::{ClientError, ServiceClient};
use longhaul_proto::SigningKey;
use tokio::time::timeout;

use super::settings::DomainSettings;

/// Time limit of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Path of messages.
const MESSAGES: &str = "/domain/messages";
/// Path of topologies.
const TOPOLOGY: &str = "/domain/topology";
/// Service in messages.
const SERVICE: &str = "controller";

/// Clients of all peers.
#[derive(Debug)]
pub struct PeerClients(BTreeMap<DomainName, ServiceClient>);

impl PeerClients {
    /// Creates the clients, which sign with this key.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn new(settings: &DomainSettings, key: &SigningKey) -> Result<Self, TlsError> {
        let client = |(domain, peer): (&DomainName, &super::settings::Peer)| {
            let entry = ControllerEntry {
                url: peer.url.clone(),
                known: Some(ControllerTrust::Key(peer.key)),
            };
            Ok((domain.clone(), entry.client(key)?))
        };
        let clients = settings.peers.iter().map(client);
        Ok(Self(clients.collect::<Result<_, TlsError>>()?))
    }

    /// Delivers a message to its receiver, which has stored it on success.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn deliver(&self, message: &Message) -> Result<(), ClientError> {
        let client = self.client(message.receiver())?;
        let asked = client.ask::<serde_json::Value>("POST", MESSAGES, Some(message), None);
        within(asked).await.map(drop)
    }

    /// Requests the topologies that a peer knows.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn topologies(&self, peer: &DomainName) -> Result<KnownDomains, ClientError> {
        let client = self.client(peer)?;
        within(client.ask("GET", TOPOLOGY, None::<&()>, None)).await
    }

    fn client(&self, peer: &DomainName) -> Result<&ServiceClient, ClientError> {
        self.0.get(peer).ok_or_else(|| ClientError::Request {
            service: SERVICE,
            why: format!("domain {peer} is no peer"),
        })
    }
}

async fn within<T>(asked: impl Future<Output = Result<T, ClientError>>) -> Result<T, ClientError> {
    let silent = ClientError::Silent {
        service: SERVICE,
        within: REQUEST_TIMEOUT,
    };
    timeout(REQUEST_TIMEOUT, asked).await.unwrap_or(Err(silent))
}
