//! Dialling: from an OPEN that the policy admits to a connection with the next hop.

use std::sync::Arc;
use std::time::Duration;

use longhaul_hop::{DialError, Dialled, Options, Payer, dial};
use longhaul_policy::{Asked, Candidates, Finder, NoWay, OwnAddressReader, OwnAddresses, Way};
use longhaul_proto::{Open, StatusCode};
use tokio::time::Instant;

use crate::config::NextCongestion;
use crate::refusal::Refused;

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
    ) -> Result<Way, Refused> {
        Ok(self
            .finder
            .find(candidates, asked(open)?, payer, deadline)
            .await?)
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
                source_ports: None,
            }
        };
        dial(&way.addresses, options, deadline)
            .await
            .map_err(|error: DialError| Refused::new(error.code(), error.to_string()))
    }
}

/// Returns the request that `open` makes of a depot's policy.
pub(crate) fn asked(open: &Open) -> Result<Asked<'_>, Refused> {
    match Asked::of(open) {
        Some(asked @ Asked::Relay { .. }) => Ok(asked),
        _ => Err(Refused::new(
            StatusCode::Misrouted,
            "an OPEN for the acceptor came to a depot",
        )),
    }
}

/// Returns the refusal of an OPEN that the policy does not allow.
pub(crate) fn not_allowed(open: &Open) -> Refused {
    asked(open).map_or_else(|refused| refused, |asked| NoWay::not_allowed(asked).into())
}

/// Returns the deadline of an OPEN's set-up at this depot.
pub(crate) fn deadline(open: &Open, since: Instant, dial: Duration) -> Instant {
    (since + open.setup_budget).min(Instant::now() + dial)
}
