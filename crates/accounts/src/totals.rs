//! Totals of records by key, month and others. Pure.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::record::{AccountRecord, CopyDirection};

/// Property by which records are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouping {
    /// Key of the client or initiator.
    Key,
    /// Month of the end, in UTC.
    Month,
    /// Day of the end, in UTC.
    Day,
    /// Service that keeps the record: `serve`, `depot` or `offramp`.
    Service,
    /// Direction of a copy: `received` or `sent`; `both` for a session.
    Direction,
    /// Its result.
    Result,
    /// First address from which it arrived, without its port.
    From,
    /// Rule of the policy; empty for copies.
    Rule,
    /// Destination of a session; empty for copies.
    Destination,
}

/// All groupings, with their words.
const GROUPINGS: [(Grouping, &str); 9] = [
    (Grouping::Key, "key"),
    (Grouping::Month, "month"),
    (Grouping::Day, "day"),
    (Grouping::Service, "service"),
    (Grouping::Direction, "direction"),
    (Grouping::Result, "result"),
    (Grouping::From, "from"),
    (Grouping::Rule, "rule"),
    (Grouping::Destination, "destination"),
];

impl Grouping {
    /// Returns the word of the grouping, as in `--by`.
    #[must_use]
    pub fn word(self) -> &'static str {
        let known = GROUPINGS.iter().find(|(grouping, _)| *grouping == self);
        known.map_or("", |(_, word)| *word)
    }

    /// Returns the group of a record.
    fn group_of(self, record: &AccountRecord) -> String {
        let ended = || record.time().ended.strftime("%Y-%m-%d").to_string();
        match (self, record) {
            (Self::Key, record) => record.key().to_owned(),
            (Self::Day, _) => ended(),
            (Self::Month, _) => ended().chars().take(7).collect(),
            (Self::Result, record) => record.result().to_owned(),
            (Self::Service, AccountRecord::Copy(_)) => "serve".to_owned(),
            (Self::Service, AccountRecord::Session(session)) => session.service.clone(),
            (Self::Direction, AccountRecord::Copy(copy)) => match copy.direction {
                CopyDirection::Received => "received".to_owned(),
                CopyDirection::Sent => "sent".to_owned(),
            },
            (Self::Direction, AccountRecord::Session(_)) => "both".to_owned(),
            (Self::From, AccountRecord::Copy(copy)) => {
                copy.from.first().cloned().unwrap_or_default()
            }
            (Self::From, AccountRecord::Session(session)) => {
                let address = session.from.parse::<std::net::SocketAddr>();
                address.map_or_else(|_| session.from.clone(), |from| from.ip().to_string())
            }
            (Self::Rule, AccountRecord::Session(session)) => {
                session.rule.clone().unwrap_or_default()
            }
            (Self::Destination, AccountRecord::Session(session)) => session.destination.clone(),
            (Self::Rule | Self::Destination, AccountRecord::Copy(_)) => String::new(),
        }
    }
}

impl fmt::Display for Grouping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Grouping {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = GROUPINGS.iter().find(|(_, word)| *word == text);
        known.map(|(grouping, _)| *grouping).ok_or_else(|| {
            let words: Vec<&str> = GROUPINGS.iter().map(|(_, word)| *word).collect();
            format!("not one of {}", words.join(", "))
        })
    }
}

/// Totals of a group.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Total {
    /// Number of copies.
    pub copies: u64,
    /// Number of sessions.
    pub sessions: u64,
    /// Number of copies and sessions that did not complete.
    pub incomplete: u64,
    /// Files in place after copies.
    pub files: u64,
    /// Bytes that travelled: of copies, or of sessions in both directions.
    pub bytes: u64,
    /// Seconds of all copies and sessions together.
    pub seconds: f64,
}

impl Total {
    fn add(&mut self, record: &AccountRecord) {
        self.seconds += record.time().seconds;
        self.incomplete += u64::from(record.result() != "completed");
        let (copies, sessions, files, bytes) = match record {
            AccountRecord::Copy(copy) => (1, 0, copy.files, copy.bytes_travelled),
            AccountRecord::Session(session) => {
                let bytes = session.forward_bytes.saturating_add(session.backward_bytes);
                (0, 1, 0, bytes)
            }
        };
        self.copies += copies;
        self.sessions += sessions;
        self.files = self.files.saturating_add(files);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Totals by the values of some groupings.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    groupings: Vec<Grouping>,
    groups: BTreeMap<Vec<String>, Total>,
    all: Total,
}

impl Totals {
    /// Returns empty totals by `groupings`, in this order.
    #[must_use]
    pub fn by(groupings: &[Grouping]) -> Self {
        Self {
            groupings: groupings.to_vec(),
            ..Self::default()
        }
    }

    /// Adds a record.
    pub fn add(&mut self, record: &AccountRecord) {
        let group = self
            .groupings
            .iter()
            .map(|grouping| grouping.group_of(record));
        self.groups.entry(group.collect()).or_default().add(record);
        self.all.add(record);
    }

    /// Returns the groupings.
    #[must_use]
    pub fn groupings(&self) -> &[Grouping] {
        &self.groupings
    }

    /// Returns the groups in order, each with its values and totals.
    pub fn groups(&self) -> impl Iterator<Item = (&[String], &Total)> {
        self.groups
            .iter()
            .map(|(values, total)| (values.as_slice(), total))
    }

    /// Returns the totals of all groups together.
    #[must_use]
    pub const fn all(&self) -> &Total {
        &self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{copy, session};

    #[test]
    fn totals_are_by_key_and_month() {
        let mut totals = Totals::by(&[Grouping::Key, Grouping::Month]);
        for record in [
            copy("lhk1:B", "2026-11-30T23:59:59.999Z", 1),
            copy("lhk1:A", "2026-11-01T00:00:00Z", 2),
            copy("lhk1:A", "2026-11-30T00:00:00Z", 3),
            session("lhk1:A", "2026-12-01T00:00:00Z", 4),
        ] {
            totals.add(&record);
        }
        let groups: Vec<(String, u64, u64, u64, u64)> = totals
            .groups()
            .map(|(values, total)| {
                let Total {
                    copies,
                    sessions,
                    files,
                    bytes,
                    ..
                } = total;
                (values.join(" "), *copies, *sessions, *files, *bytes)
            })
            .collect();
        assert_eq!(
            groups,
            [
                ("lhk1:A 2026-11".into(), 2, 0, 6, 5),
                ("lhk1:A 2026-12".into(), 0, 1, 0, 1300),
                ("lhk1:B 2026-11".into(), 1, 0, 3, 1),
            ]
        );
        assert_eq!((totals.all().incomplete, totals.all().seconds), (1, 6.0));
    }

    #[test]
    fn every_grouping_has_a_word_that_parses() {
        for (grouping, word) in GROUPINGS {
            assert_eq!(word.parse(), Ok(grouping));
            assert_eq!(grouping.to_string(), word);
        }
        assert!("keys".parse::<Grouping>().is_err());
        let record = session("lhk1:A", "2026-12-01T00:00:00Z", 4);
        assert_eq!(Grouping::From.group_of(&record), "192.0.2.30");
        assert_eq!(Grouping::Day.group_of(&record), "2026-12-01");
    }
}
