//! The server's side: the running copies, the permissions of each key, and the time at which an
//! abandoned copy is dropped.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use longhaul_accounts::AccountLog;
use longhaul_proto::{Delegation, PublicKey};
use longhaul_scitags::FlowMarker;
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::account::ResourceExhausted;
use crate::account::{Account, Accounts, Resource};
use crate::bearer::TokenAuthority;
use crate::client::{Transport, close};
use crate::error::Error;
use crate::frame_io::{FrameReader, IncomingFrame};
use crate::grants::{Grants, GrantsInForce};
use crate::half::Half;
use crate::limits::ServerLimits;
use crate::listening::NotingStream;
use crate::part::Portion;
use crate::receipt::ReceiptAuthority;
use crate::receive::{AfterDone, StreamEnd, receive_stream};
use crate::route_info::RouteInfo;
use crate::send::{DataSetting, send_stream};
use crate::stripe::MemberId;
use crate::wire::{Acceptance, CopyRequest, CopyToken, Frame, RefusalKind};

mod accounting;
mod copy;
mod counts;
mod credential;
mod destination;
mod ending;
mod fetch;
mod files;
mod local_account;
mod marking;
mod origins;
mod received;
mod rivals;
mod root;

use copy::{CopyMembership, ServerCopy};
use counts::EndedCopies;
pub use counts::ServerCounts;
use credential::Credential;
use ending::{CopyEnd, EarlyEnd};
pub use fetch::FetchSource;
pub use local_account::{AccountSetting, RunningCopies, StreamKind, StreamPermit};
use received::StreamCopy;
pub use root::ServedRoot;

/// Maximum number of tokens of ended copies that are remembered, so that a late stream does not
/// restart one.
const MAX_REMEMBERED_TOKENS: usize = 4096;

/// Server of one directory.
pub struct Server {
    root: ServedRoot,
    grants: Arc<GrantsInForce>,
    limits: ServerLimits,
    /// If true, the data of blocks may travel in plaintext when the client requests it
    /// (LH-COPY-43).
    allows_clear: AtomicBool,
    /// If true, copies may set owners, devices, set-ID bits and the attributes of administrators
    /// (LH-COPY-69).
    sets_owners: AtomicBool,
    /// If true, copies may read what symbolic links lead to (LH-COPY-70).
    follows_links: AtomicBool,
    /// If true, no copy begins any more.
    refuses_copies: AtomicBool,
    accounts: Accounts,
    copies: Mutex<Copies>,
    /// Notified when a copy has ended.
    copy_ended: Notify,
    /// Log of ended copies, if accounts are kept.
    ledger: OnceLock<AccountLog>,
    /// Marks the flows of copies, if they are marked.
    marker: OnceLock<FlowMarker>,
    /// Signer of receipts, if they are signed.
    signer: OnceLock<Arc<dyn ReceiptAuthority>>,
    /// Judge of the tokens of clients, if they are accepted.
    authority: OnceLock<Arc<dyn TokenAuthority>>,
    /// Setting of the local account that it works as, if it does.
    setting: OnceLock<AccountSetting>,
    /// Identity as a member of a striped server, if it is one.
    member: OnceLock<MemberId>,
}

#[derive(Default)]
struct Copies {
    running: HashMap<CopyToken, Arc<ServerCopy>>,
    /// Number of copies ever begun.
    begun: u64,
    /// Copies that are over and may not have released their files yet.
    ending: Vec<EndingCopy>,
    over: VecDeque<CopyToken>,
    ended: EndedCopies,
}

/// A copy that is over.
struct EndingCopy {
    principal: PublicKey,
    request: CopyRequest,
    portion: Portion,
    /// Channel that disconnects when the copy has released its files.
    ended: mpsc::Receiver<()>,
}

/// A refusal as it is sent to the client.
struct CopyRefusal {
    kind: RefusalKind,
    detail: String,
}

impl Server {
    /// Creates a server that gives the keys in `grants` access to `root`.
    pub fn new(root: impl Into<ServedRoot>, grants: Grants, limits: ServerLimits) -> Arc<Self> {
        Arc::new(Self {
            root: root.into(),
            grants: GrantsInForce::new(grants),
            accounts: Accounts::new(&limits),
            limits,
            allows_clear: AtomicBool::new(false),
            sets_owners: AtomicBool::new(false),
            follows_links: AtomicBool::new(false),
            refuses_copies: AtomicBool::new(false),
            copies: Mutex::default(),
            copy_ended: Notify::new(),
            ledger: OnceLock::new(),
            marker: OnceLock::new(),
            signer: OnceLock::new(),
            authority: OnceLock::new(),
            setting: OnceLock::new(),
            member: OnceLock::new(),
        })
    }

