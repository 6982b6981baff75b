//! Resolution of a session's next endpoint, and the check of its addresses against the rules.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;

use longhaul_hop::{HeldPlace, Payer, ResolveError, Resolver, SharedPlaces};
use longhaul_proto::{Endpoint, Full, Host, StatusCode};
use tokio::time::{Instant, timeout_at};

use crate::{Asked, Candidates, OwnAddressReader, OwnAddresses, Rule, Unmet};

/// Maximum number of a name's addresses that are dialled.
const MAX_ATTEMPTS: usize = 4;

/// Addresses to which a session may be forwarded.
#[derive(Debug)]
pub struct Way {
    /// Rule that allows it.
    pub rule: Arc<Rule>,
    /// Endpoint to dial, as in the OPEN.
    pub endpoint: Endpoint,
    /// Addresses that the policy allows, in the order of the look-up; never empty.
    pub addresses: Vec<SocketAddr>,
}

/// Reason why a session cannot be forwarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoWay {
    /// Status to answer with.
    pub code: StatusCode,
    /// Explanation.
    pub detail: String,
}

impl NoWay {
    fn new(code: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
        }
    }

    /// Creates the refusal of a session whose stated wishes exceed what the rules allow
    /// (LH-WISH-1).
    #[must_use]
    pub fn unmet(unmet: &Unmet) -> Self {
        Self::new(StatusCode::WishRefused, unmet.to_string())
    }

    /// Creates the refusal of a session that no rule allows.
    #[must_use]
    pub fn not_allowed(asked: Asked<'_>) -> Self {
        Self::new(
            StatusCode::Refused,
            format!("no rule allows {asked} for this key"),
        )
    }
}

/// Finds the addresses for a session. Bounds the concurrent look-ups, and reads this machine's
/// addresses.
#[derive(Debug)]
pub struct Finder {
    resolver: Resolver,
    lookups: Arc<SharedPlaces<Payer>>,
    own: OwnAddressReader,
}

impl Finder {
    /// Creates a finder with at most `lookups` concurrent look-ups, shared among payers as sessions
    /// are.
    #[must_use]
    pub fn new(lookups: usize, own: OwnAddressReader) -> Self {
        Self {
            resolver: Resolver::new(),
            lookups: SharedPlaces::new(lookups.max(1)),
            own,
        }
    }

    /// Returns this machine's addresses, for the policy.
    pub fn own_addresses(&self) -> Arc<OwnAddresses> {
        self.own.addresses()
    }

    /// Finds the addresses that may be dialled (LH-ADMIT-3). A name is resolved only if some rule
    /// might allow its addresses: those rules are the `candidates`.
    ///
    /// # Errors
    /// [`NoWay`], with the status to answer with.
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
        // Read after the look-up, which can take long.
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

    /// Takes a permit for a look-up. Dropping it ends the look-up.
    fn look_up_for(&self, payer: Payer) -> Result<HeldPlace<Payer>, NoWay> {
        self.lookups.take(payer).map_err(|full| {
            let detail = match full {
                Full::All => "as many names are being looked up as it can",
                Full::Share => {
                    "as many names are being looked up for this key or source as fit beside the \
                    others"
                }
            };
            NoWay::new(StatusCode::Overloaded, detail)
        })
    }
}
