//! Work into bytes: what the queue hands to a stream is read, hashed and framed here, on a blocking thread, into one
//! buffer that then goes to the stream as it is.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use rustix::fs::{self, SeekFrom, Stat};
use rustix::io::Errno;

use crate::error::{Failure, FailureKind, vanished};
use crate::lock::Locked;
use crate::send::queue::{BlockFile, Entry, Item, Queue, StreamId};
use crate::send::walk::{Found, meta_of};
use crate::store::confine::{Kind, kind_of};
use crate::tree_hash::{BlockHasher, TreeHash};
use crate::wire::{Block, Frame, MAX_PIECES, Meta, Piece, SMALL_MAX, begin_small, finish_small};

/// Files up to this many bytes go in small blocks, so that several streams share them.
const SMALL_BLOCKS_UP_TO: u64 = 16 * 1024 * 1024;
const SMALL_BLOCK_LOG2: u32 = 18;
const LARGE_BLOCK_LOG2: u32 = 20;
/// Files a stream has said FILE for, as far back as it remembers; a forgotten one is said again.
const ANNOUNCED: usize = 128;

/// A file being sent in blocks.
pub(crate) struct OpenedFile {
    fd: OwnedFd,
    /// As it was when opened: what makes "unchanged".
    stat: Stat,
    /// Bytes.
    pub size: u64,
    block_log2: u32,
    meta: Meta,
    may_have_holes: bool,
    tree: Mutex<TreeHash>,
}

impl OpenedFile {
    /// Bytes.
    pub(crate) fn block_size(&self) -> u64 {
        1 << self.block_log2
    }
}

/// What one stream has said about files so far.
#[derive(Default)]
pub(crate) struct Announced(VecDeque<u64>);

impl Announced {
    /// Whether FILE must be said now.
    fn is_new(&mut self, id: u64) -> bool {
        if self.0.contains(&id) {
            return false;
        }
        if self.0.len() == ANNOUNCED {
            self.0.pop_front();
        }
        self.0.push_back(id);
        true
    }
}

/// Reads, hashes and frames `items` for `stream`, appending to `out`. Returns how many bytes of file data that is. Blocking.
pub(crate) fn fill(
    queue: &Queue,
    stream: StreamId,
    items: &[Item],
    announced: &mut Announced,
    out: &mut Vec<u8>,
) -> u64 {
    let mut data = 0;
    for item in items {
        match item {
            Item::Entry(entry) => data += fill_entry(queue, entry, out),
            Item::Open(file) => match open(queue, file) {
                Ok(()) => {
                    queue.opened(file);
                    data += fill_block(queue, stream, file, 0, announced, out);
                }
                Err(failure) => {
                    queue.unsent(file, 0);
                    give_up(queue, stream, file, &failure, out);
                }
            },
            Item::Block(file, offset) => data += fill_block(queue, stream, file, *offset, announced, out),
            Item::FileEnd(file) => {
                if let Some((_, hash)) = file.entry.content.get() {
                    announce(file, announced, out);
                    Frame::FileEnd {
                        id: file.entry.head.id,
                        hash: *hash,
                    }
                    .encode(out);
                }
            }
            Item::Failed(entry, failure) => put_failed(entry, failure, out),
            Item::End => queue.end().encode(out),
        }
    }
    data
}

fn put_failed(entry: &Entry, failure: &Failure, out: &mut Vec<u8>) {
    Frame::Failed {
        head: entry.head.clone(),
        failure: failure.clone(),
    }
    .encode(out);
}

fn fill_entry(queue: &Queue, entry: &Arc<Entry>, out: &mut Vec<u8>) -> u64 {
    match &entry.found {
        Found::Directory => Frame::Directory {
            head: entry.head.clone(),
            meta: entry.meta,
        }
        .encode(out),
        Found::Symlink { target } => {
            Frame::Symlink {
                head: entry.head.clone(),
                meta: entry.meta,
                target: target.clone(),
            }
            .encode(out);
        }
        Found::Failed(failure) => {
            queue.entry_failed(entry, failure);
            put_failed(entry, failure, out);
        }
        Found::File { .. } => {
            let start = out.len();
            match small_file(queue, entry, out) {
                Ok(Some(len)) => return len,
                Ok(None) => {
                    out.truncate(start);
                    queue.grown(entry);
                }
                Err(failure) => {
                    out.truncate(start);
                    queue.entry_failed(entry, &failure);
                    put_failed(entry, &failure, out);
                }
            }
        }
    }
    0
}

