//! Begins or resumes a file.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::flush::FlushPolicy;
use super::format::{self, Contents, Header, MAX_JOURNAL_BYTES};
use super::log::{Log, OpenLog};
use super::names::Names;
use super::notes::Notes;
use super::{Disk, Found, Identity, Journal, Pace, ResumePoint, Storage};
use crate::error::{Failure, FailureKind};
use crate::tree_hash::{BlockHasher, Subtree, TreeHash};

/// Maximum number of attempts to open a journal that is replaced while it is being opened.
const MAX_OPEN_TRIES: u32 = 8;
/// Number of bytes per read of noted blocks.
const READ_BACK_BYTES: usize = 256 << 10;

impl<S: Storage> Journal<S> {
    /// Resumes the file that an earlier copy began of this source, or begins it. `target` is a name
    /// in the directory of `storage`. The file is `size` bytes long, in blocks of `1 << block_log2`
    /// bytes (10 to 63), even if the earlier copy used others. Of smaller blocks, those count that
    /// make up whole ones. Everything outside the [`ResumePoint`] reads as zeros. Blocking.
    ///
    /// # Errors
    /// The data file cannot be created, or the existing files cannot be read.
    /// [`FailureKind::RefusedPath`] if `target` is not a plain name.
    pub fn open_or_create(
        storage: S,
        target: &OsStr,
        identity: &Identity,
        block_log2: u8,
        size: u64,
    ) -> Result<(Self, ResumePoint), Failure> {
        let header = Header {
            data: storage.unique()?,
            identity: identity.clone(),
            target: target.as_bytes().to_vec(),
            size,
            block_log2,
        };
        if !header.has_plain_target() {
            return Err(Failure::new(FailureKind::RefusedPath));
        }
        if !header.has_blocks() {
            return Self::begin(storage, header, Log::Off);
        }
        let names = Names::of(target, identity);
        for _ in 0..MAX_OPEN_TRIES {
            let file = match storage.open_own(&names.journal())? {
                Found::Missing => return Self::begin(storage, header, Log::Absent),
                Found::Foreign => break,
                Found::Own(file) => file,
            };
            // If files cannot be locked, none is shared.
            match storage.lock(&file) {
                Ok(true) => {}
                Ok(false) => {
                    let (mut journal, resume) = Self::begin(storage, header, Log::Off)?;
                    journal.is_contested = true;
                    return Ok((journal, resume));
                }
                Err(_) => break,
            }
            if storage.is_named(&file, &names.journal())? {
                return Self::go_on(storage, header, file);
            }
        }
        Self::begin(storage, header, Log::Off)
    }

    /// Returns true if an earlier copy may have left a part of this file. [`Self::open_or_create`]
    /// returns which.
    pub fn is_there(storage: &S, target: &OsStr, identity: &Identity) -> bool {
        matches!(
            storage.open_own(&Names::of(target, identity).journal()),
            Ok(Found::Own(_))
        )
    }

    /// Begins a new data file.
    fn begin(
        storage: S,
        header: Header,
        log: Log<S::File>,
    ) -> Result<(Self, ResumePoint), Failure> {
        let name =
            Names::of(OsStr::from_bytes(&header.target), &header.identity).data(&header.data);
        let data = storage.create_new(&name)?;
        let journal = Self::new(storage, header, data, log);
        journal
            .storage
            .set_size(&journal.data, journal.header.size)?;
        let size = journal.header.size;
        Ok((
            journal,
            ResumePoint {
                subtrees: Vec::new(),
                size,
            },
        ))
    }

