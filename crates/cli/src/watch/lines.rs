//! Lines that a person sees of a copy: the progress line, and the filter of repeated lines.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use quantities::{ByteCount, Rate, Time};

/// Columns of the progress line, with the last one free.
const LINE_COLUMNS: usize = 79;
/// Columns of the bar, the percentage and the spaces around them.
const BAR_COLUMNS: usize = 22;
/// Template of a bar of that width.
pub const BAR_TEMPLATE: &str = "{bar:16} {percent:>3}% {msg}";
/// Time within which a line is not repeated.
const REPEAT_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum lines whose time is remembered.
const MAX_RECENT_LINES: usize = 32;

/// State of a copy as the progress line shows it.
#[derive(Debug)]
pub struct ProgressState<'a> {
    pub done: u64,
    pub found: u64,
    /// Speed in bits per second.
    pub speed: f64,
    pub left: Option<Duration>,
    pub files: u64,
    /// Entries that are not in place. `None` while the sources are still being searched.
    pub entries_left: Option<u64>,
    /// Name of the file that is being transferred, or empty.
    pub name: &'a str,
    /// Routes and their speed in bits per second.
    pub routes: &'a [(String, f64)],
}

impl ProgressState<'_> {
    /// Returns the text after the bar: as much as fits, the most important first.
    pub fn message(&self) -> String {
        let mut line = format!("{:.4}/{:.4}", ByteCount(self.done), ByteCount(self.found));
        let rate = format!(" {:.4}", Rate::nearest(self.speed));
        let left = self
            .left
            .map_or(String::new(), |left| format!(", {} left", rounded(left)));
        let plural = if self.files == 1 { "" } else { "s" };
        let files = match (self.files, self.entries_left) {
            // The bytes say it already.
            (0, Some(0 | 1)) => String::new(),
            (files, None | Some(0)) => format!(", {files} file{plural}"),
            (files, Some(left)) => format!(", {files} file{plural}, {left} to go"),
        };
        let routes = match self.routes {
            [] | [_] => String::new(),
            routes => {
                let each = routes
                    .iter()
                    .map(|(route, bps)| format!("{route} {:.3}", Rate::nearest(*bps)));
                format!(" [{}]", each.collect::<Vec<_>>().join(", "))
            }
        };
        let room = |line: &str| (LINE_COLUMNS - BAR_COLUMNS).saturating_sub(line.chars().count());
        for part in [rate, left, files, routes] {
            if part.chars().count() <= room(&line) {
                line.push_str(&part);
            }
        }
        let name = shortened(self.name, room(&line).saturating_sub(2));
        if !name.is_empty() {
            line.push_str(", ");
            line.push_str(&name);
        }
        line
    }
}

/// Rounds a remaining time, as an estimate is not exact to the second.
fn rounded(left: Duration) -> Time {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    let seconds = left.as_secs();
    let step = match seconds {
        0..10 => 1,
        10..120 => 10,
        120..1800 => MINUTE,
        1800..7200 => 5 * MINUTE,
        7200..172_800 => HOUR,
        _ => 24 * HOUR,
    };
    let steps = seconds.saturating_add(step / 2) / step;
    Time(Duration::from_secs(steps.saturating_mul(step)))
}

/// Returns the end of a name that fits into `columns`. Empty if little of it fits.
fn shortened(name: &str, columns: usize) -> String {
    const MIN_COLUMNS: usize = 8;
    const CUT: &str = "...";
    let chars = name.chars().count();
    if chars <= columns {
        return name.to_owned();
    }
    if columns < MIN_COLUMNS {
        return String::new();
    }
    let end = name.chars().skip(chars + CUT.len() - columns);
    CUT.chars().chain(end).collect()
}

/// Returns the text after the bar while nothing arrives.
pub fn waiting_message(silence: Duration, server: &str) -> String {
    let line = format!("no data for {} s: waiting for {server}", silence.as_secs());
    line.chars().take(LINE_COLUMNS - BAR_COLUMNS).collect()
}

/// Lines printed lately. One event on many streams is printed as one line.
#[derive(Debug, Default)]
pub struct RecentLines(VecDeque<(String, Instant)>);

