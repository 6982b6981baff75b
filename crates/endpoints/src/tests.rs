//! Copies with stores in memory.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul_filter::{Filter, FilterRules};
use longhaul_transfer::local_end::LocalTarget;
use longhaul_transfer::{
    CopyDestination, CopyToken, ExistingPolicy, FailureKind, Observer, Sources, TransferEvent,
    TransferProgress, WriteOptions,
};
use object_store::memory::InMemory;
use object_store::multipart::MultipartStore;
use object_store::path::Path as Key;
use object_store::{ObjectStoreExt, PutPayload};
use tempfile::TempDir;

use crate::connect::Connection;
use crate::content::{Content, ContentSource};
use crate::copy::EndpointCopy;
use crate::error::Error;
use crate::location::EndpointPath;
use crate::reader::ObjectReader;
use crate::record::{UploadHead, UploadRecord};
use crate::request::{CopySettings, CopySources, CopyTarget};
use crate::store::Store;

const TOKEN: CopyToken = CopyToken([7; 16]);

/// Failures of entries.
#[derive(Default)]
struct Failures(Mutex<Vec<(String, FailureKind)>>);

impl Observer for Failures {
    fn event(&self, event: TransferEvent) {
        if let TransferEvent::Failed { path, failure } = event {
            self.0.lock().unwrap().push((path, failure.kind));
        }
    }
}

/// A directory here, and a store in memory.
struct World {
    directory: TempDir,
    memory: Arc<InMemory>,
    progress: Arc<TransferProgress>,
    failures: Arc<Failures>,
    options: WriteOptions,
    checksum: bool,
    requests: Option<u32>,
}

impl World {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            memory: Arc::new(InMemory::new()),
            progress: Arc::default(),
            failures: Arc::default(),
            options: WriteOptions {
                resume: true,
                ..WriteOptions::default()
            },
            checksum: false,
            requests: Some(4),
        }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, data: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, data).unwrap();
    }

    fn store(&self) -> Arc<Store> {
        Arc::new(Store::with_client(Connection {
            objects: self.memory.clone(),
            parts: Some(self.memory.clone()),
        }))
    }

    /// Returns a copy. Its counters begin at zero.
    fn copy(&mut self, from_store: bool, to_store: bool) -> EndpointCopy {
        self.progress = Arc::default();
        self.failures = Arc::default();
        let settings = CopySettings {
            requests: self.requests,
            patience: Duration::from_secs(1),
            state: Some(self.path("state")),
            progress: self.progress.clone(),
            observer: self.failures.clone(),
            token: TOKEN,
            options: self.options,
            existing: ExistingPolicy::default(),
            checksum: self.checksum,
            recursive: true,
            filter: Arc::new(Filter::new(FilterRules::default()).unwrap()),
        };
        EndpointCopy::with_stores(
            from_store.then(|| self.store()),
            to_store.then(|| self.store()),
            settings,
        )
    }

    async fn push(&mut self, source: &str, to: &str) -> Result<(), Error> {
        let (sources, names) = Sources::local(&[self.path(source)], true).unwrap();
        let to = location(to);
        let copy = self.copy(false, true);
        let target = CopyTarget::Endpoint(&to);
        copy.run(CopySources::Local(sources, names), target).await
    }

    async fn pull(&mut self, from: &str, destination: &str) -> Result<(), Error> {
        let from = [location(from)];
        let copy = self.copy(true, false);
        let names = vec![from[0].name()];
        let destination = self.path(destination);
        let target = CopyDestination::local(&destination, names, self.options, TOKEN).unwrap();
        let target = CopyTarget::Local(Box::new(LocalTarget::new(target)));
        copy.run(CopySources::Endpoint(&from), target).await
    }

    fn unchanged(&self) -> u64 {
        self.progress.files_unchanged.load(Ordering::Relaxed)
    }

    fn failures(&self) -> Vec<(String, FailureKind)> {
        self.failures.0.lock().unwrap().clone()
    }

    async fn put(&self, key: &str, data: &[u8]) {
        let payload = PutPayload::from(data.to_vec());
        self.memory
            .put(&Key::parse(key).unwrap(), payload)
            .await
            .unwrap();
    }

    async fn get(&self, key: &str) -> Vec<u8> {
        let got = self.memory.get(&Key::parse(key).unwrap()).await.unwrap();
        got.bytes().await.unwrap().to_vec()
    }

    async fn reader(&self, key: &str) -> ObjectReader {
        let store = self.store();
        let key = Key::parse(key).unwrap();
        let object = store.head(&key).await.unwrap();
        ObjectReader { store, key, object }
    }
}

