//! `routes.toml` for routes that were chosen: the table by which depots, clients and on-ramps know
//! them (its format stands in docs/onramp.md).

use std::ops::RangeInclusive;

use longhaul_policy::HostPattern;
use longhaul_proto::text::printable;
use longhaul_proto::{Hop, Route, RouteError};
use serde::Serialize;

use crate::check::shown;
use crate::model::{Map, SessionEnd};

/// A rule of the table: destinations, and the way to them.
#[derive(Debug, Clone, PartialEq)]
pub struct ChosenRoute {
    /// Names and networks of destinations.
    pub to: Vec<String>,
    /// Their ports; all if there is none.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Depots to pass.
    pub via: Route,
    /// Where the session ends; `None` where destinations are connected to directly, without one.
    pub end: Option<SessionEnd>,
    /// Whether it is taken also where no gain is expected.
    pub always: bool,
    /// Whether a direct connection takes its place where it fails before anything was sent.
    pub fall_back: bool,
    /// Why it was chosen, for people: a comment above the rule.
    pub reason: Option<String>,
}

/// Why there is no such rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChosenRouteError {
    /// The host is not on the map.
    #[error("there is no host {0:?} on the map")]
    NoHost(String),
    /// A depot is not on the map.
    #[error("there is no depot {0:?} on the map")]
    NoDepot(String),
    /// A depot that fell silent.
    #[error("the depot {0:?} has fallen silent: choose another way")]
    StaleDepot(String),
    /// A destination that is none.
    #[error("a route leads to nobody, or to what is no host: {0}")]
    To(String),
    /// Ports that are none.
    #[error("the ports of a route are 1 to 65535, the first of a range no greater than the last")]
    Ports,
    /// Depots are passed and the session ends nowhere.
    #[error("a route through depots must say where the session ends")]
    NoEnd,
    /// Too many depots.
    #[error(transparent)]
    Route(#[from] RouteError),
}

#[derive(Serialize)]
struct Table {
    route: Vec<Rule>,
}

#[derive(Serialize)]
struct Rule {
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
    /// The rule for a host of a map, to which sessions go through these depots, each at its first
    /// address and with its key. It falls back to a direct connection, and is taken where a gain is
    /// expected.
    ///
    /// # Errors
    /// [`ChosenRouteError`] where the map has not what is named.
    pub fn through(map: &Map, host: &str, depots: &[&str]) -> Result<Self, ChosenRouteError> {
        let host = map
            .host(host)
            .ok_or_else(|| ChosenRouteError::NoHost(shown(host)))?;
        let hops = depots.iter().map(|name| {
            let depot = map
                .depot(name)
                .ok_or_else(|| ChosenRouteError::NoDepot(shown(name)))?;
            if !depot.state.usable() {
                return Err(ChosenRouteError::StaleDepot(shown(name)));
            }
            let address = depot
                .addresses
                .first()
                .ok_or_else(|| ChosenRouteError::NoDepot(shown(name)))?;
            Ok(Hop {
                endpoint: address.endpoint.clone(),
                strict: true,
                key: Some(depot.key),
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

    fn rule(&self) -> Result<Rule, ChosenRouteError> {
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
        Ok(Rule {
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

/// The text of a table with these rules, the first that fits deciding; `heading` stands above it as
/// a comment.
///
/// # Errors
/// [`ChosenRouteError`]: a rule that the table can't have.
pub fn routes_toml(heading: &str, routes: &[ChosenRoute]) -> Result<String, ChosenRouteError> {
    let mut text = comment(heading);
    for route in routes {
        text.push('\n');
        text.push_str(&route.reason.as_deref().map(comment).unwrap_or_default());
        let table = Table {
            route: vec![route.rule()?],
        };
        // Strings, lists and truths can always be written.
        text.push_str(&toml::to_string(&table).unwrap_or_default());
    }
    Ok(text)
}

/// Each line of a text as a comment.
fn comment(text: &str) -> String {
    text.lines()
        .map(|line| format!("# {}\n", printable(line.as_bytes())))
        .collect()
}
