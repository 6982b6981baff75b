//! Choice between a direct connection and a route. Pure: the same facts give the same answer.
//!
//! A destination without a rule is connected to directly. With a rule, a connection takes its route
//! only if it is expected to gain from it. Three things override that: a rule with `always = true`,
//! a route named by the program, and a program that requires a route.

use std::fmt;
use std::time::Duration;

use longhaul_config::routes::{RouteRule, SessionEnd};
use quantities::{ByteCount, Time};

/// Round-trip time below which paths are connected over directly.
///
/// A depot shortens the loop in which TCP grows its window and repairs losses. With a loop this
/// short, growing from ten segments to 1 Gbit/s takes under 0.1 s, a loss is repaired faster than a
/// disk stalls, and even a host with windows of 64 KB reaches 52 Mbit/s. The shortest path on which
/// depots were measured to help has 70 ms (`docs/results/depots.md`).
pub const SHORT_PATH_RTT: Duration = Duration::from_millis(10);

/// Maximum size of a connection that is made directly, in bytes.
///
/// From ten segments (RFC 6928), slow start needs three round trips for it. Halving the path saves
/// about one and a half of these, but setting up a session costs one more than setting up TCP.
pub const MAX_SMALL_BYTES: u64 = 64 * 1024;

/// Facts about a requested connection.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConnectionFacts {
    /// If true, the destination's address is known, and local to this machine or its link.
    pub is_local: bool,
    /// Request of the program itself, which overrides the rules.
    pub program_choice: Option<ProgramChoice>,
    /// Size of the connection in bytes, if the program stated it.
    pub size: Option<u64>,
    /// True if the connection must fail when there is no route.
    pub route_required: bool,
    /// True if the program states that the destination speaks the session protocol itself. The rule
    /// may state it too.
    pub acceptor: bool,
    /// True if the rule comes from a controller and leads to an off-ramp whose key is not known
    /// here.
    pub is_offramp_unknown: bool,
}

/// Requests that a program itself may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramChoice {
    /// A direct connection.
    Direct,
    /// A route named by the program.
    Route,
}

/// Knowledge of a destination from earlier connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DestinationFacts {
    /// Smoothed round-trip time of direct connections to its host.
    pub rtt: Option<Duration>,
    /// Size in bytes that nearly all of its connections did not exceed; `None` if there were too
    /// few.
    pub usually_below: Option<u64>,
}

/// Decision about a connection, and its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// Chosen action.
    pub action: ConnectionAction,
    /// Reason; its display text is a sentence.
    pub reason: Reason,
}

/// Action for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionAction {
    /// Connect as if there were no route.
    Direct,
    /// Open a session without depots, as the destination only speaks the session protocol.
    Session,
    /// Take the route: the program's own, else the rule's.
    Route,
    /// Refuse the connection.
    Refuse,
}

/// Reason of a decision. Lines are those of `routes.toml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the display text below describes each")]
pub enum Reason {
    Local,
    NoRule,
    NoRuleForAcceptor,
    NoRuleAndClosed,
    RuleIsDirect { line: usize },
    RuleIsDirectAndClosed { line: usize },
    OfframpUnknown { line: usize },
    OfframpUnknownAndClosed { line: usize },
    ProgramsRoute,
    ProgramsChoice,
    Always { line: usize },
    Closed { line: usize },
    Short { rtt: Duration },
    SmallSize { size: u64 },
    UsuallySmall { below: u64 },
    Rule { line: usize },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Local => f.write_str("it is on this machine or this link"),
            Self::NoRule => f.write_str("no rule names it"),
            Self::NoRuleForAcceptor => {
                f.write_str("it speaks the session protocol, and no rule names it")
            }
            Self::NoRuleAndClosed => {
                f.write_str("no rule names it, and connections without a route are not permitted")
            }
            Self::RuleIsDirect { line } => write!(f, "the rule of line {line} is direct"),
            Self::RuleIsDirectAndClosed { line } => {
                write!(
                    f,
                    "the rule of line {line} is direct, and connections without a route are not \
                     permitted"
                )
            }
            Self::OfframpUnknown { line } => write!(
                f,
                "the off-ramp of the controller's rule of line {line} is not in known_hosts"
            ),
            Self::OfframpUnknownAndClosed { line } => write!(
                f,
                "the off-ramp of the controller's rule of line {line} is not in known_hosts, and \
                 connections without a route are not permitted"
            ),
            Self::ProgramsRoute => f.write_str("the program chose this route"),
            Self::ProgramsChoice => f.write_str("the program requested a direct connection"),
            Self::Always { line } => write!(f, "the rule of line {line} sets always"),
            Self::Closed { line } => write!(
                f,
                "the rule of line {line}; connections without a route are not permitted"
            ),
            Self::Short { rtt } => write!(f, "the path is short: a round trip takes {}", Time(rtt)),
            Self::SmallSize { size } => write!(f, "it will carry no more than {}", ByteCount(size)),
            Self::UsuallySmall { below } => {
                write!(
                    f,
                    "its connections have carried less than {}",
                    ByteCount(below)
                )
            }
            Self::Rule { line } => write!(f, "the rule of line {line}"),
        }
    }
}

