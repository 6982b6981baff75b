//! An input that can be read once, such as standard input. It is sent while it is read, as a file
//! of late size. If the receiver does not take such files, it is first stored in a temporary file.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use longhaul_platform::fs::{self, Stat};
use parking_lot::Mutex;

use super::local_tree::LocalFile;
use super::unsized_file::UnsizedFile;
use super::{Source, SourceFile};
use crate::error::{Failure, FailureKind};
use crate::metadata::reader::MetadataReader;
use crate::path::RelPath;
use crate::send::schedule::FoundEntry;
use crate::send::walk::{Growth, LateSizes, WalkSink};
use crate::wire::{EntryHead, Meta};

mod buffer;

use buffer::{BLOCK_BYTES, InputBeginning, InputBuffer};

/// Pause after which a walk that waits for input checks whether the copy is over.
const OVER_CHECK_PAUSE: Duration = Duration::from_millis(100);
/// Mode of the file at the other end: a regular file, as private as a temporary one.
const INPUT_MODE: u32 = 0o100_600;

/// Called when the input is about to be stored, because its size must be known first.
pub(crate) type OnStore = Box<dyn Fn() + Send + Sync>;

/// An input as the only source of a copy.
pub(super) struct InputSource {
    /// Input that no thread reads yet.
    unread: Mutex<Option<File>>,
    buffer: Arc<InputBuffer>,
    /// Metadata of a file that was created when the copy began.
    stat: Stat,
    metadata: Arc<MetadataReader>,
    form: Mutex<InputForm>,
    /// If true, it is sent while it is read if the receiver takes that.
    is_streamed: bool,
    on_store: OnStore,
}

/// Form in which the input is read for the copy.
enum InputForm {
    /// From the buffer.
    Buffered,
    /// As a whole: it has at most one block.
    Small(Arc<Vec<u8>>),
    /// Partly in a temporary file. The copy that stored it was lost before the end of the input.
    Storing(StoredBeginning),
    /// From a temporary file.
    Stored(OwnedFd),
}

/// The beginning of an input in a temporary file, which the buffer does not have any more.
struct StoredBeginning {
    file: File,
    /// Length in bytes.
    len: u64,
}

impl InputSource {
    /// Takes an input, of which at most `max_bytes` are kept in memory. It is always stored if
    /// there is no such bound.
    ///
    /// # Errors
    /// The input is not open.
    pub(super) fn new(
        input: File,
        max_bytes: Option<usize>,
        on_store: OnStore,
    ) -> io::Result<Self> {
        let mut stat = fs::fstat(&input)?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.unwrap_or_default();
        stat.st_mode = INPUT_MODE;
        stat.st_mtime = i64::try_from(now.as_secs()).unwrap_or(0);
        stat.st_mtime_nsec = now.subsec_nanos().into();
        stat.st_uid = rustix::process::geteuid().as_raw();
        stat.st_gid = rustix::process::getegid().as_raw();
        Ok(Self {
            unread: Mutex::new(Some(input)),
            buffer: Arc::new(InputBuffer::new(max_bytes.unwrap_or(0))),
            is_streamed: max_bytes.is_some(),
            stat,
            metadata: Arc::default(),
            form: Mutex::new(InputForm::Buffered),
            on_store,
        })
    }

    fn meta(&self) -> Meta {
        self.metadata.meta(&self.stat, None)
    }

    /// Starts to read.
    fn start(&self) -> io::Result<()> {
        let Some(input) = self.unread.lock().take() else {
            return Ok(());
        };
        let buffer = self.buffer.clone();
        let reader = std::thread::Builder::new().name("input".into());
        reader.spawn(move || buffer.fill(input))?;
        Ok(())
    }

    /// Reports the input while it is read.
    fn stream(&self, sink: &dyn WalkSink) -> bool {
        let first = BLOCK_BYTES as u64;
        if !sink.found_late(0, RelPath::root(), self.meta(), first) {
            return false;
        }
        let mut known = first;
        loop {
            let (available, is_whole) = self.buffer.wait_beyond(known, OVER_CHECK_PAUSE);
            known = known.max(available);
            match sink.grown(known, is_whole) {
                Growth::Wanted if is_whole => return true,
                Growth::Wanted => {}
                Growth::Settled => {
                    self.buffer.abandon();
                    return true;
                }
                Growth::Over => return false,
            }
        }
    }

    /// Stores the input in a temporary file without a name, and reports that.
    fn store(&self, sink: &dyn WalkSink) -> bool {
        let beginning = match std::mem::replace(&mut *self.form.lock(), InputForm::Buffered) {
            InputForm::Storing(beginning) => Ok(beginning),
            _ => {
                (self.on_store)();
                tempfile::tempfile().map(|file| StoredBeginning { file, len: 0 })
            }
        };
        let stored = beginning
            .map_err(|error| storing_failed(&error))
            .and_then(|beginning| self.read_into_file(beginning, sink));
        let stored = match stored {
            Ok(Some(stored)) => stored,
            Ok(None) => return false,
            Err(failure) => return found(sink, FoundEntry::Failed(failure), Meta::default()),
        };
        *self.form.lock() = InputForm::Stored(stored);
        self.found_stored(sink)
    }

