//! From facts and a path to findings: pure, so that each is tested over made-up machines.

mod buffers;
mod host;
mod links;
mod measured;
mod tcp;
#[cfg(test)]
mod tests;
mod units;

use serde::Serialize;

pub use units::{bytes, rate, seconds};

use crate::facts::Facts;
use crate::path::Path;

/// Something that holds bulk transfer back.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Which it is; `docs/doctor.md` lists all.
    pub id: &'static str,
    /// On which machine.
    pub side: Side,
    /// How much it matters on this path.
    pub severity: Severity,
    /// What was found, in one line.
    pub what: String,
    /// What it costs on this path.
    pub cost: Cost,
    /// What mends it; any one of them does. Empty when no command can.
    pub mends: Vec<Mend>,
}

/// Which machine a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// This one.
    Here,
    /// The far one.
    There,
}

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// It costs bandwidth on this path, or stops transfers: the exit code says so.
    Serious,
    /// It may cost under other conditions, which the text names.
    Advice,
}

/// What a finding costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cost {
    /// In words, with the numbers.
    pub text: String,
    /// What one stream (of a device or disk: all together) carries because of it, in bit/s, where
    /// that is a number. For buffers it is near: how much of one holds data depends on the kernel
    /// and on the sizes of packets.
    pub limit_bps: Option<f64>,
}

impl Cost {
    fn words(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            limit_bps: None,
        }
    }

    /// What one stream carries.
    fn bound(limit_bps: f64, path: &Path) -> Self {
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

/// A command that mends a finding, for an administrator of the machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Mend {
    /// The command, for now.
    pub now: String,
    /// The command that makes it stay after a restart; `None` where that is up to the
    /// distribution's own way.
    pub keep: Option<String>,
    /// What to know before using it.
    pub note: Option<String>,
}

/// The file that mends of settings go to.
pub const SYSCTL_FILE: &str = "/etc/sysctl.d/90-longhaul.conf";

impl Mend {
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

/// What is wrong with a machine on this path, the serious first.
pub fn findings(facts: &Facts, path: &Path, side: Side) -> Vec<Finding> {
    let mut list = List {
        side,
        facts,
        path,
        found: Vec::new(),
    };
    buffers::look(&mut list);
    tcp::look(&mut list);
    // What was measured is looked at once, from this end.
    if side == Side::Here
        && let Some(measured) = &path.measured
    {
        measured::look(&mut list, measured);
    }
    links::look(&mut list);
    host::look(&mut list);
    let mut found = list.found;
    found.sort_by_key(|finding| finding.severity);
    found
}

/// What the parts look at and add to.
struct List<'a> {
    side: Side,
    facts: &'a Facts,
    path: &'a Path,
    found: Vec<Finding>,
}

impl List<'_> {
    fn add(
        &mut self,
        id: &'static str,
        severity: Severity,
        what: String,
        cost: Cost,
        mends: Vec<Mend>,
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

    /// A bound on one stream: serious when it is below what the path should carry, nothing
    /// otherwise.
    fn bound(&mut self, id: &'static str, limit_bps: f64, what: String, mends: Vec<Mend>) {
        if limit_bps < self.path.rate_bps {
            let cost = Cost::bound(limit_bps, self.path);
            self.add(id, Severity::Serious, what, cost, mends);
        }
    }
}
