//! A place for one stream, and how that stands.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::progress::StreamCounters;

/// A place for one stream on one route.
pub(super) struct Slot {
    pub route: usize,
    pub stream: SlotState,
    pub failures: u32,
    /// Of the streams that were open here, once there was one.
    pub counters: Arc<OnceLock<Arc<StreamCounters>>>,
    pub share: Share,
    /// Attempts so far, and what gives up the one under way.
    pub attempts: u64,
    pub under_way: Option<AbortHandle>,
}

/// What the streams of a slot had moved, in bytes, at the last two marks.
#[derive(Clone, Copy, Default)]
pub(super) struct Share {
    before: u64,
    marked: u64,
}

impl Share {
    pub fn mark(&mut self, moved: u64) {
        self.before = self.marked;
        self.marked = moved;
    }

    /// Bytes moved since the mark before the last one.
    pub fn of(self, moved: u64) -> u64 {
        moved.saturating_sub(self.before)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotState {
    /// It is to be opened (again) at this moment.
    Due(Instant),
    /// It opens, or is open.
    Running,
    /// It is open and takes no more work.
    Retiring,
    /// It was retired; there may be another one.
    Free,
    /// It failed for good: another attempt would fail like it.
    Failed,
}

impl Slot {
    pub fn new(route: usize) -> Self {
        Self {
            route,
            stream: SlotState::Due(Instant::now()),
            failures: 0,
            counters: Arc::default(),
            share: Share::default(),
            attempts: 0,
            under_way: None,
        }
    }

    /// Bytes that the connections of its streams have moved.
    pub fn moved(&self) -> u64 {
        self.counters
            .get()
            .map_or(0, |counters| counters.ends().here.moved)
    }

    pub fn is_running(&self) -> bool {
        matches!(self.stream, SlotState::Running | SlotState::Retiring)
    }

    pub fn due(&self) -> Option<Instant> {
        match self.stream {
            SlotState::Due(at) => Some(at),
            _ => None,
        }
    }

    /// Gives up its stream, wherever it stands. What the stream carried goes elsewhere.
    pub fn give_up(&mut self) {
        if let Some(under_way) = self.under_way.take() {
            under_way.abort();
        }
        if let Some(counters) = self.open() {
            counters.closed(None);
        }
        self.stream = SlotState::Free;
    }

    /// Whether it counts towards the number of streams; what has failed for good is not replaced.
    pub fn counts(&self) -> bool {
        !matches!(self.stream, SlotState::Retiring | SlotState::Free)
    }

    pub fn open(&self) -> Option<&Arc<StreamCounters>> {
        let counters = self.counters.get()?;
        (self.stream == SlotState::Running && counters.open.load(Ordering::Relaxed))
            .then_some(counters)
    }
}
