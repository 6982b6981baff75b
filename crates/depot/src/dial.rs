//! Dialling: from an OPEN that the policy admits to a connection with the next hop.

use std::sync::Arc;
use std::time::Duration;

use longhaul_hop::{DialError, DialledConnection, HopOptions, Payer, dial};
use longhaul_policy::{
    AccessRequest, Candidates, Finder, OwnAddressReader, OwnAddresses, ResolvedTarget, Unreachable,
};
use longhaul_proto::{Open, StatusCode};
use tokio::time::Instant;

use crate::config::NextCongestion;
use crate::refusal::DepotRefusal;

/// State of the depot that dialling needs.
#[derive(Debug)]
pub(crate) struct Dialler {
    finder: Finder,
    next_congestion: Vec<NextCongestion>,
    unacknowledged: Duration,
}

impl Dialler {
    pub(crate) fn new(
        lookups: usize,
        next_congestion: Vec<NextCongestion>,
        unacknowledged: Duration,
        own: OwnAddressReader,
    ) -> Self {
        Self {
            finder: Finder::new(lookups, own),
            next_congestion,
            unacknowledged,
        }
    }

    /// Returns this machine's addresses, for the policy.
    pub(crate) fn own_addresses(&self) -> Arc<OwnAddresses> {
        self.finder.own_addresses()
    }

    /// Finds the addresses to which the `candidates` let `open` go (LH-ADMIT-3).
    pub(crate) async fn authorise(
        &self,
        candidates: Candidates,
        open: &Open,
        payer: Payer,
        deadline: Instant,
    ) -> Result<ResolvedTarget, DepotRefusal> {
        Ok(self
            .finder
            .find(candidates, policy_request(open)?, payer, deadline)
            .await?)
    }

    /// Connects to the first address of `way` that answers.
    pub(crate) async fn dial(
        &self,
        way: &ResolvedTarget,
        deadline: Instant,
    ) -> Result<DialledConnection, DepotRefusal> {
        let options = |address| {
            let mut choices = self.next_congestion.iter();
            HopOptions {
                user_timeout: self.unacknowledged,
                congestion: choices
                    .find(|choice| choice.applies(&way.endpoint, address))
                    .map(|choice| choice.name.clone()),
                source: None,
                source_ports: None,
            }
        };
        dial(&way.addresses, options, deadline)
            .await
            .map_err(|error: DialError| DepotRefusal::new(error.code(), error.to_string()))
    }
}

/// Returns the request that `open` makes of a depot's policy.
pub(crate) fn policy_request(open: &Open) -> Result<AccessRequest<'_>, DepotRefusal> {
    match AccessRequest::from_open(open) {
        Some(asked @ AccessRequest::Relay { .. }) => Ok(asked),
        _ => Err(DepotRefusal::new(
            StatusCode::Misrouted,
            "this is a depot, and the request is for a server: check the destination's host and \
             port",
        )),
    }
}

/// Returns the refusal of an OPEN that the policy does not allow.
pub(crate) fn policy_refusal(open: &Open) -> DepotRefusal {
    policy_request(open).map_or_else(
        |refused| refused,
        |asked| Unreachable::not_allowed(asked).into(),
    )
}

/// Returns the deadline of an OPEN's set-up at this depot.
pub(crate) fn deadline(open: &Open, since: Instant, dial: Duration) -> Instant {
    (since + open.setup_budget).min(Instant::now() + dial)
}
