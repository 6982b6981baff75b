//! The receiver's account of a copy: what has arrived, what is in place, what failed.
//!
//! Everything a peer can repeat is done once: an entry that is recorded in the manifest is answered and otherwise left
//! alone, a block that is in is acknowledged and not written again. That is what lets streams die at any moment. An
//! answer goes to the stream that asked, since only that one will ask again when it is lost.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use tokio::sync::mpsc::OwnedPermit;

use crate::destination::Destination;
use crate::error::{Error, Failure, FailureKind};
use crate::frame_io::Buffers;
use crate::lock::Locked;
use crate::manifest::{Manifest, Record};
use crate::progress::{Event, Observer, Progress};
use crate::tree_hash::Hash;
use crate::wire::{Frame, Head, Meta, NO_ENTRY, Written};

mod blocks;

use blocks::ArrivingFile;

/// Entries that may wait in the manifest for one before them.
const WAITING: usize = 1 << 20;
/// Bytes of directory names kept until the end, when permissions and times are set.
const DIRECTORY_BYTES: usize = 64 * 1024 * 1024;
/// Reasons of failures kept for streams that ask again.
const REMEMBERED_FAILURES: usize = 1024;

/// What goes back for one question.
pub(crate) type Answer = (Frame, Option<Frame>);
/// The right to answer once; taking it is what limits a peer that asks and never listens.
pub(crate) type Reply = OwnedPermit<Answer>;

/// See the module.
pub(crate) struct Receiver {
    destination: Destination,
    state: Mutex<State>,
    done: Notify,
    pub buffers: Buffers,
    pub progress: Arc<Progress>,
    observer: Arc<dyn Observer>,
    label: Box<dyn Fn(&Head) -> String + Send + Sync>,
}

#[derive(Default)]
struct State {
    files: HashMap<u64, Arc<ArrivingFile>>,
    manifest: Manifest,
    failures: HashMap<u64, Failure>,
    directories: Vec<(Head, Meta)>,
    directory_bytes: usize,
    /// Whole entries being written, and who else asked for each.
    busy: HashMap<u64, Vec<Reply>>,
    end: Option<u64>,
    finishing: bool,
    done: Option<Hash>,
    /// Failures without a number, for the sender to hear before DONE.
    notes: Vec<(Head, Failure)>,
}

impl Receiver {
    pub(crate) fn new(
        destination: Destination,
        progress: Arc<Progress>,
        observer: Arc<dyn Observer>,
        label: Box<dyn Fn(&Head) -> String + Send + Sync>,
    ) -> Arc<Self> {
        let (state, done, buffers) = (Mutex::default(), Notify::new(), Buffers::default());
        Arc::new(Self {
            destination,
            state,
            done,
            buffers,
            progress,
            observer,
            label,
        })
    }

    /// Whether an entry's frame can be meant for this copy.
    pub(crate) fn check(&self, frame: &Frame) -> Result<(), Error> {
        match frame {
            Frame::Small { head, .. }
            | Frame::Directory { head, .. }
            | Frame::Symlink { head, .. }
            | Frame::Failed { head, .. } => self.check_source(head),
            Frame::FileEnd { id, .. } => self.find(*id).map(|_| ()),
            _ => Ok(()),
        }
    }

    fn check_source(&self, head: &Head) -> Result<(), Error> {
        match (head.source as usize) < self.destination.sources() {
            true => Ok(()),
            false => Err(Error::Protocol("it speaks of a source nobody named".into())),
        }
    }

    /// An entry that comes whole: SMALL, DIRECTORY, SYMLINK, FAILED. Blocking.
    pub(crate) fn entry(&self, frame: Frame, reply: Reply) {
        let (Frame::Small { head, .. }
        | Frame::Directory { head, .. }
        | Frame::Symlink { head, .. }
        | Frame::Failed { head, .. }) = &frame
        else {
            return;
        };
        let head = head.clone();
        {
            let mut state = self.state.locked();
            if state.manifest.has(head.id) {
                drop(state);
                reply.send((self.recorded(head.id), None));
                return;
            }
            if let Some(asked) = state.busy.get_mut(&head.id) {
                asked.push(reply);
                return;
            }
            state.busy.insert(head.id, vec![reply]);
        }
        let (record, content, outcome) = match &frame {
            Frame::Small { meta, hash, data, .. } => {
                let size = data.len() as u64;
                let outcome = self.write_small(&head, meta, data, hash);
                if outcome.is_ok() {
                    self.progress.bytes_done.fetch_add(size, Ordering::Relaxed);
                }
                (Record::File { size, hash }, Some((size, *hash)), outcome)
            }
            Frame::Directory { meta, .. } => (Record::Directory, None, self.make_dir(&head, meta)),
            Frame::Symlink { meta, target, .. } => {
                let place = self.destination.place(&head);
                let outcome =
                    place.and_then(|place| self.destination.write_symlink(head.id, &place, meta, target));
                (Record::Symlink { target }, None, outcome)
            }
            Frame::Failed { failure, .. } => (Record::Failed, None, Err(failure.clone())),
            _ => return,
        };
        let record = if outcome.is_ok() { record } else { Record::Failed };
        // A file that had begun to arrive in blocks and failed at its source.
        let begun = self.state.locked().files.remove(&head.id);
        if let Some(file) = begun {
            self.abandon(&file, &outcome);
        }
        self.record(&head, record, outcome.as_ref(), content);
        let asked = self.state.locked().busy.remove(&head.id).unwrap_or_default();
        for reply in asked {
            reply.send((
                Frame::Result {
                    id: head.id,
                    outcome: outcome.clone(),
                },
                None,
            ));
        }
    }

