//! Circuit grants at this depot (LH-GRANT-3): the grants in force, and the use that their sessions
//! make of them.
//!
//! Sessions, rates and bytes are counted by issuer and circuit, so another grant of the same
//! circuit adds nothing to its bounds. Whether a grant is in force is tracked per holder: a
//! controller may withdraw it from one key and not from another. An account stays until all of its
//! grants are over, so that consecutive sessions do not each begin with a full bucket. Only grants
//! with a verified signature have an account.
//!
//! | module | purpose |
//! |---|---|
//! | [`standing`] | the time in which a grant is in force, and the effect of a withdrawal. Pure |
//! | [`session`] | one session's part of an account |
//! | [`in_use`] | the grants in use, for the task that asks a controller if they are still valid |

mod session;
mod standing;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use longhaul_hop::RateLimits;
use longhaul_policy::Policy;
use longhaul_proto::{CircuitGrant, Open, PublicKey, StatusCode, payload_rate};
use parking_lot::{Mutex, MutexGuard};
use quantities::Rate;
use tokio::sync::{Notify, watch};

use crate::refusal::DepotRefusal;
pub(crate) use session::{CountedGrant, GrantSession};
pub(crate) use standing::ClockReading;
use standing::GrantStanding;

/// All grants that were used at this depot and are not over.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    accounts: Mutex<HashMap<AccountKey, CircuitAccount>>,
    /// Wakes the task that asks controllers: a grant is in use that it has not asked about.
    pub(crate) unqueried: Notify,
}

/// Issuer and circuit.
type AccountKey = (PublicKey, Vec<u8>);

/// A circuit with the state shared by its sessions.
#[derive(Debug)]
struct CircuitAccount {
    sessions: u16,
    /// Sum of the rates that its sessions have stated, in bit/s.
    stated: u64,
    /// Bytes carried by its ended sessions, in both directions.
    carried: u64,
    /// End of the most recently issued grant, in milliseconds since 1970-01-01 UTC. The bounds of
    /// that grant apply.
    newest_unix_ms: u64,
    max_sessions: u16,
    /// Rate in bit/s, including packet headers.
    rate: u64,
    limits: RateLimits,
    holders: HashMap<PublicKey, GrantHolder>,
}

/// A key that holds a grant of the circuit.
#[derive(Debug)]
struct GrantHolder {
    sessions: u16,
    standing: watch::Sender<GrantStanding>,
}

