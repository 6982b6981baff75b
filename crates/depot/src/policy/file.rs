//! The policy file: TOML in, rules out, and errors that point at the line.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use longhaul_proto::{ACCEPTOR_PORT, DEPOT_PORT, text::printable};
use serde::Deserialize;
use toml::{Spanned, Value};

use super::{NextHop, Ports, Principals, Rule};
use crate::relay::rate::RateLimit;

/// What is wrong with a policy file.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// It cannot be read: check the path and its permissions.
    #[error("{}: cannot read the policy: {source}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not TOML, or has a field that a policy has not: mend the line.
    #[error("{}:{line}: {problem}", file.display())]
    Syntax {
        /// The file.
        file: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// A field does not say what it must: mend it.
    #[error("{}:{line}: {field}: {problem}", file.display())]
    Field {
        /// The file.
        file: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The field, such as `allow[2].ports`.
        field: String,
        /// What is wrong with it and what to write.
        problem: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyText {
    #[serde(default)]
    allow: Vec<RuleText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    name: Option<String>,
    principals: Spanned<Vec<Spanned<String>>>,
    to: Spanned<Vec<Spanned<String>>>,
    ports: Option<Vec<Spanned<Value>>>,
    next_hops: Option<Spanned<Vec<Spanned<String>>>>,
    max_rate: Option<Spanned<String>>,
    max_sessions: Option<Spanned<i64>>,
}

/// Reads the rules of `text`; `file` is what errors call it.
pub(super) fn rules(text: &str, file: &Path) -> Result<Vec<Rule>, PolicyError> {
    let parsed: PolicyText = toml::from_str(text).map_err(|error| PolicyError::Syntax {
        file: file.to_owned(),
        line: line_of(text, error.span().map_or(0, |span| span.start)),
        // It quotes the file.
        problem: printable(error.message().replace('\n', " ").as_bytes()),
    })?;
    let numbered = parsed.allow.into_iter().enumerate();
    numbered
        .map(|(index, rule)| Source { text, file, index }.rule(rule))
        .collect()
}

/// Where a rule stands, for errors.
struct Source<'a> {
    text: &'a str,
    file: &'a Path,
    index: usize,
}

impl Source<'_> {
    fn error(&self, at: usize, field: &str, problem: impl Into<String>) -> PolicyError {
        PolicyError::Field {
            file: self.file.to_owned(),
            line: line_of(self.text, at),
            field: format!("allow[{}].{field}", self.index + 1),
            problem: printable(problem.into().as_bytes()),
        }
    }

    /// Reads each item of a list that must not be empty.
    fn list<T>(
        &self,
        field: &str,
        list: &Spanned<Vec<Spanned<String>>>,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, PolicyError> {
        if list.get_ref().is_empty() {
            return Err(self.error(
                list.span().start,
                field,
                "is empty: such a rule allows nothing; remove it",
            ));
        }
        let read = |item: &Spanned<String>| {
            read(item.get_ref()).map_err(|problem| self.error(item.span().start, field, problem))
        };
        list.get_ref().iter().map(read).collect()
    }

    fn rule(&self, rule: RuleText) -> Result<Rule, PolicyError> {
        let principals = if rule.principals.get_ref().iter().any(|item| item.get_ref() == "*") {
            Principals::Anybody
        } else {
            let keys = self.list("principals", &rule.principals, |text| {
                text.parse().map_err(|error| format!("{text:?} is {error}"))
            })?;
            Principals::These(keys.into_iter().collect())
        };
        let next_hops = match &rule.next_hops {
            None => vec![NextHop::Direct],
            Some(list) => self.list("next_hops", list, next_hop)?,
        };
        let max_sessions = rule.max_sessions.map(|bound| {
            let problem = "must be 1 or more: remove the rule to allow nothing";
            usize::try_from(*bound.get_ref())
                .ok()
                .filter(|bound| *bound > 0)
                .ok_or_else(|| self.error(bound.span().start, "max_sessions", problem))
        });
        let limits = rule.max_rate.map(|rate| {
            bit_rate(rate.get_ref())
                .map(|rate| (Arc::new(RateLimit::new(rate)), Arc::new(RateLimit::new(rate))))
                .map_err(|problem| self.error(rate.span().start, "max_rate", problem))
        });
        Ok(Rule {
            name: rule.name.unwrap_or_else(|| format!("rule {}", self.index + 1)),
            principals,
            to: self.list("to", &rule.to, str::parse)?,
            ports: self.ports(rule.ports)?,
            next_hops,
            max_sessions: max_sessions.transpose()?,
            sessions: AtomicUsize::new(0),
            limits: limits.transpose()?,
        })
    }

    fn ports(&self, ports: Option<Vec<Spanned<Value>>>) -> Result<Ports, PolicyError> {
        let Some(ports) = ports else {
            return Ok(Ports(vec![(ACCEPTOR_PORT, ACCEPTOR_PORT)]));
        };
        let mut ranges = Vec::new();
        for item in ports {
            let range = match item.get_ref() {
                Value::String(text) if text == "any" => Some((1, u16::MAX)),
                Value::String(text) => {
                    let (low, high) = text.split_once('-').unwrap_or((text, text));
                    low.trim().parse().ok().zip(high.trim().parse().ok())
                }
                Value::Integer(port) => u16::try_from(*port).ok().map(|port| (port, port)),
                _ => None,
            };
            let range = range
                .filter(|(low, high)| *low > 0 && low <= high)
                .ok_or_else(|| {
                    self.error(
                        item.span().start,
                        "ports",
                        "write port numbers, ranges such as \"8000-8100\", or \"any\"",
                    )
                })?;
            ranges.push(range);
        }
        if ranges.is_empty() {
            // An empty list must not mean "any".
            ranges.push((0, 0));
        }
        Ok(Ports(ranges))
    }
}

/// `direct`, `PATTERN`, `PATTERN:PORT` or `PATTERN:*`; without a port, the default port of depots.
fn next_hop(text: &str) -> Result<NextHop, String> {
    if text == "direct" {
        return Ok(NextHop::Direct);
    }
    let bare_v6 = text.parse::<std::net::Ipv6Addr>().is_ok() || (text.contains("::") && !text.contains(']'));
    let (host, port) = match text.rsplit_once(':') {
        Some((host, "*")) => (host, None),
        Some((host, port)) if !bare_v6 && !port.contains(']') => {
            let port = port.parse().ok().filter(|port| *port > 0);
            (
                host,
                Some(port.ok_or_else(|| format!("{text:?} has an ill-formed port: write 1 to 65535, or *"))?),
            )
        }
        _ => (text, Some(DEPOT_PORT)),
    };
    let host = host
        .strip_prefix('[')
        .and_then(|inner| inner.strip_suffix(']'))
        .unwrap_or(host);
    Ok(NextHop::Depot(host.parse()?, port))
}

/// A rate in bits a second: a number and a unit.
fn bit_rate(text: &str) -> Result<u64, String> {
    let problem = || format!("{text:?} is no rate: write a number and bit/s, kbit/s, Mbit/s or Gbit/s");
    let digits = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .ok_or_else(problem)?;
    let (number, unit) = text.split_at(digits);
    let scale = match unit.trim() {
        "bit/s" => 1.0,
        "kbit/s" => 1e3,
        "Mbit/s" => 1e6,
        "Gbit/s" => 1e9,
        _ => return Err(problem()),
    };
    let rate = number.parse::<f64>().map_err(|_| problem())? * scale;
    if !(8.0..=1e15).contains(&rate) {
        return Err(format!(
            "{text:?} is out of range: write 8 bit/s to 1000000 Gbit/s"
        ));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range is checked above"
    )]
    Ok(rate as u64)
}

/// The line, counted from 1, of byte `at`.
fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}
