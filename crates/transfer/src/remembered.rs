//! Numbers that are remembered for each destination from one copy to the next, in a small JSON file
//! that is safe to delete.
//!
//! Each entry has the time in seconds since 1970, the number, further numbers on which it is based,
//! and a hash. The latest is first. The hash replaces names, so the file does not reveal who copied
//! where. A file that cannot be read is ignored.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};

use crate::client::stream_count::{LearnedStreams, MAX_STREAMS, PathConditions};
use crate::route_info::RouteInfo;

/// Maximum number of entries.
const MAX_ENTRIES: usize = 256;
/// Maximum length of a file that is read, in bytes.
const MAX_BYTES: u64 = 64 * 1024;
/// Length of the hash, in bytes.
const KEY_BYTES: usize = 16;
/// Age at which entries are forgotten, as network paths change.
const MAX_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// Meaning of the numbers in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumberMeaning {
    /// Word by which the file names it. A file with another word is ignored.
    pub kind: &'static str,
    /// Maximum of the number. The minimum is 1.
    pub max: u32,
    /// Count of further numbers in each entry.
    pub notes: usize,
}

/// Number of streams that each destination needed.
const STREAMS: NumberMeaning = NumberMeaning {
    kind: "streams",
    max: MAX_STREAMS,
    notes: 4,
};

/// A file of numbers.
#[derive(Debug, Clone)]
pub struct NumberFile {
    /// The file. It and its folder are created when something is remembered.
    pub file: PathBuf,
    /// Meaning of the numbers.
    pub meaning: NumberMeaning,
}

impl NumberFile {
    /// Returns the number for these names, if known.
    pub async fn recall(&self, names: &[&str]) -> Option<u32> {
        self.recall_noted(names).await.map(|(number, _)| number)
    }

    /// Returns the number for these names and its further numbers, if known.
    pub async fn recall_noted(&self, names: &[&str]) -> Option<(u32, Vec<u64>)> {
        let (file, key) = (self.clone(), names_key(names));
        let read = tokio::task::spawn_blocking(move || file.read().get(&key, now()));
        read.await.ok().flatten()
    }

    /// Remembers a number. Errors are ignored, as the copy itself succeeded.
    pub async fn remember(&self, names: &[&str], number: u32) {
        self.remember_noted(names, number, vec![]).await;
    }

    /// Remembers a number with its further numbers.
    pub async fn remember_noted(&self, names: &[&str], number: u32, notes: Vec<u64>) {
        let (file, key) = (self.clone(), names_key(names));
        let written = tokio::task::spawn_blocking(move || {
            let mut remembered = file.read();
            remembered.set(key, number, notes, now());
            remembered.write(&file.file)
        });
        if let Ok(Err(error)) = written.await {
            tracing::debug!(file = %self.file.display(), %error, "a number is not remembered");
        }
    }

    /// Reads the file; empty if there is none that can be used.
    fn read(&self) -> RememberedNumbers {
        let mut json = Vec::new();
        // One byte more shows that the file is too long: its JSON is then incomplete.
        let read = std::fs::File::open(&self.file)
            .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut json));
        match read {
            Ok(length) if length as u64 <= MAX_BYTES => {
                RememberedNumbers::parse(&json, self.meaning)
            }
            _ => RememberedNumbers::new(self.meaning),
        }
    }
}

/// Store for the number of streams that a destination needed.
#[derive(Debug, Clone)]
pub struct StreamMemory {
    /// The file. It and its folder are created when something is remembered.
    pub file: PathBuf,
    /// Name of the destination: host and port.
    pub destination: String,
}

impl StreamMemory {
    /// Returns what the last copy over `routes` needed, if known.
    pub(crate) async fn recall(&self, push: bool, routes: &[RouteInfo]) -> Option<LearnedStreams> {
        let recalled = self.numbers().recall_noted(&self.names(push, routes)).await;
        let (streams, notes) = recalled?;
        let conditions = PathConditions::from_numbers(notes.try_into().ok()?);
        Some(LearnedStreams {
            streams,
            conditions,
        })
    }

