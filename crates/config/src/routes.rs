//! `routes.toml`: the routes for connections of programs that do not choose routes themselves. The
//! first matching rule decides. A connection that matches no rule is made directly.
//!
//! ```toml
//! [[route]]
//! to = ["*.archive.example", "192.0.2.0/24"]     # names and networks of destinations
//! ports = [2811, "50000-51000"]                  # their ports; default: all
//! via = "campus.example,backbone.example"        # depots, as for --route; default: "direct"
//! # where the session ends and plain TCP begins; without a key, the one in known_hosts applies
//! offramp = "lhk1:...@gateway.example:7512"
//! always = true                                  # even if no gain is expected; default: false
//! alternatives = ["second.example", "direct"]    # further routes, if a depot dies; default: none
//! fall_back = false                              # no direct connection on failure; default: true
//! reserve = { rate = "2G", for = "10min" }       # a circuit for programs that state no rate
//! ```
//!
//! Instead of `offramp`, `acceptor = true` says that the destinations speak the session protocol
//! themselves. A rule with neither connects to its destinations directly.
//!
//! A table that a controller gives ([`controllers`]) is trusted less: it cannot set keys.
#![deny(clippy::indexing_slicing)] // what is read here comes from a file

pub mod controllers;
mod reserve;

use std::io;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use longhaul_policy::HostPattern;
use longhaul_proto::text::printable;
use longhaul_proto::{Endpoint, OFFRAMP_PORT, PublicKey, Route};
use longhaul_session::read_trusted_file;
use longhaul_wishes::ReserveRule;
use serde::Deserialize;
use toml::Spanned;

/// Reasons why a table of routes cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum RoutesError {
    /// The file cannot be read: check the path and its permissions.
    #[error(
        "{}: cannot read the table of routes: {source}",
        crate::home::display_path(file)
    )]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// A line of the file is invalid: correct it as the message says.
    #[error("{}:{line}: {problem}", crate::home::display_path(file))]
    Line {
        /// The file.
        file: PathBuf,
        /// Line number, counted from 1.
        line: usize,
        /// The mistake, and its correction.
        problem: String,
    },
}

/// The rules of a file, in the file's order.
#[derive(Debug, Clone, Default)]
pub struct RouteTable {
    rules: Vec<RouteRule>,
    author: Author,
}

/// Author of a table of routes, which decides how far it is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Author {
    /// The user of this machine's on-ramp.
    #[default]
    User,
    /// A controller. Its rules set no keys of off-ramps and only speed connections up: local
    /// traffic stays local, and a route that fails does not prevent a direct connection.
    Controller,
}

/// One rule.
#[derive(Debug, Clone)]
pub struct RouteRule {
    to: Vec<HostPattern>,
    /// Destination ports; all if empty.
    ports: Vec<RangeInclusive<u16>>,
    /// Line of the file on which the rule begins.
    pub line: usize,
    /// Depots to pass.
    pub via: Route,
    /// Further routes on which a session with an off-ramp continues if a depot dies.
    pub alternatives: Vec<Route>,
    /// End of the session.
    pub end: SessionEnd,
    /// If true, the route is used even if no gain is expected.
    pub always: bool,
    /// If true, a direct connection is made when the route fails before anything was sent.
    pub fall_back: bool,
    /// Circuits for its connections.
    pub reserve: ReserveRule,
    /// If true, the route's depots may reserve in the user's name.
    pub delegate: bool,
}

