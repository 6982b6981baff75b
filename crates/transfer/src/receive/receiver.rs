//! The receiver's account of a copy: what has arrived, what is in place, what failed.
//!
//! Everything a peer can repeat is done once: an entry that is recorded in the manifest is answered and otherwise left
//! alone, a block that is in is acknowledged and not written again. That is what lets streams die at any moment. An
//! answer goes to the stream that asked, since only that one will ask again when it is lost.

#![deny(clippy::indexing_slicing)] // what is read here comes from the network
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use tokio::sync::mpsc::OwnedPermit;

use crate::account::{Account, Exhausted, Held, Resource};
use crate::error::{Error, Failure, FailureKind};
use crate::lock::Locked;
use crate::manifest::{Manifest, Record};
use crate::path::RelPath;
use crate::progress::{Event, Observer, Progress};
use crate::store::{Destination, MadeDir};
use crate::tree_hash::Hash;
use crate::wire::{Frame, Head, Meta, NO_ENTRY, Written};

mod blocks;
mod expect;

use blocks::ArrivingFile;
pub use expect::Asked;
use expect::{Expectation, Sent, Unexpected};

/// Entries that may wait in the manifest for one before them.
const WAITING: usize = 1 << 20;
/// Bytes of directory names kept until the end, when permissions and times are set.
const DIRECTORY_BYTES: usize = 64 * 1024 * 1024;
/// Reasons of failures kept for streams that ask again.
const REMEMBERED_FAILURES: usize = 1024;
/// Bytes that a record in the manifest takes while it waits for one before it.
const WAITING_BYTES: u64 = 64;
/// Bytes that a failure takes beside its words.
const FAILURE_BYTES: u64 = 128;
/// Bytes that a copy takes whatever it does, beside the names of its sources.
const COPY_BYTES: u64 = 64 * 1024;
/// Bytes that a source takes beside its name.
const SOURCE_BYTES: u64 = 256;

/// What goes back for one question.
pub(crate) type Answer = (Frame, Option<Frame>);
/// The right to answer once; taking it is what limits a peer that asks and never listens.
pub(crate) type Reply = OwnedPermit<Answer>;

/// See the module.
pub(crate) struct Receiver {
    destination: Destination,
    state: Mutex<State>,
    done: Notify,
    pub account: Arc<Account>,
    pub progress: Arc<Progress>,
    observer: Arc<dyn Observer>,
    label: Box<dyn Fn(&Head) -> String + Send + Sync>,
}

struct State {
    expectation: Expectation,
    files: HashMap<u64, Arc<ArrivingFile>>,
    /// Bytes that these take. Two threads may count up and down in either order.
    file_bytes: i64,
    manifest: Manifest,
    failures: HashMap<u64, Failure>,
    failure_bytes: u64,
    directories: Vec<(Head, Meta, MadeDir)>,
    directory_bytes: usize,
    /// What this copy holds of the memory there is, for all of the above and what it began with.
    held: Held,
    begun_with: u64,
    /// More was needed than could be had: the copy ends.
    exhausted: Option<Exhausted>,
    /// Whole entries being written, and who else asked for each.
    busy: HashMap<u64, Vec<Reply>>,
    end: Option<u64>,
    finishing: bool,
    done: Option<Hash>,
    /// Failures without a number, for the sender to hear before DONE.
    notes: Vec<(Head, Failure)>,
}

impl State {
    /// Accounts for the memory that is held now.
    fn account(&mut self) -> Result<(), Exhausted> {
        let bytes = self
            .begun_with
            .saturating_add(u64::try_from(self.file_bytes).unwrap_or(0))
            .saturating_add((self.manifest.waiting() as u64).saturating_mul(WAITING_BYTES))
            .saturating_add(self.failure_bytes)
            .saturating_add(self.directory_bytes as u64);
        self.held.set_in_steps(bytes)
    }
}

impl Receiver {
    /// Receives what was `asked` for, on `account`.
    ///
    /// # Errors
    /// [`Error::Limit`] if the account has no memory left.
    pub(crate) fn new(
        destination: Destination,
        asked: Asked,
        account: Arc<Account>,
        progress: Arc<Progress>,
        observer: Arc<dyn Observer>,
        label: Box<dyn Fn(&Head) -> String + Send + Sync>,
    ) -> Result<Arc<Self>, Error> {
        let sources = destination.sources() as u64;
        let begun_with = COPY_BYTES + destination.name_bytes() + sources * SOURCE_BYTES;
        let mut state = State {
            expectation: Expectation::new(asked, destination.sources()),
            files: HashMap::new(),
            file_bytes: 0,
            manifest: Manifest::default(),
            failures: HashMap::new(),
            failure_bytes: 0,
            directories: Vec::new(),
            directory_bytes: 0,
            held: account.take(Resource::Bookkeeping, 1)?,
            begun_with,
            exhausted: None,
            busy: HashMap::new(),
            end: None,
            finishing: false,
            done: None,
            notes: Vec::new(),
        };
        state.account()?;
        let (state, done) = (Mutex::new(state), Notify::new());
        Ok(Arc::new(Self {
            destination,
            state,
            done,
            account,
            progress,
            observer,
            label,
        }))
    }