impl Reason {
    const fn with_action(self, way: ConnectionAction) -> Decision {
        Decision {
            action: way,
            reason: self,
        }
    }
}

/// Decides about one connection.
#[must_use]
pub fn choose(
    rule: Option<&RouteRule>,
    asked: &ConnectionFacts,
    known: &DestinationFacts,
) -> Decision {
    let acceptor = asked.acceptor || rule.is_some_and(|rule| rule.end == SessionEnd::Destination);
    // A destination that speaks the session protocol needs a session, however short the path.
    let plain = if acceptor {
        ConnectionAction::Session
    } else {
        ConnectionAction::Direct
    };
    match asked.program_choice {
        Some(ProgramChoice::Route) => {
            return Reason::ProgramsRoute.with_action(ConnectionAction::Route);
        }
        Some(ProgramChoice::Direct) if acceptor || !asked.route_required => {
            return Reason::ProgramsChoice.with_action(plain);
        }
        _ => {}
    }
    let routed = rule.is_some_and(|rule| rule.end != SessionEnd::None);
    let always = routed && rule.is_some_and(|rule| rule.always);
    if asked.is_local && !always {
        return Reason::Local.with_action(plain);
    }
    let Some(rule) = rule else {
        return match (acceptor, asked.route_required) {
            (true, _) => Reason::NoRuleForAcceptor.with_action(plain),
            (false, true) => Reason::NoRuleAndClosed.with_action(ConnectionAction::Refuse),
            (false, false) => Reason::NoRule.with_action(plain),
        };
    };
    let line = rule.line;
    if !routed {
        return match asked.route_required && !acceptor {
            true => Reason::RuleIsDirectAndClosed { line }.with_action(ConnectionAction::Refuse),
            false => Reason::RuleIsDirect { line }.with_action(plain),
        };
    }
    if asked.is_offramp_unknown && !acceptor {
        // An off-ramp's operator can read the traffic, so a controller alone cannot choose one.
        return match asked.route_required {
            true => Reason::OfframpUnknownAndClosed { line }.with_action(ConnectionAction::Refuse),
            false => Reason::OfframpUnknown { line }.with_action(plain),
        };
    }
    if always {
        return Reason::Always { line }.with_action(ConnectionAction::Route);
    }
    if asked.route_required {
        return Reason::Closed { line }.with_action(ConnectionAction::Route);
    }
    if let Some(size) = asked.size {
        // A size stated for this connection takes precedence over earlier connections.
        if size <= MAX_SMALL_BYTES {
            return Reason::SmallSize { size }.with_action(plain);
        }
    } else if let Some(below) = known
        .usually_below
        .filter(|&below| below <= MAX_SMALL_BYTES)
    {
        return Reason::UsuallySmall { below }.with_action(plain);
    }
    if let Some(rtt) = known.rtt.filter(|&rtt| rtt < SHORT_PATH_RTT) {
        return Reason::Short { rtt }.with_action(plain);
    }
    Reason::Rule { line }.with_action(ConnectionAction::Route)
}

#[cfg(test)]
mod tests;
