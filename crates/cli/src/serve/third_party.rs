//! The servers that `longhaul serve --third-party` fetches from in its clients' names.

use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, Result};
use longhaul_policy::{HostRule, OwnAddressReader};
use longhaul_session::{
    AddressFilter, ConnectOptions, Endpoint, Identity, PublicKey, Route, ServerTrust, ServiceName,
};
use longhaul_transfer::Fetcher;

use crate::target::SERVER_PORT;

/// Rule for servers that may be fetched from: `HOST`, `HOST:PORT` or `HOST:*`, as the policy of a
/// depot names hosts.
#[derive(Debug, Clone)]
pub struct SourceRule(HostRule);

impl FromStr for SourceRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        HostRule::parse_with_port(text, SERVER_PORT).map(Self)
    }
}

/// Rules of a server, and the addresses of its machine.
struct SourcePolicy {
    rules: Vec<SourceRule>,
    own: OwnAddressReader,
}

impl SourcePolicy {
    /// Returns true if a rule may permit `server`, before its name is resolved.
    fn might_permit(&self, server: &Endpoint) -> bool {
        let own = self.own.addresses();
        let mut rules = self.rules.iter();
        rules.any(|SourceRule(rule)| rule.might_permit(server, &own))
    }

    /// Returns true if a rule permits `address`, which is one of `server`.
    fn permits(&self, server: &Endpoint, address: SocketAddr) -> bool {
        let own = self.own.addresses();
        let mut rules = self.rules.iter();
        rules.any(|SourceRule(rule)| rule.permits(server, address, &own))
    }
}

/// Returns what fetches from the servers that `rules` permit, as `identity`.
///
/// # Errors
/// The machine's addresses cannot be read.
pub fn fetcher(
    rules: &[SourceRule],
    identity: &Arc<Identity>,
    congestion: Option<&str>,
) -> Result<Arc<Fetcher>> {
    let own = OwnAddressReader::new().context("cannot read this machine's addresses")?;
    let policy = Arc::new(SourcePolicy {
        rules: rules.to_vec(),
        own,
    });
    let key = identity.public();
    let (identity, congestion) = (identity.clone(), congestion.map(str::to_owned));
    let options = move |server: &Endpoint, key: PublicKey| {
        if !policy.might_permit(server) {
            return Err(format!(
                "it does not fetch from {server}: its operator must name that server with \
                 --third-party"
            ));
        }
        let (policy, endpoint) = (policy.clone(), server.clone());
        let filter = AddressFilter::new(move |address| policy.permits(&endpoint, address));
        Ok(ConnectOptions {
            congestion: congestion.clone(),
            is_fetch: true,
            destination_filter: Some(filter),
            ..ConnectOptions::new(
                ServiceName::COPY,
                Route::direct(),
                server.clone(),
                identity.clone(),
                ServerTrust::Pinned(key),
            )
        })
    };
    Ok(Arc::new(Fetcher::new(key, options)))
}