impl Grants {
    fn accounts(&self) -> MutexGuard<'_, HashMap<AccountKey, CircuitAccount>> {
        self.accounts.lock()
    }

    /// Admits the session of a verified OPEN to its circuit. Returns `None` if the OPEN carries no
    /// grant, or the policy names no controllers.
    ///
    /// # Errors
    /// [`StatusCode::GrantRefused`]: the grant is invalid here, or fully in use.
    pub(crate) fn enter(
        self: &Arc<Self>,
        open: &Open,
        me: &PublicKey,
        policy: &Policy,
        now: ClockReading,
    ) -> Result<Option<GrantSession>, DepotRefusal> {
        let Some(grant) = open.grant.as_deref().filter(|_| policy.has_controllers()) else {
            return Ok(None);
        };
        let trusts = |issuer: &PublicKey| policy.trusts(issuer);
        grant
            .check(&open.principal, me, now.unix_ms, trusts)
            .map_err(|fault| DepotRefusal::new(StatusCode::GrantRefused, fault.to_string()))?;
        self.take(grant, open.rate, now).map(Some)
    }

    fn take(
        self: &Arc<Self>,
        grant: &CircuitGrant,
        rate: Option<u64>,
        now: ClockReading,
    ) -> Result<GrantSession, DepotRefusal> {
        let key = (grant.issuer, grant.circuit.clone());
        let refused =
            |why: String| DepotRefusal::new(StatusCode::GrantRefused, format!("{grant}: {why}"));
        let mut accounts = self.accounts();
        drop_expired(&mut accounts, now);
        let account = accounts
            .entry(key.clone())
            .or_insert_with(|| CircuitAccount::new(grant));
        if account.is_withdrawn_from(&grant.holder, now) {
            // The controller is asked about it; a renewal is valid from then on.
            self.unqueried.notify_one();
            return Err(refused(
                "its controller has withdrawn it: ask the controller for a new one".to_owned(),
            ));
        }
        // If two grants end at the same time, only the controller knows which is newer.
        if grant.end_unix_ms != account.newest_unix_ms {
            account.adopt(grant);
        }
        let stated = rate.unwrap_or(0);
        account.check_bounds(stated).map_err(refused)?;
        account.sessions = account.sessions.saturating_add(1);
        account.stated = account.stated.saturating_add(stated);
        let until = GrantStanding::until(grant.end_unix_ms, now);
        let holder = account.holders.entry(grant.holder).or_insert_with(|| {
            self.unqueried.notify_one();
            GrantHolder {
                sessions: 0,
                standing: watch::channel(until).0,
            }
        });
        holder.sessions = holder.sessions.saturating_add(1);
        holder
            .standing
            .send_if_modified(|standing| standing.extend(until));
        Ok(GrantSession::new(
            Arc::clone(self),
            (key, grant.holder),
            stated,
            payload_rate(rate.unwrap_or(account.rate)),
            account.limits.clone(),
            holder.standing.subscribe(),
        ))
    }

    /// Applies a renewal by a controller to the account that `issuer` began. Sessions continue.
    /// Returns false if the grant is no longer in use.
    pub(crate) fn renew(&self, issuer: PublicKey, grant: &CircuitGrant, now: ClockReading) -> bool {
        let mut accounts = self.accounts();
        let Some(account) = accounts.get_mut(&(issuer, grant.circuit.clone())) else {
            return false;
        };
        account.adopt(grant);
        account.holders.get(&grant.holder).is_some_and(|holder| {
            holder
                .standing
                .send_replace(GrantStanding::until(grant.end_unix_ms, now));
            true
        })
    }

    /// Ends a grant for one holder. Returns false if it was not in force.
    pub(crate) fn withdraw(&self, key: &AccountKey, holder: &PublicKey, now: ClockReading) -> bool {
        let accounts = self.accounts();
        let holder = accounts
            .get(key)
            .and_then(|account| account.holders.get(holder));
        holder.is_some_and(|holder| {
            let was_in_force = holder.standing.borrow().is_in_force(now);
            holder
                .standing
                .send_if_modified(|standing| standing.withdraw(now));
            was_in_force
        })
    }

    /// Returns the grants that are not over, with their issuers and holders.
    pub(crate) fn list(&self, now: ClockReading) -> Vec<(AccountKey, PublicKey)> {
        let mut accounts = self.accounts();
        drop_expired(&mut accounts, now);
        let each = accounts.iter().flat_map(|(key, account)| {
            account
                .holders
                .keys()
                .map(move |holder| (key.clone(), *holder))
        });
        each.collect()
    }
}

/// Drops holders that are over and have no session, and accounts without holders.
fn drop_expired(accounts: &mut HashMap<AccountKey, CircuitAccount>, now: ClockReading) {
    accounts.retain(|_, account| {
        account
            .holders
            .retain(|_, holder| holder.sessions > 0 || !holder.standing.borrow().is_over(now));
        !account.holders.is_empty()
    });
}

impl CircuitAccount {
    fn new(grant: &CircuitGrant) -> Self {
        Self {
            sessions: 0,
            stated: 0,
            carried: 0,
            newest_unix_ms: 0,
            max_sessions: grant.sessions,
            rate: grant.rate,
            limits: RateLimits::new(Some(payload_rate(grant.rate))),
            holders: HashMap::new(),
        }
    }

    /// Applies the bounds of a grant, unless one that was issued later is known.
    fn adopt(&mut self, grant: &CircuitGrant) {
        if grant.end_unix_ms < self.newest_unix_ms {
            return;
        }
        self.newest_unix_ms = grant.end_unix_ms;
        (self.max_sessions, self.rate) = (grant.sessions, grant.rate);
        self.limits.set(Some(payload_rate(grant.rate)));
    }

    /// Checks that one more session with this stated rate fits the grant.
    fn check_bounds(&self, stated: u64) -> Result<(), String> {
        if self.sessions >= self.max_sessions {
            return Err(format!(
                "all {} sessions that it grants are in use",
                self.max_sessions
            ));
        }
        let left = self.rate.saturating_sub(self.stated);
        if stated > left {
            let [stated, left] = [stated, left].map(|bits| Rate::nearest(bits as f64));
            return Err(format!(
                "the session states {stated}, but only {left} of the granted rate is free"
            ));
        }
        Ok(())
    }

    fn is_withdrawn_from(&self, holder: &PublicKey, now: ClockReading) -> bool {
        let holder = self.holders.get(holder);
        holder.is_some_and(|holder| holder.standing.borrow().is_refused(now))
    }
}
