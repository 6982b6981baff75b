//! Copies of files that replace similar ones.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use longhaul_transfer::*;

use crate::harness::*;

const SIZE: usize = 6_000_000;
const WHOLE: Way = Way {
    delta: false,
    in_place: false,
};
const DELTA: Way = Way {
    delta: true,
    in_place: false,
};
const IN_PLACE: Way = Way {
    delta: true,
    in_place: true,
};

/// How a file is replaced.
#[derive(Clone, Copy)]
struct Way {
    delta: bool,
    in_place: bool,
}

/// Replaces a file of the content `old` by one of the content `new`. Returns the bytes that did not
/// travel.
async fn replaced(old: &[u8], new: &[u8], pull: bool, way: Way) -> u64 {
    let bench = Bench::new();
    let (from, to) = match pull {
        true => (bench.root("file"), bench.local("copy")),
        false => (bench.local("file"), bench.root("copy")),
    };
    std::fs::write(&from, new).unwrap();
    std::fs::write(&to, old).unwrap();
    set_mtime(&to, 1_000_000_000, 0);
    let saved = match pull {
        true => pulled(&bench, &to, way).await,
        false => pushed(bench.pipes(), &from, "copy", way).await,
    };
    assert!(std::fs::read(&to).unwrap() == new);
    saved
}

fn client(
    pipes: Pipes,
    request: CopyRequest,
    way: Way,
    progress: &Arc<TransferProgress>,
) -> Client<Pipes> {
    let hello = Hello {
        delta: way.delta,
        in_place: way.in_place,
        clear: false,
        ..crate::clear::hello(request)
    };
    crate::clear::client(pipes, hello, 2, progress)
}

/// Pulls `file` to `to`. Returns the bytes that did not travel.
async fn pulled(bench: &Bench, to: &Path, way: Way) -> u64 {
    let progress = Arc::new(TransferProgress::default());
    let request = CopyRequest::Pull {
        recursive: false,
        sources: vec![rel("file")],
    };
    let client = client(bench.pipes(), request, way, &progress);
    let options = WriteOptions {
        overwrite: true,
        in_place: way.in_place,
        ..Default::default()
    };
    let names = vec![b"file".to_vec()];
    let destination = CopyDestination::local(to, names, options, client.hello.token).unwrap();
    client.pull(destination, vec!["file".into()]).await.unwrap();
    progress.bytes_saved.load(Ordering::SeqCst)
}

/// Pushes `from` to `destination`. Returns the bytes that did not travel.
async fn pushed(pipes: Pipes, from: &Path, destination: &str, way: Way) -> u64 {
    let progress = Arc::new(TransferProgress::default());
    let (found, request) = push_request(from, destination);
    let client = client(pipes, request, way, &progress);
    client.push(found, vec!["file".into()]).await.unwrap();
    progress.bytes_saved.load(Ordering::SeqCst)
}

fn push_request(from: &Path, destination: &str) -> (Sources, CopyRequest) {
    let (found, names) = Sources::local(&[from.to_owned()], false).unwrap();
    let request = CopyRequest::Push {
        destination: rel(destination),
        into: false,
        overwrite: true,
        fsync: false,
        names,
    };
    (found, request)
}

/// LH-COPY-62, LH-COPY-63, LH-COPY-64.
#[tokio::test(start_paused = true)]
async fn only_what_differs_travels() {
    let old = noise(SIZE, 1);
    let mut changed = old.clone();
    changed[4_000_000] ^= 1;
    let inserted = [&old[..1_000_000], b"inserted", &old[1_000_000..]].concat();
    for pull in [true, false] {
        let saved = replaced(&old, &changed, pull, DELTA).await;
        assert!(saved > SIZE as u64 * 98 / 100, "{saved}");
        let saved = replaced(&old, &inserted, pull, DELTA).await;
        assert!(saved > SIZE as u64 / 2, "{saved}");
    }
}

#[tokio::test(start_paused = true)]
async fn other_files_travel_whole() {
    for pull in [true, false] {
        let (old, new) = (noise(SIZE, 1), noise(SIZE / 2, 2));
        assert_eq!(replaced(&old, &new, pull, DELTA).await, 0);
        let mut changed = old.clone();
        changed[0] ^= 1;
        assert_eq!(replaced(&old, &changed, pull, WHOLE).await, 0);
    }
}