fn location(text: &str) -> EndpointPath {
    EndpointPath::parse(text.as_bytes()).unwrap().unwrap()
}

fn noise(len: usize) -> Vec<u8> {
    let mut data = vec![0; len];
    blake3::Hasher::new().finalize_xof().fill(&mut data);
    data
}

fn modified(path: &Path) -> std::time::SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

#[tokio::test]
async fn trees_come_back_unchanged() {
    let mut world = World::new();
    let large = noise(20 << 20);
    world.write("tree/large", &large);
    world.write("tree/a/b#%20.txt", b"small");
    world.write("tree/a/empty", b"");
    world.push("tree", "s3://bucket/data/").await.unwrap();
    assert_eq!(world.failures(), []);
    assert!(world.get("data/tree/large").await == large);
    assert_eq!(world.get("data/tree/a/b#%20.txt").await, b"small");

    world.push("tree", "s3://bucket/data/").await.unwrap();
    assert_eq!((world.unchanged(), world.failures()), (3, vec![]));

    world.pull("s3://bucket/data/tree", "back").await.unwrap();
    assert_eq!((world.unchanged(), world.failures()), (0, vec![]));
    assert!(fs::read(world.path("back/large")).unwrap() == large);
    for name in ["large", "a/b#%20.txt", "a/empty"] {
        let (one, other) = (world.path("tree").join(name), world.path("back").join(name));
        assert_eq!(modified(&one), modified(&other), "{name}");
    }
    world.pull("s3://bucket/data/tree/.", "back").await.unwrap();
    assert_eq!((world.unchanged(), world.failures()), (3, vec![]));
}

#[tokio::test]
async fn many_small_files_come_back_unchanged() {
    let mut world = World::new();
    world.requests = None;
    let name = |number: usize| format!("{}/{number}", number % 7);
    for number in 0..1500 {
        world.write(&format!("tree/{}", name(number)), name(number).as_bytes());
    }
    world.push("tree", "s3://bucket/tree/").await.unwrap();
    world.pull("s3://bucket/tree/tree", "back").await.unwrap();
    assert_eq!((world.unchanged(), world.failures()), (0, vec![]));
    for number in 0..1500 {
        let content = fs::read(world.path("back").join(name(number))).unwrap();
        assert_eq!(content, name(number).as_bytes());
    }
    world.checksum = true;
    world.push("tree", "s3://bucket/tree/").await.unwrap();
    assert_eq!((world.unchanged(), world.failures()), (1500, vec![]));
}

#[tokio::test]
async fn differing_objects_are_replaced_only_if_asked() {
    let mut world = World::new();
    world.put("f", b"theirs").await;
    world.write("f", b"mine!");
    world.push("f", "s3://bucket/f").await.unwrap();
    assert_eq!(
        world.failures(),
        [("source".to_owned(), FailureKind::Exists)]
    );
    assert_eq!(world.get("f").await, b"theirs");
    world.options.overwrite = true;
    world.push("f", "s3://bucket/f").await.unwrap();
    assert_eq!(world.get("f").await, b"mine!");

    // The same size, stored later than the file was modified: only the content tells.
    world.put("f", b"other").await;
    world.push("f", "s3://bucket/f").await.unwrap();
    assert_eq!(world.get("f").await, b"other");
    world.checksum = true;
    world.push("f", "s3://bucket/f").await.unwrap();
    assert_eq!(
        (world.unchanged(), world.get("f").await),
        (0, b"mine!".to_vec())
    );
    world.push("f", "s3://bucket/f").await.unwrap();
    assert_eq!(world.unchanged(), 1);
}

