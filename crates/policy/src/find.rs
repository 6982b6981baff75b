//! From what a policy admits as it is written to the addresses that may be dialled: one look-up,
//! held against the rules.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;

use longhaul_hop::{HeldPlace, Payer, ResolveError, Resolver, SharedPlaces};
use longhaul_proto::{Endpoint, Full, Host, StatusCode};
use tokio::time::{Instant, timeout_at};

use crate::{Asked, Candidates, OwnAddressReader, OwnAddresses, Rule, Unmet};

/// Addresses of a name that are dialled.
const MAX_ATTEMPTS: usize = 4;

/// Where an OPEN may go on to.
#[derive(Debug)]
pub struct Way {
    /// The rule that grants it.
    pub rule: Arc<Rule>,
    /// Whom to dial, as the OPEN says.
    pub endpoint: Endpoint,
    /// What passed the policy, in the order of the look-up; never empty.
    pub addresses: Vec<SocketAddr>,
}

/// Why there is no way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoWay {
    /// What to answer.
    pub code: StatusCode,
    /// More, in words.
    pub detail: String,
}

impl NoWay {
    fn new(code: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
        }
    }

    /// What was stated of the session is beyond what the rules allow (LH-WISH-1).
    #[must_use]
    pub fn unmet(unmet: &Unmet) -> Self {
        Self::new(StatusCode::WishRefused, unmet.to_string())
    }

    /// No rule allows it.
    #[must_use]
    pub fn not_allowed(asked: Asked<'_>) -> Self {
        Self::new(
            StatusCode::Refused,
            format!("no rule allows {asked} for this key"),
        )
    }
}

/// Finds ways: what looks up names, of whose look-ups so many run at a time, and reads this
/// machine's addresses.
#[derive(Debug)]
pub struct Finder {
    resolver: Resolver,
    lookups: Arc<SharedPlaces<Payer>>,
    own: OwnAddressReader,
}

impl Finder {
    /// With room for `lookups` look-ups at a time, shared among those who ask as sessions are.
    #[must_use]
    pub fn new(lookups: usize, own: OwnAddressReader) -> Self {
        Self {
            resolver: Resolver::new(),
            lookups: SharedPlaces::new(lookups.max(1)),
            own,
        }
    }

    /// This machine's addresses, for the policy.
    pub fn own_addresses(&self) -> Arc<OwnAddresses> {
        self.own.addresses()
    }

    /// Finds the addresses that may be dialled (LH-ADMIT-3). No name is resolved unless some rule
    /// might allow what it leads to: those are the `candidates`.
    ///
    /// # Errors
    /// [`NoWay`], with what to answer.
    pub async fn find(
        &self,
        candidates: Candidates,
        asked: Asked<'_>,
        payer: Payer,
        deadline: Instant,
    ) -> Result<Way, NoWay> {
        let Some(endpoint) = asked.dialled() else {
            return Err(NoWay::not_allowed(asked));
        };
        let addresses = self.resolve(endpoint, payer, deadline).await?;
        // Read only now: a look-up can take long.
        let own = self.own.addresses();
        let allowed = candidates.rules.into_iter().find_map(|rule| {
            let mut addresses = rule.allowed(asked, &addresses, &own);
            addresses.truncate(MAX_ATTEMPTS);
            (!addresses.is_empty()).then_some((rule, addresses))
        });
        let Some((rule, addresses)) = allowed else {
            let detail = format!("no rule allows the addresses of {endpoint} for this key");
            return Err(NoWay::new(StatusCode::Refused, detail));
        };
        Ok(Way {
            rule,
            endpoint: endpoint.clone(),
            addresses,
        })
    }

    async fn resolve(
        &self,
        endpoint: &Endpoint,
        payer: Payer,
        deadline: Instant,
    ) -> Result<Vec<SocketAddr>, NoWay> {
        let _place = match endpoint.host {
            Host::Ip(_) => None,
            Host::Name(_) => Some(self.look_up_for(payer)?),
        };
        let failed = |code, why: &dyn Display| NoWay::new(code, format!("{endpoint}: {why}"));
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
    fn look_up_for(&self, payer: Payer) -> Result<HeldPlace<Payer>, NoWay> {
        self.lookups.take(payer).map_err(|full| {
            let detail = match full {
                Full::All => "as many names are being looked up as it can",
                Full::Share => {
                    "as many names are being looked up for this key or source as fit beside the others"
                }
            };
            NoWay::new(StatusCode::Overloaded, detail)
        })
    }
}
