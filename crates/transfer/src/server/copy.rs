//! One copy at the server: the permission to begin it, the state that its streams share, and its
//! end after they leave.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak, mpsc};

use longhaul_filter::Filter;
use longhaul_proto::text::printable;
use longhaul_proto::{Delegation, PublicKey};
use parking_lot::Mutex;
use tokio::sync::{OnceCell, watch};

use super::credential::{Credential, CurrentCredential, end_error, renew};
use super::ending::{CopyEnd, EarlyEnd};
use super::origins::StreamOrigins;
use super::received::LastReceived;
use super::{Copies, CopyRefusal, Server, limit_refusal, refusal};
use crate::account::{Account, Resource, ResourcePermit};
use crate::error::Error;
use crate::grants::Access;
use crate::half::Half;
use crate::metadata::changes::MetadataChanges;
use crate::progress::{Observer, StreamCounters, TransferEvent, TransferProgress};
use crate::receipt::{ReceiptRole, ReceiptSigner};
use crate::receive::StreamEnd;
use crate::receive::{Receiver, RequestedEntries};
use crate::send::{Presence, Sources, WorkQueue};
use crate::tree_hash::Hash;
use crate::wire::{CopyInstance, CopyRequest, CopyToken, Hello, Placement, RefusalKind};
use crate::workers::blocking;

/// A running copy.
pub(super) struct ServerCopy {
    pub principal: PublicKey,
    /// Key that acts for the principal: of the client if it reads under a delegation, or of this
    /// server if it fetches from another one.
    pub delegate: Option<PublicKey>,
    pub hello: Hello,
    /// Token that allows it in addition to the grants of the key, if it needs one.
    pub credential: CurrentCredential,
    /// Number of copies that were begun before it.
    pub order: u64,
    /// Identity of this copy, regardless of its token. `None` if the operating system had no random
    /// numbers.
    pub instance: Option<CopyInstance>,
    /// This end's half, unless this server is the client of another one.
    pub half: OnceCell<Half>,
    /// Receiver of what this server fetches from another one.
    pub fetching: Mutex<Weak<Receiver>>,
    /// Hash over all entries that were fetched from another server, once all are in place.
    pub fetched: OnceLock<Hash>,
    /// True if some of the files of a push may exist already.
    pub present: AtomicBool,
    /// Placement of the sources of a push.
    pub placement: OnceLock<Placement>,
    pub streams: AtomicU32,
    pub numbers: AtomicU32,
    pub progress: Arc<TransferProgress>,
    /// Reason why it ends although its client is connected, if it does.
    early_end: watch::Sender<Option<EarlyEnd>>,
    pub received: Arc<LastReceived>,
    pub origins: Mutex<StreamOrigins>,
    /// True once its record has been written.
    pub is_recorded: AtomicBool,
    account: Arc<Account>,
    /// Its unit among the copies, held also while it waits for a stream, and the memory for its
    /// HELLO.
    _held: (ResourcePermit, ResourcePermit),
}

impl Drop for ServerCopy {
    fn drop(&mut self) {
        if let Some(Half::Sending(queue)) = self.half.get() {
            queue.close();
        }
    }
}

/// Memory overhead of a path or name of HELLO, in bytes. It is kept as received, as a name, and as
/// a label.
const NAME_OVERHEAD_BYTES: u64 = 200;

/// Memory of a filter of a copy, in bytes: its rules, and the patterns as they are compiled.
const FILTER_BYTES: u64 = 2 << 20;

/// Returns the memory that HELLO takes while its copy exists, in bytes.
fn hello_bytes(hello: &Hello) -> u64 {
    let of = |bytes: &[u8]| NAME_OVERHEAD_BYTES + 4 * bytes.len() as u64;
    // What ignore files take is counted when they are read.
    let filter = match hello.filter.is_empty() || hello.filter.is_only_ignore_files() {
        true => 0,
        false => FILTER_BYTES,
    };
    let paths = match &hello.request {
        CopyRequest::Push {
            destination, names, ..
        } => {
            let names = names
                .iter()
                .map(|name| of(name) + destination.as_bytes().len() as u64);
            names.sum::<u64>() + of(destination.as_bytes())
        }
        CopyRequest::Pull { sources, .. } => {
            sources.iter().map(|source| of(source.as_bytes())).sum()
        }
    };
    paths + filter
}

