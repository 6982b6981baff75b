//! `routes.toml` for chosen routes: the table that depots, clients and on-ramps read (its format is
//! described in docs/onramp.md).

use std::ops::RangeInclusive;

use longhaul_policy::HostPattern;
use longhaul_proto::text::printable;
use longhaul_proto::{Hop, Route, RouteError};
use serde::Serialize;

use crate::check::shorten;
use crate::model::{Map, SessionEnd};

/// A rule of the table: destinations, and the route to them.
#[derive(Debug, Clone, PartialEq)]
pub struct ChosenRoute {
    /// Names and networks of destinations.
    pub to: Vec<String>,
    /// Ports of the destinations; all if it is empty.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Depots to pass.
    pub via: Route,
    /// End of the session. `None` means a direct connection without a session.
    pub end: Option<SessionEnd>,
    /// If true, the route is used even if no gain is expected.
    pub always: bool,
    /// If true, a direct connection replaces the route if it fails before anything was sent.
    pub fall_back: bool,
    /// Reason for the choice, as a comment above the rule.
    pub reason: Option<String>,
}

/// Reason why a rule is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChosenRouteError {
    /// The host is not on the map. Add it, or name another.
    #[error("there is no host {0:?} on the map")]
    NoHost(String),
    /// A depot is not on the map. Add it, or name another.
    #[error("there is no depot {0:?} on the map")]
    NoDepot(String),
    /// A depot has fallen silent: choose another route. It has not registered in time; check that
    /// it runs.
    #[error("the depot {0:?} no longer reports to the controller: choose another route")]
    StaleDepot(String),
    /// A destination is invalid.
    #[error("a route has no valid destination: {0}")]
    To(String),
    /// The ports are invalid.
    #[error("the ports of a route are 1 to 65535, the first of a range no greater than the last")]
    Ports,
    /// The route passes depots, but its session has no end: state where it ends.
    #[error("a route through depots must name where the session ends")]
    NoEnd,
    /// There are too many depots.
    #[error(transparent)]
    Route(#[from] RouteError),
}

#[derive(Serialize)]
struct RouteFile {
    route: Vec<ChosenRuleText>,
}

#[derive(Serialize)]
struct ChosenRuleText {
    to: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ports: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    via: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offramp: Option<String>,
    #[serde(skip_serializing_if = "is_false")]
    acceptor: bool,
    #[serde(skip_serializing_if = "is_false")]
    always: bool,
    #[serde(skip_serializing_if = "is_true")]
    fall_back: bool,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands fields over so"
)]
const fn is_false(value: &bool) -> bool {
    !*value
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands fields over so"
)]
const fn is_true(value: &bool) -> bool {
    *value
}

impl ChosenRoute {
    /// Creates the rule for sessions to a host of a map through these depots, each at its first
    /// address and with its key. The rule is used if a gain is expected, and falls back to a direct
    /// connection.
    ///
    /// # Errors
    /// [`ChosenRouteError`] if the host or a depot is not on the map.
    pub fn through_depots(
        map: &Map,
        host: &str,
        depots: &[&str],
    ) -> Result<Self, ChosenRouteError> {
        let host = map
            .host(host)
            .ok_or_else(|| ChosenRouteError::NoHost(shorten(host)))?;
        let hops = depots.iter().map(|name| {
            let depot = map
                .depot(name)
                .ok_or_else(|| ChosenRouteError::NoDepot(shorten(name)))?;
            if !depot.state.is_usable() {
                return Err(ChosenRouteError::StaleDepot(shorten(name)));
            }
            let address = depot
                .addresses
                .first()
                .ok_or_else(|| ChosenRouteError::NoDepot(shorten(name)))?;
            Ok(Hop {
                endpoint: address.endpoint.clone(),
                strict: true,
                key: Some(depot.key),
                transport: None,
            })
        });
        Ok(Self {
            to: host.addresses.clone(),
            ports: Vec::new(),
            via: Route::new(hops.collect::<Result<_, _>>()?)?,
            end: Some(host.end.clone()),
            always: false,
            fall_back: true,
            reason: None,
        })
    }

    fn rule(&self) -> Result<ChosenRuleText, ChosenRouteError> {
        if self.to.is_empty() {
            return Err(ChosenRouteError::To("the list is empty".to_owned()));
        }
        for to in &self.to {
            to.parse::<HostPattern>().map_err(ChosenRouteError::To)?;
        }
        if self
            .ports
            .iter()
            .any(|ports| *ports.start() == 0 || ports.is_empty())
        {
            return Err(ChosenRouteError::Ports);
        }
        if self.end.is_none() && !self.via.is_direct() {
            return Err(ChosenRouteError::NoEnd);
        }
        let offramp = match &self.end {
            Some(SessionEnd::Offramp {
                endpoint,
                key: None,
            }) => Some(endpoint.to_string()),
            Some(SessionEnd::Offramp {
                endpoint,
                key: Some(key),
            }) => Some(format!("{key}@{endpoint}")),
            Some(SessionEnd::Acceptor) | None => None,
        };
        Ok(ChosenRuleText {
            to: self.to.clone(),
            ports: self
                .ports
                .iter()
                .map(|ports| format!("{}-{}", ports.start(), ports.end()))
                .collect(),
            via: (!self.via.is_direct()).then(|| self.via.to_string()),
            offramp,
            acceptor: self.end == Some(SessionEnd::Acceptor),
            always: self.always,
            fall_back: self.fall_back,
        })
    }
}

/// Formats a table of these rules, of which the first match decides. `heading` becomes a comment at
/// the top.
///
/// # Errors
/// [`ChosenRouteError`] if a rule is invalid.
pub fn routes_toml(heading: &str, routes: &[ChosenRoute]) -> Result<String, ChosenRouteError> {
    let mut text = comment(heading);
    for route in routes {
        text.push('\n');
        text.push_str(&route.reason.as_deref().map(comment).unwrap_or_default());
        let table = RouteFile {
            route: vec![route.rule()?],
        };
        // Strings, lists and booleans can always be written.
        text.push_str(&toml::to_string(&table).unwrap_or_default());
    }
    Ok(text)
}

/// Formats each line of a text as a comment.
fn comment(text: &str) -> String {
    text.lines()
        .map(|line| format!("# {}\n", printable(line.as_bytes())))
        .collect()
}
