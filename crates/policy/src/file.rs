//! Policy files: parsing of TOML into rules, with errors that name the line.
#![deny(clippy::indexing_slicing)]

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_identity::{InvalidPattern, PrincipalPattern, PrincipalSet};
use longhaul_proto::text::is_printable;
use longhaul_proto::{DEPOT_PORT, PublicKey};
use quantities::{ByteCount, Rate, Time};
use serde::Deserialize;
use toml::{Spanned, Value};

use super::position::{line_of, one_line};
use super::wishes::Bounds;
use crate::host_rule::{HostRule, parse_port};

use super::{NextHop, PortRange, Ports, Rule, RuleTarget};

/// Maximum length of a rule's name, in characters; names appear in log lines and statuses.
const MAX_NAME_CHARS: usize = 64;

/// Maximum length of a purpose, in bytes, as in an OPEN.
const MAX_PURPOSE_BYTES: usize = 64;

/// Error in a policy file.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The file cannot be read: check the path and its permissions.
    #[error("{}: cannot read the policy: {source}", one_line(file.display()))]
    Unreadable {
        /// Path of the file.
        file: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The file is not valid TOML, or has an unknown field: fix the line.
    #[error("{}:{line}: {problem}", one_line(file.display()))]
    Syntax {
        /// Path of the file.
        file: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// Description of the error.
        problem: String,
    },
    /// A field has an invalid value: fix it.
    #[error("{}:{line}: {field}: {problem}", one_line(file.display()))]
    Field {
        /// Path of the file.
        file: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// Name of the field, such as `allow[2].ports`.
        field: String,
        /// Description of the error, and what to write.
        problem: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyText {
    #[serde(default)]
    allow: Vec<RuleText>,
    /// Keys that may measure the path to this machine.
    #[serde(default)]
    probes: Vec<Spanned<String>>,
    /// Keys of controllers whose circuit grants are accepted.
    #[serde(default)]
    controllers: Vec<Spanned<String>>,
}

/// Parsed policy file.
pub(super) struct ParsedFile {
    pub(super) rules: Vec<Rule>,
    pub(super) probers: HashSet<PublicKey>,
    pub(super) controllers: HashSet<PublicKey>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    name: Option<Spanned<String>>,
    principals: Spanned<Vec<Spanned<String>>>,
    to: Option<Spanned<Vec<Spanned<String>>>>,
    servers: Option<Spanned<Vec<Spanned<String>>>>,
    ports: Option<Spanned<Vec<Spanned<Value>>>>,
    next_hops: Option<Spanned<Vec<Spanned<String>>>>,
    max_rate: Option<Spanned<String>>,
    max_reserved_rate: Option<Spanned<String>>,
    max_sessions: Option<Spanned<i64>>,
    max_size: Option<Spanned<String>>,
    max_wished_rate: Option<Spanned<String>>,
    max_duration: Option<Spanned<String>>,
    purposes: Option<Spanned<Vec<Spanned<String>>>>,
}

/// Parses the rules of `text`, whose names must be unique. `file` is its name in errors.
pub(super) fn parse_rules(text: &str, file: &Path) -> Result<ParsedFile, PolicyError> {
    let parsed: PolicyText = toml::from_str(text).map_err(|error| PolicyError::Syntax {
        file: file.to_owned(),
        line: line_of(text, error.span().map_or(0, |span| span.start)),
        problem: one_line(error.message()),
    })?;
    let source = |index| RuleSource { text, file, index };
    let mut names: HashMap<Arc<str>, (usize, Option<Range<usize>>)> = HashMap::new();
    let mut rules = Vec::with_capacity(parsed.allow.len());
    for (index, rule) in parsed.allow.into_iter().enumerate() {
        let written = rule.name.as_ref().map(Spanned::span);
        let rule = source(index).rule(rule)?;
        if let Some((other, other_written)) =
            names.insert(Arc::clone(&rule.name), (index, written.clone()))
        {
            // A default name has no line of its own, so the error points at the written name that
            // equals it.
            let (at, index, other) = match (written, other_written) {
                (Some(at), _) => (at, index, other),
                (None, at) => (at.unwrap_or_default(), other, index),
            };
            let problem = format!(
                "{:?} is also the name of rule {}: sessions are counted by rule name, so give \
                 each rule its own",
                rule.name,
                other + 1
            );
            return Err(source(index).error(at.start, "name", problem));
        }
        rules.push(rule);
    }
    let keys = |field: &str, keys: &[Spanned<String>]| -> Result<HashSet<PublicKey>, PolicyError> {
        let keys = keys.iter().map(|key| {
            key.get_ref()
                .parse::<PublicKey>()
                .map_err(|error| PolicyError::Field {
                    file: file.to_owned(),
                    line: line_of(text, key.span().start),
                    field: field.to_owned(),
                    problem: one_line(format!("{:?} is {error}", key.get_ref())),
                })
        });
        keys.collect()
    };
    let probers = keys("probes", &parsed.probes)?;
    let controllers = keys("controllers", &parsed.controllers)?;
    Ok(ParsedFile {
        rules,
        probers,
        controllers,
    })
}

/// Position of a rule, for errors.
struct RuleSource<'a> {
    text: &'a str,
    file: &'a Path,
    /// Index of the rule, from 0.
    index: usize,
}

impl RuleSource<'_> {
    fn error(&self, at: usize, field: &str, problem: impl Display) -> PolicyError {
        PolicyError::Field {
            file: self.file.to_owned(),
            line: line_of(self.text, at),
            field: format!("allow[{}].{field}", self.index + 1),
            problem: one_line(problem),
        }
    }

    fn empty(&self, at: usize, field: &str) -> PolicyError {
        self.error(at, field, "is empty: such a rule allows nothing; remove it")
    }

    /// Parses each item of a list that must not be empty.
    fn list<T>(
        &self,
        field: &str,
        list: &Spanned<Vec<Spanned<String>>>,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, PolicyError> {
        if list.get_ref().is_empty() {
            return Err(self.empty(list.span().start, field));
        }
        let read = |item: &Spanned<String>| {
            read(item.get_ref()).map_err(|problem| self.error(item.span().start, field, problem))
        };
        list.get_ref().iter().map(read).collect()
    }

    fn rule(&self, rule: RuleText) -> Result<Rule, PolicyError> {
        let leads = self.parse_target(&rule)?;
        let bounds = self.bounds(&rule)?;
        let max_sessions = rule.max_sessions.map(|bound| {
            let problem = "must be 1 or more: remove the rule to allow nothing";
            usize::try_from(*bound.get_ref())
                .ok()
                .and_then(NonZeroUsize::new)
                .ok_or_else(|| self.error(bound.span().start, "max_sessions", problem))
        });
        let max_rate = rule.max_rate.map(|rate| {
            bit_rate(rate.get_ref())
                .map_err(|problem| self.error(rate.span().start, "max_rate", problem))
        });
        let max_reserved_rate = rule.max_reserved_rate.map(|rate| {
            bit_rate(rate.get_ref())
                .map_err(|problem| self.error(rate.span().start, "max_reserved_rate", problem))
        });
        Ok(Rule {
            name: self.name(rule.name)?,
            principals: self.principals(&rule.principals)?,
            ports: self.ports(rule.ports)?,
            leads,
            max_rate: max_rate.transpose()?,
            max_reserved_rate: max_reserved_rate.transpose()?,
            max_sessions: max_sessions.transpose()?,
            bounds,
        })
    }

    /// Parses the bounds on what the rule's sessions state.
    fn bounds(&self, rule: &RuleText) -> Result<Bounds, PolicyError> {
        let read =
            |field, text: &Option<Spanned<String>>, read: fn(&str) -> Result<u64, String>| {
                let read = |text: &Spanned<String>| {
                    read(text.get_ref())
                        .map_err(|problem| self.error(text.span().start, field, problem))
                };
                text.as_ref().map(read).transpose()
            };
        let purposes = rule
            .purposes
            .as_ref()
            .map(|list| self.list("purposes", list, purpose));
        Ok(Bounds {
            size: read("max_size", &rule.max_size, size)?,
            rate: read("max_wished_rate", &rule.max_wished_rate, bit_rate)?,
            duration: read("max_duration", &rule.max_duration, seconds)?,
            purposes: purposes.transpose()?,
        })
    }

    /// Parses the rule's destinations: its `to` and `next_hops`, or its `servers`.
    fn parse_target(&self, rule: &RuleText) -> Result<RuleTarget, PolicyError> {
        let begin = rule.principals.span().start;
        match (&rule.to, &rule.servers) {
            (Some(to), None) => Ok(RuleTarget::Relay {
                to: self.list("to", to, str::parse)?,
                next_hops: match &rule.next_hops {
                    None => vec![NextHop::Direct],
                    Some(list) => self.list("next_hops", list, next_hop)?,
                },
            }),
            (None, Some(servers)) => {
                if let Some(next_hops) = &rule.next_hops {
                    let problem = "cannot be combined with servers, to which an off-ramp connects \
                        directly: remove it, or replace servers by to";
                    return Err(self.error(next_hops.span().start, "next_hops", problem));
                }
                if rule.ports.is_none() {
                    let problem = "is missing: a rule with servers needs their ports, or \"any\"";
                    return Err(self.error(servers.span().start, "ports", problem));
                }
                Ok(RuleTarget::Servers(self.list(
                    "servers",
                    servers,
                    str::parse,
                )?))
            }
            (Some(_), Some(servers)) => {
                let problem = "cannot be combined with to: write one rule for the depot and one \
                    for the off-ramp";
                Err(self.error(servers.span().start, "servers", problem))
            }
            (None, None) => {
                let problem = "is missing: name where sessions may end, or the servers that an \
                    off-ramp may connect to";
                Err(self.error(begin, "to", problem))
            }
        }
    }

    fn name(&self, name: Option<Spanned<String>>) -> Result<Arc<str>, PolicyError> {
        let Some(name) = name else {
            return Ok(format!("rule {}", self.index + 1).into());
        };
        let text = name.get_ref();
        let fits =
            !text.trim().is_empty() && text.chars().count() <= MAX_NAME_CHARS && is_one_line(text);
        if !fits {
            let problem =
                format!("must be 1 to {MAX_NAME_CHARS} characters without control characters");
            return Err(self.error(name.span().start, "name", problem));
        }
        Ok(name.into_inner().into())
    }

    fn principals(
        &self,
        list: &Spanned<Vec<Spanned<String>>>,
    ) -> Result<PrincipalSet, PolicyError> {
        let parse = |text: &str| {
            text.parse::<PrincipalPattern>()
                .map_err(|error: InvalidPattern| error.to_string())
        };
        let listed = self.list("principals", list, parse)?;
        Ok(listed.into_iter().collect())
    }

    fn ports(&self, ports: Option<Spanned<Vec<Spanned<Value>>>>) -> Result<Ports, PolicyError> {
        let Some(ports) = ports else {
            return Ok(Ports::Default);
        };
        let at = ports.span().start;
        let read = |item: Spanned<Value>| {
            let problem = "write port numbers, ranges such as \"8000-8100\", or \"any\"";
            port_range(item.get_ref())
                .ok_or_else(|| self.error(item.span().start, "ports", problem))
        };
        let ranges: Vec<Option<PortRange>> = ports
            .into_inner()
            .into_iter()
            .map(read)
            .collect::<Result<_, _>>()?;
        let any = ranges.iter().any(Option::is_none);
        let mut named = ranges.into_iter().flatten();
        match named.next() {
            _ if any => Ok(Ports::Any),
            Some(first) => Ok(Ports::Ranges(first, named.collect())),
            None => Err(self.empty(at, "ports")),
        }
    }
}

/// Parses a port: `PORT`, `LOW-HIGH` or `any`, which is an inner `None`.
#[expect(clippy::option_option, reason = "ill-formed, any, or this")]
fn port_range(item: &Value) -> Option<Option<PortRange>> {
    let (low, high) = match item {
        Value::String(text) if text == "any" => return Some(None),
        Value::String(text) => {
            let (low, high) = text.split_once('-').unwrap_or((text, text));
            (parse_port(low.trim())?, parse_port(high.trim())?)
        }
        Value::Integer(number) => {
            let number = u16::try_from(*number).ok().filter(|port| *port > 0)?;
            (number, number)
        }
        _ => return None,
    };
    (low <= high).then_some(Some(low..=high))
}

/// Parses `direct`, or a depot. The default port is that of depots.
fn next_hop(text: &str) -> Result<NextHop, String> {
    if text == "direct" {
        return Ok(NextHop::Direct);
    }
    let HostRule { host, port } = HostRule::parse_with_port(text, DEPOT_PORT)?;
    Ok(NextHop::Depot(host, port))
}

/// Range of `max_rate`, in bit/s: from one byte per second to more than any link carries.
const VALID_RATES: std::ops::RangeInclusive<f64> = 8.0..=1e15;

/// Parses a rate, a number with a unit, in bits per second.
fn bit_rate(text: &str) -> Result<u64, String> {
    let rate = Rate::with_unit(text)
        .map_err(|error| error.to_string())?
        .bits_per_second();
    if !VALID_RATES.contains(&rate) {
        return Err(format!(
            "{text:?} is out of range: write 8 bit/s to 1000 Tbit/s"
        ));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range is checked above"
    )]
    Ok(rate.round() as u64)
}

/// Parses a size, a number with a unit, in bytes.
fn size(text: &str) -> Result<u64, String> {
    ByteCount::with_unit(text)
        .map(|size| size.0)
        .map_err(|error| error.to_string())
}

/// Parses a duration, in whole seconds.
fn seconds(text: &str) -> Result<u64, String> {
    let time = Time::with_unit(text).map_err(|error| error.to_string())?;
    Ok(time.0.as_secs())
}

/// Parses a purpose, in the form that an OPEN may have.
fn purpose(text: &str) -> Result<String, String> {
    let fits = !text.is_empty() && text.len() <= MAX_PURPOSE_BYTES && is_one_line(text);
    if !fits {
        return Err(format!(
            "must be 1 to {MAX_PURPOSE_BYTES} bytes without control characters"
        ));
    }
    Ok(text.to_owned())
}

fn is_one_line(text: &str) -> bool {
    text.chars().all(is_printable)
}

#[cfg(test)]
mod tests;