/// Keys of a copy: the one whose rights count, and the one that acts for it, if another does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CopyKeys {
    pub principal: PublicKey,
    pub delegate: Option<PublicKey>,
}

impl ServerCopy {
    fn new(
        hello: Hello,
        account: &Arc<Account>,
        keys: CopyKeys,
        order: u64,
        credential: Option<Arc<Credential>>,
    ) -> Result<Arc<Self>, CopyRefusal> {
        let take = |what, units| {
            account
                .take(what, units)
                .map_err(|exhausted| limit_refusal(&exhausted))
        };
        let token_bytes = credential
            .as_ref()
            .map_or(0, |credential| credential.bytes());
        let held = (
            take(Resource::Copies, 1)?,
            take(Resource::Bookkeeping, hello_bytes(&hello) + token_bytes)?,
        );
        Ok(Arc::new(Self {
            principal: keys.principal,
            delegate: keys.delegate,
            hello,
            credential: CurrentCredential::new(credential),
            order,
            instance: CopyToken::random()
                .ok()
                .and_then(|token| token.0.first_chunk().copied()),
            half: OnceCell::new(),
            fetching: Mutex::default(),
            fetched: OnceLock::new(),
            present: AtomicBool::new(false),
            placement: OnceLock::new(),
            streams: AtomicU32::new(0),
            numbers: AtomicU32::new(0),
            progress: Arc::default(),
            early_end: watch::Sender::new(None),
            received: Arc::new(LastReceived::new()),
            origins: Mutex::default(),
            is_recorded: AtomicBool::new(false),
            account: account.clone(),
            _held: held,
        }))
    }

    /// Returns true if everything that a push brings, or that this server fetches, is in place.
    pub(super) fn has_all_in_place(&self) -> bool {
        match self.half.get() {
            Some(Half::Receiving(receiver)) => receiver.conclusion().is_some(),
            Some(Half::Sending(_)) => false,
            None => self.fetched.get().is_some(),
        }
    }

    /// Returns true if everything has been copied, or has failed, and both ends know it.
    pub(super) fn is_over(&self) -> bool {
        match self.half.get() {
            Some(Half::Sending(queue)) => queue.is_reported_done(),
            Some(Half::Receiving(receiver)) => receiver.conclusion().is_some(),
            None => true,
        }
    }

    /// Returns a channel that disconnects when the copy has released the files that it receives.
    pub(super) fn ended(&self) -> Option<mpsc::Receiver<()>> {
        match self.half.get() {
            Some(Half::Receiving(receiver)) => receiver.take_end_signal(),
            Some(Half::Sending(_)) => None,
            None => self.fetching.lock().upgrade()?.take_end_signal(),
        }
    }

    /// Ends the streams of the copy.
    pub(super) fn end_early(&self, why: EarlyEnd) {
        self.early_end.send_replace(Some(why));
    }

    /// Waits until the streams must end. Returns the error to report to the client.
    pub(super) async fn ended_early(&self) -> Error {
        let mut early_end = self.early_end.subscribe();
        let why = early_end.wait_for(Option::is_some).await;
        // `self` holds the sender, so it cannot be gone.
        match why.ok().and_then(|why| *why) {
            Some(EarlyEnd::Superseded) => {
                Error::Refused("another copy of the same files replaced it".into())
            }
            // This is not a refusal. The client waits until the directory is back, as for a server
            // that is unreachable.
            Some(EarlyEnd::RootDisplaced) => Error::StreamsLost(
                "the served directory was moved, replaced or mounted over".into(),
            ),
            Some(why @ (EarlyEnd::TokenExpired | EarlyEnd::TokenRevoked)) => {
                end_error(why, self.credential.borrow().as_deref())
            }
            _ => Error::Unauthorised(
                "the server's operator has withdrawn the grant for this copy".into(),
            ),
        }
    }
}

