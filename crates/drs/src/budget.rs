//! Buffer memory shared by connections, fairly by need.
//!
//! Shares are max-min fair: a connection that needs less than an even share gets its need, and the
//! others share the remainder evenly. A connection gets more only from memory that nobody holds. So
//! the sum of all shares never exceeds the total, not even while shares move: a connection gives
//! memory back before another one gets it.

use std::sync::Arc;

use parking_lot::Mutex;

/// Smallest share, in bytes as the kernel accounts them: a few segments must fit.
pub const MIN_SHARE_BYTES: u64 = 8 << 10;

/// Memory for the socket buffers of many connections. Bytes are as the kernel accounts them, as
/// `SO_RCVBUF` reads back.
#[derive(Debug)]
pub struct Budget {
    total: u64,
    accounts: Mutex<Accounts>,
}

#[derive(Debug, Default)]
struct Accounts {
    list: Vec<Option<BudgetAccount>>,
    /// Current even share; needs below it are met in full.
    level: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct BudgetAccount {
    need: u64,
    held: u64,
}

/// A connection's account in a [`Budget`]. Dropping it gives everything back.
#[derive(Debug)]
pub struct BudgetClaim {
    budget: Arc<Budget>,
    index: usize,
}

impl Budget {
    /// Returns a budget of `total` bytes.
    #[must_use]
    pub fn new(total: u64) -> Arc<Self> {
        Arc::new(Self {
            total,
            accounts: Mutex::default(),
        })
    }

    /// Opens an account that holds nothing yet.
    #[must_use]
    pub fn open_claim(self: &Arc<Self>) -> BudgetClaim {
        let mut accounts = self.accounts.lock();
        let free = accounts.list.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            accounts.list.push(None);
            accounts.list.len() - 1
        });
        if let Some(slot) = accounts.list.get_mut(index) {
            *slot = Some(BudgetAccount::default());
        }
        accounts.share_out(self.total);
        drop(accounts);
        BudgetClaim {
            budget: Arc::clone(self),
            index,
        }
    }

    /// Returns the total, in bytes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the bytes that all connections hold now, at most the total.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.accounts.lock().held()
    }
}

impl BudgetClaim {
    /// Requests `need` bytes for this connection. Returns the bytes that it may hold from now on.
    /// If that is less than before, the connection still holds the difference until it calls
    /// [`report_held`](Self::report_held).
    pub fn request(&self, need: u64) -> u64 {
        let mut accounts = self.budget.accounts.lock();
        let Some(Some(mut account)) = accounts.list.get(self.index).copied() else {
            return 0;
        };
        account.need = need;
        accounts.put(self.index, account);
        accounts.share_out(self.budget.total);
        let target = need.min(accounts.level);
        let free = self.budget.total.saturating_sub(accounts.held());
        if target > account.held {
            account.held += (target - account.held).min(free);
            accounts.put(self.index, account);
            return account.held;
        }
        target
    }

    /// Reports the bytes that this connection holds after it shrank. More than was granted is
    /// ignored.
    pub fn report_held(&self, bytes: u64) {
        let mut accounts = self.budget.accounts.lock();
        if let Some(Some(account)) = accounts.list.get_mut(self.index) {
            account.held = account.held.min(bytes);
        }
    }

    /// Returns the bytes that this connection holds now.
    #[must_use]
    pub fn held(&self) -> u64 {
        let accounts = self.budget.accounts.lock();
        accounts
            .list
            .get(self.index)
            .copied()
            .flatten()
            .map_or(0, |account| account.held)
    }
}

impl Drop for BudgetClaim {
    fn drop(&mut self) {
        let mut accounts = self.budget.accounts.lock();
        if let Some(slot) = accounts.list.get_mut(self.index) {
            *slot = None;
        }
        accounts.share_out(self.budget.total);
    }
}

impl Accounts {
    fn put(&mut self, index: usize, account: BudgetAccount) {
        if let Some(slot) = self.list.get_mut(index) {
            *slot = Some(account);
        }
    }

    fn held(&self) -> u64 {
        self.list.iter().flatten().map(|account| account.held).sum()
    }

