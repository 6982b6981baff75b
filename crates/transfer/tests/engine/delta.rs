//! Copies of files that replace similar ones.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use longhaul_transfer::*;

use crate::harness::*;

const SIZE: usize = 6_000_000;

/// Replaces a file of the content `old` by one of the content `new`. Returns the bytes that did not
/// travel.
async fn replaced(old: &[u8], new: &[u8], pull: bool, delta: bool) -> u64 {
    let bench = Bench::new();
    let (from, to) = match pull {
        true => (bench.root("file"), bench.local("copy")),
        false => (bench.local("file"), bench.root("copy")),
    };
    std::fs::write(&from, new).unwrap();
    std::fs::write(&to, old).unwrap();
    set_mtime(&to, 1_000_000_000, 0);
    let saved = match pull {
        true => pulled(&bench, &to, delta).await,
        false => pushed(bench.pipes(), &from, "copy", delta).await,
    };
    assert!(std::fs::read(&to).unwrap() == new);
    saved
}

fn client(
    pipes: Pipes,
    request: CopyRequest,
    delta: bool,
    progress: &Arc<TransferProgress>,
) -> Client<Pipes> {
    let hello = Hello {
        delta,
        clear: false,
        ..crate::clear::hello(request)
    };
    crate::clear::client(pipes, hello, 2, progress)
}

/// Pulls `file` to `to`. Returns the bytes that did not travel.
async fn pulled(bench: &Bench, to: &Path, delta: bool) -> u64 {
    let progress = Arc::new(TransferProgress::default());
    let request = CopyRequest::Pull {
        recursive: false,
        sources: vec![rel("file")],
    };
    let client = client(bench.pipes(), request, delta, &progress);
    let options = WriteOptions {
        overwrite: true,
        ..Default::default()
    };
    let names = vec![b"file".to_vec()];
    let destination = CopyDestination::local(to, names, options, client.hello.token).unwrap();
    client.pull(destination, vec!["file".into()]).await.unwrap();
    progress.bytes_saved.load(Ordering::SeqCst)
}

/// Pushes `from` to `destination`. Returns the bytes that did not travel.
async fn pushed(pipes: Pipes, from: &Path, destination: &str, delta: bool) -> u64 {
    let progress = Arc::new(TransferProgress::default());
    let (found, names) = Sources::local(&[from.to_owned()], false).unwrap();
    let request = CopyRequest::Push {
        destination: rel(destination),
        into: false,
        overwrite: true,
        fsync: false,
        names,
    };
    let client = client(pipes, request, delta, &progress);
    client.push(found, vec!["file".into()]).await.unwrap();
    progress.bytes_saved.load(Ordering::SeqCst)
}

/// LH-COPY-62, LH-COPY-63, LH-COPY-64.
#[tokio::test(start_paused = true)]
async fn only_what_differs_travels() {
    let old = noise(SIZE, 1);
    let mut changed = old.clone();
    changed[4_000_000] ^= 1;
    let inserted = [&old[..1_000_000], b"inserted", &old[1_000_000..]].concat();
    for pull in [true, false] {
        let saved = replaced(&old, &changed, pull, true).await;
        assert!(saved > SIZE as u64 * 98 / 100, "{saved}");
        let saved = replaced(&old, &inserted, pull, true).await;
        assert!(saved > SIZE as u64 / 2, "{saved}");
    }
}

#[tokio::test(start_paused = true)]
async fn other_files_travel_whole() {
    for pull in [true, false] {
        let (old, new) = (noise(SIZE, 1), noise(SIZE / 2, 2));
        assert_eq!(replaced(&old, &new, pull, true).await, 0);
        let mut changed = old.clone();
        changed[0] ^= 1;
        assert_eq!(replaced(&old, &changed, pull, false).await, 0);
    }
}

/// Hashes of the existing file would tell a writer what it must not read.
#[tokio::test(start_paused = true)]
async fn write_only_key_gets_no_signature() {
    let bench = Bench::new();
    std::fs::create_dir(bench.root("in")).unwrap();
    let (from, to) = (bench.local("file"), bench.root("in/copy"));
    let old = noise(SIZE, 1);
    let new = [&old[..], b"appended"].concat();
    std::fs::write(&from, &new).unwrap();
    std::fs::write(&to, &old).unwrap();
    assert_eq!(pushed(bench.pipes_of(2), &from, "in/copy", true).await, 0);
    assert!(std::fs::read(&to).unwrap() == new);
}
