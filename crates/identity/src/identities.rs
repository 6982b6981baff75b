//! The principals in force: the file, and the keys that certificates have vouched for.

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longhaul_hop::unix_ms;
use longhaul_proto::{Open, PublicKey, Voucher, VoucherFault};
use parking_lot::RwLock;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::authority::VouchedIdentity;
use crate::file::PrincipalsFile;
use crate::vouched_keys::{VouchedKey, VouchedKeys};
use crate::{IdentityError, Principal};

/// Maximum number of keys that certificates vouch for at a time, at one service. Each takes up to
/// 16 KiB.
pub const MAX_VOUCHED_KEYS: usize = 4096;
/// Maximum number of vouchers that are judged at a time, so that certificates leave processors to
/// the sessions. Further ones wait.
const MAX_CONCURRENT_JUDGEMENTS: usize = 2;
/// Maximum time that a voucher waits until it is judged.
const MAX_JUDGEMENT_WAIT: Duration = Duration::from_secs(5);
/// Interval at which certificates and revocation lists are loaded again.
const RELOAD_INTERVAL: Duration = Duration::from_secs(600);
/// Maximum time between two looks at the clock, which may be set.
const MAX_SLEEP: Duration = Duration::from_secs(30);

/// The principals in force, which can be replaced at any time.
///
/// [`Identities::introduce`] reads the voucher of an OPEN; from then on [`Identities::principal`]
/// returns the names and groups of its key. [`Identities::maintain`] has to run beside.
#[derive(Debug)]
pub struct Identities {
    file: Option<PathBuf>,
    state: RwLock<IdentityState>,
    /// Counts the changes by which a key can have lost a name or group.
    changes: watch::Sender<u64>,
    /// Wakes [`Identities::maintain`] when the next end may have changed.
    added: Notify,
    /// Permits to judge a voucher.
    judgements: Arc<Semaphore>,
}

#[derive(Debug)]
struct IdentityState {
    principals: Arc<PrincipalsFile>,
    vouched: VouchedKeys,
}

impl Default for Identities {
    fn default() -> Self {
        Self::new(None, PrincipalsFile::default())
    }
}

impl Identities {
    /// Returns identities without any names: every key is only itself.
    #[must_use]
    pub fn unnamed() -> Arc<Self> {
        Arc::default()
    }

    /// Loads a file of principals. Blocking.
    ///
    /// # Errors
    /// [`IdentityError`], which names the file and the line.
    pub fn load(file: &Path) -> Result<Arc<Self>, IdentityError> {
        let principals = PrincipalsFile::load(file)?;
        Ok(Arc::new(Self::new(Some(file.to_owned()), principals)))
    }

    fn new(file: Option<PathBuf>, principals: PrincipalsFile) -> Self {
        Self {
            file,
            state: RwLock::new(IdentityState {
                principals: Arc::new(principals),
                vouched: VouchedKeys::new(MAX_VOUCHED_KEYS),
            }),
            changes: watch::Sender::new(0),
            added: Notify::new(),
            judgements: Arc::new(Semaphore::new(MAX_CONCURRENT_JUDGEMENTS)),
        }
    }

    /// Returns the file, if there is one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Returns the principal of a key: its names and groups that are believed now.
    #[must_use]
    pub fn principal(&self, key: &PublicKey) -> Principal {
        let state = self.state.read();
        let vouched = state.vouched.get(key, unix_ms());
        state
            .principals
            .principal(*key, vouched.map(|vouched| &*vouched.identity))
    }

    /// Returns the number of vouched keys.
    #[must_use]
    pub fn vouched_keys(&self) -> usize {
        self.state.read().vouched.len()
    }

    /// Reads the voucher of an OPEN, and remembers it until it ends (LH-VOUCHER-5). An OPEN
    /// without a voucher, or whose own signature is invalid, changes nothing.
    ///
    /// # Errors
    /// [`VoucherFault`]: the voucher is not believed. The OPEN may still be admitted by its key.
    pub async fn introduce(self: &Arc<Self>, open: &Open) -> Result<(), VoucherFault> {
        if !open.has_voucher() || !self.state.read().principals.has_authorities() {
            return Ok(());
        }
        let Some(voucher) = open.voucher()? else {
            return Ok(());
        };
        if self.is_remembered(&voucher) {
            return Ok(());
        }
        // Certificates cost more than the OPEN's signature, so a stranger has to spend one, too.
        if open.verify().is_err() {
            return Ok(());
        }
        self.judge_once(voucher).await
    }

    /// Reads the text of a voucher that came with a request which `key` has signed, and remembers
    /// it until it ends (LH-VOUCHER-7).
    ///
    /// # Errors
    /// [`VoucherFault`]: the voucher is not believed. The request may still be admitted by its key.
    pub async fn introduce_text(
        self: &Arc<Self>,
        key: &PublicKey,
        text: &str,
    ) -> Result<(), VoucherFault> {
        if !self.state.read().principals.has_authorities() {
            return Ok(());
        }
        self.introduce_for(key, text.parse()?).await
    }

    /// Reads the bytes of a voucher that came behind an OPEN which `key` has signed, and remembers
    /// it until it ends (LH-VOUCHER-8).
    ///
    /// # Errors
    /// [`VoucherFault`]: the voucher is not believed.
    pub async fn register(
        self: &Arc<Self>,
        key: &PublicKey,
        bytes: &[u8],
    ) -> Result<(), VoucherFault> {
        if !self.state.read().principals.has_authorities() {
            return Err(VoucherFault::UnknownIssuer);
        }
        self.introduce_for(key, Voucher::from_bytes(bytes)?).await
    }

