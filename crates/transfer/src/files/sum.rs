//! Computes checksums of files where they are, on several threads (LH-FILES-14).
//!
//! All threads take their work from one queue. A large file is split into segments that several of
//! them read at once, if the values of segments can be joined. Any other file is the work of one.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use blake3::hazmat::ChainingValue;
use longhaul_checksum::{Algorithm, Checksum, Hasher};
use longhaul_platform::fs::{self, Stat};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;

use super::message::{FilesFailure, FilesFailureKind, PathBytes, SumOutcome};
use crate::full_read::read_full_at;
use crate::path::RelPath;
use crate::store::confine::{Dir, NodeKind, kind_of};
use crate::store::journal::Identity;

mod split;

use split::{SEGMENT_BYTES, SplitFile, is_split};

/// Maximum number of files in one question (LH-FILES-14).
pub const MAX_SUMMED_FILES: usize = 256;
/// Maximum number of bytes of coarse hashes in an answer, which holds those of any one file.
const MAX_COARSE_BYTES: usize = 512 << 10;
/// Time after which no further file is begun, so that the first results of many large files arrive
/// before the last.
const MAX_BEGIN_TIME: Duration = Duration::from_secs(2);

/// A file of a question: where it is, and how it was asked for.
pub(super) struct SummedFile<'a> {
    pub place: Result<RelPath, FilesFailure>,
    pub path: &'a PathBytes,
}

/// Checksum of a file.
struct FileSum {
    sum: Checksum,
    size: u64,
    /// Hashes of its coarse subtrees, in order (LH-FILES-15).
    coarse: Vec<ChainingValue>,
}

/// Request for checksums.
#[derive(Clone, Copy)]
pub(super) struct SumRequest {
    pub algorithm: Algorithm,
    /// If true, hashes of coarse subtrees are returned, too.
    pub coarse: bool,
}

/// Computes the checksums of the first of the files beneath `root`, at least of one, on at most
/// `threads` threads. Once `stop` is set, work ends early and the outcomes are failures.
pub(super) fn sum_files(
    root: &Dir,
    files: &[SummedFile<'_>],
    request: SumRequest,
    threads: usize,
    stop: &AtomicBool,
) -> Vec<SumOutcome> {
    let queue = SumQueue {
        root,
        files,
        request,
        stop,
        begun: Instant::now(),
        state: Mutex::new(QueueState::default()),
        opened: Condvar::new(),
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // With fewer threads than planned, the work takes longer.
            let _ = std::thread::Builder::new().spawn_scoped(scope, || queue.work());
        }
        queue.work();
    });
    let outcomes = queue.state.into_inner().outcomes.into_iter();
    let interrupted = |index: usize| files.get(index).map(|file| failed(file, Errno::INTR));
    let mut room = MAX_COARSE_BYTES;
    outcomes
        .enumerate()
        .filter_map(|(index, outcome)| outcome.or_else(|| interrupted(index)))
        .enumerate()
        .take_while(|(index, outcome)| {
            let bytes = coarse_bytes(outcome);
            let fits = *index == 0 || bytes <= room;
            room = room.saturating_sub(bytes);
            fits
        })
        .map(|(_, outcome)| outcome)
        .collect()
}

fn coarse_bytes(outcome: &SumOutcome) -> usize {
    match outcome {
        SumOutcome::Sum { coarse, .. } => coarse.as_ref().map_or(0, |coarse| coarse.0.len()),
        SumOutcome::Failed(_) => 0,
    }
}

struct SumQueue<'a> {
    root: &'a Dir,
    files: &'a [SummedFile<'a>],
    request: SumRequest,
    stop: &'a AtomicBool,
    begun: Instant,
    state: Mutex<QueueState>,
    /// Notified when a file has been opened, which may be split.
    opened: Condvar,
}

#[derive(Default)]
struct QueueState {
    /// Outcomes of the files that have been begun.
    outcomes: Vec<Option<SumOutcome>>,
    /// The file whose segments are being handed out, and the offset of the next one.
    split: Option<(usize, Arc<SplitFile>, u64)>,
    /// Number of files that are being opened.
    opening: usize,
}

/// Work of one thread.
enum Work {
    /// Read the next file, by its index.
    File(usize),
    /// Read a segment of the file with this index.
    Segment(usize, Arc<SplitFile>, u64),
}

