use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use longhaul_filter::{FilterRules, NameRule};
use parking_lot::Mutex;

use super::*;
use crate::local_end::{LocalEntry, RemoteListing};
use crate::progress::TransferProgress;
use crate::tree_hash::Hash;
use crate::wire::SourceIdentity;

/// Files in memory by their paths. What ends with a slash is a directory.
#[derive(Default)]
struct Memory {
    files: BTreeMap<Vec<u8>, Bytes>,
    reads: Arc<AtomicUsize>,
    checked: Arc<Mutex<Vec<Option<Hash>>>>,
}

struct MemoryFile {
    content: Bytes,
    reads: Arc<AtomicUsize>,
    checked: Arc<Mutex<Vec<Option<Hash>>>>,
}

impl RelayFile for MemoryFile {
    fn size(&self) -> u64 {
        self.content.len() as u64
    }

    fn meta(&self) -> Meta {
        Meta::new(0o644, (1, 0))
    }

    fn identity(&self) -> Option<SourceIdentity> {
        None
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes, Failure> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        Ok(self.content.slice(range.start as usize..range.end as usize))
    }

    async fn check(&self, hash: Option<Hash>) -> Result<(), Failure> {
        self.checked.lock().push(hash);
        match hash.is_none_or(|hash| hash == *blake3::hash(&self.content).as_bytes()) {
            true => Ok(()),
            false => Err(Failure::new(FailureKind::Changed)),
        }
    }
}

impl ListedTree for Memory {
    type Attributes = Option<u64>;

    fn kind(size: &Option<u64>) -> EntryKind {
        match *size {
            None => EntryKind::Directory,
            Some(bytes) => EntryKind::File {
                bytes,
                modified_ms: 1000,
            },
        }
    }

    async fn list(
        &self,
        directory: &RemoteEntry<Option<u64>>,
    ) -> Result<RemoteListing<Option<u64>>, Failure> {
        let mut above = directory.path.as_bytes().to_vec();
        if !above.is_empty() {
            above.push(b'/');
        }
        let mut listing = RemoteListing::new();
        for (path, content) in &self.files {
            let Some(rest) = path.strip_prefix(&above[..]) else {
                continue;
            };
            match rest.iter().position(|&byte| byte == b'/') {
                Some(end) => listing.insert(rest[..end].to_vec(), None),
                None => listing.insert(rest.to_vec(), Some(content.len() as u64)),
            };
        }
        Ok(listing)
    }

    async fn ignore_file(
        &self,
        directory: &RemoteEntry<Option<u64>>,
        _: &Option<u64>,
    ) -> Result<Vec<u8>, Failure> {
        let path = directory.path.child(b".longhaulignore")?;
        Ok(self.files[path.as_bytes()].to_vec())
    }
}

impl RelayTree for Memory {
    type File = MemoryFile;

    async fn describe(
        &self,
        entry: &RemoteEntry<Option<u64>>,
    ) -> Result<(Meta, LocalEntryKind), Failure> {
        let kind = match entry.attributes {
            None => LocalEntryKind::Directory,
            Some(size) => LocalEntryKind::File { size },
        };
        Ok((Meta::new(0o644, (1, 0)), kind))
    }

    async fn open(&self, _: u32, path: &RelPath) -> Result<MemoryFile, Failure> {
        let content = self.files.get(path.as_bytes());
        Ok(MemoryFile {
            content: content.ok_or(Failure::new(FailureKind::Vanished))?.clone(),
            reads: self.reads.clone(),
            checked: self.checked.clone(),
        })
    }
}

fn filter(rules: FilterRules) -> Arc<Filter> {
    Arc::new(Filter::new(rules).unwrap())
}

fn sources(memory: &Arc<Memory>, rules: FilterRules) -> Sources {
    let root = RemoteEntry {
        source: 0,
        path: RelPath::root(),
        attributes: None,
    };
    let missing = Err(Failure::new(FailureKind::NotFound));
    Sources::relayed(memory.clone(), vec![Ok(root), missing], filter(rules))
}

/// Walks sources on a thread that may block.
async fn walk(sources: Arc<Sources>) -> Vec<String> {
    let walk = tokio::task::spawn_blocking(move || {
        let found = Mutex::new(Vec::new());
        sources.for_each(&TransferProgress::default(), &|entry: LocalEntry| {
            let failure = match entry.kind {
                LocalEntryKind::Failed(failure) => format!(" {:?}", failure.kind),
                _ => String::new(),
            };
            let line = format!("{} {}{failure}", entry.source, entry.path);
            found.lock().push(line);
            true
        });
        found.into_inner()
    });
    walk.await.unwrap()
}

