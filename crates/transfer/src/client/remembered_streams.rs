//! How many streams each destination needed last time: a small text file that nobody has to keep.
//!
//! One line for each destination, direction and routes, the latest first: seconds since 1970, the number, and a hash instead of names,
//! so that the file tells nobody who copied where. Whatever cannot be read is as if it were not there.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::MAX_STREAMS;

/// The file's first line.
const FIRST_LINE: &str = "longhaul streams 1";
/// Most lines kept.
const MAX_ENTRIES: usize = 256;
/// Longest file that is read, in bytes.
const MAX_BYTES: u64 = 64 * 1024;
/// Bytes of the hash.
const KEY_BYTES: usize = 16;
/// What is older is forgotten: paths change.
const MAX_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// Where the number of streams that a destination needed is kept between copies.
#[derive(Debug, Clone)]
pub struct StreamMemory {
    /// The file; it and its folder are made when something is to be remembered.
    pub file: PathBuf,
    /// The destination's name: host and port.
    pub destination: String,
}

impl StreamMemory {
    /// What the copy over `routes` needed last time, where that is known.
    pub(super) async fn recall(&self, push: bool, routes: &[String]) -> Option<u32> {
        let (file, key) = (self.file.clone(), Key::of(&self.destination, push, routes));
        let read = tokio::task::spawn_blocking(move || {
            let remembered = RememberedStreams::parse(&read(&file)?);
            remembered.get(&key, now())
        });
        read.await.ok().flatten()
    }