    /// Signs the receipts of copies with this key from now on, when the client requests it.
    pub fn sign_receipts(&self, key: impl ReceiptAuthority + 'static) {
        let _ = self.signer.set(Arc::new(key));
    }

    /// Allows the data of large files to travel in plaintext from now on, when the client requests
    /// it.
    pub fn allow_plaintext(&self) {
        self.allows_clear.store(true, Ordering::Relaxed);
    }

    /// Allows clients that may write to set owners, devices, set-ID bits and the extended
    /// attributes of administrators from now on.
    pub fn allow_owners(&self) {
        self.sets_owners.store(true, Ordering::Relaxed);
    }

    /// Allows clients that may read to read what symbolic links lead to from now on, inside and
    /// outside of what is granted. For a server that serves its own user.
    pub fn follow_links(&self) {
        self.follows_links.store(true, Ordering::Relaxed);
    }

    /// Tells clients from now on that other members of a striped server relay their streams to this
    /// one.
    pub fn join_stripe(&self, own: MemberId) {
        let _ = self.member.set(own);
    }

    /// Returns the grants in force.
    pub fn grants(&self) -> &Arc<GrantsInForce> {
        &self.grants
    }

    /// Puts `grants` in force, and ends the running copies that they do not allow.
    pub fn replace_grants(&self, grants: Grants) {
        self.grants.replace(grants);
        self.enforce_grants();
    }

    /// Ends the running copies that the grants do not allow any more, because their principals
    /// have lost names or groups, and has the grants checked again where they are watched.
    pub fn enforce_grants(&self) {
        self.grants.recheck();
        self.end_copies(EarlyEnd::Revoked, |copy| {
            let credential = copy.credential.borrow().clone();
            self.authorise(&copy.hello.request, &copy.principal, credential.as_deref())
                .is_err()
        });
    }

    /// Ends the running copies for which `is_ended` returns true.
    fn end_copies(&self, why: EarlyEnd, is_ended: impl Fn(&ServerCopy) -> bool) {
        let ended: Vec<_> = {
            let copies = self.copies.lock();
            let ended = copies.running.values().filter(|copy| is_ended(copy));
            ended.cloned().collect()
        };
        for copy in ended {
            self.forget(copy.hello.token, &CopyEnd::Early(why));
            copy.end_early(why);
        }
    }

    /// Writes a `line` of the log that a session of `key` causes, unless it exceeds its log rate.
    /// Omitted lines are counted and reported. Keys without a grant share one rate.
    pub fn log(&self, key: PublicKey, line: impl FnOnce()) {
        self.first_account(key, None).log(line);
    }

    /// Returns the account of `key`.
    fn account(&self, key: PublicKey) -> Arc<Account> {
        self.accounts.account_of(key)
    }

    /// Returns the number of running copies.
    pub fn copies(&self) -> usize {
        self.copies.lock().running.len()
    }

    /// Refuses copies that have not begun, from now on. The streams of others are still accepted.
    pub fn refuse_copies(&self) {
        self.refuses_copies.store(true, Ordering::Relaxed);
    }

    /// Waits until no copy runs.
    pub async fn idle(&self) {
        loop {
            // Registered first, so that no end is missed.
            let ended = self.copy_ended.notified();
            if self.copies() == 0 {
                return;
            }
            ended.await;
        }
    }

    /// Serves one stream of an authenticated principal to its end.
    pub async fn serve(
        self: &Arc<Self>,
        stream: impl Transport,
        principal: PublicKey,
    ) -> Result<(), Error> {
        self.serve_delegate(stream, principal, None).await
    }

