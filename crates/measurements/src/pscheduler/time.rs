//! Moments and durations in the format of pScheduler (ISO 8601).

use std::time::Duration;

use jiff::civil::DateTime;
use jiff::fmt::temporal::SpanParser;
use jiff::tz::TimeZone;
use jiff::{SpanRelativeTo, Timestamp};

use crate::EpochMs;

static SPANS: SpanParser = SpanParser::new();

/// Parses a duration such as `PT0.0002S` or `P1DT2H` into seconds. Returns `None` if it is
/// malformed, negative, or has years or months.
#[must_use]
pub fn read_duration(text: &str) -> Option<f64> {
    let span = SPANS.parse_span(text).ok()?;
    if span.get_years() != 0 || span.get_months() != 0 {
        return None;
    }
    let duration = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    (!duration.is_negative()).then(|| duration.as_secs_f64())
}

/// Formats a duration in seconds, to the nanosecond. A negative number or NaN counts as zero.
#[must_use]
pub fn write_duration(seconds: f64) -> String {
    let time = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default();
    match time.subsec_nanos() {
        0 => format!("PT{}S", time.as_secs()),
        nanos => {
            let fraction = format!("{nanos:09}");
            format!("PT{}.{}S", time.as_secs(), fraction.trim_end_matches('0'))
        }
    }
}

/// Parses a moment. Without an offset, it is in UTC.
pub(super) fn read_moment(text: &str) -> Option<EpochMs> {
    let at: Timestamp = match text.parse() {
        Ok(at) => at,
        Err(_) => text
            .parse::<DateTime>()
            .ok()?
            .to_zoned(TimeZone::UTC)
            .ok()?
            .timestamp(),
    };
    EpochMs::try_from(at.as_millisecond()).ok()
}

/// Formats a moment in UTC. Returns `None` if it is beyond the year 9999.
pub(super) fn write_moment(at_ms: EpochMs) -> Option<String> {
    let at = Timestamp::from_millisecond(i64::try_from(at_ms).ok()?).ok()?;
    Some(at.to_string())
}