    /// Whether an entry's frame can be meant for this copy, and is part of what was asked for. An entry that is not taken comes
    /// back as its failure.
    pub(crate) fn check(&self, frame: Frame) -> Result<Frame, Error> {
        if let Frame::FileEnd { id, .. } = frame {
            self.find(id)?;
        }
        let Some((head, sent)) = Sent::of(&frame) else {
            return Ok(frame);
        };
        let mut state = self.state.locked();
        if let Some(exhausted) = state.exhausted {
            return Err(exhausted.into());
        }
        if state.manifest.waiting() > WAITING {
            return Err(Error::Protocol("its numbering has too many gaps".into()));
        }
        if (head.source as usize) >= self.destination.sources() {
            return Err(Error::Protocol("it speaks of a source nobody named".into()));
        }
        match state.expectation.admit(head, sent) {
            Ok(()) => Ok(frame),
            Err(Unexpected::Fails(failure)) => {
                let head = head.clone();
                Ok(Frame::Failed { head, failure })
            }
            Err(Unexpected::NotAsked(what)) => {
                let label = (self.label)(head);
                Err(Error::NotAsked(format!("{label}: {what}")))
            }
        }
    }

    /// Once all is in place: whether that is all of what was asked for.
    pub(crate) fn check_complete(&self) -> Result<(), Error> {
        match self.state.locked().expectation.missing() {
            None => Ok(()),
            Some(source) => {
                let label = (self.label)(&Head {
                    id: NO_ENTRY,
                    source: source as u32,
                    path: RelPath::root(),
                });
                Err(Error::NotAsked(format!("{label}: nothing of it came")))
            }
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
        // Who said that it failed knows why.
        let answer = match &frame {
            Frame::Failed { failure, .. } => Err(Failure::new(failure.kind)),
            _ => outcome.clone(),
        };
        let record = if outcome.is_ok() { record } else { Record::Failed };
        // A file that had begun to arrive in blocks and failed at its source.
        let begun = self.take_file(head.id);
        if let Some(file) = begun {
            self.abandon(&file, &outcome);
        }
        self.record(&head, record, outcome.as_ref(), content);
        let asked = self.state.locked().busy.remove(&head.id).unwrap_or_default();
        for reply in asked {
            reply.send((
                Frame::Result {
                    id: head.id,
                    outcome: answer.clone(),
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
        let cost = head.path.as_bytes().len() + size_of::<(Head, Meta, MadeDir)>();
        {
            let mut state = self.state.locked();
            if state.directory_bytes + cost > DIRECTORY_BYTES {
                return Err(Failure::with(
                    FailureKind::Limit,
                    "too many directories in one copy",
                ));
            }
            state.directory_bytes += cost;
            if let Err(exhausted) = state.account() {
                state.directory_bytes -= cost;
                return Err(exhausted.into());
            }
        }
        let place = self.destination.place(head)?;
        let made = self.destination.make_dir(&place);
        let mut state = self.state.locked();
        match made {
            Ok(made) if self.destination.finishes(made) => {
                state.directories.push((head.clone(), *meta, made));
            }
            _ => state.directory_bytes -= cost,
        }
        Ok(match made? {
            MadeDir::New => Written::New,
            MadeDir::Kept => Written::Same,
        })
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
        // Told to whatever stream brings more.
        state.exhausted = state.account().err();
        if let Err(failure) = outcome
            && state.failures.len() < REMEMBERED_FAILURES
        {
            let bytes = FAILURE_BYTES + failure.detail.len() as u64;
            state.failure_bytes += bytes;
            match state.account() {
                Ok(()) => {
                    state.failures.insert(head.id, failure.clone());
                }
                // Who asks again hears that all is well, and at the end the two sides disagree, as they should.
                Err(_) => state.failure_bytes -= bytes,
            }
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

    /// END: how many entries there are. Whether that was not known.
    pub(crate) fn end(&self, entries: u64) -> bool {
        self.state.locked().end.replace(entries) != Some(entries)
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
        directories.sort_unstable_by_key(|(head, ..)| std::cmp::Reverse(head.id));
        for (head, meta, made) in directories {
            let finished = self
                .destination
                .place(&head)
                .and_then(|place| self.destination.finish_dir(&place, made, &meta));
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
        state.directory_bytes = 0;
        let _ = state.account();
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

impl Drop for Receiver {
    /// A copy that ended early: what it made is left as the sender had it, for the next one to fill.
    fn drop(&mut self) {
        let state = self
            .state
            .get_mut()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        for (head, meta, made) in state.directories.drain(..).rev() {
            if let Ok(place) = self.destination.place(&head) {
                let _ = self.destination.leave_dir(&place, made, &meta);
            }
        }
    }
}
