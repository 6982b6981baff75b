//! What grants of circuits have under way at this depot (LH-GRANT-3): sessions, what of the rate they have stated, and bytes.
//!
//! It is counted by issuer and circuit, so a further grant of the same circuit adds nothing to it. An account stays until its grant's end, so that whoever
//! opens sessions one after the other does not begin with a full bucket each time. Only grants whose signature was verified have one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_hop::RateLimit;
use longhaul_policy::{Policy, RateLimits};
use longhaul_proto::text::printable;
use longhaul_proto::{CircuitGrant, Open, PublicKey, StatusCode, payload_rate};
use quantities::Rate;

use crate::refusal::Refused;

/// Bits of a byte.
const BITS: u64 = 8;

/// All grants that were used here and are not over.
#[derive(Debug, Default)]
pub(crate) struct Grants(Mutex<HashMap<Key, Account>>);

/// Which circuit of whose.
type Key = (PublicKey, Vec<u8>);

#[derive(Debug)]
struct Account {
    sessions: u16,
    /// Bits a second that its sessions have stated, in all.
    stated: u64,
    /// Bytes that its sessions that are over carried, both ways.
    carried: u64,
    end_unix_ms: u64,
    limits: RateLimits,
}

/// One session's place under its grant; given back when dropped.
#[derive(Debug)]
pub(crate) struct GrantSession {
    grants: Arc<Grants>,
    key: Key,
    stated: u64,
    /// Bits a second of payload to which its hops are paced.
    paced: u64,
    limits: RateLimits,
    left: Duration,
}

impl Grants {
    fn accounts(&self) -> MutexGuard<'_, HashMap<Key, Account>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for the session of an OPEN whose signature was verified; none where it carries no grant, or the policy names no controllers.
    ///
    /// # Errors
    /// [`StatusCode::GrantRefused`]: the grant does not count here, or all of it is in use.
    pub(crate) fn enter(
        self: &Arc<Self>,
        open: &Open,
        me: &PublicKey,
        policy: &Policy,
        now_unix_ms: u64,
    ) -> Result<Option<GrantSession>, Refused> {
        let Some(grant) = open.grant.as_deref().filter(|_| policy.has_controllers()) else {
            return Ok(None);
        };
        let trusts = |issuer: &PublicKey| policy.trusts(issuer);
        grant
            .check(&open.principal, me, now_unix_ms, trusts)
            .map_err(|fault| Refused::new(StatusCode::GrantRefused, fault.to_string()))?;
        self.take(grant, open.rate, now_unix_ms).map(Some)
    }

    fn take(
        self: &Arc<Self>,
        grant: &CircuitGrant,
        rate: Option<u64>,
        now_unix_ms: u64,
    ) -> Result<GrantSession, Refused> {
        let key = (grant.issuer, grant.circuit.clone());
        let mut accounts = self.accounts();
        accounts.retain(|_, account| account.sessions > 0 || account.end_unix_ms > now_unix_ms);
        let account = accounts.entry(key.clone()).or_insert_with(|| Account::new(grant));
        let refused = |why: String| Err(Refused::new(StatusCode::GrantRefused, format!("{grant}: {why}")));
        if account.sessions >= grant.sessions {
            return refused(format!(
                "all {} sessions that it grants are under way",
                grant.sessions
            ));
        }
        let stated = rate.unwrap_or(0);
        let left = grant.rate.saturating_sub(account.stated);
        if stated > left {
            let [stated, left] = [stated, left].map(|bits| Rate::nearest(bits as f64));
            return refused(format!("{stated} is stated, and {left} of its rate is left"));
        }
        account.sessions += 1;
        account.stated += stated;
        account.end_unix_ms = grant.end_unix_ms;
        for limit in [&account.limits.forward, &account.limits.backward] {
            limit.set(Some(payload_rate(grant.rate)));
        }
        Ok(GrantSession {
            grants: Arc::clone(self),
            key,
            stated,
            paced: payload_rate(rate.unwrap_or(grant.rate)),
            limits: account.limits.clone(),
            left: Duration::from_millis(grant.end_unix_ms.saturating_sub(now_unix_ms)),
        })
    }
}

impl Account {
    fn new(grant: &CircuitGrant) -> Self {
        let limit = || Arc::new(RateLimit::new(Some(payload_rate(grant.rate))));
        Self {
            sessions: 0,
            stated: 0,
            carried: 0,
            end_unix_ms: grant.end_unix_ms,
            limits: RateLimits {
                forward: limit(),
                backward: limit(),
            },
        }
    }
}

impl GrantSession {
    /// The circuit, for a log.
    pub(crate) fn circuit(&self) -> String {
        printable(&self.key.1)
    }

    /// The rate of its grant, which all its sessions share.
    pub(crate) fn limits(&self) -> RateLimits {
        self.limits.clone()
    }

    /// Bytes a second of payload to which its hops are paced.
    pub(crate) fn paced(&self) -> u64 {
        (self.paced / BITS).max(1)
    }

    /// How long the grant went on when the session was taken.
    pub(crate) const fn left(&self) -> Duration {
        self.left
    }

    /// Counts what the session carried, both ways; what all of the grant's sessions have by now.
    pub(crate) fn carried(&self, bytes: u64) -> u64 {
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(end_unix_ms: u64) -> CircuitGrant {
        CircuitGrant {
            circuit: b"12".to_vec(),
            holder: PublicKey::from_bytes([1; 32]),
            from: "a".to_owned(),
            to: "b".to_owned(),
            start_unix_ms: 0,
            end_unix_ms,
            rate: 80_000_000,
            sessions: 2,
            depots: vec![PublicKey::from_bytes([2; 32])],
            issuer: PublicKey::from_bytes([3; 32]),
            signature: [0; 64],
        }
    }

    /// LH-GRANT-3.
    #[test]
    fn sessions_have_what_is_granted_together_and_no_more() {
        let grants = Arc::new(Grants::default());
        let whole = grants.take(&grant(1_000), Some(50_000_000), 0).unwrap();
        let beyond = grants.take(&grant(1_000), Some(40_000_000), 0).unwrap_err();
        assert_eq!(beyond.code, StatusCode::GrantRefused);
        assert!(
            beyond.detail.contains("30 Mbit/s of its rate is left"),
            "{}",
            beyond.detail
        );
        let rest = grants.take(&grant(1_000), Some(30_000_000), 0).unwrap();
        assert_eq!(rest.paced(), payload_rate(30_000_000) / 8);
        let third = grants.take(&grant(1_000), None, 0).unwrap_err();
        assert!(third.detail.contains("all 2 sessions"), "{}", third.detail);
        drop(whole);
        let again = grants.take(&grant(1_000), None, 0).unwrap();
        assert_eq!(again.paced(), 9_564_068, "of 10 MB/s, less what headers take");
        assert!(Arc::ptr_eq(&again.limits().forward, &rest.limits().forward));
        assert_eq!((rest.carried(5), again.carried(6)), (5, 11));
    }

    #[test]
    fn accounts_stay_until_their_grant_is_over() {
        let grants = Arc::new(Grants::default());
        drop(grants.take(&grant(1_000), None, 0).unwrap());
        assert_eq!(grants.accounts().len(), 1, "its bucket is as it was");
        let mut other = grant(9_000);
        other.circuit = b"13".to_vec();
        let _held = grants.take(&other, None, 2_000).unwrap();
        assert_eq!(grants.accounts().len(), 1);
    }
}