    /// Reads the input to its end. Returns `None` if the copy is over before. What is stored then
    /// serves the next copy.
    fn read_into_file(
        &self,
        mut stored: StoredBeginning,
        sink: &dyn WalkSink,
    ) -> Result<Option<OwnedFd>, Failure> {
        let mut block = vec![0; BLOCK_BYTES];
        loop {
            let (available, is_whole) = self.buffer.wait_beyond(stored.len, OVER_CHECK_PAUSE);
            if sink.is_over() {
                *self.form.lock() = InputForm::Storing(stored);
                return Ok(None);
            }
            while stored.len < available {
                let read = self.buffer.read_at(&mut block, stored.len)?;
                let data = block.get(..read).unwrap_or_default();
                if data.is_empty() {
                    return Err(input_lost());
                }
                stored
                    .file
                    .write_all(data)
                    .map_err(|error| storing_failed(&error))?;
                self.buffer.release(stored.len);
                stored.len += read as u64;
            }
            if is_whole {
                return Ok(Some(stored.file.into()));
            }
        }
    }

    fn found_stored(&self, sink: &dyn WalkSink) -> bool {
        match self.open_current() {
            Ok(file) => {
                let size = file.size();
                found(sink, FoundEntry::File { size }, file.meta())
            }
            Err(failure) => found(sink, FoundEntry::Failed(failure), Meta::default()),
        }
    }

    fn open_current(&self) -> Result<Box<dyn SourceFile>, Failure> {
        let meta = self.meta();
        Ok(match &*self.form.lock() {
            InputForm::Buffered | InputForm::Storing(_) => Box::new(InputFile {
                buffer: self.buffer.clone(),
                meta,
            }),
            InputForm::Small(content) => Box::new(UnsizedFile::new(content.to_vec(), meta)),
            InputForm::Stored(file) => {
                let fd = rustix::io::fcntl_dupfd_cloexec(file, 0)?;
                Box::new(LocalFile::new(fd, meta)?)
            }
        })
    }
}

fn found(sink: &dyn WalkSink, found: FoundEntry, meta: Meta) -> bool {
    sink.found(0, RelPath::root(), meta, found)
}

fn input_lost() -> Failure {
    Failure::with_detail(
        FailureKind::Changed,
        "the server has lost the copy, and what it had of standard input cannot be read again: \
         repeat the whole command",
    )
}

fn storing_failed(error: &io::Error) -> Failure {
    let directory = std::env::temp_dir();
    Failure::with_detail(
        FailureKind::Io,
        format!(
            "storing standard input in {} failed: {error}",
            directory.display()
        ),
    )
}

impl Source for InputSource {
    fn walk(&self, sink: &dyn WalkSink) -> bool {
        let is_whole = match &*self.form.lock() {
            InputForm::Buffered => None,
            InputForm::Storing(_) => Some(false),
            InputForm::Small(_) | InputForm::Stored(_) => Some(true),
        };
        match is_whole {
            Some(true) => return self.found_stored(sink),
            Some(false) => return self.store(sink),
            None => {}
        }
        if !self.buffer.is_complete() {
            return found(sink, FoundEntry::Failed(input_lost()), Meta::default());
        }
        if let Err(error) = self.start() {
            let failure = Failure::with_detail(FailureKind::Io, error.to_string());
            return found(sink, FoundEntry::Failed(failure), Meta::default());
        }
        let over = || sink.is_over();
        match self.buffer.wait_beginning(OVER_CHECK_PAUSE, &over) {
            None => return false,
            Some(InputBeginning::Failed(failure)) => {
                return found(sink, FoundEntry::Failed(failure), Meta::default());
            }
            Some(InputBeginning::Whole(content)) => {
                *self.form.lock() = InputForm::Small(content);
                return self.found_stored(sink);
            }
            Some(InputBeginning::Long) => {}
        }
        let late_sizes = match self.is_streamed {
            true => sink.late_sizes(),
            false => LateSizes::Refused,
        };
        match late_sizes {
            LateSizes::Taken => self.stream(sink),
            LateSizes::Refused => self.store(sink),
            LateSizes::Over => false,
        }
    }

    fn open(&self, _head: &EntryHead) -> Result<Box<dyn SourceFile>, Failure> {
        self.open_current()
    }

    fn has_late_sizes(&self) -> bool {
        self.is_streamed
    }

    fn set_metadata(&mut self, metadata: Arc<MetadataReader>) {
        self.metadata = metadata;
    }
}

impl Drop for InputSource {
    fn drop(&mut self) {
        self.buffer.abandon();
    }
}

/// The input as a file of late size.
struct InputFile {
    buffer: Arc<InputBuffer>,
    meta: Meta,
}

impl SourceFile for InputFile {
    fn size(&self) -> u64 {
        self.buffer.size()
    }

    fn meta(&self) -> Meta {
        self.meta.clone()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Failure> {
        self.buffer.read_at(buffer, offset)
    }

    fn release(&self, offset: u64) {
        self.buffer.release(offset);
    }

    fn is_released(&self, offset: u64) -> bool {
        self.buffer.is_released(offset)
    }

    fn is_unchanged(&self) -> Result<bool, Failure> {
        Ok(true)
    }
}