    /// Resumes what the locked journal `file` describes. Begins from scratch if that is not this
    /// file.
    fn go_on(storage: S, header: Header, file: S::File) -> Result<(Self, ResumePoint), Failure> {
        let names = Names::of(OsStr::from_bytes(&header.target), &header.identity);
        let Some(contents) = format::read(&storage.read(&file, MAX_JOURNAL_BYTES)?) else {
            return Self::begin(storage, header, Log::Stale(file));
        };
        let data_name = names.data(&contents.header.data);
        let Found::Own(data) = storage.open_own(&data_name)? else {
            return Self::begin(storage, header, Log::Stale(file));
        };
        let same = Header {
            data: contents.header.data,
            block_log2: contents.header.block_log2,
            ..header.clone()
        };
        if contents.header != same || storage.size(&data)? != header.size {
            storage.remove(&data_name)?;
            return Self::begin(storage, header, Log::Stale(file));
        }
        let block_log2 = header.block_log2;
        let Contents {
            header,
            tree,
            noted,
            encoder,
            valid_bytes,
        } = contents;
        let valid_bytes = valid_bytes as u64;
        if storage.size(&file)? > valid_bytes {
            // Behind a torn record may be another one, which would become valid once a new record
            // replaced the torn one. But the blocks that it lists are about to be cleared.
            storage.set_size(&file, valid_bytes)?;
        }
        // After a `kill -9`, neither the journal nor its name may be on disk yet. Appended records
        // rely on both.
        storage.sync_data(&file)?;
        storage.sync_dir()?;
        let mut open = OpenLog {
            file,
            end: valid_bytes,
            encoder,
            tree,
        };
        let proven = prove(&storage, &data, &header, &open.tree, &noted)?;
        if proven.held() > 0 {
            // Blocks that cannot be recorded are not valid the next time either. They are cleared,
            // and travel again.
            let _ = open.record(&storage, &names, &header, &proven);
        }
        let (header, open) = match header.block_log2 == block_log2 {
            true => (header, open),
            false => {
                let header = Header {
                    block_log2,
                    ..header
                };
                let open = open.in_other_blocks(&storage, &names, &header)?;
                (header, open)
            }
        };
        let resume = ResumePoint {
            subtrees: open.tree.subtrees().collect(),
            size: header.size,
        };
        let mut cleared = 0;
        for range in resume.ranges() {
            if cleared < range.start {
                storage.clear(&data, cleared, range.start)?;
            }
            cleared = range.end;
        }
        if cleared < header.size {
            storage.clear(&data, cleared, header.size)?;
        }
        Ok((Self::new(storage, header, data, Log::Open(open)), resume))
    }

    fn new(storage: S, header: Header, data: S::File, log: Log<S::File>) -> Self {
        // The lock shows a search for leftovers that the file is in use.
        let _ = storage.lock(&data);
        let target = OsStr::from_bytes(&header.target).to_owned();
        let names = Names::of(&target, &header.identity);
        Self {
            data_name: names.data(&header.data),
            names,
            replaces: storage.named(&target).ok().flatten(),
            target,
            is_contested: false,
            data,
            pace: Mutex::new(Pace {
                policy: FlushPolicy::default(),
                notes: Notes::default(),
                batch: header.tree(),
                flushing: None,
                recording: !matches!(log, Log::Off),
            }),
            syncing: Mutex::new(()),
            disk: Mutex::new(Disk {
                log,
                data_lost: None,
                data_gone: false,
            }),
            storage,
            header,
        }
    }
}

/// Returns the noted blocks that are complete and on disk. As a note promises nothing, they are
/// synced, read back and hashed. They are at most what was written between two flushes.
fn prove<S: Storage>(
    storage: &S,
    data: &S::File,
    header: &Header,
    recorded: &TreeHash,
    noted: &[Subtree],
) -> Result<TreeHash, Errno> {
    let mut proven = header.tree();
    let mut left = noted
        .iter()
        .filter(|block| !recorded.covers(block.offset))
        .peekable();
    if left.peek().is_none() || storage.sync_data(data).is_err() {
        return Ok(proven);
    }
    let mut bytes = vec![0; READ_BACK_BYTES];
    for block in left {
        if !proven.covers(block.offset)
            && reads_back(storage, data, header.size, block, &mut bytes)?
        {
            proven.insert_subtree(*block);
        }
    }
    Ok(proven)
}

/// Returns true if the file, of `size` bytes, has this subtree. `bytes` is a buffer to read into.
fn reads_back<S: Storage>(
    storage: &S,
    data: &S::File,
    size: u64,
    block: &Subtree,
    bytes: &mut [u8],
) -> Result<bool, Errno> {
    let (mut at, end) = (block.offset, block.end(size));
    let mut hasher = BlockHasher::new(at, end - at, size);
    while at < end {
        let length = (end - at).min(bytes.len() as u64);
        let Some(part) = bytes.get_mut(..length as usize) else {
            return Ok(false);
        };
        if !storage.read_back(data, part, at)? {
            return Ok(false);
        }
        hasher.update(part);
        at += length;
    }
    Ok(hasher.finish().subtree(block.offset, block.level) == *block)
}