    /// Remembers what this copy needed.
    pub(crate) async fn remember(&self, push: bool, routes: &[RouteInfo], learned: LearnedStreams) {
        let notes = learned.conditions.to_numbers().to_vec();
        let (numbers, names) = (self.numbers(), self.names(push, routes));
        numbers.remember_noted(&names, learned.streams, notes).await;
    }

    fn numbers(&self) -> NumberFile {
        NumberFile {
            file: self.file.clone(),
            meaning: STREAMS,
        }
    }

    /// Returns the destination, the direction and the routes.
    fn names<'a>(&'a self, push: bool, routes: &'a [RouteInfo]) -> Vec<&'a str> {
        [&self.destination[..], if push { "push" } else { "pull" }]
            .into_iter()
            .chain(routes.iter().map(RouteInfo::name))
            .collect()
    }
}

/// Returns the seconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Returns the hash of the names that a number belongs to.
fn names_key(names: &[&str]) -> String {
    let mut hasher = blake3::Hasher::new();
    for name in names {
        hasher.update(&(name.len() as u64).to_le_bytes());
        hasher.update(name.as_bytes());
    }
    let mut key = [0; KEY_BYTES];
    hasher.finalize_xof().fill(&mut key);
    HEXLOWER.encode(&key)
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct NumberEntry {
    /// Time of the entry, in seconds since 1970.
    at: u64,
    number: u32,
    notes: Vec<u64>,
    key: String,
}

/// Remembered entries, the latest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct RememberedNumbers {
    kind: String,
    entries: Vec<NumberEntry>,
}

impl RememberedNumbers {
    fn new(meaning: NumberMeaning) -> Self {
        Self {
            kind: meaning.kind.to_owned(),
            entries: Vec::new(),
        }
    }

    /// Parses a file. One of another kind or form is ignored, and so are invalid entries.
    fn parse(json: &[u8], meaning: NumberMeaning) -> Self {
        match serde_json::from_slice::<Self>(json) {
            Ok(mut parsed) if parsed.kind == meaning.kind => {
                parsed.entries.retain(|entry| {
                    (1..=meaning.max).contains(&entry.number) && entry.notes.len() == meaning.notes
                });
                parsed.entries.truncate(MAX_ENTRIES);
                parsed
            }
            _ => Self::new(meaning),
        }
    }

    /// Replaces the file atomically. Of two copies that end at once, one file remains.
    fn write(&self, file: &Path) -> std::io::Result<()> {
        let folder = file.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        let mut temporary = tempfile::NamedTempFile::new_in(folder)?;
        temporary.write_all(&serde_json::to_vec(self)?)?;
        temporary.persist(file)?;
        Ok(())
    }

    fn get(&self, key: &str, now: u64) -> Option<(u32, Vec<u64>)> {
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        (now.saturating_sub(entry.at) <= MAX_AGE.as_secs())
            .then(|| (entry.number, entry.notes.clone()))
    }