impl Server {
    /// Returns the copy that a stream belongs to. The first stream to arrive begins it.
    /// `delegation` is that under which the client acts.
    pub(super) async fn join(
        self: &Arc<Self>,
        hello: Hello,
        account: &Arc<Account>,
        principal: PublicKey,
        delegation: Option<&Delegation>,
        credential: Option<Arc<Credential>>,
    ) -> Result<Arc<ServerCopy>, CopyRefusal> {
        if let Some(delegation) = delegation {
            check_delegated(&hello, delegation)?;
        }
        let keys = CopyKeys {
            principal,
            delegate: delegation.map(|delegation| delegation.delegate),
        };
        self.authorise(&hello.request, &principal, credential.as_deref())?;
        self.require_root().await?;
        let token = hello.token;
        let copy = {
            let mut copies = self.copies.lock();
            if copies.over.contains(&token) {
                return Err(refusal("this copy is over"));
            }
            let copy = match copies.running.get(&token) {
                Some(copy) => copy.clone(),
                None => self.begin_copy(
                    &mut copies,
                    hello.clone(),
                    account,
                    keys,
                    credential.clone(),
                )?,
            };
            let has_other_owner = match (&credential, &*copy.credential.borrow()) {
                (Some(brought), Some(present)) => !brought.has_owner_of(present),
                _ => false,
            };
            // LH-COPY-10.
            if copy.principal != principal
                || copy.delegate != keys.delegate
                || has_other_owner
                || copy.hello.request != hello.request
                || copy.hello.portion != hello.portion
                || copy.hello.filter != hello.filter
                || copy.hello.existing != hello.existing
                || copy.hello.keep != hello.keep
            {
                return Err(CopyRefusal {
                    kind: RefusalKind::Key,
                    detail: "this stream does not belong to that copy".into(),
                });
            }
            if copy.streams.fetch_add(1, Ordering::Relaxed)
                >= u32::from(self.limits.streams_per_copy)
            {
                copy.streams.fetch_sub(1, Ordering::Relaxed);
                return Err(CopyRefusal {
                    kind: RefusalKind::Limit,
                    detail: format!(
                        "this copy already has the server's maximum number of streams ({})",
                        self.limits.streams_per_copy
                    ),
                });
            }
            copy
        };
        // A copy that the grants allow does not come to depend on a token.
        if let Some(credential) = credential
            && (copy.credential.borrow().is_some()
                || self
                    .authorise(&copy.hello.request, &principal, None)
                    .is_err())
        {
            renew(&copy.credential, credential);
        }
        let begun = copy
            .half
            .get_or_try_init(|| self.begin(&copy))
            .await
            .map(|_| ());
        match begun {
            Ok(()) => Ok(copy),
            Err(error) => {
                copy.streams.fetch_sub(1, Ordering::Relaxed);
                if self.copies.lock().running.remove(&token).is_some() {
                    self.record_end(&copy, &CopyEnd::for_error(&error));
                }
                self.copy_ended.notify_waiters();
                Err(CopyRefusal::for_error(&error))
            }
        }
    }

    /// Adds a copy that has not begun yet.
    pub(super) fn begin_copy(
        &self,
        copies: &mut Copies,
        hello: Hello,
        account: &Arc<Account>,
        keys: CopyKeys,
        credential: Option<Arc<Credential>>,
    ) -> Result<Arc<ServerCopy>, CopyRefusal> {
        if self.refuses_copies.load(Ordering::Relaxed) {
            return Err(CopyRefusal {
                kind: RefusalKind::Limit,
                detail: "the server is stopping; retry later".into(),
            });
        }
        let token = hello.token;
        let copy = ServerCopy::new(hello, account, keys, copies.begun, credential)?;
        copies.begun += 1;
        copies.running.insert(token, copy.clone());
        Ok(copy)
    }

    /// Takes the token out of HELLO, and verifies it if the grants of the key do not suffice
    /// (LH-COPY-71).
    pub(super) async fn credential(
        &self,
        hello: &mut Hello,
        principal: &PublicKey,
    ) -> Result<Option<Arc<Credential>>, CopyRefusal> {
        let Some(token) = hello.bearer.take() else {
            return Ok(None);
        };
        if self.authorise(&hello.request, principal, None).is_ok() {
            return Ok(None);
        }
        Ok(self.verify_token(&token).await?)
    }