    /// Serves one stream of an authenticated client to its end. If the client acts under a
    /// verified `delegation`, `principal` is that of the delegation.
    pub async fn serve_delegate(
        self: &Arc<Self>,
        mut stream: impl Transport,
        principal: PublicKey,
        delegation: Option<&Delegation>,
    ) -> Result<(), Error> {
        let origin = stream.origin();
        let account = self.first_account(principal, origin.as_ref().and_then(|origin| origin.from));
        let stream_held = account.take(Resource::Streams, 1);
        // This end's role is known with HELLO.
        let watch = stream.watch(drs::Side::Receiving);
        let clear = stream.plaintext();
        let (reader, mut writer) = tokio::io::split(stream);
        let received: StreamCopy = Arc::new(OnceLock::new());
        let mut reader = FrameReader::new(NotingStream::new(reader, received.clone()));
        let mut stream_held = match stream_held {
            Ok(held) => held,
            Err(exhausted) => {
                self.refuse(reader, writer, limit_refusal(&exhausted)).await;
                return Err(exhausted.into());
            }
        };
        let mut hello = match timeout(self.limits.hello_timeout, reader.next()).await {
            Ok(Ok(Some(IncomingFrame::Frame(Frame::Hello(hello))))) => hello,
            Ok(Ok(None)) => return Ok(()),
            Ok(Ok(Some(_))) => {
                return Err(Error::Protocol("its first message is not HELLO".into()));
            }
            Ok(Err(error)) => {
                if let Some(refusal) = CopyRefusal::reported(&error) {
                    self.refuse(reader, writer, refusal).await;
                }
                return Err(error);
            }
            Err(_) => return Err(Error::Protocol("no HELLO in time".into())),
        };
        // A delegate has the rights of its principal's grants, and brings no token.
        let credential = match delegation {
            Some(_) => Ok(None),
            None => self.credential(&mut hello, &principal).await,
        };
        let credential = match credential {
            Ok(credential) => credential,
            Err(refusal) => {
                account.log(|| {
                    tracing::info!(key = %principal, reason = %refusal.detail, "token refused");
                });
                self.refuse(reader, writer, refusal).await;
                return Ok(());
            }
        };
        let own = self.account_with(principal, credential.as_deref(), &account);
        if !Arc::ptr_eq(&own, &account) {
            stream_held = match own.take(Resource::Streams, 1) {
                Ok(held) => held,
                Err(exhausted) => {
                    self.refuse(reader, writer, limit_refusal(&exhausted)).await;
                    return Err(exhausted.into());
                }
            };
        }
        let _stream_held = stream_held;
        let joined = self
            .join(hello, &own, principal, delegation, credential)
            .await;
        let (copy, half) = match &joined {
            Ok(copy) => match copy.half.get() {
                Some(half) => (copy, half),
                None => return Ok(()),
            },
            Err(_) => {
                if let Err(refusal) = joined {
                    self.refuse(reader, writer, refusal).await;
                }
                return Ok(());
            }
        };
        copy.received.note();
        if let Some(origin) = &origin {
            copy.origins.lock().add(origin);
        }
        let _ = received.set(copy.received.clone());
        let number = copy.numbers.fetch_add(1, Ordering::Relaxed);
        if let (Half::Sending(_), Some(watch)) = (half, &watch) {
            watch.restart(drs::Side::Sending);
            // LH-COPY-48.
            if copy.hello.single {
                watch.fit_rate();
            }
        }
        // Only the client knows the route.
        let route = RouteInfo::without_depots("");
        let counters = copy.progress.add_stream(&route, watch, true);
        let _marked = origin.and_then(|origin| self.mark(&origin, half, &counters));
        // LH-COPY-43.
        let clear = clear.filter(|_| copy.hello.clear && self.allows_clear.load(Ordering::Relaxed));
        let mut greeting = Vec::new();
        Frame::Accept(Acceptance {
            max_streams: self.limits.streams_per_copy,
            instance: copy.instance,
            clear: clear.is_some(),
            present: copy.present.load(Ordering::Relaxed),
            hard_links: copy.hello.hard_links,
            placement: copy.placement.get().copied(),
            receipt: half.signs_receipt(),
            compression: !copy.hello.compression.is_none(),
            packs: copy.hello.packs,
            delta: copy.hello.delta,
            keep: copy.hello.keep,
            late_sizes: half.takes_late_sizes(),
            // LH-COPY-76: a stream that is relayed has no delegation.
            member: self.member.get().copied().filter(|_| delegation.is_none()),
        })
        .encode(&mut greeting);
        // Removes the counters of the stream at its end, however often a client comes back.
        let leave = CopyMembership {
            server: self,
            copy,
            counters: counters.clone(),
        };
        let carried = async {
            match half {
                Half::Sending(queue) => {
                    let setting = DataSetting {
                        wanted: clear.is_some(),
                        agreed: AtomicBool::new(clear.is_some()),
                        stream: clear,
                        compression: copy.hello.compression.at_server(),
                        unpacks: AtomicBool::new(true),
                        unpacks_frames: AtomicBool::new(copy.hello.packs),
                    };
                    send_stream(
                        queue,
                        number,
                        &counters,
                        &mut reader,
                        &mut writer,
                        greeting,
                        &setting,
                    )
                    .await
                }
                Half::Receiving(receiver) => {
                    if let Some(clear) = clear {
                        reader.allow_plaintext(clear);
                    }
                    let after_done = AfterDone::Stay(&copy.numbers);
                    receive_stream(
                        receiver,
                        &counters,
                        &mut reader,
                        &mut writer,
                        &greeting,
                        after_done,
                    )
                    .await
                }
            }
        };
        let is_permitted = |credential: Option<&Credential>| {
            self.authorise(&copy.hello.request, &copy.principal, credential)
                .is_ok()
        };
        let result = tokio::select! {
            result = carried => result,
            error = copy.ended_early() => Err(error),
            end = self.credential_end(&copy.credential, is_permitted) => {
                self.forget(copy.hello.token, &CopyEnd::Early(end));
                copy.end_early(end);
                Err(copy.ended_early().await)
            }
        };
        leave.leave(&result);
        // All that is left is an orderly close. The client may meanwhile open another stream in its
        // place (LH-COPY-9).
        drop(leave);
        match result {
            Ok(StreamEnd::Finished | StreamEnd::Closed) => {
                close(reader.into_inner().into_inner().unsplit(writer)).await;
                Ok(())
            }
            Err(error) => {
                if let Some(refusal) = CopyRefusal::reported(&error) {
                    self.refuse(reader, writer, refusal).await;
                }
                Err(error)
            }
        }
    }

