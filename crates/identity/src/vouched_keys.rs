//! The keys that certificates have vouched for. Pure: the time is an argument.

use std::collections::HashMap;
use std::sync::Arc;

use longhaul_proto::{PublicKey, Voucher, VoucherFault};

use crate::authority::VouchedIdentity;

/// Maximum number of keys that the certificates of one subject vouch for at a time. A further one
/// replaces the oldest, so a subject fills only its own share.
pub const MAX_KEYS_PER_SUBJECT: usize = 8;

/// Vouched keys, each until its voucher or a certificate of its chain ends.
#[derive(Debug)]
pub(crate) struct VouchedKeys {
    keys: HashMap<PublicKey, VouchedKey>,
    max_keys: usize,
    /// Number of keys added so far, which orders them.
    added: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct VouchedKey {
    pub(crate) voucher: Arc<Voucher>,
    pub(crate) identity: Arc<VouchedIdentity>,
    /// If true, the key was admitted since. Others make room.
    pub(crate) is_admitted: bool,
    order: u64,
}

impl VouchedKeys {
    pub(crate) fn new(max_keys: usize) -> Self {
        Self {
            keys: HashMap::new(),
            max_keys,
            added: 0,
        }
    }

    /// Returns what was vouched for the key, unless it has ended.
    pub(crate) fn get(&self, key: &PublicKey, now_unix_ms: u64) -> Option<&VouchedKey> {
        let vouched = self.keys.get(key)?;
        (now_unix_ms < vouched.identity.end_unix_ms).then_some(vouched)
    }

    /// Adds what was vouched for a key, or replaces it. What ends later stays, if it is the same
    /// otherwise, because an earlier session may repeat its voucher. Returns true if this or
    /// another key may have lost a name by it.
    ///
    /// # Errors
    /// [`VoucherFault::Full`].
    pub(crate) fn insert(
        &mut self,
        voucher: Arc<Voucher>,
        identity: Arc<VouchedIdentity>,
        now_unix_ms: u64,
    ) -> Result<bool, VoucherFault> {
        let key = voucher.key;
        if self
            .get(&key, now_unix_ms)
            .is_some_and(|vouched| vouched.identity.outlives(&identity))
        {
            return Ok(false);
        }
        let replaced = self.keys.remove(&key);
        let mut lost = replaced.is_some_and(|replaced| replaced.identity != identity);
        if self.keys.len() >= self.max_keys {
            lost |= self.remove_ended(now_unix_ms);
        }
        if let Some(oldest) = self.oldest_of_full_subject(&identity) {
            lost |= self.keys.remove(&oldest).is_some();
        }
        if self.keys.len() >= self.max_keys {
            // Most certificates of a large authority have no rights here.
            let strangers = self.keys.iter().filter(|(_, vouched)| !vouched.is_admitted);
            let oldest = strangers.min_by_key(|(_, vouched)| vouched.order);
            let oldest = oldest.map(|(key, _)| *key).ok_or(VoucherFault::Full)?;
            self.keys.remove(&oldest);
        }
        self.added += 1;
        let order = self.added;
        let vouched = VouchedKey {
            voucher,
            identity,
            is_admitted: false,
            order,
        };
        self.keys.insert(key, vouched);
        Ok(lost)
    }

    /// Remembers that the key was admitted by its names, so that it does not make room for others.
    pub(crate) fn mark_admitted(&mut self, key: &PublicKey) {
        if let Some(vouched) = self.keys.get_mut(key) {
            vouched.is_admitted = true;
        }
    }

    fn oldest_of_full_subject(&self, identity: &VouchedIdentity) -> Option<PublicKey> {
        let of_subject = || {
            let keys = self.keys.iter();
            keys.filter(move |(_, vouched)| vouched.identity.subject == identity.subject)
        };
        if of_subject().count() < MAX_KEYS_PER_SUBJECT {
            return None;
        }
        let oldest = of_subject().min_by_key(|(_, vouched)| vouched.order);
        oldest.map(|(key, _)| *key)
    }

    /// Removes the keys whose time has ended, and returns true if there were any.
    pub(crate) fn remove_ended(&mut self, now_unix_ms: u64) -> bool {
        let before = self.keys.len();
        self.keys
            .retain(|_, vouched| now_unix_ms < vouched.identity.end_unix_ms);
        self.keys.len() < before
    }

    /// Returns the time at which the next key ends, in milliseconds since 1970-01-01 UTC.
    pub(crate) fn next_end_unix_ms(&self) -> Option<u64> {
        let ends = self
            .keys
            .values()
            .map(|vouched| vouched.identity.end_unix_ms);
        ends.min()
    }

    pub(crate) fn vouchers(&self) -> Vec<Arc<Voucher>> {
        let vouched = self.keys.values();
        vouched
            .map(|vouched| Arc::clone(&vouched.voucher))
            .collect()
    }

