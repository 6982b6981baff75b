//! A slot for one stream, and its state.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::progress::StreamCounters;

/// A slot for one stream on one route.
pub(super) struct Slot {
    pub route: usize,
    pub stream: SlotState,
    pub failures: u32,
    /// Counters of the streams that were open here, once there was one.
    pub counters: Arc<OnceLock<Arc<StreamCounters>>>,
    pub share: Share,
    /// Number of attempts so far, and the handle that aborts the current one.
    pub attempts: u64,
    pub under_way: Option<AbortHandle>,
}

/// Bytes that the streams of a slot had moved at the last two marks.
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

    /// Returns the bytes moved since the mark before the last one.
    pub fn of(self, moved: u64) -> u64 {
        moved.saturating_sub(self.before)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotState {
    /// To be opened or reopened at this time.
    Due(Instant),
    /// Opening or open.
    Running,
    /// Open, but takes no more work.
    Retiring,
    /// Retired. Another stream may take the slot.
    Free,
    /// Failed permanently: another attempt would fail likewise.
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

    /// Returns the bytes that the connections of its streams have moved.
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

    /// Gives up the stream in any state. Other streams take over its work.
    pub fn give_up(&mut self) {
        if let Some(under_way) = self.under_way.take() {
            under_way.abort();
        }
        if let Some(counters) = self.open() {
            counters.closed(None);
        }
        self.stream = SlotState::Free;
    }

    /// Returns true if the slot counts towards the number of streams. A permanently failed one is
    /// not replaced.
    pub fn counts(&self) -> bool {
        !matches!(self.stream, SlotState::Retiring | SlotState::Free)
    }

    pub fn open(&self) -> Option<&Arc<StreamCounters>> {
        let counters = self.counters.get()?;
        (self.stream == SlotState::Running && counters.open.load(Ordering::Relaxed))
            .then_some(counters)
    }
}
