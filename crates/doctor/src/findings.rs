//! Derives findings from facts and a path. Pure, so that each is tested with fictional machines.

mod buffers;
mod host;
mod links;
mod measured;
mod tcp;
#[cfg(test)]
mod tests;
mod transmit_queue;
mod units;

use serde::Serialize;

pub use units::{bytes, rate, seconds};

use crate::facts::Facts;
use crate::path::AssessedPath;

/// A condition that limits bulk transfer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Identifier; `docs/doctor.md` lists all.
    pub id: &'static str,
    /// Machine that has it.
    pub side: FindingSide,
    /// Significance on this path.
    pub severity: Severity,
    /// Description in one line.
    pub what: String,
    /// Cost on this path.
    pub cost: FindingCost,
    /// Alternative commands that fix it. Empty if no command can.
    pub mends: Vec<Fix>,
}

/// Machine that a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingSide {
    /// This machine.
    Here,
    /// The far machine.
    There,
}

/// Significance of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// It costs bandwidth on this path, or stops transfers: the exit code says so.
    Serious,
    /// It may cost under other conditions, which the text names.
    Advice,
}

/// Cost of a finding.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FindingCost {
    /// In words, with the numbers.
    pub text: String,
    /// Throughput of one stream under this condition, in bit/s, if it is a number. For a device or
    /// disk it is the throughput of all streams. For buffers it is approximate, as the share that
    /// holds data depends on the kernel and the packet sizes.
    pub limit_bps: Option<f64>,
}

impl FindingCost {
    fn words(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            limit_bps: None,
        }
    }

    /// Cost that bounds one stream.
    fn bound(limit_bps: f64, path: &AssessedPath) -> Self {
        Self {
            text: format!(
                "one stream carries about {} of {} at {}",
                rate(limit_bps),
                rate(path.rate_bps),
                seconds(path.rtt_seconds)
            ),
            limit_bps: Some(limit_bps),
        }
    }
}

/// A command that fixes a finding, for an administrator of the machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fix {
    /// The command with immediate effect.
    pub now: String,
    /// The command that makes it permanent; `None` if that depends on the distribution.
    pub keep: Option<String>,
    /// A warning before using it.
    pub note: Option<String>,
}

/// File for permanent settings.
pub const SYSCTL_FILE: &str = "/etc/sysctl.d/90-longhaul.conf";

impl Fix {
    fn sysctl(key: &str, value: impl std::fmt::Display) -> Self {
        let value = value.to_string();
        let quoted = if value.contains(' ') {
            format!("'{value}'")
        } else {
            value.clone()
        };
        Self {
            now: format!("sysctl -w {key}={quoted}"),
            keep: Some(format!("echo '{key} = {value}' >> {SYSCTL_FILE}")),
            note: None,
        }
    }

    fn command(now: impl Into<String>) -> Self {
        Self {
            now: now.into(),
            keep: None,
            note: None,
        }
    }

    fn noting(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }
}

/// Returns the findings on a machine for this path, serious ones first.
pub fn findings(facts: &Facts, path: &AssessedPath, side: FindingSide) -> Vec<Finding> {
    let mut list = FindingList {
        side,
        facts,
        path,
        found: Vec::new(),
    };
    buffers::check(&mut list);
    tcp::check(&mut list);
    // Measurements are examined once, for this end.
    if side == FindingSide::Here
        && let Some(measured) = &path.measured
    {
        measured::check(&mut list, measured);
    }
    links::check(&mut list);
    host::check(&mut list);
    let mut found = list.found;
    found.sort_by_key(|finding| finding.severity);
    found
}

/// Facts that the checks read, and findings that they add.
struct FindingList<'a> {
    side: FindingSide,
    facts: &'a Facts,
    path: &'a AssessedPath,
    found: Vec<Finding>,
}

impl FindingList<'_> {
    fn add(
        &mut self,
        id: &'static str,
        severity: Severity,
        what: String,
        cost: FindingCost,
        mends: Vec<Fix>,
    ) {
        self.found.push(Finding {
            id,
            side: self.side,
            severity,
            what,
            cost,
            mends,
        });
    }

    /// Adds a bound on one stream as a serious finding if it is below the required rate.
    fn bound(&mut self, id: &'static str, limit_bps: f64, what: String, mends: Vec<Fix>) {
        if limit_bps < self.path.rate_bps {
            let cost = FindingCost::bound(limit_bps, self.path);
            self.add(id, Severity::Serious, what, cost, mends);
        }
    }
}