    /// Replaces every identity by what `judge` returns, and removes keys for which it fails.
    /// Returns true if any was changed or removed.
    pub(crate) fn judge_again(
        &mut self,
        mut judge: impl FnMut(&Voucher) -> Option<Arc<VouchedIdentity>>,
    ) -> bool {
        let mut changed = false;
        self.keys.retain(|_, vouched| {
            let judged = judge(&vouched.voucher);
            changed |= judged.as_ref() != Some(&vouched.identity);
            match judged {
                Some(identity) => {
                    vouched.identity = identity;
                    true
                }
                None => false,
            }
        });
        changed
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voucher(key: u8) -> Arc<Voucher> {
        Arc::new(Voucher {
            key: PublicKey::from_bytes([key; 32]),
            start_unix_ms: 0,
            end_unix_ms: 1,
            certificates: Vec::new(),
            scheme: 0,
            signature: Vec::new(),
        })
    }

    fn identity(name: &str, end_unix_ms: u64) -> Arc<VouchedIdentity> {
        Arc::new(VouchedIdentity {
            subject: name.to_owned(),
            names: vec![name.to_owned()],
            groups: Vec::new(),
            end_unix_ms,
        })
    }

    fn has(keys: &VouchedKeys, key: u8, now: u64) -> bool {
        keys.get(&PublicKey::from_bytes([key; 32]), now).is_some()
    }

    #[test]
    fn keys_end_with_their_vouchers() {
        let mut keys = VouchedKeys::new(4);
        keys.insert(voucher(1), identity("a", 10), 0).unwrap();
        keys.insert(voucher(2), identity("a", 20), 0).unwrap();
        assert_eq!(keys.next_end_unix_ms(), Some(10));
        assert!(has(&keys, 1, 9) && !has(&keys, 1, 10) && has(&keys, 2, 10));
        assert!(!keys.remove_ended(9) && keys.remove_ended(10));
        assert_eq!(keys.len(), 1);
    }

    #[test]
    fn subject_replaces_only_its_own_oldest_key() {
        let mut keys = VouchedKeys::new(100);
        keys.insert(voucher(100), identity("b", 10), 0).unwrap();
        for key in 0..8 {
            assert_eq!(keys.insert(voucher(key), identity("a", 10), 0), Ok(false));
        }
        assert_eq!(keys.insert(voucher(8), identity("a", 10), 0), Ok(true));
        assert!(!has(&keys, 0, 0) && has(&keys, 1, 0) && has(&keys, 100, 0));
        assert_eq!(keys.len(), 1 + MAX_KEYS_PER_SUBJECT);
    }

    #[test]
    fn full_memory_refuses_and_keeps_others() {
        let mut keys = VouchedKeys::new(2);
        keys.insert(voucher(1), identity("a", 10), 0).unwrap();
        keys.insert(voucher(2), identity("b", 20), 0).unwrap();
        keys.mark_admitted(&PublicKey::from_bytes([1; 32]));
        keys.mark_admitted(&PublicKey::from_bytes([2; 32]));
        let third = keys.insert(voucher(3), identity("c", 20), 0);
        assert_eq!(third, Err(VoucherFault::Full));
        assert!(has(&keys, 1, 0) && has(&keys, 2, 0));
        // A known key is replaced, and an ended one makes room.
        keys.insert(voucher(2), identity("b", 30), 0).unwrap();
        keys.insert(voucher(3), identity("c", 20), 10).unwrap();
        assert!(!has(&keys, 1, 10) && has(&keys, 3, 10));
    }

    #[test]
    fn keys_without_rights_make_room() {
        let mut keys = VouchedKeys::new(2);
        keys.insert(voucher(1), identity("a", 10), 0).unwrap();
        keys.mark_admitted(&PublicKey::from_bytes([1; 32]));
        for key in 2..5 {
            let name = format!("stranger {key}");
            assert_eq!(keys.insert(voucher(key), identity(&name, 10), 0), Ok(false));
        }
        assert!(has(&keys, 1, 0) && !has(&keys, 3, 0) && has(&keys, 4, 0));
    }

    #[test]
    fn earlier_voucher_does_not_shorten_a_later_one() {
        let mut keys = VouchedKeys::new(2);
        keys.insert(voucher(1), identity("a", 20), 0).unwrap();
        assert_eq!(keys.insert(voucher(1), identity("a", 10), 0), Ok(false));
        assert!(has(&keys, 1, 15));
        assert_eq!(keys.insert(voucher(1), identity("b", 10), 0), Ok(true));
        assert!(!has(&keys, 1, 15));
    }

    #[test]
    fn judging_again_reports_changes() {
        let mut keys = VouchedKeys::new(2);
        keys.insert(voucher(1), identity("a", 10), 0).unwrap();
        assert!(!keys.judge_again(|_| Some(identity("a", 10))));
        assert!(keys.judge_again(|_| Some(identity("b", 10))));
        assert!(keys.judge_again(|_| None));
        assert_eq!(keys.len(), 0);
    }
}
