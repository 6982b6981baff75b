//! The receiver of a copy: brings the [`Ledger`] what streams carry, and takes what it asks for to
//! the store.
//!
//! What is decided is the ledger's. Here are the lock around it, the store, the account that memory
//! is taken on, and the observer. Actions are carried out without the lock, by the thread that
//! brought the event.

#![deny(clippy::indexing_slicing)] // what is read here comes from the network
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use std::marker::PhantomData;
use std::sync::{Arc, mpsc};

use parking_lot::Mutex;
use tokio::sync::mpsc::OwnedPermit;
use tokio::sync::{Notify, OwnedSemaphorePermit};

use crate::account::{Account, Held, Resource};
use crate::error::{Error, Failure, FailureKind};
use crate::frame_io::Buffers;
use crate::hole_hash::hash_block;
use crate::manifest::Record;
use crate::path::RelPath;
use crate::progress::{Event, Observer, Progress};
use crate::receive::ledger::{
    Action, Answer, Asked, Claim, Directory, EVENT_BYTES, Expected, Ledger, Parts, Rejected, Sent,
};
use crate::store::{Announced, Comparison, Destination, OnCommit, Resumed, Resumption, Store};
use crate::tree_hash::{BlockHash, Hash, Subtree};
use crate::wire::{Block, CopyInstance, Frame, Head, NO_ENTRY, Offer};
use crate::workers::blocking;

mod perform;

/// Bytes that a copy takes whatever it does, beside the names of its sources. Most are for files
/// that wait to be committed.
const COPY_BYTES: u64 = 192 * 1024;
/// Bytes that a source takes beside its name.
const SOURCE_BYTES: u64 = 256;

/// The right to answer once; taking it is what limits a peer that asks and never listens.
pub(crate) type Reply = OwnedPermit<Answer>;

/// See the module.
pub(crate) struct Receiver<S: Store = Destination> {
    store: S,
    state: Mutex<State<S>>,
    done: Notify,
    pub account: Arc<Account>,
    pub progress: Arc<Progress>,
    observer: Arc<dyn Observer>,
    label: Box<dyn Fn(&Head) -> String + Send + Sync>,
    /// Held while a file is gone on with: of several streams that describe it, one opens it.
    resuming: tokio::sync::Mutex<()>,
    /// Dropped last, when no file is open any more.
    _end: mpsc::Sender<()>,
    ended: Mutex<Option<mpsc::Receiver<()>>>,
}

struct State<S: Store> {
    ledger: Ledger<Carried<S>>,
    /// Which copy the server has said that this is to it.
    instance: Option<CopyInstance>,
    /// What this copy holds of the memory there is.
    held: Held,
    /// Bytes that the ledger has room for.
    room: u64,
}

/// What the ledger passes on.
struct Carried<S>(PhantomData<S>);

impl<S: Store> Parts for Carried<S> {
    type Asker = Reply;
    type Data = BlockData;
    type File = OpenFile<S::File>;
}

/// A file that has its place among the open ones.
struct OpenFile<F> {
    file: Option<F>,
    _place: Held,
}

/// The data of a block, and the places it takes until it is written.
pub(crate) struct BlockData {
    pub buffer: Vec<u8>,
    /// Bytes of the buffer that are the block's.
    pub len: usize,
    pub buffers: Arc<Buffers>,
    pub _in_memory: OwnedSemaphorePermit,
    pub _place: Held,
}

impl BlockData {
    fn bytes(&self) -> &[u8] {
        self.buffer.get(..self.len).unwrap_or_default()
    }
}

impl Drop for BlockData {
    fn drop(&mut self) {
        self.buffers.give(std::mem::take(&mut self.buffer));
    }
}

type Actions<S> = Vec<Action<Carried<S>>>;

