//! Addresses that accepted a connection and did not answer on it.
//!
//! A machine accepts connections also for a program that hangs, so its address can win every race
//! of connections. It is remembered for some time, and dialled after the others.

use std::net::SocketAddr;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Time for which an address is remembered. After that, one set-up may try it again.
const REMEMBERED_FOR: Duration = Duration::from_secs(60);
/// Maximum number of remembered addresses.
const MAX_REMEMBERED: usize = 64;
/// Duration from which a set-up that its caller abandons counts as unanswered.
const MIN_ABANDONED: Duration = Duration::from_secs(2);

/// Addresses that all sessions of this process remember.
static REMEMBERED: Mutex<UnansweredAddresses> = Mutex::new(UnansweredAddresses(Vec::new()));

/// Addresses with the time of their last unanswered set-up, in the order of these times.
#[derive(Debug, Default)]
struct UnansweredAddresses(Vec<(SocketAddr, Instant)>);

impl UnansweredAddresses {
    fn note(&mut self, address: SocketAddr, now: Instant) {
        self.clear(address);
        if self.0.len() >= MAX_REMEMBERED {
            self.0.remove(0);
        }
        self.0.push((address, now));
    }

    fn clear(&mut self, address: SocketAddr) {
        self.0.retain(|(other, _)| *other != address);
    }

    /// Moves the addresses that did not answer behind the others, the latest of them last. Returns
    /// the number of the others.
    fn move_last(&self, addresses: &mut [SocketAddr], now: Instant) -> usize {
        let position = |address: &SocketAddr| {
            self.0.iter().position(|(other, at)| {
                other == address && now.saturating_duration_since(*at) < REMEMBERED_FOR
            })
        };
        // The sort is stable, and `None` comes first.
        addresses.sort_by_key(position);
        let others = addresses.iter().filter(|at| position(at).is_none());
        others.count()
    }
}

/// Moves the addresses that did not answer lately behind the others. Returns the number of the
/// others.
pub(crate) fn move_unanswered_last(addresses: &mut [SocketAddr]) -> usize {
    REMEMBERED.lock().move_last(addresses, Instant::now())
}

/// A set-up over an established connection, whose other end has not answered yet.
///
/// If it is dropped after more than a moment, its address is remembered.
#[derive(Debug)]
pub(crate) struct PendingSetup {
    address: SocketAddr,
    began: Instant,
    /// True once the outcome is noted.
    is_over: bool,
}

impl PendingSetup {
    /// Begins a set-up over a connection to `address`.
    pub(crate) fn begin(address: SocketAddr) -> Self {
        Self {
            address,
            began: Instant::now(),
            is_over: false,
        }
    }

    /// Notes that the other end has answered, whatever it said.
    pub(crate) fn answered(mut self) {
        self.is_over = true;
        REMEMBERED.lock().clear(self.address);
    }

    /// Notes that the other end has not answered within the time limit.
    pub(crate) fn unanswered(mut self) {
        self.is_over = true;
        REMEMBERED.lock().note(self.address, Instant::now());
    }
}

impl Drop for PendingSetup {
    fn drop(&mut self) {
        if !self.is_over && self.began.elapsed() >= MIN_ABANDONED {
            REMEMBERED.lock().note(self.address, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], 7511))
    }

    #[tokio::test(start_paused = true)]
    async fn unanswered_addresses_are_last_for_a_while() {
        let mut memory = UnansweredAddresses::default();
        let given = [1, 2, 3, 4].map(address);
        let now = Instant::now();
        memory.note(address(1), now);
        memory.note(address(3), now);
        memory.note(address(1), now + REMEMBERED_FOR / 2);
        let order = |now: Instant| {
            let mut addresses = given;
            let others = memory.move_last(&mut addresses, now);
            (addresses, others)
        };
        let expected = ([2, 4, 3, 1].map(address), 2);
        assert_eq!(order(now + REMEMBERED_FOR / 2), expected);
        let expected = ([2, 3, 4, 1].map(address), 3);
        assert_eq!(order(now + REMEMBERED_FOR), expected);
        assert_eq!(order(now + 2 * REMEMBERED_FOR), (given, 4));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_clears_an_address() {
        let mut memory = UnansweredAddresses::default();
        let now = Instant::now();
        memory.note(address(1), now);
        memory.clear(address(1));
        let mut addresses = [1, 2].map(address);
        assert_eq!(memory.move_last(&mut addresses, now), 2);
        assert_eq!(addresses, [1, 2].map(address));
    }

    #[tokio::test(start_paused = true)]
    async fn memory_of_addresses_is_bounded() {
        let mut memory = UnansweredAddresses::default();
        for last in 0..=u8::MAX {
            memory.note(address(last), Instant::now());
        }
        assert_eq!(memory.0.len(), MAX_REMEMBERED);
        let mut addresses = [u8::MAX, 0].map(address);
        assert_eq!(memory.move_last(&mut addresses, Instant::now()), 1);
        assert_eq!(addresses, [0, u8::MAX].map(address));
    }

    #[tokio::test(start_paused = true)]
    async fn abandoned_setup_counts_only_after_a_moment() {
        // Addresses that no other test has.
        let (brief, long) = (address(101), address(102));
        let mut addresses = [long, brief];
        drop(PendingSetup::begin(brief));
        let pending = PendingSetup::begin(long);
        tokio::time::sleep(MIN_ABANDONED).await;
        drop(pending);
        assert_eq!(move_unanswered_last(&mut addresses), 1);
        assert_eq!(addresses, [brief, long]);
        PendingSetup::begin(long).answered();
        assert_eq!(move_unanswered_last(&mut addresses), 2);
        PendingSetup::begin(brief).unanswered();
        assert_eq!(move_unanswered_last(&mut addresses), 1);
    }
}