    /// Finds the level at which the needs, capped at it, fill the total. Needs below it are met in
    /// full; the rest is shared evenly.
    fn share_out(&mut self, total: u64) {
        let mut left = total;
        let mut unmet = self.list.iter().flatten().count() as u64;
        let mut level = left / unmet.max(1);
        while unmet > 0 {
            // Needs up to the even share of the remainder are met in full, and what they leave is
            // shared again.
            let met = self
                .list
                .iter()
                .flatten()
                .filter(|account| account.need <= level);
            let (count, sum) = met.fold((0, 0), |(count, sum), account| {
                (count + 1, sum + account.need)
            });
            let all = self.list.iter().flatten().count() as u64;
            left = total.saturating_sub(sum);
            unmet = all - count;
            let next = left / unmet.max(1);
            if unmet == 0 || next == level {
                break;
            }
            level = next;
        }
        self.level = if unmet == 0 { u64::MAX } else { level };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Requests every need until nothing changes; each connection gives back what it is told to.
    fn settle(claims: &[BudgetClaim], needs: &[u64]) -> Vec<u64> {
        for _ in 0..claims.len() + 2 {
            for (claim, need) in claims.iter().zip(needs) {
                let share = claim.request(*need);
                claim.report_held(share);
            }
        }
        claims.iter().map(BudgetClaim::held).collect()
    }

    #[test]
    fn small_needs_are_met_and_the_rest_is_even() {
        let budget = Budget::new(1000);
        let claims: Vec<BudgetClaim> = (0..4).map(|_| budget.open_claim()).collect();
        assert_eq!(settle(&claims, &[50, 150, 900, 5000]), [50, 150, 400, 400]);
    }

    #[test]
    fn closed_connection_returns_its_share() {
        let budget = Budget::new(100);
        let first = budget.open_claim();
        assert_eq!(first.request(80), 80);
        let second = budget.open_claim();
        // The second one gets nothing of the first one's before that was given back.
        assert_eq!(second.request(80), 20);
        assert_eq!(first.request(80), 50);
        assert_eq!(budget.held(), 100);
        first.report_held(50);
        assert_eq!(second.request(80), 50);
        drop(first);
        assert_eq!(second.request(80), 80);
        assert_eq!(budget.held(), 80);
    }

    proptest! {
        #[test]
        fn the_total_is_never_exceeded(total in 0u64..10_000,
            moves in prop::collection::vec((0usize..8, 0u64..5_000, 0u8..4), 1..200)) {
            let budget = Budget::new(total);
            let mut claims: Vec<Option<BudgetClaim>> = (0..8).map(|_| None).collect();
            for (who, need, what) in moves {
                match (&claims[who], what) {
                    (None, _) => claims[who] = Some(budget.open_claim()),
                    (Some(_), 0) => claims[who] = None,
                    (Some(claim), 1) => claim.report_held(need),
                    (Some(claim), _) => {
                        let share = claim.request(need);
                        prop_assert!(share <= need);
                    }
                }
                prop_assert!(budget.held() <= total);
                prop_assert_eq!(budget.held(),
                    claims.iter().flatten().map(BudgetClaim::held).sum::<u64>());
            }
        }

        #[test]
        fn shares_are_max_min(total in 1_000u64..100_000,
            needs in prop::collection::vec(1u64..50_000, 1..20)) {
            let budget = Budget::new(total);
            let claims: Vec<BudgetClaim> = needs.iter().map(|_| budget.open_claim()).collect();
            let shares = settle(&claims, &needs);
            let most = shares.iter().copied().max().unwrap_or(0);
            for (share, need) in shares.iter().zip(&needs) {
                // A connection with less than its need has no less than any other, up to the
                // rounding of an even division.
                prop_assert!(share == need || share + 1 >= most, "{shares:?} of {needs:?}");
            }
            let (sum, wanted) = (shares.iter().sum::<u64>(), needs.iter().sum::<u64>());
            prop_assert!(sum == wanted.min(total) || sum + needs.len() as u64 >= total.min(wanted));
        }
    }
}
