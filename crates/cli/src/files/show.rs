//! Formats files for people and programs.

use anyhow::{Result, anyhow};
use longhaul_proto::text::printable;
use longhaul_transfer::TEMP_PREFIX;
use longhaul_transfer::files::FilesError;
use longhaul_transfer::files::message::{
    EntryKind, FilesFailure, FilesResponse, FoundLeftover, LeftoverOutcome, LeftoverUsage,
    ListingEntry, PathBytes,
};
use quantities::{ByteCount, Time};
use serde_json::json;

use crate::place::Location;

/// Options for showing entries.
#[derive(Clone, Copy)]
pub struct EntryFormat {
    /// Print JSON, one object per line.
    pub json: bool,
    /// Show permissions, size and time.
    pub long: bool,
    /// Include entries that copies keep under names of their own.
    pub all: bool,
}

impl EntryFormat {
    /// Returns true if a list shows `entry`.
    pub fn includes(self, entry: &ListingEntry) -> bool {
        self.all || !entry.name.0.starts_with(TEMP_PREFIX.as_bytes())
    }

    /// Formats the line of an entry.
    pub fn line(self, entry: &ListingEntry) -> String {
        let name = printable(&entry.name.0);
        let target = entry.target.as_ref().map(|target| printable(&target.0));
        let modified = jiff::Timestamp::from_second(entry.modified).ok();
        if self.json {
            let modified = modified.map(|time| time.to_string());
            return json!({
                "event": "entry", "name": name, "kind": entry.kind, "bytes": entry.size,
                "mode": format!("{:04o}", entry.mode),
                "modified": modified, "target": target,
            })
            .to_string();
        }
        let sign = match entry.kind {
            EntryKind::Directory => "/",
            EntryKind::Symlink => "@",
            EntryKind::File | EntryKind::Other => "",
        };
        if !self.long {
            return format!("{name}{sign}");
        }
        let time = modified.map_or(String::new(), |time| {
            time.strftime("%Y-%m-%d %H:%M").to_string()
        });
        let to = target.map_or(String::new(), |target| format!(" -> {target}"));
        let size = ByteCount(entry.size).to_string();
        format!("{:04o} {size:>12} {time} {name}{sign}{to}", entry.mode)
    }
}

/// Formats a success for programs.
pub fn done(path: &str) -> String {
    json!({ "event": "done", "path": path }).to_string()
}

/// Formats a failure for programs.
pub fn failed(location: &Location, failure: &FilesFailure) -> String {
    json!({
        "event": "failed", "path": printable(&failure.path.0), "kind": failure.kind,
        "message": location.failed(failure),
    })
    .to_string()
}

/// Formats what a copy left in `directory`.
pub fn leftover(
    leftover: &FoundLeftover,
    location: &Location,
    directory: &PathBytes,
    json: bool,
) -> String {
    let names = leftover.names.iter().map(|name| printable(&name.0));
    let target = leftover.target.as_ref().map(|target| printable(&target.0));
    if json {
        return json!({
            "event": "leftover", "directory": printable(&directory.0),
            "names": names.collect::<Vec<_>>(), "target": target,
            "size": leftover.size, "durable_bytes": leftover.durable_bytes,
            "disk_bytes": leftover.disk_bytes,
            "age_seconds": leftover.age_seconds, "usage": leftover.usage,
            "outcome": leftover.outcome,
        })
        .to_string();
    }
    let name = leftover.target.as_ref().or(leftover.names.first());
    let place = location.shown(&join(directory, name.map_or(&[], |name| &name.0)));
    let what = match (leftover.outcome, leftover.usage, leftover.size) {
        (LeftoverOutcome::Removed, ..) => "removed".to_owned(),
        (LeftoverOutcome::Failed, ..) => "could not be removed".to_owned(),
        (_, LeftoverUsage::InUse, _) => "a copy is writing it".to_owned(),
        (_, LeftoverUsage::Foreign, _) => {
            "another user's, or not made by a copy: left alone".to_owned()
        }
        (_, _, Some(size)) => format!(
            "{} of {} can be resumed",
            ByteCount(leftover.durable_bytes),
            ByteCount(size)
        ),
        (_, _, None) => "nothing to resume".to_owned(),
    };
    let size = ByteCount(leftover.disk_bytes).to_string();
    let age = Time(std::time::Duration::from_secs(leftover.age_seconds)).to_string();
    format!("{size:>12} {age:>10} {place}: {what}")
}

/// Returns the failure in an answer. An answer to another question is an error.
pub fn failure_of(answer: FilesResponse) -> Result<Option<FilesFailure>> {
    match answer {
        FilesResponse::Failed(failure) => Ok(Some(failure)),
        _ => Err(anyhow!(FilesError::Protocol(
            "the answer does not match the request".to_owned()
        ))),
    }
}

/// Joins `directory` and `name`.
pub fn join(directory: &PathBytes, name: &[u8]) -> PathBytes {
    match directory.0.last() {
        None | Some(b'/') => PathBytes([&directory.0, name].concat()),
        Some(_) => PathBytes([&directory.0[..], b"/", name].concat()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_with_any_name_are_one_line() {
        let entry = ListingEntry {
            name: PathBytes(b"a\nb\x1b".to_vec()),
            kind: EntryKind::Symlink,
            size: 3,
            mode: 0o777,
            modified: 0,
            nanoseconds: None,
            target: Some(PathBytes(b"there".to_vec())),
        };
        for (json, long) in [(false, false), (false, true), (true, false)] {
            let line = EntryFormat {
                json,
                long,
                all: false,
            }
            .line(&entry);
            assert!(!line.contains(['\n', '\x1b']), "{line}");
            assert_eq!(line.contains("there"), json || long, "{line}");
        }
        let line = EntryFormat {
            json: true,
            long: false,
            all: false,
        }
        .line(&entry);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            (&value["kind"], &value["mode"]),
            (&"symlink".into(), &"0777".into())
        );
        assert_eq!(value["modified"], "1970-01-01T00:00:00Z");
    }

    #[test]
    fn leftover_lines_say_what_can_be_done() {
        let found = FoundLeftover {
            names: vec![PathBytes(b".longhaul-1".to_vec())],
            target: Some(PathBytes(b"big\n.dat".to_vec())),
            size: Some(5 << 30),
            durable_bytes: 3 << 30,
            disk_bytes: 3 << 30,
            age_seconds: 9 * 86_400,
            usage: LeftoverUsage::Idle,
            outcome: LeftoverOutcome::Kept,
        };
        let location = Location::Login("h".into());
        let line = leftover(&found, &location, &PathBytes(b"in".to_vec()), false);
        assert!(
            line.contains("3 GiB of 5 GiB") && line.contains("days"),
            "{line}"
        );
        assert!(line.contains("h:in/big\\u{a}.dat"), "{line}");
        let removed = FoundLeftover {
            outcome: LeftoverOutcome::Removed,
            ..found
        };
        assert!(leftover(&removed, &location, &PathBytes::default(), false).ends_with("removed"));
    }
}
