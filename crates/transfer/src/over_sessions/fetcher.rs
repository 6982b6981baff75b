//! Sessions of this server with the servers that it fetches from, in the names of its clients.

use longhaul_proto::{Endpoint, PublicKey};
use longhaul_session::{ConnectOptions, Session, connect};

use super::connect_error;
use crate::client::{ConnectError, Connector};
use crate::error::Error;
use crate::route_info::RouteInfo;
use crate::server::FetchSource;

/// Function that returns how a session with a server is opened, or why none may be. Its options
/// name the key of that server and filter the addresses.
type SourceOptions = dyn Fn(&Endpoint, PublicKey) -> Result<ConnectOptions, String> + Send + Sync;

/// Opens sessions with other servers, within the policy of this one.
pub struct Fetcher {
    key: PublicKey,
    options: Box<SourceOptions>,
}

impl Fetcher {
    /// Creates a fetcher with this server's own `key`. `options` decides about each server, before
    /// its name is resolved.
    pub fn new(
        key: PublicKey,
        options: impl Fn(&Endpoint, PublicKey) -> Result<ConnectOptions, String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            key,
            options: Box::new(options),
        }
    }

    /// Returns this server's own key, the delegate.
    #[must_use]
    pub const fn key(&self) -> PublicKey {
        self.key
    }

    /// Returns the connector of a copy.
    pub(super) fn connector(&self, source: FetchSource) -> Result<DelegateConnector, Error> {
        let options = (self.options)(&source.server, source.key).map_err(Error::Refused)?;
        // LH-FETCH-3.
        if options.destination_filter.is_none() {
            return Err(Error::Refused("it has no rule for addresses".into()));
        }
        Ok(DelegateConnector { options, source })
    }
}

/// Opens sessions as a delegate, with the newest delegation.
pub(super) struct DelegateConnector {
    options: ConnectOptions,
    source: FetchSource,
}

impl Connector for DelegateConnector {
    type Stream = Session;

    fn routes(&self) -> Vec<RouteInfo> {
        vec![RouteInfo::direct()]
    }

    async fn connect(&self, _route: usize) -> Result<Session, ConnectError> {
        let delegation = self.source.delegation.borrow().clone();
        let options = ConnectOptions {
            delegation: Some(Box::new(delegation)),
            ..self.options.clone()
        };
        connect(&options)
            .await
            .map_err(|error| connect_error(&error))
    }
}
