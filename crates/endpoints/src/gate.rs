//! Permits of the requests for content of one copy.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::limit::{AdaptiveLimit, INITIAL_REQUESTS};
use crate::overload::OverloadCount;

/// Limit on the requests for content that are in flight.
#[derive(Debug)]
pub(crate) struct RequestGate {
    permits: Semaphore,
    /// Requests that wait for a permit.
    waiting: AtomicUsize,
    /// `None` if the number is fixed.
    adaptive: Option<Adaptive>,
    /// Requests for parts of large files in flight.
    large_requests: usize,
    /// Maximum number of requests in flight, ever.
    max_requests: usize,
}

#[derive(Debug)]
struct Adaptive {
    state: Mutex<AdaptiveState>,
    /// Counts of the stores of the copy.
    overloads: Vec<OverloadCount>,
    began: Instant,
}

#[derive(Debug)]
struct AdaptiveState {
    limit: AdaptiveLimit,
    /// Permits that exist, held or not.
    permits: usize,
    overloads: u64,
}

/// Permit of one request.
#[derive(Debug)]
pub(crate) struct RequestPermit<'a> {
    permit: Option<SemaphorePermit<'a>>,
    gate: &'a RequestGate,
    began: Instant,
}

impl RequestGate {
    /// Creates a gate for this many requests.
    pub(crate) fn fixed(requests: usize) -> Self {
        Self {
            permits: Semaphore::new(requests),
            waiting: AtomicUsize::new(0),
            adaptive: None,
            large_requests: requests,
            max_requests: requests,
        }
    }

    /// Creates a gate for a number of requests that follows what the stores do, at most `max`.
    pub(crate) fn adaptive(max: usize, overloads: Vec<OverloadCount>) -> Self {
        let limit = AdaptiveLimit::new(max);
        let permits = limit.limit();
        let state = AdaptiveState {
            limit,
            permits,
            overloads: overloads.iter().map(OverloadCount::get).sum(),
        };
        Self {
            permits: Semaphore::new(permits),
            waiting: AtomicUsize::new(0),
            adaptive: Some(Adaptive {
                state: Mutex::new(state),
                overloads,
                began: Instant::now(),
            }),
            large_requests: INITIAL_REQUESTS.min(permits),
            max_requests: max,
        }
    }

    /// Returns the maximum number of requests in flight, ever.
    pub(crate) const fn max_requests(&self) -> usize {
        self.max_requests
    }

    /// Returns the maximum number of requests for parts of large files in flight. It does not
    /// adapt: a few of them fill any path, and each takes memory.
    pub(crate) const fn large_requests(&self) -> usize {
        self.large_requests
    }

    /// Waits for a permit.
    pub(crate) async fn acquire(&self) -> RequestPermit<'_> {
        let waiting = Waiting::new(&self.waiting);
        // The semaphore is never closed.
        let permit = self.permits.acquire().await.ok();
        drop(waiting);
        RequestPermit {
            permit,
            gate: self,
            began: Instant::now(),
        }
    }

    /// Takes the permit of a request that ended.
    fn release(&self, permit: SemaphorePermit<'_>, began: Instant) {
        let Some(adaptive) = &self.adaptive else {
            return;
        };
        let is_waiting = self.waiting.load(Ordering::Relaxed) > 0;
        let now = adaptive.began.elapsed();
        let overloads: u64 = adaptive.overloads.iter().map(OverloadCount::get).sum();
        let mut state = adaptive.state.lock();
        if overloads > state.overloads {
            state.overloads = overloads;
            state.limit.overloaded(now);
        }
        state.limit.request_ended(now, began.elapsed(), is_waiting);
        let limit = state.limit.limit();
        if limit > state.permits {
            self.permits.add_permits(limit - state.permits);
            state.permits = limit;
        } else {
            state.permits -= self.permits.forget_permits(state.permits - limit);
            if state.permits > limit {
                permit.forget();
                state.permits -= 1;
            }
        }
    }
}

impl Drop for RequestPermit<'_> {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            self.gate.release(permit, self.began);
        }
    }
}

/// Counts a request that waits, also if it is given up.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::limit::MAX_REQUESTS;

    /// Makes `count` requests of 100 ms. Returns the most that were in flight, and the time.
    async fn request(gate: &Arc<RequestGate>, count: usize) -> (usize, Duration) {
        let (in_flight, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let began = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..count {
            let (gate, in_flight, most) = (gate.clone(), in_flight.clone(), most.clone());
            tasks.spawn(async move {
                let _permit = gate.acquire().await;
                most.fetch_max(
                    in_flight.fetch_add(1, Ordering::SeqCst) + 1,
                    Ordering::SeqCst,
                );
                tokio::time::sleep(Duration::from_millis(100)).await;
                in_flight.fetch_sub(1, Ordering::SeqCst);
            });
        }
        while tasks.join_next().await.is_some() {}
        (most.load(Ordering::SeqCst), began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn fixed_number_stays() {
        let gate = Arc::new(RequestGate::fixed(7));
        let (most, took) = request(&gate, 700).await;
        assert_eq!((most, took.as_secs()), (7, 10));
        assert_eq!((gate.max_requests(), gate.large_requests()), (7, 7));
    }

    #[tokio::test(start_paused = true)]
    async fn small_requests_multiply_and_large_ones_do_not() {
        let gate = Arc::new(RequestGate::adaptive(MAX_REQUESTS, Vec::new()));
        let (most, took) = request(&gate, 5000).await;
        assert_eq!(
            (most, gate.large_requests()),
            (MAX_REQUESTS, INITIAL_REQUESTS)
        );
        assert!(took < Duration::from_secs(5), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn overload_halves_the_number() {
        let overloads = OverloadCount::default();
        let gate = Arc::new(RequestGate::adaptive(
            INITIAL_REQUESTS,
            vec![OverloadCount::default(), overloads.clone()],
        ));
        assert_eq!(request(&gate, 320).await.0, INITIAL_REQUESTS);
        for status in [200, 404, 500] {
            overloads.note_status(status);
        }
        request(&gate, 320).await;
        assert_eq!(gate.permits.available_permits(), INITIAL_REQUESTS);
        overloads.note_status(503);
        request(&gate, 1).await;
        assert_eq!(gate.permits.available_permits(), INITIAL_REQUESTS / 2);
        tokio::time::sleep(Duration::from_secs(5)).await;
        overloads.note_timeout();
        overloads.note_status(429);
        request(&gate, 1).await;
        assert_eq!(request(&gate, 8).await.0, INITIAL_REQUESTS / 4);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_requests_may_be_given_up() {
        let gate = RequestGate::fixed(1);
        let held = gate.acquire().await;
        let second = tokio::time::timeout(Duration::from_secs(1), gate.acquire()).await;
        assert!(second.is_err());
        assert_eq!(gate.waiting.load(Ordering::Relaxed), 0);
        drop(held);
        gate.acquire().await;
    }
}