    async fn refuse<S: Transport>(
        &self,
        reader: FrameReader<NotingStream<tokio::io::ReadHalf<S>, StreamCopy>>,
        mut writer: tokio::io::WriteHalf<S>,
        refusal: CopyRefusal,
    ) {
        let mut out = Vec::new();
        Frame::Refuse {
            kind: refusal.kind,
            detail: refusal.detail,
        }
        .encode(&mut out);
        let said = async {
            writer.write_all(&out).await?;
            writer.flush().await
        };
        if matches!(timeout(Duration::from_secs(1), said).await, Ok(Ok(()))) {
            close(reader.into_inner().into_inner().unsplit(writer)).await;
        }
    }

    /// Forgets a copy that is over, or that ends because of `end`.
    fn forget(&self, token: CopyToken, end: &CopyEnd) {
        let copy = self.copies.lock().end(token);
        if let Some(copy) = &copy {
            self.record_end(copy, end);
        }
        self.copy_ended.notify_waiters();
        // The copy's remains are removed from disk, or made durable, without delaying anyone.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || drop(copy))),
            Err(_) => drop(copy),
        }
    }
}

impl Copies {
    /// Ends the copy of `token`. No copy of that token begins again.
    fn end(&mut self, token: CopyToken) -> Option<Arc<ServerCopy>> {
        let copy = self.running.remove(&token)?;
        self.forget_ended();
        if let Some(ended) = copy.ended() {
            self.ending.push(EndingCopy {
                principal: copy.principal,
                request: copy.hello.request.clone(),
                portion: copy.hello.portion,
                ended,
            });
        }
        if self.over.len() == MAX_REMEMBERED_TOKENS {
            self.over.pop_front();
        }
        self.over.push_back(token);
        Some(copy)
    }
}

fn refusal(detail: impl Into<String>) -> CopyRefusal {
    CopyRefusal {
        kind: RefusalKind::Request,
        detail: detail.into(),
    }
}

/// Returns the refusal for an exhausted limit.
fn limit_refusal(exhausted: &ResourceExhausted) -> CopyRefusal {
    CopyRefusal {
        kind: RefusalKind::Limit,
        detail: exhausted.to_string(),
    }
}

impl CopyRefusal {
    /// Returns the refusal of a stream whose copy cannot begin.
    fn for_error(error: &Error) -> Self {
        Self::reported(error).unwrap_or_else(|| refusal(error.to_string()))
    }

    /// Returns the refusal that reports `error` to the client, or `None` if it is not reported.
    fn reported(error: &Error) -> Option<Self> {
        match error {
            Error::Protocol(detail) | Error::Refused(detail) => Some(refusal(detail)),
            Error::Limit(detail) => Some(Self {
                kind: RefusalKind::Limit,
                detail: detail.clone(),
            }),
            Error::Unauthorised(detail) => Some(Self {
                kind: RefusalKind::Key,
                detail: detail.clone(),
            }),
            Error::Token(detail) => Some(Self {
                kind: RefusalKind::Token,
                detail: detail.clone(),
            }),
            _ => None,
        }
    }
}
