//! One session's part of a circuit's account.

use std::sync::Arc;

use longhaul_policy::RateLimits;
use longhaul_proto::PublicKey;
use longhaul_proto::text::printable;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::{AccountKey, Grants, Standing};
use crate::metrics::Metrics;

/// Bits of a byte.
const BITS: u64 = 8;

/// One session under a grant; given back when dropped.
#[derive(Debug)]
pub(crate) struct GrantSession {
    grants: Arc<Grants>,
    key: AccountKey,
    holder: PublicKey,
    stated: u64,
    /// Bits a second of payload to which its hops are paced.
    paced: u64,
    limits: RateLimits,
    standing: watch::Receiver<Standing>,
    is_in_force: bool,
}

impl GrantSession {
    pub(super) fn new(
        grants: Arc<Grants>,
        (key, holder): (AccountKey, PublicKey),
        stated: u64,
        paced: u64,
        limits: RateLimits,
        standing: watch::Receiver<Standing>,
    ) -> Self {
        Self {
            grants,
            key,
            holder,
            stated,
            paced,
            limits,
            standing,
            is_in_force: true,
        }
    }

    /// The circuit, for a log.
    pub(crate) fn circuit(&self) -> String {
        printable(&self.key.1)
    }

    /// The rate of the circuit, which all its sessions share; `None` while the grant is not in
    /// force.
    pub(crate) fn limits(&self) -> Option<RateLimits> {
        self.is_in_force.then(|| self.limits.clone())
    }

    /// Bytes a second of payload to which its hops are paced.
    pub(crate) fn paced(&self) -> u64 {
        (self.paced / BITS).max(1)
    }

    /// Waits until the grant comes into force or ceases to be in force, and returns which it is.
    /// May be dropped and called again at any time.
    pub(crate) async fn turned(&mut self) -> bool {
        loop {
            let standing = *self.standing.borrow_and_update();
            let is_in_force = standing.end().is_some_and(|end| Instant::now() < end);
            if is_in_force != self.is_in_force {
                self.is_in_force = is_in_force;
                return is_in_force;
            }
            let lapses = async {
                match standing.end().filter(|_| is_in_force) {
                    Some(end) => sleep_until(end).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // The account has its sender as long as it has this session.
                _ = self.standing.changed() => {}
                () = lapses => {}
            }
        }
    }

    /// Counts what the session carried, both ways. Returns what all of the circuit's sessions have.
    pub(crate) fn count_carried(&self, bytes: u64) -> u64 {
        let mut accounts = self.grants.accounts();
        accounts.get_mut(&self.key).map_or(bytes, |account| {
            account.carried = account.carried.saturating_add(bytes);
            account.carried
        })
    }
}

impl Drop for GrantSession {
    fn drop(&mut self) {
        if let Some(account) = self.grants.accounts().get_mut(&self.key) {
            account.sessions = account.sessions.saturating_sub(1);
            account.stated = account.stated.saturating_sub(self.stated);
            if let Some(holder) = account.holders.get_mut(&self.holder) {
                holder.sessions = holder.sessions.saturating_sub(1);
            }
        }
    }
}

/// The session of a grant, counted in the metrics while that is in force.
pub(crate) struct CountedGrant<'a> {
    pub(crate) session: GrantSession,
    metrics: &'a Metrics,
}

impl<'a> CountedGrant<'a> {
    pub(crate) fn new(session: GrantSession, metrics: &'a Metrics) -> Self {
        metrics.granted_sessions.inc();
        Self { session, metrics }
    }

    /// Waits until a grant comes into force or ceases to be in force; for ever without one.
    pub(crate) async fn turned(grant: &mut Option<Self>) {
        let Some(Self { session, metrics }) = grant else {
            return std::future::pending().await;
        };
        match session.turned().await {
            true => metrics.granted_sessions.inc(),
            false => metrics.granted_sessions.dec(),
        };
    }
}

impl Drop for CountedGrant<'_> {
    fn drop(&mut self) {
        if self.session.is_in_force {
            self.metrics.granted_sessions.dec();
        }
    }
}
