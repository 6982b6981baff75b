//! Receipts of copies in both directions: signed by the server, with every entry and the hashes of
//! large files.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use longhaul_filter::PathText;
use longhaul_proto::SigningKey;
use longhaul_transfer::receipt::{
    Receipt, ReceiptError, ReceiptHeader, ReceiptRecorder, RecordedEntry,
};
use longhaul_transfer::*;

use crate::harness::*;

/// A copy with a receipt, and the key that signs it for the client.
struct ReceiptBench {
    bench: Bench,
    client: SigningKey,
    server: SigningKey,
}

impl ReceiptBench {
    fn new() -> Self {
        let bench = Bench::new();
        let server = SigningKey::generate().unwrap();
        bench.server.sign_receipts(server.clone());
        Self {
            bench,
            client: SigningKey::generate().unwrap(),
            server,
        }
    }

    fn file(&self) -> PathBuf {
        self.bench.tmp.path().join("receipt")
    }

    /// Runs the copy of `s` over `pipes`, and returns its receipt.
    async fn copy(&mut self, way: Direction, pipes: Pipes) -> Receipt {
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(self.file())
            .unwrap();
        let fetch = way == Direction::Pull;
        let header = ReceiptHeader::new(Vec::new(), destination(), fetch, Vec::new());
        let recorder = Arc::new(ReceiptRecorder::new(file, &header).unwrap());
        self.bench.receipt = Some(recorder.clone());
        let options = WriteOptions::default();
        let run = match way {
            Direction::Push => {
                let sources = [self.bench.local("s")];
                self.bench.push(pipes, &sources, "d", options).await
            }
            Direction::Pull => self.bench.pull(pipes, &["s"], "d", options).await,
        };
        let manifest = *run.ok().result.as_ref().unwrap();
        recorder
            .finish(&manifest, Some(fetch), &self.client)
            .unwrap();
        Receipt::open(&self.file()).unwrap()
    }
}

fn destination() -> PathText {
    PathText(b"d".to_vec())
}

async fn entries(receipt: &mut Receipt) -> BTreeMap<String, RecordedEntry> {
    let mut entries = BTreeMap::new();
    receipt
        .for_each::<ReceiptError>(async |entry| {
            let path = String::from_utf8(entry.path.0).unwrap();
            assert!(entries.insert(path, entry.recorded).is_none());
            Ok(())
        })
        .await
        .unwrap();
    entries
}

/// The large file has a whole part and a short one.
const LARGE: usize = (1 << 26) + 12_345;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lh_copy_59_both_ends_sign_what_was_copied() {
    for way in [Direction::Push, Direction::Pull] {
        let mut bench = ReceiptBench::new();
        let (from, _) = way.endpoints(&bench.bench);
        std::fs::create_dir_all(from.join("dir")).unwrap();
        let large = noise(LARGE, 1);
        std::fs::write(from.join("large"), &large).unwrap();
        std::fs::write(from.join("dir/small"), "abc").unwrap();
        std::os::unix::fs::symlink("small", from.join("dir/link")).unwrap();
        set_mtime(&from.join("dir/small"), 1_000_000_000, 7);
        let pipes = bench.bench.pipes();
        let mut receipt = bench.copy(way, pipes).await;
        assert_eq!(receipt.client(), bench.client.public());
        let server = receipt.server().unwrap();
        assert_eq!((server.key, server.client), (bench.server.public(), key(1)));
        let entries = entries(&mut receipt).await;
        let names: Vec<&str> = entries.keys().map(String::as_str).collect();
        assert_eq!(names, ["", "dir", "dir/link", "dir/small", "large"]);
        assert!(
            matches!(&entries["dir/small"], RecordedEntry::File { size: 3, blake3, mtime, parts }
                if blake3 == blake3::hash(b"abc").as_bytes()
                    && *mtime == (1_000_000_000, 7)
                    && parts.is_empty()),
            "{:?}",
            entries["dir/small"]
        );
        let RecordedEntry::File { blake3, parts, .. } = &entries["large"] else {
            panic!("{:?}", entries["large"])
        };
        assert_eq!(blake3, blake3::hash(&large).as_bytes());
        // What the server has is compared by parts.
        let mut changed = large.clone();
        changed[(1 << 26) + 77] ^= 1;
        let place = bench.bench.root("other");
        std::fs::write(&place, &changed).unwrap();
        let found = coarse(&bench.bench, "other");
        let parts: Vec<_> = parts
            .changed(LARGE as u64, &found)
            .iter()
            .map(|part| (part.index, part.start, part.end))
            .collect();
        assert_eq!(parts, [(1, 1 << 26, LARGE as u64)]);
    }
}

/// Returns the hashes of the parts of a file beneath the server's root (LH-FILES-15).
fn coarse(bench: &Bench, name: &str) -> Vec<u8> {
    use longhaul_transfer::files::message::{FilesRequest, FilesResponse, PathBytes, SumOutcome};
    use longhaul_transfer::files::{AllowAll, Files};
    let root = store::confine::Dir::open(&bench.root("")).unwrap();
    let ask = FilesRequest::Sum {
        paths: vec![PathBytes(name.into())],
        algorithm: "blake3".parse().unwrap(),
        coarse: true,
    };
    let mut files = Files::new(Arc::new(root));
    match files.answer(&ask, &AllowAll, &false.into()) {
        FilesResponse::Sums { sums } => match &sums[..] {
            [SumOutcome::Sum { coarse, .. }] => coarse.clone().unwrap().0,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receipts_survive_lost_streams() {
    for way in [Direction::Push, Direction::Pull] {
        let mut bench = ReceiptBench::new();
        let (from, _) = way.endpoints(&bench.bench);
        std::fs::create_dir_all(&from).unwrap();
        for n in 0..40 {
            std::fs::write(from.join(format!("f{n}")), noise(200_000, n)).unwrap();
        }
        let pipes = bench.bench.pipes();
        *pipes.cuts.lock() = vec![700_000, 1_500_000, 900_000];
        let mut receipt = bench.copy(way, pipes).await;
        assert_eq!(entries(&mut receipt).await.len(), 41);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lh_copy_57_a_server_that_cannot_sign_is_told_at_once() {
    for way in [Direction::Push, Direction::Pull] {
        let mut bench = Bench::new();
        let (from, _) = way.endpoints(&bench);
        std::fs::create_dir_all(&from).unwrap();
        let file = tempfile::tempfile().unwrap();
        let header = ReceiptHeader::new(Vec::new(), destination(), false, Vec::new());
        bench.receipt = Some(Arc::new(ReceiptRecorder::new(file, &header).unwrap()));
        let options = WriteOptions::default();
        let run = match way {
            Direction::Push => {
                let sources = [bench.local("s")];
                bench.push(bench.pipes(), &sources, "d", options).await
            }
            Direction::Pull => bench.pull(bench.pipes(), &["s"], "d", options).await,
        };
        let error = run.result.unwrap_err();
        assert!(
            matches!(&error, Error::Refused(why) if why.contains("leave out --receipt")),
            "{error}"
        );
    }
}
