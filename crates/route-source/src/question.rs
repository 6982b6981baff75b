//! What is asked of a source of routes, and what it answers.

use std::fmt;
use std::time::Duration;

pub use longhaul_control_api::forecasts::Spread;
use longhaul_proto::{Endpoint, Route};
use quantities::Time;

use crate::belief::{MAX_AT_ONCE, MAX_LINES};

/// What is to be moved, and where to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The server, with its port.
    pub destination: Endpoint,
    /// Whether the bytes come from there.
    pub receives: bool,
    /// How many bytes; many, where that is not known.
    pub bytes: Option<u64>,
    /// By how many streams it goes, where that is settled.
    pub streams: Option<u32>,
    /// The congestion control of this host's connections, where it is not the system's.
    pub congestion: Option<String>,
    /// Whether somebody waits for it.
    pub urgency: Urgency,
}

/// Whether somebody waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Urgency {
    /// A route of which little is known may be tried beside, at the controller's stated cost.
    #[default]
    Usual,
    /// Nothing is tried.
    Urgent,
}

/// By which routes something goes, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The routes, the best first: those to use at once, then those to fall back to. The direct
    /// route is always there to fall back to, listed or not.
    pub routes: Vec<ChosenRoute>,
    /// How many of them to use at once.
    pub at_once: usize,
    /// How long the transfer takes by those together, in seconds; none where too little is known to
    /// promise anything.
    pub seconds: Option<Spread>,
    /// Why, in at most five lines for people.
    pub why: Vec<String>,
    /// Who says so.
    pub origin: Origin,
}

/// One route of a choice.
#[derive(Debug, Clone, PartialEq)]
pub struct ChosenRoute {
    /// The depots to pass.
    pub route: Route,
    /// Their names on the controller's map, in order; empty where there are none.
    pub depots: Vec<String>,
    /// How long the whole transfer would take by it alone, in seconds.
    pub seconds: Option<Spread>,
}

/// Who says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody: what nothing is known of goes direct.
    Nobody,
    /// `routes.toml`, by the rule that begins on this line.
    File {
        /// The line, counted from 1.
        line: usize,
        /// Whether a direct connection takes the route's place where it fails before anything was
        /// sent.
        fall_back: bool,
    },
    /// The controller, just now.
    Controller,
    /// The last table that it gave.
    Cache {
        /// How long ago that was made.
        age: Duration,
        /// Its time is over: it is not known to be right any more.
        is_old: bool,
    },
}

impl Origin {
    /// In one word, as reports have it.
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
            Self::Nobody => f.write_str("nothing is known of other routes"),
            Self::File { line, .. } => write!(f, "the rule of line {line} of routes.toml"),
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
    /// Direct, because nobody says anything else.
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

    /// The same where that is not enough, for this reason: routes to fall back to are used at once,
    /// too.
    #[must_use]
    pub fn falling_back(self, reason: String) -> Self {
        let why = std::iter::once(reason).chain(self.why);
        Self {
            at_once: self.routes.len().min(MAX_AT_ONCE),
            why: why.take(MAX_LINES).collect(),
            ..self
        }
    }

    /// The routes to use at once.
    #[must_use]
    pub fn used(&self) -> &[ChosenRoute] {
        self.routes.get(..self.at_once).unwrap_or(&self.routes)
    }

    /// Whether nothing but the direct route is used.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.used().iter().all(|chosen| chosen.route.is_direct())
    }

    /// The routes used, as a person reads them.
    #[must_use]
    pub fn names(&self) -> String {
        let names: Vec<String> = self.used().iter().map(ChosenRoute::name).collect();
        names.join(" and ")
    }
}

impl ChosenRoute {
    /// The direct one.
    #[must_use]
    pub const fn direct() -> Self {
        Self {
            route: Route::direct(),
            depots: Vec::new(),
            seconds: None,
        }
    }

    /// By the names of its depots where they are known, else as `--route` takes it.
    #[must_use]
    pub fn name(&self) -> String {
        match self.depots.is_empty() {
            true => self.route.to_string(),
            false => self.depots.join(","),
        }
    }
}