/// LH-COPY-73, LH-COPY-74: the file stays the same one, and takes the new content and size.
#[tokio::test(start_paused = true)]
async fn files_are_overwritten_in_place() {
    use std::os::unix::fs::MetadataExt;
    let old = noise(SIZE, 1);
    let mut moved = old.clone();
    moved[4_000_000] ^= 1;
    moved.copy_within(0..1_000_000, 2_000_000);
    let longer = [&old[..], &noise(500_000, 2)].concat();
    let shorter = old[..SIZE / 2].to_vec();
    let mut sparse = old.clone();
    sparse[1_000_000..5_000_000].fill(0);
    for new in [moved, longer, shorter, sparse] {
        for pull in [true, false] {
            let bench = Bench::new();
            let (from, to) = match pull {
                true => (bench.root("file"), bench.local("copy")),
                false => (bench.local("file"), bench.root("copy")),
            };
            write_sparse(&from, &new);
            std::fs::write(&to, &old).unwrap();
            set_mtime(&to, 1_000_000_000, 0);
            let before = std::fs::metadata(&to).unwrap().ino();
            let saved = match pull {
                true => pulled(&bench, &to, IN_PLACE).await,
                false => pushed(bench.pipes(), &from, "copy", IN_PLACE).await,
            };
            assert!(std::fs::read(&to).unwrap() == new);
            let after = std::fs::metadata(&to).unwrap();
            assert_eq!(after.ino(), before);
            assert_eq!(after.mtime(), std::fs::metadata(&from).unwrap().mtime());
            assert!(saved > new.len() as u64 / 4, "{saved}");
            assert_no_temps(to.parent().unwrap());
        }
    }
}

/// LH-COPY-73: a copy that ends early leaves a mixture, which the next one completes.
#[tokio::test(start_paused = true)]
async fn a_mixture_is_completed() {
    let bench = Bench::new();
    let (from, to) = (bench.local("file"), bench.root("copy"));
    let (old, new) = (noise(SIZE, 1), noise(SIZE, 2));
    std::fs::write(&from, &new).unwrap();
    std::fs::write(&to, &old).unwrap();
    set_mtime(&to, 1_000_000_000, 0);
    let cut = Pipes {
        cuts: parking_lot::Mutex::new([&[3_000_000][..], &[0; 1000]].concat()),
        ..bench.pipes()
    };
    let progress = Arc::new(TransferProgress::default());
    let (found, request) = push_request(&from, "copy");
    let broken = client(cut, request, IN_PLACE, &progress);
    broken.push(found, vec!["file".into()]).await.unwrap_err();
    let mixture = std::fs::read(&to).unwrap();
    assert!(mixture != old && mixture != new);
    bench.server.idle().await;
    let saved = pushed(bench.pipes(), &from, "copy", IN_PLACE).await;
    assert!(std::fs::read(&to).unwrap() == new);
    assert!(saved > 1_000_000, "{saved}");
}

/// LH-COPY-73: a program with a set-ID bit never gets new content in place.
#[tokio::test(start_paused = true)]
async fn set_id_files_are_not_overwritten() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new();
    let (from, to) = (bench.local("file"), bench.root("copy"));
    let (old, new) = (noise(SIZE, 1), noise(SIZE, 2));
    std::fs::write(&from, &new).unwrap();
    std::fs::write(&to, &old).unwrap();
    set_mtime(&to, 1_000_000_000, 0);
    std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let progress = Arc::new(TransferProgress::default());
    let (found, request) = push_request(&from, "copy");
    let copy = client(bench.pipes(), request, IN_PLACE, &progress);
    copy.push(found, vec!["file".into()]).await.unwrap();
    assert_eq!(progress.failures.load(Ordering::SeqCst), 1);
    assert!(std::fs::read(&to).unwrap() == old);
}

/// A file that does not exist is created as always, and a locked one is left alone.
#[tokio::test(start_paused = true)]
async fn new_and_locked_files_are_not_overwritten() {
    use rustix::fs::{FlockOperation, flock};
    let bench = Bench::new();
    let (from, to) = (bench.local("file"), bench.root("copy"));
    let (old, new) = (noise(SIZE, 1), noise(SIZE, 2));
    std::fs::write(&from, &new).unwrap();
    pushed(bench.pipes(), &from, "copy", IN_PLACE).await;
    assert!(std::fs::read(&to).unwrap() == new);
    std::fs::write(&to, &old).unwrap();
    set_mtime(&to, 1_000_000_000, 0);
    let locked = std::fs::File::open(&to).unwrap();
    flock(&locked, FlockOperation::NonBlockingLockExclusive).unwrap();
    let progress = Arc::new(TransferProgress::default());
    let (found, request) = push_request(&from, "copy");
    let copy = client(bench.pipes(), request, IN_PLACE, &progress);
    copy.push(found, vec!["file".into()]).await.unwrap();
    assert_eq!(progress.failures.load(Ordering::SeqCst), 1);
    assert!(std::fs::read(&to).unwrap() == old);
}

/// Writes a file with holes where it has zeros.
fn write_sparse(path: &Path, content: &[u8]) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::create(path).unwrap();
    file.set_len(content.len() as u64).unwrap();
    for (number, part) in content.chunks(1 << 16).enumerate() {
        if part.iter().any(|byte| *byte != 0) {
            file.write_all_at(part, (number as u64) << 16).unwrap();
        }
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
    assert_eq!(pushed(bench.pipes_of(2), &from, "in/copy", DELTA).await, 0);
    assert!(std::fs::read(&to).unwrap() == new);
}