    async fn introduce_for(
        self: &Arc<Self>,
        key: &PublicKey,
        voucher: Voucher,
    ) -> Result<(), VoucherFault> {
        if voucher.key != *key {
            return Err(VoucherFault::Signature);
        }
        match self.is_remembered(&voucher) {
            true => Ok(()),
            false => self.judge_once(voucher).await,
        }
    }

    /// Remembers that a key was admitted, by its names or otherwise. When too many keys are vouched
    /// for, those that never were make room.
    pub fn mark_admitted(&self, key: &PublicKey) {
        let state = self.state.read();
        let is_new = |vouched: &VouchedKey| !vouched.is_admitted;
        if state.vouched.get(key, unix_ms()).is_some_and(is_new) {
            drop(state);
            self.state.write().vouched.mark_admitted(key);
        }
    }

    /// Judges a voucher whose key has proved itself, when it is its turn.
    async fn judge_once(self: &Arc<Self>, voucher: Voucher) -> Result<(), VoucherFault> {
        let turn = Arc::clone(&self.judgements).acquire_owned();
        let Ok(Ok(turn)) = timeout(MAX_JUDGEMENT_WAIT, turn).await else {
            return Err(VoucherFault::Busy);
        };
        // Several sessions of a copy may begin at the same time.
        if self.is_remembered(&voucher) {
            return Ok(());
        }
        let identities = Arc::clone(self);
        let judge = move || {
            let _turn = turn;
            identities.remember(voucher)
        };
        // It fails only if the judgement panics.
        let judged = tokio::task::spawn_blocking(judge).await;
        judged.unwrap_or(Err(VoucherFault::Busy))
    }

    /// Judges a voucher whose key has proved itself, and remembers it until it ends. Blocking.
    fn remember(&self, voucher: Voucher) -> Result<(), VoucherFault> {
        let now = unix_ms();
        let principals = Arc::clone(&self.state.read().principals);
        let mut identity = principals.judge(&voucher, now)?;
        let mut state = self.state.write();
        if !Arc::ptr_eq(&state.principals, &principals) {
            // The file was replaced meanwhile.
            identity = state.principals.judge(&voucher, now)?;
        }
        let (voucher, identity) = (Arc::new(voucher), Arc::new(identity));
        let lost = state.vouched.insert(voucher, identity, now)?;
        drop(state);
        if lost {
            self.count_change();
        }
        self.added.notify_one();
        Ok(())
    }

    fn is_remembered(&self, voucher: &Voucher) -> bool {
        let state = self.state.read();
        let remembered = state.vouched.get(&voucher.key, unix_ms());
        remembered.is_some_and(|remembered| *remembered.voucher == *voucher)
    }

    /// Returns a receiver that is notified when a key can have lost a name or group: the file was
    /// loaded again, or a voucher ended.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Loads the file again, and judges all vouchers by it. If a file has an error, the principals
    /// in force stay, and judge them again: revocation lists become too old. Blocking.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn reload(&self) -> Result<(), IdentityError> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        match PrincipalsFile::load(file) {
            Ok(principals) => {
                self.replace(Arc::new(principals));
                Ok(())
            }
            Err(error) => {
                let in_force = Arc::clone(&self.state.read().principals);
                self.replace(in_force);
                Err(error)
            }
        }
    }

    fn replace(&self, principals: Arc<PrincipalsFile>) {
        let now = unix_ms();
        // Judged before the lock is taken; only those that come meanwhile are judged under it.
        let vouchers = self.state.read().vouched.vouchers();
        let judged: HashMap<PublicKey, (Arc<Voucher>, Option<Arc<VouchedIdentity>>)> = vouchers
            .into_iter()
            .map(|voucher| {
                let identity = principals.judge(&voucher, now).ok().map(Arc::new);
                (voucher.key, (voucher, identity))
            })
            .collect();
        let mut state = self.state.write();
        state
            .vouched
            .judge_again(|voucher| match judged.get(&voucher.key) {
                Some((same, identity)) if **same == *voucher => identity.clone(),
                _ => principals.judge(voucher, now).ok().map(Arc::new),
            });
        state.principals = principals;
        drop(state);
        self.count_change();
    }

    fn count_change(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Ends vouched keys in time, and loads certificates and revocation lists again every ten
    /// minutes.
    pub async fn maintain(self: Arc<Self>) -> Infallible {
        let mut reload_at = Instant::now() + RELOAD_INTERVAL;
        loop {
            let wake = self.time_to_next_end().min(MAX_SLEEP);
            let until_reload = reload_at.saturating_duration_since(Instant::now());
            tokio::select! {
                () = sleep(wake.min(until_reload)) => {}
                () = self.added.notified() => {}
            }
            let ended = self.state.write().vouched.remove_ended(unix_ms());
            if ended {
                self.count_change();
            }
            if Instant::now() >= reload_at {
                reload_at = Instant::now() + RELOAD_INTERVAL;
                Arc::clone(&self).reload_authorities().await;
            }
        }
    }

    fn time_to_next_end(&self) -> Duration {
        let end = self.state.read().vouched.next_end_unix_ms();
        let left = |end: u64| Duration::from_millis(end.saturating_sub(unix_ms()));
        end.map_or(MAX_SLEEP, left)
    }

    async fn reload_authorities(self: Arc<Self>) {
        if !self.state.read().principals.has_authorities() {
            return;
        }
        // If the task panics, the principals in force stay.
        let reloaded = tokio::task::spawn_blocking(move || self.reload()).await;
        if let Ok(Err(error)) = reloaded {
            tracing::error!(
                %error,
                "certificates and revocation lists were not loaded again: keeping the previous ones"
            );
        }
    }
}

#[cfg(test)]
mod tests;
