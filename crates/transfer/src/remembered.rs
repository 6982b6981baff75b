//! Numbers that are remembered for each destination from one copy to the next, in a small text file
//! that is safe to delete.
//!
//! Each line is one entry, the latest first: seconds since 1970, the number, further numbers on
//! which it is based, and a hash. The hash replaces names, so the file does not reveal who copied
//! where. Unreadable lines are ignored.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::client::stream_count::{LearnedStreams, MAX_STREAMS, PathConditions};

/// Maximum number of lines.
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
    /// The file's first line.
    pub first_line: &'static str,
    /// Maximum of the number. The minimum is 1.
    pub max: u32,
    /// Count of further numbers in each entry.
    pub notes: usize,
}

/// Number of streams that each destination needed.
const STREAMS: NumberMeaning = NumberMeaning {
    first_line: "longhaul streams 2",
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
        let (file, meaning, key) = (
            self.file.clone(),
            self.meaning,
            NamesHash::from_names(names),
        );
        let read = tokio::task::spawn_blocking(move || {
            let remembered = RememberedNumbers::parse(&read(&file)?, meaning);
            remembered.get(&key, now())
        });
        read.await.ok().flatten()
    }

    /// Remembers a number. Errors are ignored, as the copy itself succeeded.
    pub async fn remember(&self, names: &[&str], number: u32) {
        self.remember_noted(names, number, vec![]).await;
    }

    /// Remembers a number with its further numbers.
    pub async fn remember_noted(&self, names: &[&str], number: u32, notes: Vec<u64>) {
        let (file, meaning, key) = (
            self.file.clone(),
            self.meaning,
            NamesHash::from_names(names),
        );
        let written = tokio::task::spawn_blocking(move || {
            let mut remembered = read(&file).map_or_else(RememberedNumbers::default, |text| {
                RememberedNumbers::parse(&text, meaning)
            });
            remembered.set(key, number, notes, now());
            write(&file, &remembered.to_text(meaning))
        });
        if let Ok(Err(error)) = written.await {
            tracing::debug!(file = %self.file.display(), %error, "a number is not remembered");
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
    pub(crate) async fn recall(&self, push: bool, routes: &[String]) -> Option<LearnedStreams> {
        let recalled = self.numbers().recall_noted(&self.names(push, routes)).await;
        let (streams, notes) = recalled?;
        let conditions = PathConditions::from_numbers(notes.try_into().ok()?);
        Some(LearnedStreams {
            streams,
            conditions,
        })
    }

    /// Remembers what this copy needed.
    pub(crate) async fn remember(&self, push: bool, routes: &[String], learned: LearnedStreams) {
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
    fn names<'a>(&'a self, push: bool, routes: &'a [String]) -> Vec<&'a str> {
        [&self.destination[..], if push { "push" } else { "pull" }]
            .into_iter()
            .chain(routes.iter().map(String::as_str))
            .collect()
    }
}

/// Returns the seconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

fn read(file: &Path) -> Option<String> {
    let len = std::fs::metadata(file).ok()?.len();
    (len <= MAX_BYTES).then(|| std::fs::read_to_string(file).ok())?
}

/// Replaces the file atomically. Of two copies that end at once, one file remains.
fn write(file: &Path, text: &str) -> std::io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let temporary = folder.join(name);
    let _ = std::fs::remove_file(&temporary);
    // Never writes through a symbolic link that someone left there.
    let created = std::fs::File::options()
        .write(true)
        .create_new(true)
        .open(&temporary);
    let written = created
        .and_then(|mut out| out.write_all(text.as_bytes()))
        .and_then(|()| std::fs::rename(&temporary, file));
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

/// Hash of the names that a number belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NamesHash([u8; KEY_BYTES]);

impl NamesHash {
    fn from_names(names: &[&str]) -> Self {
        let mut hasher = blake3::Hasher::new();
        for name in names {
            hasher.update(&(name.len() as u64).to_le_bytes());
            hasher.update(name.as_bytes());
        }
        let mut key = [0; KEY_BYTES];
        hasher.finalize_xof().fill(&mut key);
        Self(key)
    }

    fn parse(text: &str) -> Option<Self> {
        let whole = blake3::Hash::from_hex(format!("{text:0<64}")).ok()?;
        let key = Self(whole.as_bytes().first_chunk().copied()?);
        (text.len() == 2 * KEY_BYTES).then_some(key)
    }
}

impl std::fmt::Display for NamesHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct NumberEntry {
    /// Time of the entry, in seconds since 1970.
    at: u64,
    number: u32,
    notes: Vec<u64>,
    key: NamesHash,
}

/// Remembered entries, the latest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct RememberedNumbers(Vec<NumberEntry>);

impl RememberedNumbers {
    /// Parses the file. Invalid lines are skipped, and a file of another kind is ignored.
    fn parse(text: &str, meaning: NumberMeaning) -> Self {
        let mut lines = text.lines();
        if lines.next() != Some(meaning.first_line) {
            return Self::default();
        }
        let entry = |line: &str| {
            let mut words = line.split(' ');
            let entry = NumberEntry {
                at: words.next()?.parse().ok()?,
                number: words
                    .next()?
                    .parse()
                    .ok()
                    .filter(|n| (1..=meaning.max).contains(n))?,
                notes: (0..meaning.notes)
                    .map(|_| words.next()?.parse().ok())
                    .collect::<Option<_>>()?,
                key: NamesHash::parse(words.next()?)?,
            };
            words.next().is_none().then_some(entry)
        };
        Self(lines.filter_map(entry).take(MAX_ENTRIES).collect())
    }

    fn to_text(&self, meaning: NumberMeaning) -> String {
        let lines = self.0.iter().map(|entry| {
            let notes: String = entry.notes.iter().map(|note| format!("{note} ")).collect();
            format!("{} {} {notes}{}\n", entry.at, entry.number, entry.key)
        });
        std::iter::once(format!("{}\n", meaning.first_line))
            .chain(lines)
            .collect()
    }

    fn get(&self, key: &NamesHash, now: u64) -> Option<(u32, Vec<u64>)> {
        let entry = self.0.iter().find(|entry| entry.key == *key)?;
        (now.saturating_sub(entry.at) <= MAX_AGE.as_secs())
            .then(|| (entry.number, entry.notes.clone()))
    }

    fn set(&mut self, key: NamesHash, number: u32, notes: Vec<u64>, at: u64) {
        self.0.retain(|entry| entry.key != key);
        self.0.insert(
            0,
            NumberEntry {
                at,
                number,
                notes,
                key,
            },
        );
        self.0.truncate(MAX_ENTRIES);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(n: u32) -> NamesHash {
        NamesHash::from_names(&[&n.to_string()])
    }

    #[test]
    fn destinations_directions_and_routes_are_distinguished() {
        let key_of = |destination: &str, push, routes: &[&str]| {
            let memory = StreamMemory {
                file: PathBuf::new(),
                destination: destination.to_owned(),
            };
            let routes: Vec<String> = routes.iter().map(|route| (*route).to_owned()).collect();
            NamesHash::from_names(&memory.names(push, &routes))
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
            assert_eq!(NamesHash::parse(&key.to_string()), Some(*key));
        }
    }

    #[test]
    fn old_entries_are_forgotten() {
        let mut remembered = RememberedNumbers::default();
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
        let routes = ["direct".to_owned()];
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
            let mut remembered = RememberedNumbers::default();
            for (at, (n, streams)) in sets.iter().enumerate() {
                let notes = vec![u64::MAX; STREAMS.notes];
                remembered.set(key(*n), *streams, notes.clone(), at as u64);
                prop_assert_eq!(remembered.get(&key(*n), at as u64), Some((*streams, notes)));
            }
            prop_assert!(remembered.0.len() <= MAX_ENTRIES);
            let text = remembered.to_text(STREAMS);
            prop_assert!(text.len() as u64 <= MAX_BYTES);
            prop_assert_eq!(RememberedNumbers::parse(&text, STREAMS), remembered);
        }

        #[test]
        fn any_text_parses_to_numbers_within_bounds(
            lines in "(longhaul streams 2\n)?([0-9a-f \n-]{0,60}\n){0,20}",
        ) {
            let remembered = RememberedNumbers::parse(&lines, STREAMS);
            prop_assert!(
                remembered.0.iter().all(|entry| (1..=MAX_STREAMS).contains(&entry.number))
            );
        }
    }
}
