//! Direct, or by a route? Pure: the same answer for the same facts.
//!
//! What no rule names is connected to directly. Of what a rule names, only that goes by its route
//! which can be expected to gain from it; a rule with `always = true`, a route that the program
//! names, and a program that will have a route or nothing, overrule that.

use std::fmt;
use std::time::Duration;

use longhaul_config::routes::{RouteRule, SessionEnd};
use quantities::{ByteCount, Time};

/// Paths with a shorter round trip are connected over directly. A depot shortens the loop in which
/// TCP grows its window and repairs losses; where that loop is this short, growing from ten
/// segments to 1 Gbit/s takes under 0.1 s, a loss is repaired in less than a disk's stall, and a
/// host with windows of 64 KB gets 52 Mbit/s already. The shortest path on which depots were
/// measured to help is 70 ms long (`docs/results/depots.md`).
pub const SHORT_PATH: Duration = Duration::from_millis(10);

/// Connections that carry no more are made directly, in bytes. From ten segments (RFC 6928) slow
/// start needs three round trips for them. Halving the path saves about one and a half of these;
/// setting up a session costs one more than setting up TCP.
pub const SMALL: u64 = 64 * 1024;

/// What was asked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asked {
    /// If true, the destination's address is known, and local to this machine or its link.
    pub is_local: bool,
    /// What the program itself asks for, whatever the rules say.
    pub named: Option<Named>,
    /// Bytes that the program will have carried, if it said so.
    pub size: Option<u64>,
    /// Whether there is to be no connection where there is no route.
    pub closed: bool,
    /// Whether the destination speaks the session protocol itself, as the program says. The rule
    /// may say so, too.
    pub acceptor: bool,
    /// Whether the rule is a controller's, and leads to an off-ramp whose key nobody here knows.
    pub is_offramp_unknown: bool,
}

/// What a program itself may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// No route.
    Direct,
    /// A route that it names.
    Route,
}

/// What is known of a destination from connections before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Known {
    /// Round-trip time of direct connections to its host, smoothed.
    pub rtt: Option<Duration>,
    /// Bytes that nearly all of its connections stayed below, if there were enough of them to say.
    pub usually_below: Option<u64>,
}

/// What is to be done, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// What is to be done.
    pub way: Way,
    /// Why, in words when it is shown.
    pub reason: Reason,
}

/// What is to be done with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Connect as if there were no route.
    Direct,
    /// Open a session, but pass no depot: the destination speaks nothing else.
    Session,
    /// Take the route: the program's own, else the rule's.
    Route,
    /// There is to be no connection.
    Nothing,
}

/// Why. Lines are those of `routes.toml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "each says it in words below")]
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
                f.write_str("no rule names it, and without a route there is to be no connection")
            }
            Self::RuleIsDirect { line } => write!(f, "the rule of line {line} says so"),
            Self::RuleIsDirectAndClosed { line } => {
                write!(
                    f,
                    "the rule of line {line} is direct, and without a route there is to be no connection"
                )
            }
            Self::OfframpUnknown { line } => write!(
                f,
                "the off-ramp of the controller's rule of line {line} is not in known_hosts"
            ),
            Self::OfframpUnknownAndClosed { line } => write!(
                f,
                "the off-ramp of the controller's rule of line {line} is not in known_hosts, and without a route there is to be no connection"
            ),
            Self::ProgramsRoute => f.write_str("the program names this route"),
            Self::ProgramsChoice => f.write_str("the program asks for a direct connection"),
            Self::Always { line } => write!(f, "the rule of line {line} says always"),
            Self::Closed { line } => write!(
                f,
                "the rule of line {line}; without a route there is to be no connection"
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
    const fn go(self, way: Way) -> Decision {
        Decision { way, reason: self }
    }
}

/// Decides about one connection.
#[must_use]
pub fn choose(rule: Option<&RouteRule>, asked: &Asked, known: &Known) -> Decision {
    let acceptor = asked.acceptor || rule.is_some_and(|rule| rule.end == SessionEnd::Destination);
    // Who speaks the session protocol understands no other, however short the path.
    let plain = if acceptor { Way::Session } else { Way::Direct };
    match asked.named {
        Some(Named::Route) => return Reason::ProgramsRoute.go(Way::Route),
        Some(Named::Direct) if acceptor || !asked.closed => {
            return Reason::ProgramsChoice.go(plain);
        }
        _ => {}
    }
    let routed = rule.is_some_and(|rule| rule.end != SessionEnd::None);
    let always = routed && rule.is_some_and(|rule| rule.always);
    if asked.is_local && !always {
        return Reason::Local.go(plain);
    }
    let Some(rule) = rule else {
        return match (acceptor, asked.closed) {
            (true, _) => Reason::NoRuleForAcceptor.go(plain),
            (false, true) => Reason::NoRuleAndClosed.go(Way::Nothing),
            (false, false) => Reason::NoRule.go(plain),
        };
    };
    let line = rule.line;
    if !routed {
        return match asked.closed && !acceptor {
            true => Reason::RuleIsDirectAndClosed { line }.go(Way::Nothing),
            false => Reason::RuleIsDirect { line }.go(plain),
        };
    }
    if asked.is_offramp_unknown && !acceptor {
        // An off-ramp's operator can read what passes: that is no controller's to decide.
        return match asked.closed {
            true => Reason::OfframpUnknownAndClosed { line }.go(Way::Nothing),
            false => Reason::OfframpUnknown { line }.go(plain),
        };
    }
    if always {
        return Reason::Always { line }.go(Way::Route);
    }
    if asked.closed {
        return Reason::Closed { line }.go(Way::Route);
    }
    if let Some(size) = asked.size {
        // Said of this very connection: that counts for more than what others did.
        if size <= SMALL {
            return Reason::SmallSize { size }.go(plain);
        }
    } else if let Some(below) = known.usually_below.filter(|&below| below <= SMALL) {
        return Reason::UsuallySmall { below }.go(plain);
    }
    if let Some(rtt) = known.rtt.filter(|&rtt| rtt < SHORT_PATH) {
        return Reason::Short { rtt }.go(plain);
    }
    Reason::Rule { line }.go(Way::Route)
}

#[cfg(test)]
mod tests;