#[tokio::test]
async fn walk_has_one_order_and_its_filter() {
    let files = ["b/x", "a", "b/c/y", "z", "d/.longhaulignore", "d/t.tmp"];
    let content = |name: &str| match name.ends_with("ignore") {
        true => Bytes::from_static(b"*.tmp\n"),
        false => Bytes::from_static(b"content"),
    };
    let memory = Arc::new(Memory {
        files: files
            .iter()
            .map(|name| (name.as_bytes().to_vec(), content(name)))
            .collect(),
        ..Memory::default()
    });
    let rules = FilterRules {
        names: vec![NameRule::exclude(b"z".to_vec())],
        ignore_files: true,
        ..FilterRules::default()
    };
    let sources = Arc::new(sources(&memory, rules));
    let expected = [
        "0 .",
        "0 a",
        "0 b",
        "0 b/x",
        "0 b/c",
        "0 b/c/y",
        "0 d",
        "0 d/.longhaulignore",
        "1 . NotFound",
    ];
    // A copy that replaces a lost one walks again.
    assert_eq!(walk(sources.clone()).await, expected);
    assert_eq!(walk(sources).await, expected);
}

#[tokio::test]
async fn ranges_are_read_once_and_hashed() {
    let len = 6 * RELAY_RANGE_BYTES as usize + 7;
    let content: Vec<u8> = (0..len).map(|at| (at / 1000) as u8).collect();
    let memory = Arc::new(Memory {
        files: [(b"f".to_vec(), content.clone().into())].into(),
        ..Memory::default()
    });
    let sources = Arc::new(sources(&memory, FilterRules::default()));
    let reading = tokio::task::spawn_blocking(move || {
        let path = RelPath::from_bytes(b"f").unwrap();
        let file = sources.open(0, &path).unwrap();
        let block = 1 << 20;
        // Two streams share the blocks of a file.
        std::thread::scope(|scope| {
            for first in [0, 1] {
                let (file, content) = (&file, &content);
                scope.spawn(move || {
                    for offset in (first * block..len).step_by(2 * block) {
                        let mut part = vec![0; block];
                        let read = file.read_at(&mut part, offset as u64).unwrap();
                        assert_eq!(read, block.min(len - offset));
                        assert!(part[..read] == content[offset..offset + read]);
                    }
                });
            }
        });
        let mut behind = [0];
        assert_eq!(file.read_at(&mut behind, len as u64).unwrap(), 0);
        (file.is_unchanged().unwrap(), blake3::hash(&content))
    });
    let (is_unchanged, hash) = reading.await.unwrap();
    assert!(is_unchanged);
    assert_eq!(memory.reads.load(Ordering::Relaxed), 7);
    assert_eq!(*memory.checked.lock(), [Some(*hash.as_bytes())]);
}

#[tokio::test]
async fn file_that_was_read_in_part_has_no_hash() {
    let content = vec![7; 3 * RELAY_RANGE_BYTES as usize];
    let memory = Arc::new(Memory {
        files: [(b"f".to_vec(), content.into())].into(),
        ..Memory::default()
    });
    let sources = Arc::new(sources(&memory, FilterRules::default()));
    let reading = tokio::task::spawn_blocking(move || {
        let path = RelPath::from_bytes(b"f").unwrap();
        let file = sources.open(0, &path).unwrap();
        let mut part = [0; 10];
        // The last range, so that nothing is read ahead.
        file.read_at(&mut part, 2 * RELAY_RANGE_BYTES).unwrap();
        file.is_unchanged().unwrap()
    });
    assert!(reading.await.unwrap());
    assert_eq!(*memory.checked.lock(), [None]);
}

#[tokio::test]
async fn prepared_files_are_opened_once() {
    let names = ["a", "b", "c"];
    let memory = Arc::new(Memory {
        files: names
            .iter()
            .map(|name| (name.as_bytes().to_vec(), Bytes::from_static(b"content")))
            .collect(),
        ..Memory::default()
    });
    let sources = Arc::new(sources(&memory, FilterRules::default()));
    let reading = tokio::task::spawn_blocking(move || {
        let heads = names.map(|name| EntryHead {
            id: 0,
            source: 0,
            path: RelPath::from_bytes(name.as_bytes()).unwrap(),
        });
        let missing = EntryHead {
            id: 0,
            source: 0,
            path: RelPath::from_bytes(b"none").unwrap(),
        };
        let all = heads.iter().chain([&missing]);
        sources.source().prepare(&mut all.clone());
        for head in heads.iter().rev() {
            let file = sources.source().open(head).unwrap();
            let mut content = [0; 10];
            assert_eq!(file.read_at(&mut content, 0).unwrap(), 7);
            assert_eq!(&content[..7], b"content");
            assert!(file.is_unchanged().unwrap());
        }
        let failed = sources.source().open(&missing).err().unwrap();
        assert_eq!(failed.kind, FailureKind::Vanished);
    });
    reading.await.unwrap();
    assert_eq!(memory.reads.load(Ordering::Relaxed), 3);
}