impl<S: Store> Receiver<S> {
    /// Receives what was `asked` for, on `account`.
    ///
    /// # Errors
    /// [`Error::Limit`] if the account has no memory left.
    pub(crate) fn new(
        store: S,
        asked: Asked,
        account: Arc<Account>,
        progress: Arc<Progress>,
        observer: Arc<dyn Observer>,
        label: Box<dyn Fn(&Head) -> String + Send + Sync>,
    ) -> Result<Arc<Self>, Error> {
        let sources = store.sources();
        let begun_with = COPY_BYTES + store.name_bytes() + sources as u64 * SOURCE_BYTES;
        let mut held = account.take(Resource::Bookkeeping, 1)?;
        held.set_in_steps(begun_with)?;
        let state = State {
            ledger: Ledger::new(asked, sources, begun_with),
            instance: None,
            held,
            room: begun_with,
        };
        let (end, ended) = mpsc::channel();
        Ok(Arc::new(Self {
            store,
            state: Mutex::new(state),
            done: Notify::new(),
            account,
            progress,
            observer,
            label,
            resuming: tokio::sync::Mutex::default(),
            ended: Mutex::new(Some(ended)),
            _end: end,
        }))
    }

    /// What ends, as a channel without a sender, when this receiver is gone and has let go of its
    /// files. For who asks first.
    pub(crate) fn ended(&self) -> Option<mpsc::Receiver<()>> {
        self.ended.lock().take()
    }

    /// Reports something to the ledger that makes it remember no more than `EVENT_BYTES`, and
    /// `more` bytes.
    fn event_of<R>(
        &self,
        more: u64,
        event: impl FnOnce(&mut Ledger<Carried<S>>, &mut Actions<S>) -> R,
    ) -> (R, Actions<S>) {
        let mut out = Vec::new();
        let mut state = self.state.lock();
        let wanted = state.ledger.bytes() + EVENT_BYTES + more;
        let refusal = state.held.set_in_steps(wanted).err();
        if refusal.is_none() {
            state.room = wanted;
        }
        let room = state.room;
        state.ledger.give_room(room, refusal);
        let result = event(&mut state.ledger, &mut out);
        (result, out)
    }

    fn event<R>(
        &self,
        event: impl FnOnce(&mut Ledger<Carried<S>>, &mut Actions<S>) -> R,
    ) -> (R, Actions<S>) {
        self.event_of(0, event)
    }

    /// Whether an entry's frame can be meant for this copy, and is part of what was asked for. An
    /// entry that is not taken comes back as its failure.
    pub(crate) fn check(&self, frame: Frame) -> Result<Frame, Error> {
        if let Frame::FileEnd { id, .. } = frame {
            self.event(|ledger, _| ledger.is_described(id))
                .0
                .map_err(|why| self.error(why))?;
        }
        if let Frame::HardLink(link) = &frame {
            self.event(|ledger, _| ledger.admit_link(link))
                .0
                .map_err(|why| self.error(why))?;
        }
        let Some((head, sent)) = Sent::of(&frame) else {
            return Ok(frame);
        };
        let admitted = self.event(|ledger, _| ledger.admit(head, sent)).0;
        match admitted.map_err(|why| self.error(why))? {
            None => Ok(frame),
            Some(failure) => Ok(Frame::Failed {
                head: head.clone(),
                failure,
            }),
        }
    }

    fn error(&self, why: Rejected) -> Error {
        match why {
            Rejected::Protocol(what) => Error::Protocol(what.into()),
            Rejected::Limit(exhausted) => exhausted.into(),
            Rejected::NotAsked(head, what) => {
                Error::NotAsked(format!("{}: {what}", (self.label)(&head)))
            }
        }
    }