    fn set(&mut self, key: String, number: u32, notes: Vec<u64>, at: u64) {
        self.entries.retain(|entry| entry.key != key);
        self.entries.insert(
            0,
            NumberEntry {
                at,
                number,
                notes,
                key,
            },
        );
        self.entries.truncate(MAX_ENTRIES);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(n: u32) -> String {
        names_key(&[&n.to_string()])
    }

    #[test]
    fn destinations_directions_and_routes_are_distinguished() {
        let key_of = |destination: &str, push, routes: &[&str]| {
            let memory = StreamMemory {
                file: PathBuf::new(),
                destination: destination.to_owned(),
            };
            let routes = routes.iter().map(|name| RouteInfo::without_depots(name));
            let routes: Vec<_> = routes.collect();
            names_key(&memory.names(push, &routes))
        };
        let keys = [
            key_of("a:1", true, &["direct"]),
            key_of("a:1", false, &["direct"]),
            key_of("b:1", true, &["direct"]),
            key_of("a:1", true, &["d:1,e:1"]),
            key_of("a:1", true, &["d:1", "e:1"]),
        ];
        for (n, key) in keys.iter().enumerate() {
            assert!(keys[..n].iter().all(|other| other != key));
        }
    }

    #[test]
    fn old_entries_are_forgotten() {
        let mut remembered = RememberedNumbers::new(STREAMS);
        remembered.set(key(1), 16, vec![], 1_000);
        let month = MAX_AGE.as_secs();
        assert_eq!(remembered.get(&key(1), 1_000 + month), Some((16, vec![])));
        assert_eq!(remembered.get(&key(1), 1_001 + month), None);
        assert_eq!(
            remembered.get(&key(1), 0),
            Some((16, vec![])),
            "a clock that went back"
        );
    }

    #[tokio::test]
    async fn memory_file_is_created_used_and_ignored_if_broken() {
        let folder = tempfile::tempdir().unwrap();
        let memory = StreamMemory {
            file: folder.path().join("state/streams"),
            destination: "store:7511".into(),
        };
        let routes = [RouteInfo::direct()];
        assert_eq!(memory.recall(true, &routes).await, None);
        let learned = |streams| LearnedStreams {
            streams,
            conditions: PathConditions {
                rtt: Duration::from_micros(100_250),
                window: 65_536,
                loss_ppm: 0,
                addresses: u64::MAX,
            },
        };
        memory.remember(true, &routes, learned(16)).await;
        assert_eq!(memory.recall(true, &routes).await, Some(learned(16)));
        assert_eq!(memory.recall(false, &routes).await, None);
        let files = std::fs::read_dir(folder.path().join("state")).unwrap();
        assert_eq!(files.count(), 1, "nothing temporary is left");
        std::fs::write(&memory.file, [0xff; 100]).unwrap();
        assert_eq!(memory.recall(true, &routes).await, None);
        memory.remember(true, &routes, learned(8)).await;
        assert_eq!(memory.recall(true, &routes).await, Some(learned(8)));
        // A directory at the file's path prevents remembering, but causes no error.
        let nowhere = StreamMemory {
            file: folder.path().to_path_buf(),
            ..memory
        };
        nowhere.remember(true, &routes, learned(8)).await;
        assert_eq!(nowhere.recall(true, &routes).await, None);
    }

    proptest! {
        #[test]
        fn entries_are_recalled_unchanged_and_bounded(
            sets in prop::collection::vec((0u32..400, 1..=MAX_STREAMS), 0..600),
        ) {
            let mut remembered = RememberedNumbers::new(STREAMS);
            for (at, (n, streams)) in sets.iter().enumerate() {
                let notes = vec![u64::MAX; STREAMS.notes];
                remembered.set(key(*n), *streams, notes.clone(), at as u64);
                prop_assert_eq!(remembered.get(&key(*n), at as u64), Some((*streams, notes)));
            }
            prop_assert!(remembered.entries.len() <= MAX_ENTRIES);
            let json = serde_json::to_vec(&remembered).unwrap();
            prop_assert!(json.len() as u64 <= MAX_BYTES);
            prop_assert_eq!(RememberedNumbers::parse(&json, STREAMS), remembered);
        }

        #[test]
        fn any_text_parses_to_numbers_within_bounds(
            entry in r#"\{"at":[0-9]{1,3},"number":-?[0-9]{1,3},"notes":\[1,2,3,4\],"key":"k"\}"#,
            end in r"(\]\})?[ a-z0-9\[\]{}]{0,3}",
        ) {
            let json = format!(r#"{{"kind":"streams","entries":[{entry}{end}"#);
            let remembered = RememberedNumbers::parse(json.as_bytes(), STREAMS);
            prop_assert!(
                remembered.entries.iter().all(|entry| (1..=MAX_STREAMS).contains(&entry.number))
            );
        }
    }
}