/// A whole file as one SMALL frame; none if it has grown too large for one.
fn small_file(queue: &Queue, entry: &Arc<Entry>, out: &mut Vec<u8>) -> Result<Option<u64>, Failure> {
    let (fd, stat) = open_regular(queue, entry)?;
    let size = stat.st_size as u64;
    if size > SMALL_MAX {
        return Ok(None);
    }
    let start = begin_small(out, &entry.head, &meta_of(&stat));
    let data = out.len();
    // One byte more than there should be, to see growth.
    out.resize(data + size as usize + 1, 0);
    let got = read_full(&fd, &mut out[data..], 0)?;
    if got as u64 != size || changed(&stat, &fs::fstat(&fd)?) {
        return Err(Failure::new(FailureKind::Changed));
    }
    out.truncate(data + got);
    let hash = *blake3::hash(&out[data..]).as_bytes();
    if entry.content.get().is_some_and(|(_, before)| *before != hash) {
        // Read a second time for another stream, and no longer the same.
        return Err(Failure::new(FailureKind::Changed));
    }
    let _ = entry.content.set((size, hash));
    finish_small(out, start, data, &hash);
    Ok(Some(size))
}

fn open_regular(queue: &Queue, entry: &Entry) -> Result<(OwnedFd, Stat), Failure> {
    let (dir, path) = queue.sources.locate(&entry.head)?;
    let fd = dir.open_file(&path).map_err(vanished)?;
    let stat = fs::fstat(&fd)?;
    match kind_of(&stat) {
        Kind::File => Ok((fd, stat)),
        _ => Err(Failure::new(FailureKind::Changed)),
    }
}

fn open(queue: &Queue, file: &BlockFile) -> Result<(), Failure> {
    let (fd, stat) = open_regular(queue, &file.entry)?;
    let size = stat.st_size as u64;
    let block_log2 = if size <= SMALL_BLOCKS_UP_TO {
        SMALL_BLOCK_LOG2
    } else {
        LARGE_BLOCK_LOG2
    };
    let opened = OpenedFile {
        fd,
        size,
        block_log2,
        meta: meta_of(&stat),
        may_have_holes: (stat.st_blocks as u64).saturating_mul(512) < size,
        tree: Mutex::new(TreeHash::new(size, block_log2)),
        stat,
    };
    let _ = file.opened.set(opened);
    Ok(())
}

fn announce(file: &BlockFile, announced: &mut Announced, out: &mut Vec<u8>) {
    if let Some(opened) = file.opened.get()
        && announced.is_new(file.entry.head.id)
    {
        let head = file.entry.head.clone();
        Frame::File {
            head,
            meta: opened.meta,
            size: opened.size,
            block_log2: opened.block_log2,
        }
        .encode(out);
    }
}

/// One block, and the file's end when this was the last to be read.
fn fill_block(
    queue: &Queue,
    stream: StreamId,
    file: &Arc<BlockFile>,
    offset: u64,
    announced: &mut Announced,
    out: &mut Vec<u8>,
) -> u64 {
    let Some(opened) = file.opened.get() else { return 0 };
    if file.finished.load(Ordering::Relaxed) {
        queue.unsent(file, offset);
        return 0;
    }
    let start = out.len();
    announce(file, announced, out);
    let len = opened.block_size().min(opened.size - offset.min(opened.size));
    let mut data = 0;
    if len == 0 {
        queue.unsent(file, offset);
    } else {
        match read_block(opened, file.entry.head.id, offset, len, out) {
            Ok((hash, bytes)) => {
                data = bytes;
                opened.tree.locked().insert(offset, hash);
            }
            Err(failure) => {
                out.truncate(start);
                announced.0.retain(|id| *id != file.entry.head.id);
                queue.unsent(file, offset);
                give_up(queue, stream, file, &failure, out);
                return 0;
            }
        }
    }
    let Some(root) = opened.tree.locked().root() else {
        return data;
    };
    // All has been read; only one reader gets to say so.
    if file.entry.content.get().is_some() {
        return data;
    }
    match fs::fstat(&opened.fd) {
        Ok(now) if !changed(&opened.stat, &now) => {
            if file.entry.content.set((opened.size, root)).is_ok() {
                Frame::FileEnd {
                    id: file.entry.head.id,
                    hash: root,
                }
                .encode(out);
                queue.carries_end(file, None, stream);
            }
        }
        Ok(_) => give_up(queue, stream, file, &Failure::new(FailureKind::Changed), out),
        Err(errno) => give_up(queue, stream, file, &errno.into(), out),
    }
    data
}