    fn write_small(&self, head: &Head, meta: &Meta, data: &[u8], hash: &Hash) -> Result<Written, Failure> {
        if blake3::hash(data) != *hash {
            return Err(Failure::new(FailureKind::Verification));
        }
        let place = self.destination.place(head)?;
        self.destination.write_small(head, &place, meta, data, hash)
    }

    fn make_dir(&self, head: &Head, meta: &Meta) -> Result<Written, Failure> {
        let cost = head.path.as_bytes().len() + size_of::<(Head, Meta)>();
        {
            let mut state = self.state.locked();
            if state.directory_bytes + cost > DIRECTORY_BYTES {
                return Err(Failure::with(
                    FailureKind::Limit,
                    "too many directories in one copy",
                ));
            }
            state.directory_bytes += cost;
        }
        let written = self.destination.make_dir(&self.destination.place(head)?)?;
        self.state.locked().directories.push((head.clone(), *meta));
        Ok(written)
    }

    /// What was said before about an entry, for a stream that asks again.
    fn recorded(&self, id: u64) -> Frame {
        let state = self.state.locked();
        let outcome = match state.failures.get(&id) {
            Some(failure) => Err(failure.clone()),
            None => Ok(Written::New),
        };
        Frame::Result { id, outcome }
    }

    fn record(
        &self,
        head: &Head,
        record: Record<'_>,
        outcome: Result<&Written, &Failure>,
        content: Option<(u64, Hash)>,
    ) {
        let mut state = self.state.locked();
        if !state.manifest.record(head.id, head.source, &head.path, record) {
            return;
        }
        if let Err(failure) = outcome
            && state.failures.len() < REMEMBERED_FAILURES
        {
            state.failures.insert(head.id, failure.clone());
        }
        drop(state);
        self.progress.entries_done.fetch_add(1, Ordering::Relaxed);
        match outcome {
            Ok(written) => {
                if content.is_some() {
                    self.progress.files_done.fetch_add(1, Ordering::Relaxed);
                }
                let (bytes, hash) = content.unzip();
                let same = *written == Written::Same;
                self.observer.event(Event::Done {
                    path: (self.label)(head),
                    bytes,
                    hash,
                    same,
                });
            }
            Err(failure) => self.failed(head, failure.clone()),
        }
    }

    fn failed(&self, head: &Head, failure: Failure) {
        self.progress.failures.fetch_add(1, Ordering::Relaxed);
        self.observer.event(Event::Failed {
            path: (self.label)(head),
            failure,
        });
    }

    /// END: how many entries there are.
    pub(crate) fn end(&self, entries: u64) {
        self.state.locked().end = Some(entries);
    }

    /// Whether a peer has left too many gaps in its numbering.
    pub(crate) fn too_scattered(&self) -> bool {
        self.state.locked().manifest.waiting() > WAITING
    }

    /// To be called after every change: when all is in place, finishes the directories and declares the copy done. Blocking.
    pub(crate) fn conclude(&self) {
        let mut state = self.state.locked();
        if state.finishing || state.end != Some(state.manifest.len()) || state.manifest.waiting() > 0 {
            return;
        }
        state.finishing = true;
        let mut directories = std::mem::take(&mut state.directories);
        drop(state);
        // What lies deeper has the higher number: its parent may be closed to us afterwards.
        directories.sort_unstable_by_key(|(head, _)| std::cmp::Reverse(head.id));
        for (head, meta) in directories {
            let finished = self
                .destination
                .place(&head)
                .and_then(|place| self.destination.finish_dir(&place, &meta));
            if let Err(failure) = finished {
                let failure = match failure.kind {
                    FailureKind::Metadata => failure,
                    _ => Failure::with(FailureKind::Metadata, failure.to_string()),
                };
                self.failed(&head, failure.clone());
                let mut state = self.state.locked();
                if state.notes.len() < REMEMBERED_FAILURES {
                    state.notes.push((Head { id: NO_ENTRY, ..head }, failure));
                }
            }
        }
        let mut state = self.state.locked();
        state.done = Some(state.manifest.hash());
        drop(state);
        self.done.notify_waiters();
    }

    /// The hash over everything, once everything is in place.
    pub(crate) fn conclusion(&self) -> Option<Hash> {
        self.state.locked().done
    }

    /// What is to be said at the end, on every stream.
    pub(crate) fn closing_frames(&self) -> Vec<Frame> {
        let state = self.state.locked();
        let Some(manifest) = state.done else {
            return Vec::new();
        };
        let notes = state.notes.iter().map(|(head, failure)| Frame::Failed {
            head: head.clone(),
            failure: failure.clone(),
        });
        notes.chain([Frame::Done { manifest }]).collect()
    }

    /// Resolves when everything is in place.
    pub(crate) async fn concluded(&self) {
        loop {
            let changed = self.done.notified();
            if self.conclusion().is_some() {
                return;
            }
            changed.await;
        }
    }
}
