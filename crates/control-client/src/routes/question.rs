//! Questions to a source of routes, and its answers.

use std::fmt;
use std::time::Duration;

pub use longhaul_control_api::forecasts::Spread;
use longhaul_proto::{Endpoint, Route};
use quantities::Time;

/// Maximum number of routes at once.
pub const MAX_AT_ONCE: usize = 3;

/// Maximum number of lines for people.
pub(crate) const MAX_LINES: usize = 5;

/// A transfer and its destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteQuery {
    /// The server, with its port.
    pub destination: Endpoint,
    /// If true, the bytes come from there.
    pub receives: bool,
    /// Number of bytes. `None` means many.
    pub bytes: Option<u64>,
    /// Number of streams, if it is fixed.
    pub streams: Option<u32>,
    /// Congestion control of this host's connections, if it is not the system's.
    pub congestion: Option<String>,
    /// Urgency of the transfer.
    pub urgency: Urgency,
}

/// Urgency of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Urgency {
    /// A little-known route may be explored alongside, at the controller's stated cost.
    #[default]
    Usual,
    /// The transfer explores no route.
    Urgent,
}

/// Chosen routes, with the reason.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The routes, the best first: those to use at once, then the fallbacks. The direct route is
    /// always a fallback, listed or not.
    pub routes: Vec<ChosenRoute>,
    /// Number of routes to use at once.
    pub at_once: usize,
    /// Expected time over those together, in seconds. `None` if too little is known for a promise.
    pub seconds: Option<Spread>,
    /// Reason, in at most five lines for people.
    pub why: Vec<String>,
    /// Source of the choice.
    pub origin: Origin,
}

/// One route of a choice.
#[derive(Debug, Clone, PartialEq)]
pub struct ChosenRoute {
    /// Depots to pass.
    pub route: Route,
    /// Names of the depots on the controller's map, in order; empty if unknown.
    pub depots: Vec<String>,
    /// Expected time of the whole transfer over this route alone, in seconds.
    pub seconds: Option<Spread>,
}

/// Source of a choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Default: the transfer goes direct because other routes are unknown.
    Nobody,
    /// A rule of `routes.toml`.
    File {
        /// Line at which the rule begins, from 1.
        line: usize,
        /// If true, a direct connection replaces the route if it fails before anything was sent.
        fall_back: bool,
    },
    /// The controller's present answer.
    Controller,
    /// The last table of the controller.
    Cache {
        /// Age of the table.
        age: Duration,
        /// If true, the table's validity is over, and it may be wrong.
        is_old: bool,
    },
}

impl Origin {
    /// Returns the origin as one word, as in reports.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Nobody => "nobody",
            Self::File { .. } => "file",
            Self::Controller => "controller",
            Self::Cache { .. } => "cache",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => f.write_str("no other routes are known"),
            Self::File { line, .. } => write!(f, "line {line} of routes.toml"),
            Self::Controller => f.write_str("the controller"),
            Self::Cache { age, is_old } => {
                let old = if *is_old {
                    ", which is no longer valid"
                } else {
                    ""
                };
                write!(
                    f,
                    "the table of {} ago{old}",
                    Time(Duration::from_secs(age.as_secs()))
                )
            }
        }
    }
}

impl Choice {
    /// Creates the choice of the direct route for lack of any other, with this reason.
    #[must_use]
    pub fn direct(why: impl Into<String>) -> Self {
        Self {
            routes: vec![ChosenRoute::direct()],
            at_once: 1,
            seconds: None,
            why: vec![why.into()],
            origin: Origin::Nobody,
        }
    }

    /// Returns the choice for when the direct route does not suffice, with this reason: fallback
    /// routes are used at once, too.
    #[must_use]
    pub fn with_fallbacks_in_use(self, reason: String) -> Self {
        let why = std::iter::once(reason).chain(self.why);
        Self {
            at_once: self.routes.len().min(MAX_AT_ONCE),
            why: why.take(MAX_LINES).collect(),
            ..self
        }
    }

    /// Returns the routes to use at once.
    #[must_use]
    pub fn used_routes(&self) -> &[ChosenRoute] {
        self.routes.get(..self.at_once).unwrap_or(&self.routes)
    }

    /// Returns true if only the direct route is used.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.used_routes()
            .iter()
            .all(|chosen| chosen.route.is_direct())
    }

    /// Returns the names of the used routes, for people.
    #[must_use]
    pub fn used_names(&self) -> String {
        let names: Vec<String> = self.used_routes().iter().map(ChosenRoute::name).collect();
        names.join(" and ")
    }
}

impl ChosenRoute {
    /// Creates the direct route.
    #[must_use]
    pub const fn direct() -> Self {
        Self {
            route: Route::direct(),
            depots: Vec::new(),
            seconds: None,
        }
    }

    /// Returns the names of its depots if they are known, otherwise the syntax of `--route`.
    #[must_use]
    pub fn name(&self) -> String {
        match self.depots.is_empty() {
            true => self.route.to_string(),
            false => self.depots.join(","),
        }
    }
}