/// End of a rule's session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionEnd {
    /// No session: the connection to the destination is direct.
    None,
    /// At the destination, which speaks the session protocol.
    Destination,
    /// At an off-ramp, which connects to the destination.
    Offramp {
        /// Address on which it listens.
        at: Endpoint,
        /// Its key; if `None`, the one in `known_hosts`.
        key: Option<PublicKey>,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TableText {
    #[serde(default)]
    route: Vec<Spanned<RuleText>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    to: Spanned<Vec<Spanned<String>>>,
    #[serde(default)]
    ports: Vec<Spanned<PortsText>>,
    via: Option<Spanned<String>>,
    #[serde(default)]
    alternatives: Vec<Spanned<String>>,
    offramp: Option<Spanned<String>>,
    #[serde(default)]
    acceptor: bool,
    #[serde(default)]
    always: bool,
    #[serde(default = "yes")]
    fall_back: bool,
    reserve: Option<Spanned<reserve::ReserveText>>,
    #[serde(default)]
    delegate: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum PortsText {
    One(u16),
    Range(String),
}

const fn yes() -> bool {
    true
}

impl RouteRule {
    /// Returns the destinations of the rule.
    #[must_use]
    pub fn destinations(&self) -> &[HostPattern] {
        &self.to
    }

    /// Returns the destination ports; all if empty.
    #[must_use]
    pub fn ports(&self) -> &[RangeInclusive<u16>] {
        &self.ports
    }
}

impl RouteTable {
    /// Reads a file. A file that does not exist has no rules.
    ///
    /// # Errors
    /// [`RoutesError`].
    pub fn load(file: &Path) -> Result<Self, RoutesError> {
        match read_trusted_file(file) {
            Ok(text) => Self::parse(&text, file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(RoutesError::Unreadable {
                file: file.to_owned(),
                source,
            }),
        }
    }

    /// Parses the text of a table; `file` is its name in errors.
    ///
    /// # Errors
    /// [`RoutesError::Line`].
    pub fn parse(text: &str, file: &Path) -> Result<Self, RoutesError> {
        let line = |at| 1 + text.get(..at).unwrap_or(text).matches('\n').count();
        let wrong = |at, problem: &str| RoutesError::Line {
            file: file.to_owned(),
            line: line(at),
            problem: printable(problem.as_bytes()),
        };
        let table: TableText = toml::from_str(text)
            .map_err(|error| wrong(error.span().map_or(0, |span| span.start), error.message()))?;
        let rules = table.route.into_iter().map(|rule| {
            let begins = line(rule.span().start);
            parse_rule(rule.into_inner(), begins).map_err(|(at, problem)| wrong(at, &problem))
        });
        Ok(Self {
            rules: rules.collect::<Result<_, _>>()?,
            author: Author::User,
        })
    }

    /// Returns the author of the table.
    #[must_use]
    pub const fn author(&self) -> Author {
        self.author
    }

    /// Returns the rules, in the order of the file.
    #[must_use]
    pub fn rules(&self) -> &[RouteRule] {
        &self.rules
    }

    /// Returns the first rule that matches a destination by its address, the name that resolved to
    /// it, or both.
    #[must_use]
    pub fn rule(
        &self,
        address: Option<IpAddr>,
        name: Option<&str>,
        port: u16,
    ) -> Option<&RouteRule> {
        let fits = |rule: &&RouteRule| {
            let host = rule.to.iter().any(|pattern| pattern.matches(address, name));
            host && (rule.ports.is_empty() || rule.ports.iter().any(|ports| ports.contains(&port)))
        };
        self.rules.iter().find(fits)
    }
}

/// Byte offset of a problem in the text, and the problem.
type ParseProblem = (usize, String);

fn parse_rule(rule: RuleText, line: usize) -> Result<RouteRule, ParseProblem> {
    if rule.to.get_ref().is_empty() {
        return Err((
            rule.to.span().start,
            "to: is empty: such a rule matches nothing; remove it".to_owned(),
        ));
    }
    let to = rule.to.get_ref().iter().map(|text| {
        text.get_ref()
            .parse()
            .map_err(|problem: String| (text.span().start, format!("to: {problem}")))
    });
    let ports = rule.ports.iter().map(|text| {
        ports(text.get_ref()).ok_or_else(|| {
            (
                text.span().start,
                "ports: write ports of 1 to 65535, such as 2811 or \"50000-51000\"".to_owned(),
            )
        })
    });
    let via = match &rule.via {
        None => Route::direct(),
        Some(text) => text
            .get_ref()
            .parse()
            .map_err(|error| (text.span().start, format!("via: {error}")))?,
    };
    let end = match &rule.offramp {
        Some(text) if rule.acceptor => {
            return Err((
                text.span().start,
                "offramp: this rule has acceptor = true as well: remove one of the two".to_owned(),
            ));
        }
        Some(text) => offramp(text.get_ref())
            .map_err(|problem| (text.span().start, format!("offramp: {problem}")))?,
        None if rule.acceptor => SessionEnd::Destination,
        None => SessionEnd::None,
    };
    if let (SessionEnd::None, false, Some(text)) = (&end, via.is_direct(), &rule.via) {
        return Err((
            text.span().start,
            "via: name where the session ends: offramp = \"host\", or acceptor = true".to_owned(),
        ));
    }
    let alternatives = rule.alternatives.iter().map(|text| {
        if !matches!(end, SessionEnd::Offramp { .. }) {
            let problem = "alternatives: only sessions with an off-ramp continue: name it as \
                           offramp = \"host\", or remove this line";
            return Err((text.span().start, problem.to_owned()));
        }
        text.get_ref()
            .parse()
            .map_err(|error| (text.span().start, format!("alternatives: {error}")))
    });
    let alternatives = alternatives.collect::<Result<Vec<Route>, _>>()?;
    let reserve = match &rule.reserve {
        None => ReserveRule::default(),
        Some(text) => reserve::parse(text.get_ref())
            .map_err(|problem| (text.span().start, format!("reserve: {problem}")))?,
    };
    Ok(RouteRule {
        alternatives,
        to: to.collect::<Result<_, _>>()?,
        ports: ports.collect::<Result<_, _>>()?,
        line,
        via,
        end,
        always: rule.always,
        fall_back: rule.fall_back,
        reserve,
        delegate: rule.delegate,
    })
}

fn ports(text: &PortsText) -> Option<RangeInclusive<u16>> {
    let (first, last) = match text {
        PortsText::One(port) => (*port, *port),
        PortsText::Range(text) => {
            let (first, last) = text.split_once('-')?;
            (first.parse().ok()?, last.parse().ok()?)
        }
    };
    (first != 0 && first <= last).then_some(first..=last)
}

fn offramp(text: &str) -> Result<SessionEnd, String> {
    let (key, at) = match text.split_once('@') {
        Some((key, at)) => {
            let key = key.parse().map_err(|error| format!("{key:?} is {error}"))?;
            (Some(key), at)
        }
        None => (None, text),
    };
    let at = Endpoint::parse_with_port(at, OFFRAMP_PORT).map_err(|error| error.to_string())?;
    Ok(SessionEnd::Offramp { at, key })
}

#[cfg(test)]
mod tests;