impl SumQueue<'_> {
    fn work(&self) {
        let mut buffer = vec![0; SEGMENT_BYTES];
        while let Some(work) = self.next() {
            match work {
                Work::File(index) => self.begin(index, &mut buffer),
                Work::Segment(index, file, offset) => {
                    self.read_segment(index, &file, offset, &mut buffer);
                }
            }
        }
    }

    /// Returns the next piece of work. `None` if there is no more, or no more may begin.
    fn next(&self) -> Option<Work> {
        let mut state = self.state.lock();
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
            if let Some((index, file, offset)) = &mut state.split {
                let work = Work::Segment(*index, file.clone(), *offset);
                *offset += SEGMENT_BYTES as u64;
                if *offset >= file.size() {
                    state.split = None;
                }
                return Some(work);
            }
            let index = state.outcomes.len();
            let is_late = index > 0 && self.begun.elapsed() >= MAX_BEGIN_TIME;
            if index < self.files.len() && !is_late {
                state.outcomes.push(None);
                state.opening += 1;
                return Some(Work::File(index));
            }
            if state.opening == 0 {
                return None;
            }
            self.opened.wait(&mut state);
        }
    }

    /// Notes that a file has been opened, or could not be.
    fn note_opened(&self, mut state: MutexGuard<'_, QueueState>) {
        state.opening -= 1;
        drop(state);
        self.opened.notify_all();
    }

    /// Opens a file. A file that is split is offered to all threads; another one is read here.
    fn begin(&self, index: usize, buffer: &mut [u8]) {
        let Some(file) = self.files.get(index) else {
            return;
        };
        let opened = match &file.place {
            Ok(place) => OpenFile::open(self.root, place, file.path),
            Err(failure) => Err(failure.clone()),
        };
        let opened = match opened {
            Ok(opened) => opened,
            Err(failure) => {
                self.note_opened(self.state.lock());
                return self.finish(index, SumOutcome::Failed(failure));
            }
        };
        if !is_split(self.request.algorithm, opened.size()) {
            self.note_opened(self.state.lock());
            let sum = opened.sum(self.request.algorithm, buffer, self.stop);
            return self.finish(index, self.outcome(sum, file));
        }
        let split = Arc::new(SplitFile::new(opened, self.request.algorithm));
        let mut state = self.state.lock();
        if state.split.is_none() {
            state.split = Some((index, split, 0));
            return self.note_opened(state);
        }
        self.note_opened(state);
        // Another large file is being handed out. This one is read here.
        let mut offset = 0;
        while offset < split.size() && !self.stop.load(Ordering::Relaxed) {
            self.read_segment(index, &split, offset, buffer);
            offset += SEGMENT_BYTES as u64;
        }
    }

    fn read_segment(&self, index: usize, file: &SplitFile, offset: u64, buffer: &mut [u8]) {
        if let (Some(sum), Some(asked)) = (file.read(offset, buffer), self.files.get(index)) {
            self.finish(index, self.outcome(sum, asked));
        }
    }

    fn outcome(&self, sum: Result<FileSum, Errno>, file: &SummedFile<'_>) -> SumOutcome {
        match sum {
            Ok(FileSum { sum, size, coarse }) => SumOutcome::Sum {
                value: PathBytes(sum.as_bytes().to_vec()),
                size,
                coarse: self.request.coarse.then(|| PathBytes(coarse.concat())),
            },
            Err(errno) => failed(file, errno),
        }
    }

    fn finish(&self, index: usize, outcome: SumOutcome) {
        if let Some(place) = self.state.lock().outcomes.get_mut(index) {
            place.get_or_insert(outcome);
        }
    }
}

fn failed(file: &SummedFile<'_>, errno: Errno) -> SumOutcome {
    SumOutcome::Failed(match errno {
        Errno::AGAIN => FilesFailure::with_detail(
            FilesFailureKind::Io,
            file.path,
            "it changed while it was read",
        ),
        errno => FilesFailure::from_errno(errno, file.path),
    })
}

/// A regular file, as it was when it was opened.
struct OpenFile {
    fd: OwnedFd,
    stat: Stat,
}

impl OpenFile {
    fn open(root: &Dir, place: &RelPath, path: &PathBytes) -> Result<Self, FilesFailure> {
        let failed = |errno| FilesFailure::from_errno(errno, path);
        let fd = root.open_file(place).map_err(failed)?;
        let stat = fs::fstat(&fd).map_err(failed)?;
        match kind_of(&stat) {
            NodeKind::File => Ok(Self { fd, stat }),
            NodeKind::Directory => Err(failed(Errno::ISDIR)),
            NodeKind::Symlink | NodeKind::Other => Err(FilesFailure::with_detail(
                FilesFailureKind::Io,
                path,
                "not a regular file",
            )),
        }
    }

