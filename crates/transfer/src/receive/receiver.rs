//! The receiver of a copy: passes what streams carry to the [`CopyLedger`], and performs its
//! actions on the store.
//!
//! The ledger decides. The receiver adds the lock around it, the store, the account for its memory,
//! and the observer. Actions are performed without the lock, by the thread that brought the event.

#![deny(clippy::indexing_slicing)] // what is read here comes from the network
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};

use parking_lot::Mutex;
use tokio::sync::mpsc::OwnedPermit;
use tokio::sync::{Notify, OwnedSemaphorePermit};

use crate::account::{Account, Resource, ResourcePermit};
use crate::error::{Error, Failure, FailureKind};
use crate::frame_io::BufferPool;
use crate::hole_hash::hash_block;
use crate::late_size::is_late;
use crate::manifest::ManifestRecord;
use crate::path::RelPath;
use crate::progress::{NotKeptCounts, Observer, TransferProgress};
use crate::receipt::{ReceiptRole, ServerReceipt};
use crate::receive::ledger::{
    AnswerFrames, BlockClass, CopyLedger, Directory, LedgerAction, LedgerTypes, MAX_EVENT_BYTES,
    Rejection, RequestedEntries, SentKind, SkipClaim,
};
use crate::reporter::{CopyReporter, EntryLabels};
use crate::store::{
    AnnouncedFile, Comparison, CopyDestination, FileStore, OnCommit, ResumedFile, Resumption,
};
use crate::tree_hash::{BlockHash, Hash, Subtree};
use crate::wire::{Acceptance, Block, CopyInstance, EntryHead, FileOffer, Frame, Meta, NO_ENTRY};
use crate::workers::blocking;

mod existing;
mod perform;

pub(crate) use existing::AnswerLane;
use existing::ExistingFiles;

/// Minimum memory of a copy besides the names of its sources, in bytes. Most is for files that wait
/// to be committed.
const COPY_BYTES: u64 = 192 * 1024;
/// Memory of a source besides its name, in bytes.
const SOURCE_BYTES: u64 = 256;

/// Permit to answer once. It limits a peer that asks and never reads the answers.
pub(crate) type AnswerPermit = OwnedPermit<AnswerFrames>;

/// The receiver of a copy.
pub(crate) struct Receiver<S: FileStore = CopyDestination> {
    store: S,
    state: Mutex<ReceiverState<S>>,
    done: Notify,
    pub account: Arc<Account>,
    pub reporter: CopyReporter,
    existing: ExistingFiles,
    /// This end's part in the receipt, if there is one.
    pub receipt: OnceLock<ReceiptRole>,
    /// True if the size of a file may be told at its end.
    takes_late_sizes: AtomicBool,
    /// Held while a file is being resumed, so that only one of several streams that describe it
    /// opens it.
    resuming: tokio::sync::Mutex<()>,
    /// Dropped last, when no file is open any more.
    _end: mpsc::Sender<()>,
    ended: Mutex<Option<mpsc::Receiver<()>>>,
}

struct ReceiverState<S: FileStore> {
    ledger: CopyLedger<ReceiverTypes<S>>,
    /// Instance of the copy that the server has reported.
    instance: Option<CopyInstance>,
    /// Memory that this copy holds on its account.
    held: ResourcePermit,
    /// Memory that the ledger may use, in bytes.
    room: u64,
}

/// Types that the ledger passes on.
struct ReceiverTypes<S>(PhantomData<S>);

impl<S: FileStore> LedgerTypes for ReceiverTypes<S> {
    type Asker = AnswerPermit;
    type Data = BlockData;
    type File = PermittedFile<S::File>;
}

/// A file with its permit among the open files.
struct PermittedFile<F> {
    file: Option<F>,
    _permit: ResourcePermit,
}

/// Data of a block, and the permits that it holds until it is written.
pub(crate) struct BlockData {
    pub buffer: Vec<u8>,
    /// Bytes of the buffer that belong to the block.
    pub len: usize,
    pub buffers: Arc<BufferPool>,
    pub _in_memory: OwnedSemaphorePermit,
    pub _permit: ResourcePermit,
}

