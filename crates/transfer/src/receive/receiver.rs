//! The receiver of a copy: passes what streams carry to the [`Ledger`], and performs its actions on
//! the store.
//!
//! The ledger decides. The receiver adds the lock around it, the store, the account for its memory,
//! and the observer. Actions are performed without the lock, by the thread that brought the event.

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

/// Minimum memory of a copy besides the names of its sources, in bytes. Most is for files that wait
/// to be committed.
const COPY_BYTES: u64 = 192 * 1024;
/// Memory of a source besides its name, in bytes.
const SOURCE_BYTES: u64 = 256;

/// Permit to answer once. It limits a peer that asks and never reads the answers.
pub(crate) type Reply = OwnedPermit<Answer>;

/// The receiver of a copy.
pub(crate) struct Receiver<S: Store = Destination> {
    store: S,
    state: Mutex<State<S>>,
    done: Notify,
    pub account: Arc<Account>,
    pub progress: Arc<Progress>,
    observer: Arc<dyn Observer>,
    label: Box<dyn Fn(&Head) -> String + Send + Sync>,
    /// Held while a file is being resumed, so that only one of several streams that describe it
    /// opens it.
    resuming: tokio::sync::Mutex<()>,
    /// Dropped last, when no file is open any more.
    _end: mpsc::Sender<()>,
    ended: Mutex<Option<mpsc::Receiver<()>>>,
}

struct State<S: Store> {
    ledger: Ledger<Carried<S>>,
    /// Instance of the copy that the server has reported.
    instance: Option<CopyInstance>,
    /// Memory that this copy holds on its account.
    held: Held,
    /// Memory that the ledger may use, in bytes.
    room: u64,
}

/// Types that the ledger passes on.
struct Carried<S>(PhantomData<S>);

impl<S: Store> Parts for Carried<S> {
    type Asker = Reply;
    type Data = BlockData;
    type File = OpenFile<S::File>;
}

/// A file with its permit among the open files.
struct OpenFile<F> {
    file: Option<F>,
    _place: Held,
}

/// Data of a block, and the permits that it holds until it is written.
pub(crate) struct BlockData {
    pub buffer: Vec<u8>,
    /// Bytes of the buffer that belong to the block.
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
    /// Creates the receiver of a copy that `asked` for this. Its memory is on `account`.
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

    /// Returns a channel that disconnects when this receiver is dropped and has released its files.
    /// Only the first call returns it.
    pub(crate) fn ended(&self) -> Option<mpsc::Receiver<()>> {
        self.ended.lock().take()
    }

    /// Passes an event to the ledger for which it needs at most `EVENT_BYTES` and `more` bytes of
    /// memory.
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

    /// Checks that the entry of a frame can belong to this copy, and was requested. An entry that
    /// is not accepted is replaced by its failure.
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

    /// Checks that everything requested has arrived, once all is in place.
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

    /// Handles an entry in one frame (SMALL, DIRECTORY, SYMLINK, FAILED), FILE_END, OFFER or
    /// HARD_LINK, as long as `is_waiting` says that someone waits for the answer. Blocking.
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
                // Only described files get here, as `check` ensures.
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

    /// Compares an offered file with the existing one. A server reads one file at a time for one
    /// key, because an offer is nearly free and reading a large file is not.
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

    /// Returns a callback that reports the outcome of a file in one frame to the ledger.
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

    /// Handles FILE, which describes a file that arrives in blocks. Nothing is created yet, but
    /// what an earlier copy has left of it is resumed.
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
            // This stream waits, but others that describe other files need not.
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
        // This counts only what was in place when the file was first described.
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

    /// Opens what an earlier copy has left of a file that no stream has described yet.
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
        // Without a permit, the file cannot be written either. Its first block will report that.
        let Ok(place) = self.account.open_file().await else {
            return Ok(Resumption::Nothing);
        };
        let (receiver, file) = (self.clone(), announced.clone());
        let resumed = blocking(move || receiver.store.resume(&file)).await?;
        // A file that cannot be resumed is begun again, which reports any error.
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

    /// Notes that the server has accepted a stream, and the instance of the copy if it reports one.
    ///
    /// # Errors
    /// [`Error::CopyLost`] if the instance differs from before, as its entries may be numbered
    /// differently (LH-COPY-38).
    pub(crate) fn accepted(&self, instance: Option<CopyInstance>) -> Result<(), Error> {
        let mut state = self.state.lock();
        let known = state.instance;
        state.instance = known.or(instance);
        match instance.is_some_and(|instance| state.instance != Some(instance)) {
            true => Err(Error::started_again()),
            false => Ok(()),
        }
    }

    /// Returns HAVE. See [`Ledger::have`].
    pub(crate) fn have(&self, id: u64, from: u64) -> Option<(Frame, Option<u64>)> {
        self.state.lock().ledger.have(id, from)
    }

    /// Checks a block against its file's description. Returns the size of the file, or `None` if
    /// the block has been answered already. Waits for the file's permit among the open files.
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
            // Another stream may have got a permit first.
            let (_spare, actions) =
                self.event(|ledger, out| ledger.give_place(block.id, place, out));
            self.perform(actions);
        }
        Ok(Some(size))
    }

    /// Handles an arrived block. Returns true if its data is needed. Otherwise the requester is
    /// answered now, or together with earlier ones.
    pub(crate) fn wants(self: &Arc<Self>, block: &Block, reply: Reply) -> bool {
        let (wanted, actions) = self.event(|ledger, out| ledger.block(block, reply, out));
        self.perform(actions);
        wanted
    }

    /// Handles the data of a block of a file of `size` bytes, with its hash if known. Blocking. A
    /// thread that finds no writer of the file continues until nothing waits to be written to it.
    ///
    /// For a plaintext block, `said` is the hash that the sender gave over the protected channel.
    /// If the hash differs, the file fails and nothing of the block is written (LH-COPY-44).
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

    /// Handles END, which gives the number of entries. Returns the argument for [`Self::finish`] if
    /// that must be called.
    pub(crate) fn end(&self, entries: u64) -> Result<Option<Finish<S>>, Error> {
        let (result, actions) = self.event(|ledger, out| ledger.end(entries, out));
        result.map_err(|why| self.error(why))?;
        Ok((!actions.is_empty()).then_some(Finish(actions)))
    }

    /// Performs what END requires. Blocking.
    pub(crate) fn finish(self: &Arc<Self>, finish: Finish<S>) {
        self.perform(finish.0);
    }

    /// Returns the hash over everything, once everything is in place.
    pub(crate) fn conclusion(&self) -> Option<Hash> {
        self.state.lock().ledger.conclusion()
    }

    /// Returns the frames that end every stream.
    pub(crate) fn closing_frames(&self) -> Vec<Frame> {
        self.state.lock().ledger.closing_frames()
    }

    /// Waits until everything is in place.
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

/// Actions that the end of a copy requires.
pub(crate) struct Finish<S: Store>(Actions<S>);

impl<S: Store> Drop for Receiver<S> {
    /// Leaves the directories of a copy that ended early as the source has them, for the next copy
    /// to fill.
    fn drop(&mut self) {
        let state = self.state.get_mut();
        // The directories may deny access afterwards.
        state.ledger.drop_files();
        for Directory { head, meta, made } in state.ledger.unfinished() {
            self.store.leave_dir(&head, made, &meta);
        }
    }
}

#[cfg(test)]
mod tests;