/// The file can't be sent: said on this stream, remembered until answered.
fn give_up(queue: &Queue, stream: StreamId, file: &Arc<BlockFile>, failure: &Failure, out: &mut Vec<u8>) {
    put_failed(&file.entry, failure, out);
    queue.carries_end(file, Some(failure), stream);
}

fn read_block(
    opened: &OpenedFile,
    id: u64,
    offset: u64,
    len: u64,
    out: &mut Vec<u8>,
) -> Result<(crate::tree_hash::BlockHash, u64), Failure> {
    let pieces = match opened.may_have_holes {
        true => data_pieces(&opened.fd, offset, len)?,
        false => vec![Piece {
            offset: 0,
            len: len as u32,
        }],
    };
    let block = Block {
        id,
        offset,
        len: len as u32,
        pieces,
    };
    let data_len = block.data_len();
    out.reserve(64 + 8 * block.pieces.len() + data_len);
    Frame::Block(block.clone()).encode(out);
    let mut at = out.len();
    out.resize(at + data_len, 0);
    let mut hasher = BlockHasher::new(offset, len, opened.size);
    let mut hashed = 0;
    for piece in &block.pieces {
        let data = &mut out[at..at + piece.len as usize];
        if read_full(&opened.fd, data, offset + u64::from(piece.offset))? != data.len() {
            return Err(Failure::new(FailureKind::Changed));
        }
        hasher.update_zeros(u64::from(piece.offset - hashed));
        hasher.update(data);
        hashed = piece.offset + piece.len;
        at += piece.len as usize;
    }
    hasher.update_zeros(len - u64::from(hashed));
    Ok((hasher.finish(), data_len as u64))
}

/// Where data lies in `len` bytes from `offset`, by `SEEK_DATA` and `SEEK_HOLE`.
fn data_pieces(fd: &OwnedFd, offset: u64, len: u64) -> Result<Vec<Piece>, Errno> {
    let end = offset + len;
    let mut pieces = Vec::new();
    let mut at = offset;
    while at < end {
        let data = match fs::seek(fd, SeekFrom::Data(at)) {
            Ok(data) => data,
            // No data up to the file's end.
            Err(Errno::NXIO) => break,
            // A file system that can't tell: all of it is data.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                return Ok(vec![Piece {
                    offset: 0,
                    len: len as u32,
                }]);
            }
            Err(errno) => return Err(errno),
        };
        if data >= end {
            break;
        }
        let hole = match fs::seek(fd, SeekFrom::Hole(data)) {
            Ok(hole) => hole.min(end),
            Err(Errno::NXIO) => break,
            Err(errno) => return Err(errno),
        };
        if hole <= data {
            break;
        }
        // The last piece there is room for takes the rest, holes and all.
        let until = if pieces.len() + 1 == MAX_PIECES { end } else { hole };
        pieces.push(Piece {
            offset: (data - offset) as u32,
            len: (until - data) as u32,
        });
        at = until;
    }
    Ok(pieces)
}

/// Reads until `buf` is full or the file ends.
fn read_full(fd: &OwnedFd, buf: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut got = 0;
    while got < buf.len() {
        match rustix::io::pread(fd, &mut buf[got..], offset + got as u64) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(got)
}

/// Whether somebody wrote to a file between two looks. The change time is looked at because a writer can set the others back.
fn changed(before: &Stat, now: &Stat) -> bool {
    let key = |s: &Stat| {
        (
            s.st_size,
            s.st_mtime,
            s.st_mtime_nsec,
            s.st_ctime,
            s.st_ctime_nsec,
        )
    };
    key(before) != key(now)
}