impl BlockData {
    fn bytes(&self) -> &[u8] {
        self.buffer.get(..self.len).unwrap_or_default()
    }
}

impl Drop for BlockData {
    fn drop(&mut self) {
        self.buffers.put_back(std::mem::take(&mut self.buffer));
    }
}

type Actions<S> = Vec<LedgerAction<ReceiverTypes<S>>>;

impl<S: FileStore> Receiver<S> {
    /// Creates the receiver of a copy that `asked` for this. Its memory is on `account`.
    ///
    /// # Errors
    /// [`Error::Limit`] if the account has no memory left.
    pub(crate) fn new(
        store: S,
        asked: RequestedEntries,
        account: Arc<Account>,
        progress: Arc<TransferProgress>,
        observer: Arc<dyn Observer>,
        labels: EntryLabels,
    ) -> Result<Arc<Self>, Error> {
        let sources = store.sources();
        let begun_with = COPY_BYTES + store.name_bytes() + sources as u64 * SOURCE_BYTES;
        let mut held = account.take(Resource::Bookkeeping, 1)?;
        held.set_in_steps(begun_with)?;
        let state = ReceiverState {
            ledger: CopyLedger::new(asked, sources, begun_with),
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
            reporter: CopyReporter {
                progress,
                observer,
                labels,
            },
            existing: ExistingFiles::default(),
            receipt: OnceLock::new(),
            takes_late_sizes: AtomicBool::new(false),
            resuming: tokio::sync::Mutex::default(),
            ended: Mutex::new(Some(ended)),
            _end: end,
        }))
    }

    /// Gives this end a part in the receipt. Must be called before any entry arrives.
    pub(crate) fn keep_receipt(&self, role: ReceiptRole) {
        if let Some(recorder) = role.recorder() {
            recorder.restart();
            self.state.lock().ledger.observe(recorder.clone());
        }
        let _ = self.receipt.set(role);
    }

    /// Takes files whose size is told at their end, if the store can (LH-COPY-79). Must be called
    /// before any entry arrives.
    pub(crate) fn take_late_sizes(&self) {
        let can = self.store.takes_late_sizes();
        self.takes_late_sizes.store(can, Ordering::Relaxed);
    }

    /// Returns true if the size of a file may be told at its end.
    pub(crate) fn takes_late_sizes(&self) -> bool {
        self.takes_late_sizes.load(Ordering::Relaxed)
    }

    /// Notes the server's signature.
    ///
    /// # Errors
    /// [`Error::Protocol`] if none was requested.
    pub(crate) fn receive_receipt(&self, receipt: ServerReceipt) -> Result<(), Error> {
        ReceiptRole::receive(&self.receipt, receipt)?;
        self.done.notify_waiters();
        Ok(())
    }

    /// Returns a channel that disconnects when this receiver is dropped and has released its files.
    /// Only the first call returns it.
    pub(crate) fn take_end_signal(&self) -> Option<mpsc::Receiver<()>> {
        self.ended.lock().take()
    }

    /// Passes an event to the ledger for which it needs at most `MAX_EVENT_BYTES` and `more` bytes
    /// of memory. Returns the actions, which the caller must perform.
    fn decide<R>(
        &self,
        more: u64,
        event: impl FnOnce(&mut CopyLedger<ReceiverTypes<S>>, &mut Actions<S>) -> R,
    ) -> (R, Actions<S>) {
        let mut out = Vec::new();
        let mut state = self.state.lock();
        let wanted = state.ledger.bytes() + MAX_EVENT_BYTES + more;
        let refusal = state.held.set_in_steps(wanted).err();
        if refusal.is_none() {
            state.room = wanted;
        }
        let room = state.room;
        state.ledger.set_room(room, refusal);
        let result = event(&mut state.ledger, &mut out);
        (result, out)
    }

    /// Passes an event to the ledger, and performs the actions ([`Self::perform`]).
    fn event<R>(
        self: &Arc<Self>,
        event: impl FnOnce(&mut CopyLedger<ReceiverTypes<S>>, &mut Actions<S>) -> R,
    ) -> R {
        let (result, actions) = self.decide(0, event);
        self.perform(actions);
        result
    }

    /// Checks that the entry of a frame can belong to this copy, and was requested. An entry that
    /// is not accepted is replaced by its failure. The metadata of others are changed as the user
    /// asks for.
    pub(crate) fn check(self: &Arc<Self>, mut frame: Frame) -> Result<Frame, Error> {
        let end = match frame {
            Frame::FileEnd { id, .. } => Some((id, None)),
            Frame::LateEnd { id, size, .. } => Some((id, Some(size))),
            _ => None,
        };
        if let Some((id, late)) = end {
            self.event(|ledger, _| ledger.admit_end(id, late))
                .map_err(|why| self.error(why))?;
        }
        if let Frame::HardLink(link) = &frame {
            self.event(|ledger, _| ledger.admit_link(link))
                .map_err(|why| self.error(why))?;
        }
        let Some((head, sent)) = SentKind::from_frame(&frame) else {
            return Ok(frame);
        };
        let admitted = self.event(|ledger, _| ledger.admit(head, sent));
        match admitted.map_err(|why| self.error(why))? {
            None => {
                if let Some((meta, kind)) = frame.meta_mut() {
                    self.store.change(meta, kind);
                }
                Ok(frame)
            }
            Some(failure) => Ok(Frame::Failed {
                head: head.clone(),
                failure,
            }),
        }
    }

    fn error(&self, why: Rejection) -> Error {
        match why {
            Rejection::Protocol(what) => Error::Protocol(what.into()),
            Rejection::Limit(exhausted) => exhausted.into(),
            Rejection::NotAsked(head, what) => {
                Error::NotAsked(format!("{}: {what}", self.reporter.label(&head)))
            }
        }
    }

    /// Checks that everything requested has arrived, once all is in place.
    pub(crate) fn check_complete(&self) -> Result<(), Error> {
        match self.state.lock().ledger.missing_source() {
            None => Ok(()),
            Some(source) => {
                let label = self.reporter.label(&EntryHead {
                    id: NO_ENTRY,
                    source: source as u32,
                    path: RelPath::root(),
                });
                Err(Error::NotAsked(format!("{label}: nothing was sent for it")))
            }
        }
    }

    /// Handles an entry in one frame (SMALL, DIRECTORY, SYMLINK, SPECIAL, FAILED), FILE_END,
    /// LATE_END, OFFER or HARD_LINK, as long as someone waits for the answer on `lane`. Blocking.
    #[allow(
        clippy::collapsible_match,
        reason = "the ledger is told in the arm, not in its guard"
    )]
    pub(crate) fn entry(
        self: &Arc<Self>,
        frame: Frame,
        reply: AnswerPermit,
        lane: &AnswerLane<'_>,
    ) {
        match frame {
            Frame::Offer(offer) => self.claimed(SkipClaim::Offer(&offer), reply, || {
                let compared = self.compare(&offer, lane.is_waiting)?;
                if compared == Comparison::Wanted {
                    self.sign_existing(&offer, lane);
                }
                Ok(compared)
            }),
            Frame::HardLink(link) => {
                self.claimed(SkipClaim::Link(&link), reply, || self.store.link(&link));
            }
            Frame::FileEnd { id, hash } => {
                // Only described files get here, as `check` ensures.
                let _ = self.event(|ledger, out| ledger.file_end(id, hash, reply, out));
            }
            Frame::LateEnd { id, size, hash } => {
                let _ = self.event(|ledger, out| {
                    ledger.late_size(id, size, out);
                    ledger.file_end(id, hash, reply, out)
                });
            }
            Frame::Failed { head, failure } => {
                self.event(|ledger, out| ledger.failed(&head, failure, reply, out));
            }
            Frame::Directory { head, meta } => {
                if self.directory(&head, &meta, reply) {
                    let made = self.store.make_dir(&head, &meta);
                    let made = made.map_err(Failure::at_destination);
                    let finish = made.as_ref().is_ok_and(|made| self.store.finishes(*made));
                    self.event(|ledger, out| ledger.directory_made(&head, meta, made, finish, out));
                }
            }
            Frame::Small {
                head,
                meta,
                hash,
                data,
            } => {
                if self.event(|ledger, out| ledger.entry(&head, None, reply, out)) {
                    let content = (data.len() as u64, hash, meta.mtime);
                    let done = self.small_committed(head.clone(), content);
                    match blake3::hash(&data) == hash {
                        true => self.store.write_small(&head, &meta, &data, &hash, done),
                        // LH-COPY-22.
                        false => done(Err(Failure::new(FailureKind::Verification))),
                    }
                }
            }
            Frame::Symlink { head, meta, target } => {
                if self.event(|ledger, out| ledger.entry(&head, None, reply, out)) {
                    let record = ManifestRecord::Symlink { target: &target };
                    let outcome = self.store.write_symlink(&head, &meta, &target);
                    let outcome = outcome.map_err(Failure::at_destination);
                    self.event(|ledger, out| ledger.entry_written(&head, record, outcome, out));
                }
            }
            Frame::Special {
                head,
                meta,
                special,
            } => {
                if self.event(|ledger, out| ledger.entry(&head, None, reply, out)) {
                    let record = ManifestRecord::Special(special);
                    let outcome = self.store.make_special(&head, &meta, special);
                    let outcome = outcome.map_err(Failure::at_destination);
                    self.event(|ledger, out| ledger.entry_written(&head, record, outcome, out));
                }
            }
            _ => {}
        }
    }

    /// Handles DIRECTORY as [`CopyLedger::entry`] does, with memory for its attributes.
    fn directory(self: &Arc<Self>, head: &EntryHead, meta: &Meta, reply: AnswerPermit) -> bool {
        let (is_new, actions) = self.decide(meta.attribute_bytes(), |ledger, out| {
            ledger.entry(head, Some(meta), reply, out)
        });
        self.perform(actions);
        is_new
    }

    /// Compares an offered file with the existing one. A server reads one file at a time for one
    /// key, because an offer is nearly free and reading a large file is not.
    fn compare(
        &self,
        offer: &FileOffer,
        is_waiting: &dyn Fn() -> bool,
    ) -> Result<Comparison, Failure> {
        let reading = self
            .account
            .comparing
            .as_ref()
            .filter(|_| offer.hash.is_some());
        let _one_at_a_time = reading.map(|comparing| comparing.lock());
        self.store.compare(offer, is_waiting)
    }

    fn claimed(
        self: &Arc<Self>,
        claim: SkipClaim<'_>,
        reply: AnswerPermit,
        compare: impl FnOnce() -> Result<Comparison, Failure>,
    ) {
        if self.event(|ledger, out| ledger.handle_claim(claim, reply, out)) {
            let compared = compare().map_err(Failure::at_destination);
            self.event(|ledger, out| ledger.claim_checked(claim, compared, out));
        }
    }

    /// Returns a callback that reports the outcome of a file in one frame to the ledger.
    fn small_committed(
        self: &Arc<Self>,
        head: EntryHead,
        (size, hash, mtime): (u64, Hash, (i64, u32)),
    ) -> OnCommit {
        let receiver = self.clone();
        Box::new(move |outcome| {
            let outcome = outcome.map_err(Failure::at_destination);
            let record = ManifestRecord::File {
                size,
                hash: &hash,
                mtime,
                parts: &[],
            };
            receiver.event(|ledger, out| ledger.entry_written(&head, record, outcome, out));
        })
    }

    /// Handles FILE, which describes a file that arrives in blocks. Nothing is created yet, but
    /// what an earlier copy has left of it is resumed.
    pub(crate) async fn handle_file(
        self: &Arc<Self>,
        announced: AnnouncedFile,
    ) -> Result<(), Error> {
        let id = announced.head.id;
        if is_late(announced.size) && !self.takes_late_sizes() {
            return Err(Error::Protocol("it left the size of a file open".into()));
        }
        if announced.identity.is_none() || self.event(|ledger, _| ledger.is_described(id)).is_ok() {
            return self.announce(announced, &[]);
        }
        loop {
            let one_at_a_time = self.resuming.lock().await;
            let pause = match self.resume(&announced).await? {
                Resumption::Nothing => return self.announce(announced, &[]),
                Resumption::Some((file, in_place)) => {
                    self.announce(announced, &in_place)?;
                    self.event(|ledger, out| ledger.assign_permit(id, Ok(file), out));
                    return Ok(());
                }
                Resumption::AskAgain(pause) => pause,
            };
            // This stream waits, but others that describe other files need not.
            drop(one_at_a_time);
            tokio::time::sleep(pause).await;
        }
    }

    fn announce(
        self: &Arc<Self>,
        announced: AnnouncedFile,
        in_place: &[Subtree],
    ) -> Result<(), Error> {
        self.reporter.began(&announced.head);
        let runs = CopyLedger::<ReceiverTypes<S>>::bytes_of(in_place);
        let more = runs.saturating_add(announced.meta.attribute_bytes());
        let shown = (announced.head.clone(), announced.size);
        let (result, actions) = self.decide(more, |ledger, out| {
            ledger.announce(announced, in_place, out)
        });
        // This counts only what was in place when the file was first described.
        let counted = actions.iter().map(|action| match action {
            LedgerAction::Count(bytes) => bytes.unsigned_abs(),
            _ => 0,
        });
        let bytes: u64 = counted.sum();
        self.perform(actions);
        result.map_err(|why| self.error(why))?;
        if bytes > 0 {
            let (head, size) = shown;
            self.reporter.resumed(&head, bytes, size);
        }
        Ok(())
    }

    /// Opens what an earlier copy has left of a file that no stream has described yet.
    async fn resume(
        self: &Arc<Self>,
        announced: &AnnouncedFile,
    ) -> Result<Resumption<ResumedFile<PermittedFile<S::File>>>, Error> {
        let (receiver, file) = (self.clone(), announced.clone());
        let id = announced.head.id;
        if self.event(|ledger, _| ledger.is_described(id)).is_ok() {
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
                let open = PermittedFile {
                    file: Some(file),
                    _permit: place,
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
    pub(crate) fn accepted(&self, accepted: &Acceptance) -> Result<(), Error> {
        let instance = accepted.instance;
        if accepted.delta {
            self.delta_understood();
        }
        let mut state = self.state.lock();
        let known = state.instance;
        state.instance = known.or(instance);
        match instance.is_some_and(|instance| state.instance != Some(instance)) {
            true => Err(Error::restarted_copy()),
            false => Ok(()),
        }
    }

    /// Returns HAVE. See [`CopyLedger::have_frame`].
    pub(crate) fn have(&self, id: u64, from: u64) -> Option<(Frame, Option<u64>)> {
        self.state.lock().ledger.have_frame(id, from)
    }

    /// Checks a block against its file's description. Returns the size of the file, or `None` if
    /// the block has been answered already. Waits for the file's permit among the open files.
    ///
    /// # Errors
    /// [`Error::Protocol`] if the block does not belong to the file.
    pub(crate) async fn expected_size(
        self: &Arc<Self>,
        block: &Block,
    ) -> Result<Option<u64>, Error> {
        let expected = self.event(|ledger, _| ledger.classify_block(block));
        let BlockClass::Wanted {
            size,
            has_permit: has_place,
        } = expected.map_err(|why| self.error(why))?
        else {
            return Ok(None);
        };
        if !has_place {
            let place = self.account.open_file().await;
            let place = place.map(|place| PermittedFile {
                file: None,
                _permit: place,
            });
            // Another stream may have got a permit first.
            self.event(|ledger, out| ledger.assign_permit(block.id, place, out));
        }
        Ok(Some(size))
    }

    /// Handles an arrived block. Returns true if its data is needed. Otherwise the requester is
    /// answered now, or together with earlier ones.
    pub(crate) fn needs_data(self: &Arc<Self>, block: &Block, reply: AnswerPermit) -> bool {
        self.event(|ledger, out| ledger.block_arrived(block, reply, out))
    }

    /// Handles the data of a block of a file of `size` bytes, with its hash if known. Blocking. A
    /// thread that finds no writer of the file continues until nothing waits to be written to it.
    ///
    /// `said` is the hash in the header of a plaintext block or a patch, which is always protected.
    /// If the hash differs, the file fails and nothing of the block is written (LH-COPY-44,
    /// LH-COPY-64).
    pub(crate) fn block(
        self: &Arc<Self>,
        block: Block,
        data: BlockData,
        size: u64,
        hash: Option<BlockHash>,
        said: Option<BlockHash>,
    ) {
        let hash = hash.unwrap_or_else(|| hash_block(&block, data.bytes(), size));
        match said.is_none_or(|said| said == hash) {
            true => self.event(|ledger, out| ledger.block_hashed(block, hash, data, out)),
            false => self.event(|ledger, out| ledger.block_changed(block.id, out)),
        }
    }

    /// Handles END, which gives the number of entries. Returns the argument for [`Self::finish`] if
    /// that must be called.
    pub(crate) fn handle_end(&self, entries: u64) -> Result<Option<FinishActions<S>>, Error> {
        let (result, actions) = self.decide(0, |ledger, out| ledger.handle_end(entries, out));
        result.map_err(|why| self.error(why))?;
        Ok((!actions.is_empty()).then_some(FinishActions(actions)))
    }

    /// Performs what END requires. Blocking.
    pub(crate) fn finish(self: &Arc<Self>, finish: FinishActions<S>) {
        self.perform(finish.0);
    }

    /// Returns the hash over everything, once everything is in place.
    pub(crate) fn conclusion(&self) -> Option<Hash> {
        self.state.lock().ledger.conclusion()
    }

    /// Returns true if it has data that the sender cannot send again.
    pub(crate) fn has_late_blocks(&self) -> bool {
        self.state.lock().ledger.has_late_blocks()
    }

    /// Returns the frames that end every stream.
    pub(crate) fn closing_frames(&self) -> Vec<Frame> {
        let state = self.state.lock();
        let mut frames = state.ledger.closing_frames();
        let (entries, manifest) = (state.ledger.entries(), state.ledger.conclusion());
        drop(state);
        // LH-COPY-68.
        let not_kept = self.store.not_kept();
        if manifest.is_some() && not_kept != NotKeptCounts::default() {
            frames.insert(frames.len().saturating_sub(1), Frame::NotKept(not_kept));
        }
        // LH-COPY-59: DONE stays the last frame.
        if let (Some(ReceiptRole::Signs(signer)), Some(manifest)) = (self.receipt.get(), manifest)
            && let Some(receipt) = signer.sign(entries, &manifest)
        {
            frames.insert(frames.len().saturating_sub(1), Frame::Receipt(receipt));
        }
        frames
    }

    /// Returns true if everything is in place, and the server's signature is not awaited.
    pub(crate) fn is_finished(&self) -> bool {
        self.conclusion().is_some() && !ReceiptRole::awaits(&self.receipt)
    }

    /// Waits until [`Self::is_finished`].
    pub(crate) async fn wait_finished(&self) {
        loop {
            let changed = self.done.notified();
            if self.is_finished() {
                return;
            }
            changed.await;
        }
    }

    /// Waits until everything is in place.
    pub(crate) async fn wait_concluded(&self) {
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
pub(crate) struct FinishActions<S: FileStore>(Actions<S>);

impl<S: FileStore> Drop for Receiver<S> {
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
