//! One session's part of a circuit's account.

use std::sync::Arc;

use longhaul_hop::RateLimits;
use longhaul_proto::PublicKey;
use longhaul_proto::text::printable;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::{AccountKey, GrantStanding, Grants};
use crate::metrics::DepotMetrics;

/// One session under a grant, released when dropped.
#[derive(Debug)]
pub(crate) struct GrantSession {
    grants: Arc<Grants>,
    key: AccountKey,
    holder: PublicKey,
    stated: u64,
    /// Payload rate to which its hops are paced, in bit/s.
    paced: u64,
    limits: RateLimits,
    standing: watch::Receiver<GrantStanding>,
    is_in_force: bool,
}

impl GrantSession {
    pub(super) fn new(
        grants: Arc<Grants>,
        (key, holder): (AccountKey, PublicKey),
        stated: u64,
        paced: u64,
        limits: RateLimits,
        standing: watch::Receiver<GrantStanding>,
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

    /// Returns the circuit's name, for a log.
    pub(crate) fn circuit(&self) -> String {
        printable(&self.key.1)
    }

    /// Returns the rate limits of the circuit, shared by all its sessions; `None` while the grant
    /// is not in force.
    pub(crate) fn limits(&self) -> Option<RateLimits> {
        self.is_in_force.then(|| self.limits.clone())
    }

    /// Returns the payload rate to which its hops are paced, in bit/s.
    pub(crate) const fn pacing_rate(&self) -> u64 {
        self.paced
    }

    /// Waits until the grant starts or stops being in force, and returns true if it is in force. It
    /// is cancel-safe.
    pub(crate) async fn wait_for_change(&mut self) -> bool {
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
                // The account keeps its sender as long as it has this session.
                _ = self.standing.changed() => {}
                () = lapses => {}
            }
        }
    }

    /// Adds the bytes that the session carried in both directions. Returns the total of all
    /// sessions of the circuit.
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

/// The session of a grant, counted in the metrics while the grant is in force.
pub(crate) struct CountedGrant<'a> {
    pub(crate) session: GrantSession,
    metrics: &'a DepotMetrics,
}

impl<'a> CountedGrant<'a> {
    pub(crate) fn new(session: GrantSession, metrics: &'a DepotMetrics) -> Self {
        metrics.granted_sessions.inc();
        Self { session, metrics }
    }

    /// Waits until the grant starts or stops being in force. Never completes without a grant.
    pub(crate) async fn wait_for_change(grant: &mut Option<Self>) {
        let Some(Self { session, metrics }) = grant else {
            return std::future::pending().await;
        };
        match session.wait_for_change().await {
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