    /// LH-COPY-11.
    pub(super) fn authorise(
        &self,
        request: &CopyRequest,
        principal: &PublicKey,
        credential: Option<&Credential>,
    ) -> Result<(), CopyRefusal> {
        let grants = self.grants_with(principal, credential);
        // Its worker does all that it may do. Here it would be done as the server's own user.
        if let Some(account) = grants.account_of(principal) {
            return Err(CopyRefusal {
                kind: RefusalKind::Key,
                detail: format!(
                    "the server works as the user {} for key {principal}, and only for copies \
                     between it and a client",
                    account.name
                ),
            });
        }
        let denied = match request {
            CopyRequest::Push {
                destination,
                overwrite,
                ..
            } => {
                let denied = !grants.allows(principal, access_of(*overwrite), destination);
                let creates = grants.allows(principal, Access::Create, destination);
                let verb = if creates {
                    "replace what is in"
                } else {
                    "write"
                };
                denied.then_some((verb, destination))
            }
            CopyRequest::Pull { sources, .. } => sources
                .iter()
                .find(|s| !grants.allows(principal, Access::Read, s))
                .map(|s| ("read", s)),
        };
        match (denied, credential) {
            (None, _) => Ok(()),
            (Some((verb, path)), Some(credential)) => Err(CopyRefusal {
                kind: RefusalKind::Token,
                detail: format!(
                    "neither its scopes nor the grants of key {principal} let {} {verb} /{}",
                    printable(credential.rights.principal_name().as_bytes()),
                    printable(path.as_bytes())
                ),
            }),
            (Some((verb, path)), None) => Err(CopyRefusal {
                kind: RefusalKind::Key,
                detail: format!(
                    "the server does not let key {principal} {verb} /{}; ask its operator",
                    printable(path.as_bytes())
                ),
            }),
        }
    }

    /// Returns the signer of a copy whose client wants a receipt (LH-COPY-57).
    fn receipt_signer(&self, copy: &ServerCopy, fetch: bool) -> Option<Box<ReceiptSigner>> {
        let signer = self.signer.get().filter(|_| copy.hello.receipt)?;
        let signer = ReceiptSigner::new(signer.clone(), copy.principal, fetch);
        Some(Box::new(signer))
    }

    async fn begin(self: &Arc<Self>, copy: &Arc<ServerCopy>) -> Result<Half, Error> {
        let account = copy.account.clone();
        let observer: Arc<dyn Observer> = Arc::new(CopyLog(account.clone()));
        let server = self.clone();
        match &copy.hello.request {
            CopyRequest::Pull { recursive, sources } => {
                let labels = Sources::labels(sources.iter().map(|s| format!("/{s}")).collect());
                let keep = copy.hello.keep;
                // LH-COPY-70.
                if keep.copy_links && !self.follows_links.load(Ordering::Relaxed) {
                    return Err(Error::Refused(
                        "it follows no symbolic links: leave out --copy-links".into(),
                    ));
                }
                let root = blocking(move || server.current_root()).await??;
                let sources = Sources::beneath(root, sources, *recursive)
                    .keeping(keep, MetadataChanges::default());
                // LH-COPY-55.
                let filter = match copy.hello.filter.is_empty() {
                    true => None,
                    false => Some(
                        Filter::new(copy.hello.filter.clone())
                            .map_err(|error| Error::Refused(error.to_string()))?,
                    ),
                };
                let sources = sources.filtered(filter.map(Arc::new));
                // LH-COPY-49.
                let sources = sources.restricted_to(copy.hello.portion, copy.hello.hard_links);
                let (resume, progress) = (copy.hello.resume, copy.progress.clone());
                let queue = WorkQueue::new(sources, resume, account, progress, observer, labels)?;
                // LH-COPY-39.
                if let Some(compare) = copy.hello.offer {
                    queue.set_presence(Presence::Something, compare);
                }
                // LH-COPY-45.
                if copy.hello.hard_links {
                    queue.keep_links(true);
                }
                if copy.hello.in_place {
                    queue.patch_in_place();
                }
                // LH-COPY-65.
                queue.keep_understood();
                if copy.hello.reports_not_kept {
                    queue.report_not_kept();
                }
                if let Some(signer) = self.receipt_signer(copy, true) {
                    queue.keep_receipt(ReceiptRole::Signs(signer));
                }
                drop(queue.start_walk());
                Ok(Half::Sending(queue))
            }
            CopyRequest::Push {
                destination, names, ..
            } => {
                let labels = names
                    .iter()
                    .map(|name| format!("/{destination}: {}", printable(name)))
                    .collect();
                let destination = self.open_destination(copy).await?;
                let receiver = Receiver::new(
                    destination,
                    RequestedEntries::Anything,
                    account,
                    copy.progress.clone(),
                    observer,
                    Sources::labels(labels),
                )?;
                if copy.hello.delta {
                    receiver.request_delta();
                    receiver.delta_understood();
                }
                // LH-COPY-79.
                if copy.hello.late_sizes {
                    receiver.take_late_sizes();
                }
                if let Some(signer) = self.receipt_signer(copy, false) {
                    receiver.keep_receipt(ReceiptRole::Signs(signer));
                }
                Ok(Half::Receiving(receiver))
            }
        }
    }
}

