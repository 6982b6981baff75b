//! Wishes that an initiator states for its session, checked against a rule's bounds (LH-WISH-1).

use std::fmt;
use std::sync::Arc;

use longhaul_proto::Open;
use longhaul_proto::text::printable;
use quantities::{ByteCount, Rate, Time};

use crate::{Candidates, Rule};

/// Divisor of the stated size: a session may carry this fraction more, for TLS and for messages of
/// services.
const OVERHEAD_DIVISOR: u64 = 8;
/// Bytes that any session may carry beyond its stated size, so that short ones have room for their
/// encryption.
const OVERHEAD_BYTES: u64 = 1024 * 1024;

/// Wishes that an initiator states for its session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StatedWishes<'a> {
    /// Purpose of the session.
    pub purpose: Option<&'a str>,
    /// Size, in bytes.
    pub size: Option<u64>,
    /// Rate, in bits per second.
    pub rate: Option<u64>,
    /// Duration, in seconds.
    pub duration: Option<u64>,
}

/// Bounds of a rule on wishes. If one is set, a session must state a value within it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Maximum size, in bytes.
    pub(crate) size: Option<u64>,
    /// Maximum rate, in bits per second.
    pub(crate) rate: Option<u64>,
    /// Maximum duration, in seconds.
    pub(crate) duration: Option<u64>,
    /// Allowed purposes; never an empty list.
    pub(crate) purposes: Option<Vec<String>>,
}

/// Bound that a session exceeds. It displays as one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnmetBound {
    rule: Arc<str>,
    what: ExceededBound,
}

/// Exceeded bound with the stated value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ExceededBound {
    Size(u64, Option<u64>),
    Rate(u64, Option<u64>),
    Duration(u64, Option<u64>),
    Purpose(Option<String>),
}

impl<'a> From<&'a Open> for StatedWishes<'a> {
    fn from(open: &'a Open) -> Self {
        Self {
            purpose: open.purpose.as_deref(),
            size: open.size,
            rate: open.rate,
            duration: open.duration,
        }
    }
}

impl Bounds {
    /// Returns the first bound that the wishes exceed.
    fn unmet(&self, wishes: &StatedWishes<'_>) -> Option<ExceededBound> {
        let beyond = |bound: Option<u64>, stated: Option<u64>| {
            bound.filter(|bound| stated.is_none_or(|stated| stated > *bound))
        };
        if let Some(bound) = beyond(self.size, wishes.size) {
            return Some(ExceededBound::Size(bound, wishes.size));
        }
        if let Some(bound) = beyond(self.rate, wishes.rate) {
            return Some(ExceededBound::Rate(bound, wishes.rate));
        }
        if let Some(bound) = beyond(self.duration, wishes.duration) {
            return Some(ExceededBound::Duration(bound, wishes.duration));
        }
        let purposes = self.purposes.as_ref()?;
        let is_one = wishes
            .purpose
            .is_some_and(|purpose| purposes.iter().any(|one| one == purpose));
        (!is_one).then(|| ExceededBound::Purpose(wishes.purpose.map(str::to_owned)))
    }
}

impl Rule {
    /// Returns the maximum rate that a depot reserves for a session in its principal's name, in
    /// bit/s. `None` means that it reserves nothing.
    #[must_use]
    pub const fn max_reserved_rate(&self) -> Option<u64> {
        self.max_reserved_rate
    }

    /// Returns the maximum number of bytes in each direction for a session that stated this size.
    /// `None` if the rule does not bound it.
    #[must_use]
    pub fn max_bytes(&self, stated: Option<u64>) -> Option<u64> {
        let stated = stated.filter(|_| self.bounds.size.is_some())?;
        Some(
            stated
                .saturating_add(stated / OVERHEAD_DIVISOR)
                .saturating_add(OVERHEAD_BYTES),
        )
    }
}

impl Candidates {
    /// Keeps the rules whose bounds these wishes meet.
    ///
    /// # Errors
    /// [`UnmetBound`] for the first rule, if there were rules and none remains.
    pub fn retain_within(mut self, wishes: &StatedWishes<'_>) -> Result<Self, UnmetBound> {
        let mut unmet = None;
        self.rules.retain(|rule| match rule.bounds.unmet(wishes) {
            None => true,
            Some(what) => {
                unmet.get_or_insert_with(|| UnmetBound {
                    rule: Arc::clone(&rule.name),
                    what,
                });
                false
            }
        });
        match unmet {
            Some(unmet) if self.rules.is_empty() => Err(unmet),
            _ => {
                let mut rules = self.rules.iter();
                self.listed = rules.any(|rule| rule.lists(&self.principal));
                Ok(self)
            }
        }
    }
}

impl fmt::Display for UnmetBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = printable(self.rule.as_bytes());
        let rate = |bits: u64| Rate::nearest(bits as f64);
        let time = |seconds: u64| Time::from_seconds(seconds as f64);
        match &self.what {
            ExceededBound::Size(bound, None) => {
                write!(
                    f,
                    "{name}: state the size, at most {} (max_size)",
                    ByteCount(*bound)
                )
            }
            ExceededBound::Size(bound, Some(stated)) => write!(
                f,
                "{name}: at most {} (max_size), not {}",
                ByteCount(*bound),
                ByteCount(*stated)
            ),
            ExceededBound::Rate(bound, None) => {
                write!(
                    f,
                    "{name}: state the rate, at most {} (max_wished_rate)",
                    rate(*bound)
                )
            }
            ExceededBound::Rate(bound, Some(stated)) => write!(
                f,
                "{name}: at most {} (max_wished_rate), not {}",
                rate(*bound),
                rate(*stated)
            ),
            ExceededBound::Duration(bound, None) => {
                write!(
                    f,
                    "{name}: state the duration, at most {} (max_duration)",
                    time(*bound)
                )
            }
            ExceededBound::Duration(bound, Some(stated)) => write!(
                f,
                "{name}: at most {} (max_duration), not {}",
                time(*bound),
                time(*stated)
            ),
            ExceededBound::Purpose(None) => {
                write!(f, "{name}: state a purpose that it allows (purposes)")
            }
            ExceededBound::Purpose(Some(stated)) => {
                write!(
                    f,
                    "{name}: not for purpose \"{}\" (purposes)",
                    printable(stated.as_bytes())
                )
            }
        }
    }
}

#[cfg(test)]
mod tests;