impl RecentLines {
    /// Returns true if a line has not been printed lately. If so, it counts as printed now.
    pub fn is_new(&mut self, line: &str, now: Instant) -> bool {
        self.0
            .retain(|(_, at)| now.saturating_duration_since(*at) < REPEAT_INTERVAL);
        if let Some((_, at)) = self.0.iter_mut().find(|(said, _)| said == line) {
            *at = now;
            return false;
        }
        if self.0.len() == MAX_RECENT_LINES {
            self.0.pop_front();
        }
        self.0.push_back((line.to_owned(), now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_line_fits_in_80_columns() {
        let routes: Vec<(String, f64)> = (0..9)
            .map(|n| (format!("depot{n}.example:7510"), 123_456_789.0))
            .collect();
        for (done, found) in [
            (0, 0),
            (1, 5),
            (u64::MAX - 1, u64::MAX),
            (1_234_567_890, 98_765_432_101),
        ] {
            for speed in [0.0, 0.11, 123_456_789.0, 1e300] {
                for secs in [0, 59, 3_599, 31_535_999] {
                    for name in ["", "data/réseau-\u{1F4BE}", &"long/".repeat(99)] {
                        let shown = ProgressState {
                            done,
                            found,
                            speed,
                            left: Some(Duration::from_millis(secs * 1000 + 123)),
                            files: done,
                            entries_left: Some(found),
                            name,
                            routes: &routes,
                        };
                        let line = shown.message();
                        assert!(BAR_COLUMNS + line.chars().count() < 80, "{line}");
                    }
                }
            }
        }
        let server = "a-very-long-name.of-a-store.in-a-department.of-an-institute.example";
        let line = waiting_message(Duration::from_secs(86_400), server);
        assert!(BAR_COLUMNS + line.chars().count() < 80, "{line}");
    }

    #[test]
    fn progress_line_keeps_what_matters_most() {
        let mut shown = ProgressState {
            done: 512 << 20,
            found: 1 << 30,
            speed: 8e8,
            left: Some(Duration::from_secs(5)),
            files: 0,
            entries_left: Some(1),
            name: "runs/7/image.h5",
            routes: &[],
        };
        assert_eq!(
            shown.message(),
            "512 MiB/1 GiB 800 Mbit/s, 5 s left, runs/7/image.h5"
        );
        (shown.files, shown.entries_left) = (12, Some(8));
        assert_eq!(
            shown.message(),
            "512 MiB/1 GiB 800 Mbit/s, 5 s left, 12 files, 8 to go"
        );
        (shown.files, shown.entries_left) = (12, None);
        assert_eq!(
            shown.message(),
            "512 MiB/1 GiB 800 Mbit/s, 5 s left, 12 files, ...image.h5"
        );
        let waiting = waiting_message(Duration::from_millis(12_900), "store.example");
        assert_eq!(waiting, "no data for 12 s: waiting for store.example");
    }

    #[test]
    fn time_left_is_rounded() {
        for (seconds, text) in [
            (7, "7 s"),
            (64, "60 s"),
            (117, "2 min"),
            (171, "3 min"),
            (3000, "50 min"),
            (4000, "65 min"),
            (9000, "3 h"),
            (200_000, "2 days"),
        ] {
            let rounded = rounded(Duration::from_secs(seconds)).to_string();
            assert_eq!(rounded, text, "{seconds}");
        }
    }

    #[test]
    fn one_event_on_many_streams_is_one_line() {
        let (mut recent, began) = (RecentLines::default(), Instant::now());
        let at = |secs| began + Duration::from_secs(secs);
        let said = (0..36).filter(|_| recent.is_new("lost", began)).count();
        assert_eq!(said, 1);
        assert!(recent.is_new("another", at(1)));
        assert!(!recent.is_new("lost", at(59)));
        assert!(!recent.is_new("lost", at(118)), "it lasts");
        assert!(recent.is_new("lost", at(300)));
        for n in 0..1000 {
            recent.is_new(&n.to_string(), at(301));
        }
        assert!(recent.0.len() <= MAX_RECENT_LINES);
    }
}