#[tokio::test]
async fn stores_are_copied_into_each_other() {
    let mut world = World::new();
    let large = noise(17 << 20);
    world.put("from/a/large", &large).await;
    world.put("from/small", b"small").await;
    let from = [location("s3://bucket/from")];
    let to = location("s3://bucket/to");
    for unchanged in [0, 2] {
        let copy = world.copy(true, true);
        let target = CopyTarget::Endpoint(&to);
        copy.run(CopySources::Endpoint(&from), target)
            .await
            .unwrap();
        assert_eq!(world.failures(), []);
        // Once it exists, it is a directory.
        let below = if unchanged == 0 { "to" } else { "to/from" };
        assert!(world.get(&format!("{below}/a/large")).await == large);
        assert_eq!(world.get(&format!("{below}/small")).await, b"small");
    }
}

#[tokio::test]
async fn changed_and_removed_objects_are_told_apart() {
    let world = World::new();
    world.put("f", b"before").await;
    let reader = world.reader("f").await;
    assert_eq!(&reader.read(1..3).await.unwrap()[..], b"ef");
    world.put("f", b"behind").await;
    let failed = |failure: Result<_, longhaul_transfer::Failure>| failure.unwrap_err().kind;
    assert_eq!(
        failed(reader.read(0..6).await.map(drop)),
        FailureKind::Changed
    );
    let content = Content::Object(Arc::new(reader.clone()));
    assert_eq!(
        failed(content.check_unchanged().await),
        FailureKind::Changed
    );
    world.memory.delete(&reader.key).await.unwrap();
    assert_eq!(
        failed(reader.read(0..6).await.map(drop)),
        FailureKind::Vanished
    );
}

#[tokio::test]
async fn missing_objects_and_directories_are_reported() {
    let mut world = World::new();
    world.put("there/f", b"content").await;
    world.pull("s3://bucket/missing", "back").await.unwrap();
    let missing = ("s3://bucket/missing".to_owned(), FailureKind::NotFound);
    assert_eq!(world.failures().len(), 1);
    assert_eq!(world.failures()[0].1, missing.1);
    assert!(!world.path("back").exists());
}

#[tokio::test]
async fn unfinished_uploads_are_resumed() {
    let mut world = World::new();
    let data = noise(40 << 20);
    world.write("f", &data);
    let (sources, _) = Sources::local(&[world.path("f")], false).unwrap();
    let source = ContentSource::Local {
        sources: Arc::new(sources),
        source: 0,
        path: longhaul_transfer::path::RelPath::root(),
        progress: Arc::default(),
    };
    let identity = source.open().await.unwrap().identity().unwrap();
    // What an earlier copy left: the second of three parts.
    let key = Key::parse("f").unwrap();
    let upload = world.memory.create_multipart(&key).await.unwrap();
    let part = PutPayload::from(data[16 << 20..32 << 20].to_vec());
    let stored = world.memory.put_part(&key, &upload, 1, part).await.unwrap();
    let directory = world.path("state/uploads");
    let (record, left) = UploadRecord::open(&directory, "s3://bucket/f", &identity).unwrap();
    assert_eq!(left, None);
    let part_bytes = 16 << 20;
    record.begin(&UploadHead { upload, part_bytes }).unwrap();
    record.note(1, &stored.content_id).unwrap();
    drop(record);

    world.push("f", "s3://bucket/f").await.unwrap();
    assert_eq!(world.failures(), []);
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    assert_eq!(count(&world.progress.bytes_resumed), 16 << 20);
    assert_eq!(count(&world.progress.bytes_done), 40 << 20);
    assert!(world.get("f").await == data);
    assert_eq!(fs::read_dir(directory).unwrap().count(), 0);
}