    /// Once all is in place: whether that is all of what was asked for.
    pub(crate) fn check_complete(&self) -> Result<(), Error> {
        match self.state.lock().ledger.missing() {
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

    /// An entry that comes whole (SMALL, DIRECTORY, SYMLINK, FAILED), FILE_END, OFFER or HARD_LINK;
    /// as long as somebody `is_waiting` for the answer. Blocking.
    pub(crate) fn entry(
        self: &Arc<Self>,
        frame: Frame,
        reply: Reply,
        is_waiting: &dyn Fn() -> bool,
    ) {
        let actions = match frame {
            Frame::Offer(offer) => self.claimed(Claim::Offer(&offer), reply, || {
                self.compare(&offer, is_waiting)
            }),
            Frame::HardLink(link) => {
                self.claimed(Claim::Link(&link), reply, || self.store.link(&link))
            }
            Frame::FileEnd { id, hash } => {
                // Nothing but a file that was described gets here: see `check`.
                self.event(|ledger, out| ledger.file_end(id, hash, reply, out))
                    .1
            }
            Frame::Failed { head, failure } => {
                self.event(|ledger, out| ledger.failed(&head, failure, reply, out))
                    .1
            }
            Frame::Directory { head, meta } => {
                let (wanted, mut actions) =
                    self.event(|ledger, out| ledger.entry(&head, true, reply, out));
                if wanted {
                    let made = self
                        .store
                        .make_dir(&head, &meta)
                        .map_err(Failure::at_destination);
                    let finish = made.as_ref().is_ok_and(|made| self.store.finishes(*made));
                    actions.extend(
                        self.event(|ledger, out| {
                            ledger.directory_made(&head, meta, made, finish, out)
                        })
                        .1,
                    );
                }
                actions
            }
            Frame::Small {
                head,
                meta,
                hash,
                data,
            } => {
                let (wanted, actions) =
                    self.event(|ledger, out| ledger.entry(&head, false, reply, out));
                if wanted {
                    let done = self.small_committed(head.clone(), data.len() as u64, hash);
                    match blake3::hash(&data) == hash {
                        true => self.store.write_small(&head, &meta, &data, &hash, done),
                        // LH-COPY-22.
                        false => done(Err(Failure::new(FailureKind::Verification))),
                    }
                }
                actions
            }
            Frame::Symlink { head, meta, target } => {
                let (wanted, mut actions) =
                    self.event(|ledger, out| ledger.entry(&head, false, reply, out));
                if wanted {
                    let record = Record::Symlink { target: &target };
                    let outcome = self.store.write_symlink(&head, &meta, &target);
                    let outcome = outcome.map_err(Failure::at_destination);
                    actions.extend(
                        self.event(|ledger, out| ledger.entry_written(&head, record, outcome, out))
                            .1,
                    );
                }
                actions
            }
            _ => return,
        };
        self.perform(actions);
    }

    /// What is there of a file that was offered. A server reads one file at a time to compare it
    /// for one key: to offer costs next to nothing, and to read a large file much.
    fn compare(&self, offer: &Offer, is_waiting: &dyn Fn() -> bool) -> Result<Comparison, Failure> {
        let reading = self
            .account
            .comparing
            .as_ref()
            .filter(|_| offer.hash.is_some());
        let _one_at_a_time = reading.map(|comparing| comparing.lock());
        self.store.compare(offer, is_waiting)
    }

    fn claimed(
        &self,
        claim: Claim<'_>,
        reply: Reply,
        compare: impl FnOnce() -> Result<Comparison, Failure>,
    ) -> Actions<S> {
        let (wanted, mut actions) = self.event(|ledger, out| ledger.claimed(claim, reply, out));
        if wanted {
            let compared = compare().map_err(Failure::at_destination);
            actions.extend(
                self.event(|ledger, out| ledger.compared(claim, compared, out))
                    .1,
            );
        }
        actions
    }

    /// Reports to the ledger what became of a file that came whole.
    fn small_committed(self: &Arc<Self>, head: Head, size: u64, hash: Hash) -> OnCommit {
        let receiver = self.clone();
        Box::new(move |outcome| {
            let outcome = outcome.map_err(Failure::at_destination);
            let record = Record::File { size, hash: &hash };
            let (_, actions) =
                receiver.event(|ledger, out| ledger.entry_written(&head, record, outcome, out));
            receiver.perform(actions);
        })
    }

    /// FILE: a file that will come in blocks. Nothing is created yet, but what an earlier copy has
    /// left of it is gone on with.
    pub(crate) async fn file(self: &Arc<Self>, announced: Announced) -> Result<(), Error> {
        let id = announced.head.id;
        if announced.identity.is_none() || self.event(|ledger, _| ledger.is_described(id)).0.is_ok()
        {
            return self.announce(announced, &[]);
        }
        loop {
            let one_at_a_time = self.resuming.lock().await;
            let pause = match self.resume(&announced).await? {
                Resumption::Nothing => return self.announce(announced, &[]),
                Resumption::Some((file, in_place)) => {
                    self.announce(announced, &in_place)?;
                    let (_spare, actions) =
                        self.event(|ledger, out| ledger.give_place(id, Ok(file), out));
                    self.perform(actions);
                    return Ok(());
                }
                Resumption::AskAgain(pause) => pause,
            };
            // This stream waits, and no other one that describes another file.
            drop(one_at_a_time);
            tokio::time::sleep(pause).await;
        }
    }

    fn announce(self: &Arc<Self>, announced: Announced, in_place: &[Subtree]) -> Result<(), Error> {
        let more = Ledger::<Carried<S>>::bytes_of(in_place);
        let shown = (announced.head.clone(), announced.size);
        let (result, actions) = self.event_of(more, |ledger, out| {
            ledger.announce(announced, in_place, out)
        });
        // Only of what was in place when the file was described first.
        let counted = actions.iter().map(|action| match action {
            Action::Count(bytes) => bytes.unsigned_abs(),
            _ => 0,
        });
        let bytes: u64 = counted.sum();
        self.perform(actions);
        result.map_err(|why| self.error(why))?;
        if bytes > 0 {
            self.progress.resumed(bytes);
            let (head, size) = shown;
            let path = (self.label)(&head);
            self.observer.event(Event::Resumed { path, bytes, size });
        }
        Ok(())
    }

    /// What an earlier copy has left of a file that nobody has described yet, opened.
    async fn resume(
        self: &Arc<Self>,
        announced: &Announced,
    ) -> Result<Resumption<Resumed<OpenFile<S::File>>>, Error> {
        let (receiver, file) = (self.clone(), announced.clone());
        let id = announced.head.id;
        if self.event(|ledger, _| ledger.is_described(id)).0.is_ok() {
            return Ok(Resumption::Nothing);
        }
        match blocking(move || receiver.store.may_resume(&file)).await? {
            Resumption::Some(()) => {}
            Resumption::Nothing => return Ok(Resumption::Nothing),
            Resumption::AskAgain(pause) => return Ok(Resumption::AskAgain(pause)),
        }
        // Without a place it can't be written either, which its first block will show.
        let Ok(place) = self.account.open_file().await else {
            return Ok(Resumption::Nothing);
        };
        let (receiver, file) = (self.clone(), announced.clone());
        let resumed = blocking(move || receiver.store.resume(&file)).await?;
        // What can't be gone on with is begun again, and what is wrong with it is reported then.
        match resumed {
            Ok(Resumption::Some((file, in_place))) => {
                let open = OpenFile {
                    file: Some(file),
                    _place: place,
                };
                Ok(Resumption::Some((open, in_place)))
            }
            Ok(Resumption::AskAgain(pause)) => Ok(Resumption::AskAgain(pause)),
            Ok(Resumption::Nothing) | Err(_) => Ok(Resumption::Nothing),
        }
    }

    /// The server has accepted a stream, and said which copy this is to it, if it says so.
    ///
    /// # Errors
    /// [`Error::CopyLost`] if it is another copy than before: its entries may be numbered otherwise
    /// (LH-COPY-38).
    pub(crate) fn accepted(&self, instance: Option<CopyInstance>) -> Result<(), Error> {
        let mut state = self.state.lock();
        let known = state.instance;
        state.instance = known.or(instance);
        match instance.is_some_and(|instance| state.instance != Some(instance)) {
            true => Err(Error::started_again()),
            false => Ok(()),
        }
    }

    /// HAVE: see [`Ledger::have`].
    pub(crate) fn have(&self, id: u64, from: u64) -> Option<(Frame, Option<u64>)> {
        self.state.lock().ledger.have(id, from)
    }

    /// Whether a block is what its file's description allows, and if so how large the file is; none
    /// if it has been answered for already. Waits for the file's place among those open.
    ///
    /// # Errors
    /// [`Error::Protocol`] if the block does not belong to the file.
    pub(crate) async fn expects(self: &Arc<Self>, block: &Block) -> Result<Option<u64>, Error> {
        let expected = self.event(|ledger, _| ledger.expects(block)).0;
        let Expected::Wanted { size, has_place } = expected.map_err(|why| self.error(why))? else {
            return Ok(None);
        };
        if !has_place {
            let place = self.account.open_file().await;
            let place = place.map(|place| OpenFile {
                file: None,
                _place: place,
            });
            // Another stream may have been faster.
            let (_spare, actions) =
                self.event(|ledger, out| ledger.give_place(block.id, place, out));
            self.perform(actions);
        }
        Ok(Some(size))
    }

    /// A block has arrived. Whether it is wanted; otherwise who asked is answered, now or with
    /// those who asked before.
    pub(crate) fn wants(self: &Arc<Self>, block: &Block, reply: Reply) -> bool {
        let (wanted, actions) = self.event(|ledger, out| ledger.block(block, reply, out));
        self.perform(actions);
        wanted
    }

    /// The data of a block that is wanted, of a file of `size` bytes, and its hash if that is
    /// known. Blocking; the thread that finds nobody writing the file goes on until nothing waits
    /// to be written to it.
    ///
    /// Of a block in the clear the sender has `said` what it hashes to, where nobody could change
    /// it: another hash fails the file, and nothing of the block is written (LH-COPY-44).
    pub(crate) fn block(
        self: &Arc<Self>,
        block: Block,
        data: BlockData,
        size: u64,
        hash: Option<BlockHash>,
        said: Option<BlockHash>,
    ) {
        let hash = hash.unwrap_or_else(|| hash_block(&block, data.bytes(), size));
        let (_, actions) = match said.is_none_or(|said| said == hash) {
            true => self.event(|ledger, out| ledger.block_hashed(block, hash, data, out)),
            false => self.event(|ledger, out| ledger.block_changed(block.id, out)),
        };
        self.perform(actions);
    }

    /// END: how many entries there are. Whether [`Self::finish`] is to be called.
    pub(crate) fn end(&self, entries: u64) -> Result<Option<Finish<S>>, Error> {
        let (result, actions) = self.event(|ledger, out| ledger.end(entries, out));
        result.map_err(|why| self.error(why))?;
        Ok((!actions.is_empty()).then_some(Finish(actions)))
    }

    /// What END has left to be done. Blocking.
    pub(crate) fn finish(self: &Arc<Self>, finish: Finish<S>) {
        self.perform(finish.0);
    }

    /// The hash over everything, once everything is in place.
    pub(crate) fn conclusion(&self) -> Option<Hash> {
        self.state.lock().ledger.conclusion()
    }

    /// What is to be said at the end, on every stream.
    pub(crate) fn closing_frames(&self) -> Vec<Frame> {
        self.state.lock().ledger.closing_frames()
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

/// What the end of a copy has left to be done.
pub(crate) struct Finish<S: Store>(Actions<S>);

impl<S: Store> Drop for Receiver<S> {
    /// A copy that ended early: what it made is left as the sender had it, for the next one to
    /// fill.
    fn drop(&mut self) {
        let state = self.state.get_mut();
        // Before their directories may be closed to us.
        state.ledger.drop_files();
        for Directory { head, meta, made } in state.ledger.unfinished() {
            self.store.leave_dir(&head, made, &meta);
        }
    }
}

#[cfg(test)]
mod tests;