/// Checks that a delegation permits the request (LH-DELEGATION-6).
fn check_delegated(hello: &Hello, delegation: &Delegation) -> Result<(), CopyRefusal> {
    let is_read = matches!(hello.request, CopyRequest::Pull { .. });
    match is_read && hello.delegated_name() == delegation.from {
        true => Ok(()),
        false => Err(CopyRefusal {
            kind: RefusalKind::Key,
            detail: "the delegation is for another request: its principal must sign one for this"
                .into(),
        }),
    }
}

/// Returns the access that a push requires.
pub(super) fn access_of(overwrite: bool) -> Access {
    if overwrite {
        Access::Write
    } else {
        Access::Create
    }
}

/// Membership of a stream in its copy. The last stream to leave decides whether the copy ends
/// (LH-COPY-27).
pub(super) struct CopyMembership<'a> {
    pub server: &'a Arc<Server>,
    pub copy: &'a Arc<ServerCopy>,
    pub counters: Arc<StreamCounters>,
}

impl CopyMembership<'_> {
    /// Forgets a copy that is over, or whose client closed its last stream in an orderly manner.
    /// Any other copy waits for a stream to return, and is then dropped with its temporary files.
    pub(super) fn leave(&self, result: &Result<StreamEnd, Error>) {
        let over = self.copy.is_over();
        let last = self.copy.streams.load(Ordering::Relaxed) == 1;
        let abandoned = matches!(result, Ok(_) | Err(Error::Protocol(_) | Error::Limit(_)));
        if last && (over || abandoned) {
            let end = result.as_ref().err().map(CopyEnd::for_error);
            let end = end.unwrap_or(CopyEnd::Left);
            self.server.forget(self.copy.hello.token, &end);
        }
    }
}

impl Drop for CopyMembership<'_> {
    fn drop(&mut self) {
        self.copy.progress.remove_stream(&self.counters);
        if self.copy.streams.fetch_sub(1, Ordering::Relaxed) != 1 {
            return;
        }
        let (server, copy) = (Arc::downgrade(self.server), Arc::downgrade(self.copy));
        let limits = &self.server.limits;
        // A client cannot begin the copy again if it keeps nothing that was answered.
        let grace = match self.copy.half.get().is_some_and(Half::has_late_blocks) {
            true => limits.late_stream_grace,
            false => limits.stream_grace,
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                tokio::time::sleep(grace).await;
                if let (Some(server), Some(copy)) = (server.upgrade(), copy.upgrade())
                    && copy.streams.load(Ordering::Relaxed) == 0
                {
                    server.forget(copy.hello.token, &CopyEnd::Lost);
                }
            });
        }
    }
}

/// Log of a copy at the server.
pub(super) struct CopyLog(pub Arc<Account>);

impl Observer for CopyLog {
    fn event(&self, event: TransferEvent) {
        if let TransferEvent::Failed { path, failure } = event {
            self.0.log(|| tracing::info!(%path, %failure, "not copied"));
        }
    }
}
