//! Moments as people write them, in the time zone of this machine: `18:00`, `Fri 18:00`,
//! `tomorrow 9:00`, `2026-11-27 18:00`, `+2h`, `now`, or as in RFC 3339.

#![deny(clippy::indexing_slicing)] // what is read here comes from the command line

use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::{SignedDuration, Timestamp, ToSpan, Zoned};

/// Accepted forms of a moment, for messages.
const FORMS: &str = "write 18:00, 'Fri 18:00', 'tomorrow 9:00', '2026-11-27 18:00', \
    2026-11-27T18:00:00Z, +2h or now";

/// Parses a moment. A time without a day is the next such time, and a day without a time is its
/// midnight.
///
/// # Errors
/// One line that lists the accepted forms.
pub fn read(text: &str, now: &Zoned) -> Result<Zoned, String> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("now") {
        return Ok(now.clone());
    }
    if let Some(ahead) = text.strip_prefix('+') {
        return add_duration(ahead, now);
    }
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Ok(moment.to_zoned(now.time_zone().clone()));
    }
    let found = match text.parse::<DateTime>() {
        Ok(moment) => Some(moment),
        Err(_) => words(text, now),
    };
    let found = found.and_then(|moment| moment.to_zoned(now.time_zone().clone()).ok());
    found.ok_or_else(|| format!("not a moment: {FORMS}"))
}

/// Adds a duration to now.
fn add_duration(ahead: &str, now: &Zoned) -> Result<Zoned, String> {
    let ahead = quantities::Time::with_unit(ahead.trim()).map_err(|error| error.to_string())?;
    let ahead = SignedDuration::try_from(ahead.0).ok();
    let moment = ahead.and_then(|ahead| now.checked_add(ahead).ok());
    moment.ok_or_else(|| format!("not a moment: {FORMS}"))
}

/// Parses a day, a time of day, or both, in words.
fn words(text: &str, now: &Zoned) -> Option<DateTime> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        [word] => match time(word) {
            Some(time) => {
                let today = now.date().to_datetime(time);
                if today > now.datetime() {
                    return Some(today);
                }
                Some(now.date().tomorrow().ok()?.to_datetime(time))
            }
            None => day(word, Time::midnight(), now),
        },
        [word, of_day] => day(word, time(of_day)?, now),
        _ => None,
    }
}

fn day(word: &str, time: Time, now: &Zoned) -> Option<DateTime> {
    let word = word.to_lowercase();
    let today = now.date();
    if let Some(weekday) = weekday(&word) {
        let ahead = weekday.since(today.weekday());
        let next = today
            .checked_add(i64::from(ahead).days())
            .ok()?
            .to_datetime(time);
        if next > now.datetime() {
            return Some(next);
        }
        return next.checked_add(1.week()).ok();
    }
    let day: Date = match word.as_str() {
        "today" => today,
        "tomorrow" => today.tomorrow().ok()?,
        date => date.parse().ok()?,
    };
    Some(day.to_datetime(time))
}

/// Parses the name of a weekday, or its first three letters or more.
fn weekday(word: &str) -> Option<Weekday> {
    let names = [
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
        "sunday",
    ];
    let place = (1_i8..)
        .zip(names)
        .find(|(_, name)| word.len() >= 3 && name.starts_with(word));
    Weekday::from_monday_one_offset(place?.0).ok()
}

/// Parses a time of day with hours, minutes and optional seconds.
fn time(word: &str) -> Option<Time> {
    let numbers: Vec<i8> = word
        .split(':')
        .map(|part| part.parse().ok())
        .collect::<Option<_>>()?;
    match numbers.as_slice() {
        [hour, minute] => Time::new(*hour, *minute, 0, 0).ok(),
        [hour, minute, second] => Time::new(*hour, *minute, *second, 0).ok(),
        _ => None,
    }
}

/// Converts to a moment of the API, in milliseconds since the Unix epoch.
///
/// # Errors
/// The moment is before 1970.
pub fn milliseconds(moment: &Zoned) -> Result<u64, String> {
    u64::try_from(moment.timestamp().as_millisecond())
        .map_err(|_| "a moment before 1970".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Wednesday.
    fn now() -> Zoned {
        "2026-11-25T12:30:00+01:00[Europe/Zurich]".parse().unwrap()
    }

    #[test]
    fn moments_parse_as_people_write_them() {
        for (text, expected) in [
            ("now", "2026-11-25T12:30:00"),
            ("18:00", "2026-11-25T18:00:00"),
            ("9:05", "2026-11-26T09:05:00"),
            ("Fri 18:00", "2026-11-27T18:00:00"),
            ("friday", "2026-11-27T00:00:00"),
            ("Wed 12:00", "2026-12-02T12:00:00"),
            ("wed 13:00:01", "2026-11-25T13:00:01"),
            ("today 8:00", "2026-11-25T08:00:00"),
            ("tomorrow", "2026-11-26T00:00:00"),
            ("2026-12-01", "2026-12-01T00:00:00"),
            ("2026-12-01 7:30", "2026-12-01T07:30:00"),
            ("2026-12-01T07:30", "2026-12-01T07:30:00"),
            ("2026-12-01T07:30:00Z", "2026-12-01T08:30:00"),
            ("+90 min", "2026-11-25T14:00:00"),
            ("+2h", "2026-11-25T14:30:00"),
        ] {
            let found = read(text, &now()).map(|found| found.datetime().to_string());
            assert_eq!(found.as_deref(), Ok(expected), "{text}");
        }
        for bad in [
            "",
            "soon",
            "25:00",
            "18:60",
            "Fr 18:00",
            "Fri at 18:00",
            "18",
            "+soon",
            "+-2h",
            "2026-13-01",
        ] {
            let error = read(bad, &now()).unwrap_err();
            assert!(!error.contains('\n'), "{bad}: {error}");
        }
    }
}
