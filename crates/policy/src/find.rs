//! Resolution of a session's next endpoint, and the check of its addresses against the rules.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;

use longhaul_hop::{HeldPermit, Payer, ResolveError, Resolver, SharedPermits};
use longhaul_proto::{Endpoint, ExhaustedBound, Host, StatusCode};
use tokio::time::{Instant, timeout_at};

use crate::{AccessRequest, Candidates, OwnAddressReader, OwnAddresses, Rule, UnmetBound};

/// Maximum number of a name's addresses that are dialled.
const MAX_DIALLED_ADDRESSES: usize = 4;

/// Addresses to which a session may be forwarded.
#[derive(Debug)]
pub struct ResolvedTarget {
    /// Rule that allows it.
    pub rule: Arc<Rule>,
    /// Endpoint to dial, as in the OPEN.
    pub endpoint: Endpoint,
    /// Addresses that the policy allows, in the order of the look-up; never empty.
    pub addresses: Vec<SocketAddr>,
}

/// Reason why a session cannot be forwarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreachable {
    /// Status to answer with.
    pub code: StatusCode,
    /// Explanation.
    pub detail: String,
}

impl Unreachable {
    fn new(code: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
        }
    }

    /// Creates the refusal of a session whose stated wishes exceed what the rules allow
    /// (LH-WISH-1).
    #[must_use]
    pub fn from_unmet(unmet: &UnmetBound) -> Self {
        Self::new(StatusCode::WishRefused, unmet.to_string())
    }

    /// Creates the refusal of a session that no rule allows.
    #[must_use]
    pub fn not_allowed(asked: AccessRequest<'_>) -> Self {
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
    lookups: Arc<SharedPermits<Payer>>,
    own: OwnAddressReader,
}

impl Finder {
    /// Creates a finder with at most `lookups` concurrent look-ups, shared among payers as sessions
    /// are. Sources leave an eighth for listed keys.
    #[must_use]
    pub fn new(lookups: usize, own: OwnAddressReader) -> Self {
        Self {
            resolver: Resolver::new(),
            lookups: SharedPermits::new(lookups.max(1)),
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
    /// [`Unreachable`], with the status to answer with.
    pub async fn find(
        &self,
        candidates: Candidates,
        asked: AccessRequest<'_>,
        payer: Payer,
        deadline: Instant,
    ) -> Result<ResolvedTarget, Unreachable> {
        let Some(endpoint) = asked.dialled() else {
            return Err(Unreachable::not_allowed(asked));
        };
        let addresses = self.resolve(endpoint, payer, deadline).await?;
        // Read after the look-up, which can take long.
        let own = self.own.addresses();
        let allowed = candidates.rules.into_iter().find_map(|rule| {
            let mut addresses = rule.allowed(asked, &addresses, &own);
            addresses.truncate(MAX_DIALLED_ADDRESSES);
            (!addresses.is_empty()).then_some((rule, addresses))
        });
        let Some((rule, addresses)) = allowed else {
            let detail = format!("no rule allows the addresses of {endpoint} for this key");
            return Err(Unreachable::new(StatusCode::Refused, detail));
        };
        Ok(ResolvedTarget {
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
    ) -> Result<Vec<SocketAddr>, Unreachable> {
        let _place = match endpoint.host {
            Host::Ip(_) => None,
            Host::Name(_) => Some(self.take_lookup_permit(payer)?),
        };
        let failed = |code, why: &dyn Display| Unreachable::new(code, format!("{endpoint}: {why}"));
        match timeout_at(deadline, self.resolver.addresses(endpoint)).await {
            Ok(Ok(addresses)) => Ok(addresses),
            Ok(Err(error @ ResolveError::NoAnswer)) => Err(failed(StatusCode::DialTimeout, &error)),
            Ok(Err(error)) => Err(failed(StatusCode::NameNotFound, &error)),
            Err(_) => Err(failed(
                StatusCode::DialTimeout,
                &"the name look-up timed out",
            )),
        }
    }

    /// Takes a permit for a look-up. Dropping it ends the look-up.
    fn take_lookup_permit(&self, payer: Payer) -> Result<HeldPermit<Payer>, Unreachable> {
        let taken = match payer {
            Payer::Key(_) => self.lookups.take(payer),
            Payer::Source(_) => self.lookups.take_unlisted(payer),
        };
        taken.map_err(|full| {
            let detail = match full {
                ExhaustedBound::All => "the maximum number of name look-ups is reached",
                ExhaustedBound::Share => {
                    "this key or source address already uses its full share of name look-ups"
                }
            };
            Unreachable::new(StatusCode::Overloaded, detail)
        })
    }
}