    fn size(&self) -> u64 {
        self.stat.st_size as u64
    }

    /// Reads from `offset` until `buffer` is full or the file ends. Returns the number of bytes.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
        read_full_at(&self.fd, buffer, offset)
    }

    /// Checks that the file has not changed since it was opened.
    ///
    /// # Errors
    /// `EAGAIN` if it has.
    fn check_unchanged(&self) -> Result<(), Errno> {
        let now = Identity::from_stat(&fs::fstat(&self.fd)?);
        match now == Identity::from_stat(&self.stat) {
            true => Ok(()),
            false => Err(Errno::AGAIN),
        }
    }

    /// Reads the file from its beginning to its end. Files of `/proc` have more than their size.
    fn sum(
        &self,
        algorithm: Algorithm,
        buffer: &mut [u8],
        stop: &AtomicBool,
    ) -> Result<FileSum, Errno> {
        let (mut hasher, mut size) = (Hasher::new(algorithm), 0);
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(Errno::INTR);
            }
            let read = self.read_at(buffer, size)?;
            hasher.update(buffer.get(..read).unwrap_or_default());
            size += read as u64;
            if read < buffer.len() {
                break;
            }
        }
        self.check_unchanged()?;
        Ok(FileSum {
            sum: hasher.finish(),
            size,
            coarse: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(
        root: &std::path::Path,
        names: &[&str],
        algorithm: Algorithm,
        threads: usize,
    ) -> Vec<SumOutcome> {
        let paths: Vec<PathBytes> = names.iter().map(|name| PathBytes((*name).into())).collect();
        let files: Vec<SummedFile<'_>> = paths
            .iter()
            .map(|path| SummedFile {
                place: Ok(RelPath::from_bytes(&path.0).unwrap()),
                path,
            })
            .collect();
        let root = Dir::open(root).unwrap();
        let request = SumRequest {
            algorithm,
            coarse: false,
        };
        sum_files(&root, &files, request, threads, &AtomicBool::new(false))
    }

    #[test]
    fn every_number_of_threads_gives_the_same_sums() {
        let folder = tempfile::tempdir().unwrap();
        let sizes = [0, 1, 70_000, 9 << 20, (9 << 20) + 1, 23 << 20];
        let names = ["a", "b", "c", "d", "e", "f"];
        let mut contents = Vec::new();
        for (name, size) in names.iter().zip(sizes) {
            let content: Vec<u8> = (0..size)
                .map(|n: u32| (n.wrapping_mul(n) >> 7) as u8)
                .collect();
            std::fs::write(folder.path().join(name), &content).unwrap();
            contents.push(content);
        }
        for algorithm in Algorithm::ALL {
            let expected: Vec<SumOutcome> = contents
                .iter()
                .map(|content| {
                    let mut hasher = Hasher::new(algorithm);
                    hasher.update(content);
                    SumOutcome::Sum {
                        value: PathBytes(hasher.finish().as_bytes().to_vec()),
                        size: content.len() as u64,
                        coarse: None,
                    }
                })
                .collect();
            for threads in [1, 2, 5] {
                assert_eq!(
                    sums(folder.path(), &names, algorithm, threads),
                    expected,
                    "{algorithm} on {threads} threads"
                );
            }
        }
    }

    #[test]
    fn other_entries_fail_alone() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("dir")).unwrap();
        std::fs::write(folder.path().join("file"), "x").unwrap();
        std::os::unix::fs::symlink("file", folder.path().join("link")).unwrap();
        let names = ["absent", "dir", "link", "file"];
        let found = sums(folder.path(), &names, Algorithm::Md5, 2);
        let kinds: Vec<Option<FilesFailureKind>> = found
            .iter()
            .map(|outcome| match outcome {
                SumOutcome::Failed(failure) => Some(failure.kind),
                SumOutcome::Sum { .. } => None,
            })
            .collect();
        use FilesFailureKind::*;
        assert_eq!(
            kinds,
            [Some(NotFound), Some(IsDirectory), Some(RefusedPath), None]
        );
    }

    #[test]
    fn files_without_a_size_are_read_to_their_end() {
        let found = sums("/proc/self".as_ref(), &["status"], Algorithm::Sha256, 2);
        assert!(
            matches!(found[..], [SumOutcome::Sum { size: 1.., .. }]),
            "{found:?}"
        );
    }
}
