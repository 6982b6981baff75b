//! Windows of a recurrence rule (RFC 5545, section 3.3.10).

use std::str::FromStr;

use chrono::{DateTime, TimeDelta};
use longhaul_circuits::time::{MAX_MOMENT, Window};
use longhaul_control_api::reservations::Recurrence;
use rrule::{RRule, Tz, Unvalidated};

/// Maximum number of windows of one request: one for each day of a year.
pub const MAX_OCCURRENCES: u16 = 366;
/// Maximum length of a rule, in bytes.
const MAX_RULE_BYTES: usize = 1_000;
/// Milliseconds in a second, as rules count in seconds.
const SECOND_MS: i64 = 1_000;

/// The recurrence is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleFault {
    /// The rule cannot be parsed. Write UNTIL in UTC: `UNTIL=20261231T000000Z`.
    #[error("recurrence: {0}: write one rule as in RFC 5545, such as FREQ=WEEKLY;COUNT=4")]
    Rule(String),
    /// The time zone is unknown.
    #[error("recurrence: unknown time zone {0}: write one such as America/Denver")]
    Zone(String),
    /// The rule has too many occurrences.
    #[error(
        "recurrence: the rule has more than {MAX_OCCURRENCES} occurrences: add COUNT or an earlier \
        UNTIL"
    )]
    Endless,
    /// The rule has no occurrence.
    #[error("recurrence: the rule has no occurrence: compare it with the first window")]
    Never,
}

/// Returns the windows of a rule whose first window is `first`, in order. They have its length and
/// start at the times of the rule.
///
/// # Errors
/// [`RuleFault`].
pub fn windows(first: Window, recurrence: &Recurrence) -> Result<Vec<Window>, RuleFault> {
    let refused = |error: rrule::RRuleError| RuleFault::Rule(error.to_string());
    let text = recurrence.rule.trim();
    if text.len() > MAX_RULE_BYTES || text.chars().any(char::is_control) {
        return Err(RuleFault::Rule(
            "it is too long, or has more than one line".to_owned(),
        ));
    }
    let zone = match recurrence.time_zone.as_deref() {
        None => Tz::UTC,
        Some(name) => chrono_tz::Tz::from_str(name)
            .map(Tz::from)
            .map_err(|_| RuleFault::Zone(name.chars().take(100).collect()))?,
    };
    if first.start.unsigned_abs() > MAX_MOMENT.unsigned_abs() {
        return Err(RuleFault::Never);
    }
    let begin = DateTime::from_timestamp_millis(first.start - first.start.rem_euclid(SECOND_MS));
    let begin = begin.ok_or(RuleFault::Never)?.with_timezone(&zone);
    let below = TimeDelta::milliseconds(first.start.rem_euclid(SECOND_MS));
    let rule: RRule<Unvalidated> = text.parse().map_err(refused)?;
    let found = rule.build(begin).map_err(refused)?.all(MAX_OCCURRENCES + 1);
    if found.dates.is_empty() {
        return Err(RuleFault::Never);
    }
    if found.dates.len() > usize::from(MAX_OCCURRENCES) {
        return Err(RuleFault::Endless);
    }
    let starts = found
        .dates
        .into_iter()
        .map(|date| (date + below).timestamp_millis());
    Ok(starts.map(|start| first.starting_at(start)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;
    const DAY: i64 = 24 * HOUR;
    /// 2026-03-06T16:00Z, a Friday: 9 o'clock in Denver, two days before daylight saving time
    /// begins.
    const FRIDAY: i64 = 1_772_812_800_000;

    fn occurrences(rule: &str, zone: Option<&str>) -> Result<Vec<i64>, RuleFault> {
        let recurrence = Recurrence {
            rule: rule.to_owned(),
            time_zone: zone.map(str::to_owned),
        };
        let found = windows(Window::new(FRIDAY + 5, FRIDAY + 5 + HOUR), &recurrence)?;
        assert!(
            found
                .iter()
                .all(|window| window.length() == HOUR.unsigned_abs())
        );
        Ok(found
            .iter()
            .map(|window| window.start - FRIDAY - 5)
            .collect())
    }

    #[test]
    fn rule_hours_follow_the_time_zone() {
        assert_eq!(
            occurrences("FREQ=DAILY;COUNT=4", None),
            Ok(vec![0, DAY, 2 * DAY, 3 * DAY])
        );
        let denver = occurrences("RRULE:FREQ=DAILY;COUNT=4", Some("America/Denver"));
        assert_eq!(denver, Ok(vec![0, DAY, 2 * DAY - HOUR, 3 * DAY - HOUR]));
        let until = occurrences("FREQ=WEEKLY;BYDAY=FR,MO;UNTIL=20260314T000000Z", None);
        assert_eq!(until, Ok(vec![0, 3 * DAY, 7 * DAY]));
    }

    #[test]
    fn malformed_and_endless_rules_are_refused() {
        assert_eq!(occurrences("FREQ=HOURLY", None), Err(RuleFault::Endless));
        assert_eq!(
            occurrences("FREQ=DAILY;COUNT=367", None),
            Err(RuleFault::Endless)
        );
        assert_eq!(
            occurrences("FREQ=DAILY;COUNT=366", None).map(|found| found.len()),
            Ok(366)
        );
        assert!(matches!(
            occurrences("FREQ=DAILY;COUNT=2", Some("Denver/Nowhere")),
            Err(RuleFault::Zone(_))
        ));
        for bad in [
            "",
            "often",
            "FREQ=OFTEN",
            "FREQ=DAILY;COUNT=2\nEXDATE:20260306T160000Z",
        ] {
            let found = occurrences(bad, None);
            assert!(matches!(found, Err(RuleFault::Rule(_))), "{bad}: {found:?}");
        }
        let never = occurrences("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30;COUNT=1", None);
        assert_eq!(never, Err(RuleFault::Never));
        assert_eq!(
            occurrences("FREQ=DAILY;INTERVAL=0;COUNT=2", None),
            Err(RuleFault::Never)
        );
    }
}
