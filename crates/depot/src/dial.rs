//! From an OPEN that the policy admits to a connection with the next hop: one look-up, one of the addresses that passed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use longhaul_hop::{
    DialError, Dialled, HeldPlace, Options, Payer, ResolveError, Resolver, SharedPlaces, dial,
};
use longhaul_proto::{Endpoint, Full, Host, Next, Open, StatusCode};
use tokio::time::{Instant, timeout_at};

use crate::config::NextCongestion;
use crate::own::OwnAddressReader;
use crate::policy::{Candidates, OwnAddresses, Rule};
use crate::refusal::Refused;

/// Addresses of a name that are dialled.
const MAX_ATTEMPTS: usize = 4;

/// Where an OPEN may go on to.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) rule: Arc<Rule>,
    pub(crate) endpoint: Endpoint,
    /// What passed the policy, in the order of the look-up; never empty.
    pub(crate) addresses: Vec<SocketAddr>,
}

/// What dialling needs from its depot.
#[derive(Debug)]
pub(crate) struct Dialler {
    resolver: Resolver,
    lookups: Arc<SharedPlaces<Payer>>,
    next_congestion: Vec<NextCongestion>,
    unacknowledged: Duration,
    own: OwnAddressReader,
}

impl Dialler {
    pub(crate) fn new(
        lookups: usize,
        next_congestion: Vec<NextCongestion>,
        unacknowledged: Duration,
        own: OwnAddressReader,
    ) -> Self {
        Self {
            resolver: Resolver::new(),
            lookups: SharedPlaces::new(lookups.max(1)),
            next_congestion,
            unacknowledged,
            own,
        }
    }

    /// This machine's addresses, for the policy.
    pub(crate) fn own_addresses(&self) -> Arc<OwnAddresses> {
        self.own.addresses()
    }

    /// Finds the addresses where `open` may go (LH-ADMIT-3). No name is resolved unless some rule might allow what it leads to: those
    /// are the `candidates`.
    pub(crate) async fn authorise(
        &self,
        candidates: Candidates,
        open: &Open,
        payer: Payer,
        deadline: Instant,
    ) -> Result<Way, Refused> {
        let next = open.next();
        let Some(endpoint) = next.endpoint() else {
            return Err(Refused::new(
                StatusCode::Misrouted,
                "an OPEN for the acceptor came to a depot",
            ));
        };
        let addresses = self.resolve(endpoint, payer, deadline).await?;
        // Read only now: a look-up can take long.
        let own = self.own.addresses();
        let allowed = candidates.rules.into_iter().find_map(|rule| {
            let mut addresses = rule.allowed(next, &addresses, &own);
            addresses.truncate(MAX_ATTEMPTS);
            (!addresses.is_empty()).then_some((rule, addresses))
        });
        let Some((rule, addresses)) = allowed else {
            let detail = format!("no rule allows the addresses of {endpoint} for this key");
            return Err(Refused::new(StatusCode::Refused, detail));
        };
        Ok(Way {
            rule,
            endpoint: endpoint.clone(),
            addresses,
        })
    }

    /// Connects to the first address of `way` that answers.
    pub(crate) async fn dial(&self, way: &Way, deadline: Instant) -> Result<Dialled, Refused> {
        let options = |address| {
            let mut choices = self.next_congestion.iter();
            Options {
                unacknowledged: self.unacknowledged,
                congestion: choices
                    .find(|choice| choice.applies(&way.endpoint, address))
                    .map(|choice| choice.name.clone()),
                source: None,
            }
        };
        dial(&way.addresses, options, deadline)
            .await
            .map_err(|error: DialError| Refused::new(error.code(), error.to_string()))
    }

    async fn resolve(
        &self,
        endpoint: &Endpoint,
        payer: Payer,
        deadline: Instant,
    ) -> Result<Vec<SocketAddr>, Refused> {
        let _place = match endpoint.host {
            Host::Ip(_) => None,
            Host::Name(_) => Some(self.look_up_for(payer)?),
        };
        let failed = |code, why: &dyn std::fmt::Display| Refused::new(code, format!("{endpoint}: {why}"));
        match timeout_at(deadline, self.resolver.addresses(endpoint)).await {
            Ok(Ok(addresses)) => Ok(addresses),
            Ok(Err(error @ ResolveError::NoAnswer)) => Err(failed(StatusCode::DialTimeout, &error)),
            Ok(Err(error)) => Err(failed(StatusCode::NameNotFound, &error)),
            Err(_) => Err(failed(
                StatusCode::DialTimeout,
                &"no answer to the look-up in time",
            )),
        }
    }

    /// A place for a look-up, which is over when the place is dropped.
    fn look_up_for(&self, payer: Payer) -> Result<HeldPlace<Payer>, Refused> {
        self.lookups.take(payer).map_err(|full| {
            let detail = match full {
                Full::All => "as many names are being looked up as it can",
                Full::Share => {
                    "as many names are being looked up for this key or source as fit beside the others"
                }
            };
            Refused::new(StatusCode::Overloaded, detail)
        })
    }
}

/// The words of a refusal by the policy.
pub(crate) fn not_allowed(open: &Open) -> Refused {
    let to = match open.next() {
        Next::Hop(hop) => format!("{} by way of {}", open.destination, hop.endpoint),
        _ => open.destination.to_string(),
    };
    Refused::new(StatusCode::Refused, format!("no rule allows {to} for this key"))
}

/// How long an OPEN may still take here.
pub(crate) fn deadline(open: &Open, since: Instant, dial: Duration) -> Instant {
    (since + open.setup_budget).min(Instant::now() + dial)
}