    /// Remembers it. A file that cannot be written is not: the copy itself went well.
    pub(super) async fn remember(&self, push: bool, routes: &[String], streams: u32) {
        let (file, key) = (self.file.clone(), Key::of(&self.destination, push, routes));
        let written = tokio::task::spawn_blocking(move || {
            let mut remembered =
                read(&file).map_or_else(RememberedStreams::default, |text| RememberedStreams::parse(&text));
            remembered.set(key, streams, now());
            write(&file, &remembered.to_text())
        });
        if let Ok(Err(error)) = written.await {
            tracing::debug!(file = %self.file.display(), %error, "the number of streams is not remembered");
        }
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

fn read(file: &Path) -> Option<String> {
    let len = std::fs::metadata(file).ok()?.len();
    (len <= MAX_BYTES).then(|| std::fs::read_to_string(file).ok())?
}

/// At one stroke: two copies that end at once leave one's file or the other's.
fn write(file: &Path, text: &str) -> std::io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let temporary = folder.join(name);
    let _ = std::fs::remove_file(&temporary);
    // Never through a link that somebody left there.
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

/// Which destination, direction and routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key([u8; KEY_BYTES]);

impl Key {
    fn of(destination: &str, push: bool, routes: &[String]) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in [destination, if push { "push" } else { "pull" }]
            .into_iter()
            .chain(routes.iter().map(String::as_str))
        {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
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

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    /// Seconds since 1970.
    at: u64,
    streams: u32,
    key: Key,
}

/// What is remembered, the latest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct RememberedStreams(Vec<Entry>);

impl RememberedStreams {
    /// Lines that are not in order are left out; of another kind of file nothing is taken.
    fn parse(text: &str) -> Self {
        let mut lines = text.lines();
        if lines.next() != Some(FIRST_LINE) {
            return Self::default();
        }
        let entry = |line: &str| {
            let mut words = line.split(' ');
            let entry = Entry {
                at: words.next()?.parse().ok()?,
                streams: words
                    .next()?
                    .parse()
                    .ok()
                    .filter(|n| (1..=MAX_STREAMS).contains(n))?,
                key: Key::parse(words.next()?)?,
            };
            words.next().is_none().then_some(entry)
        };
        Self(lines.filter_map(entry).take(MAX_ENTRIES).collect())
    }

    fn to_text(&self) -> String {
        let lines = (self.0.iter()).map(|entry| format!("{} {} {}\n", entry.at, entry.streams, entry.key));
        std::iter::once(format!("{FIRST_LINE}\n")).chain(lines).collect()
    }

    fn get(&self, key: &Key, now: u64) -> Option<u32> {
        let entry = self.0.iter().find(|entry| entry.key == *key)?;
        (now.saturating_sub(entry.at) <= MAX_AGE.as_secs()).then_some(entry.streams)
    }

    fn set(&mut self, key: Key, streams: u32, at: u64) {
        self.0.retain(|entry| entry.key != key);
        self.0.insert(0, Entry { at, streams, key });
        self.0.truncate(MAX_ENTRIES);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(n: u32) -> Key {
        Key::of(&n.to_string(), true, &[])
    }

    #[test]
    fn destinations_directions_and_routes_are_told_apart() {
        let routes = |list: &[&str]| list.iter().map(|route| (*route).to_owned()).collect::<Vec<_>>();
        let keys = [
            Key::of("a:1", true, &routes(&["direct"])),
            Key::of("a:1", false, &routes(&["direct"])),
            Key::of("b:1", true, &routes(&["direct"])),
            Key::of("a:1", true, &routes(&["d:1,e:1"])),
            Key::of("a:1", true, &routes(&["d:1", "e:1"])),
        ];
        for (n, key) in keys.iter().enumerate() {
            assert!(keys[..n].iter().all(|other| other != key));
            assert_eq!(Key::parse(&key.to_string()), Some(*key));
        }
    }

    #[test]
    fn what_is_old_is_forgotten() {
        let mut remembered = RememberedStreams::default();
        remembered.set(key(1), 16, 1_000);
        let month = MAX_AGE.as_secs();
        assert_eq!(remembered.get(&key(1), 1_000 + month), Some(16));
        assert_eq!(remembered.get(&key(1), 1_001 + month), None);
        assert_eq!(remembered.get(&key(1), 0), Some(16), "a clock that went back");
    }

    #[tokio::test]
    async fn a_file_is_made_used_and_ignored_when_broken() {
        let folder = tempfile::tempdir().unwrap();
        let memory = StreamMemory {
            file: folder.path().join("state/streams"),
            destination: "store:7511".into(),
        };
        let routes = ["direct".to_owned()];
        assert_eq!(memory.recall(true, &routes).await, None);
        memory.remember(true, &routes, 16).await;
        assert_eq!(memory.recall(true, &routes).await, Some(16));
        assert_eq!(memory.recall(false, &routes).await, None);
        let files = std::fs::read_dir(folder.path().join("state")).unwrap();
        assert_eq!(files.count(), 1, "nothing temporary is left");
        std::fs::write(&memory.file, [0xff; 100]).unwrap();
        assert_eq!(memory.recall(true, &routes).await, None);
        memory.remember(true, &routes, 8).await;
        assert_eq!(memory.recall(true, &routes).await, Some(8));
        // A folder where the file should be: not remembered, and no error.
        let nowhere = StreamMemory {
            file: folder.path().to_path_buf(),
            ..memory
        };
        nowhere.remember(true, &routes, 8).await;
        assert_eq!(nowhere.recall(true, &routes).await, None);
    }

    proptest! {
        #[test]
        fn it_comes_back_as_it_was_and_is_bounded(sets in prop::collection::vec((0u32..400, 1..=MAX_STREAMS), 0..600)) {
            let mut remembered = RememberedStreams::default();
            for (at, (n, streams)) in sets.iter().enumerate() {
                remembered.set(key(*n), *streams, at as u64);
                prop_assert_eq!(remembered.get(&key(*n), at as u64), Some(*streams));
            }
            prop_assert!(remembered.0.len() <= MAX_ENTRIES);
            let text = remembered.to_text();
            prop_assert!(text.len() as u64 <= MAX_BYTES);
            prop_assert_eq!(RememberedStreams::parse(&text), remembered);
        }

        #[test]
        fn no_text_panics_or_gives_a_number_out_of_bounds(lines in "(longhaul streams 1\n)?([0-9a-f \n-]{0,60}\n){0,20}") {
            let remembered = RememberedStreams::parse(&lines);
            prop_assert!(remembered.0.iter().all(|entry| (1..=MAX_STREAMS).contains(&entry.streams)));
        }
    }
}
