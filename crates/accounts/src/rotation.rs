//! When the file is rotated, the names of rotated files, and which of them are removed. Pure.

use std::time::Duration;

use jiff::Timestamp;

/// Form of the time in the name of a rotated file. Names sort by time.
const NAME_FORM: &str = "%Y%m%dT%H%M%S";

/// Limits on a file of accounts, and on the number of rotated ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RotationLimits {
    /// Size from which the file is rotated, in bytes.
    pub max_bytes: u64,
    /// Age of the first record from which the file is rotated.
    pub max_age: Duration,
    /// Maximum number of rotated files. The oldest are removed.
    pub max_files: usize,
}

impl Default for RotationLimits {
    fn default() -> Self {
        Self {
            max_bytes: 64 << 20,
            max_age: Duration::from_secs(31 * 24 * 3600),
            max_files: 120,
        }
    }
}

impl RotationLimits {
    /// Returns true if a file of `bytes` bytes whose first record is of `first` has to be rotated
    /// before another record is written.
    pub(crate) fn is_due(&self, bytes: u64, first: Option<Timestamp>, now: Timestamp) -> bool {
        let age = first.and_then(|first| Duration::try_from(now.duration_since(first)).ok());
        bytes > 0 && (bytes >= self.max_bytes || age.is_some_and(|age| age >= self.max_age))
    }

    /// Returns the rotated files to remove, of all in the directory, if `file` has just been
    /// rotated.
    pub(crate) fn surplus<'a>(&self, file: &str, names: &'a [String]) -> Vec<&'a str> {
        let rotated = rotated_files(file, names);
        let surplus = rotated.len().saturating_sub(self.max_files);
        rotated.into_iter().take(surplus).collect()
    }
}

/// Returns the name of `file` rotated at `now`. `is_taken` says which names exist.
pub(crate) fn rotated_name(
    file: &str,
    now: Timestamp,
    is_taken: impl Fn(&str) -> bool,
) -> Option<String> {
    let time = now.strftime(NAME_FORM);
    (0..10_000)
        .map(|number| format!("{file}.{time}.{number:04}"))
        .find(|name| !is_taken(name))
}

/// Returns the rotated files of `file` among `names`, oldest first.
pub(crate) fn rotated_files<'a>(file: &str, names: &'a [String]) -> Vec<&'a str> {
    let mut rotated: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .filter(|name| is_rotated(file, name))
        .collect();
    rotated.sort_unstable();
    rotated
}

fn is_rotated(file: &str, name: &str) -> bool {
    let suffix = name
        .strip_prefix(file)
        .and_then(|rest| rest.strip_prefix('.'));
    let form = "00000000T000000.0000";
    suffix.is_some_and(|suffix| {
        suffix.len() == form.len()
            && suffix
                .chars()
                .zip(form.chars())
                .all(|(c, form)| match form {
                    '0' => c.is_ascii_digit(),
                    other => c == other,
                })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn files_are_rotated_by_size_and_age() {
        let limits = RotationLimits {
            max_bytes: 100,
            max_age: Duration::from_secs(3600),
            max_files: 2,
        };
        let (first, soon, late) = (
            time("2026-11-30T12:00:00Z"),
            time("2026-11-30T12:59:59Z"),
            time("2026-11-30T13:00:00Z"),
        );
        assert!(!limits.is_due(0, None, late), "an empty file stays");
        assert!(!limits.is_due(99, Some(first), soon));
        assert!(limits.is_due(100, Some(first), soon));
        assert!(limits.is_due(1, Some(first), late));
        assert!(!limits.is_due(1, Some(late), first), "the clock went back");
    }

    #[test]
    fn rotated_files_sort_by_time_and_the_oldest_go() {
        let now = time("2026-11-30T03:38:57Z");
        let first = rotated_name("a.jsonl", now, |_| false).unwrap();
        assert_eq!(first, "a.jsonl.20261130T033857.0000");
        let second = rotated_name("a.jsonl", now, |name| name == first).unwrap();
        let third = rotated_name("a.jsonl", time("2026-12-01T00:00:00Z"), |_| false).unwrap();
        let others = ["a.jsonl", "a.jsonl.gz", "a.jsonl.20261130T033857.000x", "b"];
        let mut names: Vec<String> = others.map(str::to_owned).to_vec();
        names.extend([third.clone(), second.clone(), first.clone()]);
        assert_eq!(rotated_files("a.jsonl", &names), [&first, &second, &third]);
        let limits = RotationLimits {
            max_files: 2,
            ..RotationLimits::default()
        };
        assert_eq!(limits.surplus("a.jsonl", &names), [&first]);
    }
}
