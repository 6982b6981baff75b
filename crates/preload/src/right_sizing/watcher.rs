//! The watcher: the helper's work in this mode. It samples the process's connections in turn, and
//! right-sizes them through [`Flow`].
//!
//! It ends soon after the last connection. It spends at most a twentieth of one processor, however
//! many connections there are.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use drs::{ActionOutcome, Advice, Flow, Limit, Side, TcpInfo, TcpState};
use rustix::time::Timespec;

use super::RightSizing;
use super::account::{self, ConnectionAccount};
use crate::helper::{Helper, may_be_alone};
use crate::log::{Log, now};
use crate::table::{SlotGuard, SlotKey};

/// Pause between two rounds while data moves.
const BUSY_INTERVAL: Duration = drs::SAMPLE_PERIOD;
/// Pause between two rounds while no data moves.
const IDLE_INTERVAL: Duration = Duration::from_millis(200);
/// Rounds without data before the longer pause begins.
const MAX_IDLE_ROUNDS: u32 = 50;
/// Time for which the watcher stays without any connection.
const LINGER_TIME: Duration = Duration::from_secs(1);
/// Minimum pause, as a multiple of the round's duration.
const MIN_PAUSE_RATIO: u32 = 20;
/// State of the watcher.
pub struct Watcher {
    right_sizing: &'static RightSizing,
    helper: &'static Helper,
    log: &'static Log,
    /// Connections by slot.
    flows: HashMap<usize, WatchedConnection>,
    calm: u32,
}

/// State of a connection between two samples.
struct WatchedConnection {
    key: SlotKey,
    /// Bytes (sent and acknowledged, received) at the last sample.
    moved: [u64; 2],
    /// Side that moved data last; `None` if no data moved yet.
    side: Option<usize>,
    flows: [Flow; 2],
    said: [Option<Limit>; 2],
    advised: Option<Advice>,
}

const SIDES: [Side; 2] = [Side::Sending, Side::Receiving];

impl Watcher {
    /// Watches the connections until there are none.
    pub fn run(mut self) {
        let (helper, table) = (self.helper, &self.right_sizing.table);
        loop {
            if helper.is_dismissed() {
                helper.leave_for_now();
                return;
            }
            let news = helper.news();
            if table.live() == 0 {
                self.flows.clear();
                helper.wait(news, LINGER_TIME);
                if table.live() == 0 && helper.try_leave(|| table.live() > 0) {
                    return;
                }
                self.calm = 0;
                continue;
            }
            if self.calm >= MAX_IDLE_ROUNDS && may_be_alone() {
                helper.leave_for_now();
                return;
            }
            let began = now();
            let moved = self.sample_all();
            self.calm = if moved {
                0
            } else {
                self.calm.saturating_add(1)
            };
            let share = now().saturating_sub(began) * MIN_PAUSE_RATIO;
            if self.calm < MAX_IDLE_ROUNDS {
                if let Ok(pause) = Timespec::try_from(BUSY_INTERVAL.max(share)) {
                    let _ = rustix::thread::nanosleep(&pause);
                }
            } else {
                // A new connection ends this pause.
                helper.wait(news, IDLE_INTERVAL.max(share));
            }
        }
    }

    /// Samples every connection once. Returns true if any moved data.
    fn sample_all(&mut self) -> bool {
        let mut moved = false;
        let table = &self.right_sizing.table;
        for index in 0..table.used() {
            match table.key_at(index).and_then(|key| table.hold(key)) {
                Some(held) => moved |= self.look(index, held),
                None => {
                    self.flows.remove(&index);
                }
            }
        }
        moved
    }
}

/// Returns true if both pieces of advice ask for the same, whatever the numbers in their causes.
fn is_same_advice(one: Advice, other: Advice) -> bool {
    match (one, other) {
        (Advice::Streams { streams: one, .. }, Advice::Streams { streams: other, .. }) => {
            one == other
        }
        _ => std::mem::discriminant(&one) == std::mem::discriminant(&other),
    }
}

impl Watcher {
    /// Returns a watcher that has not sampled any connection yet.
    pub fn new(
        right_sizing: &'static RightSizing,
        helper: &'static Helper,
        log: &'static Log,
    ) -> Self {
        Self {
            right_sizing,
            helper,
            log,
            flows: HashMap::new(),
            calm: 0,
        }
    }

    /// Samples a connection. Returns true if it moved data since the last sample.
    fn look(&mut self, index: usize, mut held: SlotGuard<'_, ConnectionAccount>) -> bool {
        let Some(descriptor) = held.descriptor() else {
            // Every descriptor was closed in a way that the hooks do not see.
            self.log.end(held.value(), None);
            held.free();
            return false;
        };
        // SAFETY: not negative. The hooks wait while the slot is held, so the descriptor stays. If
        // it was closed in another way, the kernel reports it, or its identity differs.
        let socket = unsafe { BorrowedFd::borrow_raw(descriptor) };
        if account::tcp_inode(socket) != Some(held.value().inode) {
            if !held.remove_descriptor(descriptor) {
                self.log.end(held.value(), None);
                held.free();
            }
            return false;
        }
        let Ok(info) = TcpInfo::read(socket) else {
            return false;
        };
        if matches!(
            info.state,
            TcpState::SynSent | TcpState::SynReceived | TcpState::Close
        ) {
            return false;
        }
        let key = held.key();
        let watched = match self.flows.get_mut(&index) {
            Some(watched) if watched.key == key => watched,
            _ => {
                // The program does not know of this library, and its congestion control is its
                // user's choice.
                let flow = |side| {
                    Flow::with_host(self.right_sizing.mode, side, self.right_sizing.host())
                        .keeping_congestion_control()
                };
                let watched = WatchedConnection {
                    key,
                    moved: [0; 2],
                    side: None,
                    flows: SIDES.map(flow),
                    said: [None; 2],
                    advised: None,
                };
                self.flows.insert(index, watched);
                let Some(watched) = self.flows.get_mut(&index) else {
                    return false;
                };
                watched
            }
        };
        // Once the program has begun to close it, its number may be another socket's.
        held.is_behind(descriptor) && watched.look(socket, &info, held.value(), self.log)
    }
}

impl WatchedConnection {
    fn look(
        &mut self,
        socket: BorrowedFd<'_>,
        info: &TcpInfo,
        account: &mut ConnectionAccount,
        log: &Log,
    ) -> bool {
        account.looks = account.looks.saturating_add(1);
        account.remember(socket, info);
        let total = [
            info.bytes_acked.unwrap_or(0),
            info.bytes_received.unwrap_or(0),
        ];
        let [sent, received] = [0, 1].map(|side: usize| {
            let of = |from: &[u64; 2]| from.get(side).copied().unwrap_or(0);
            of(&total).saturating_sub(of(&self.moved))
        });
        self.moved = total;
        let moved = sent > 0 || received > 0;
        if moved {
            // Requests and acknowledgements are small compared with the data, in either direction.
            self.side = Some(usize::from(received > sent));
        }
        let Some(side) = self.side else { return false };
        let (Some(flow), Some(said), Some(name)) = (
            self.flows.get_mut(side),
            self.said.get_mut(side),
            SIDES.get(side),
        ) else {
            return moved;
        };
        let Ok(step) = flow.step(socket, now()) else {
            return moved;
        };
        if let Some(verdict) = &step.verdict {
            account.count(side, verdict.limit);
            if said.replace(verdict.limit) != Some(verdict.limit) {
                log.verdict(account, *name, verdict);
            }
        }
        for applied in step.actions {
            match applied.outcome {
                ActionOutcome::Set(_) => account.actions = account.actions.saturating_add(1),
                ActionOutcome::Refused(_) => account.refused = account.refused.saturating_add(1),
            }
            log.action(account, applied);
        }
        if let Some(advice) = step.advice
            && !self
                .advised
                .is_some_and(|before| is_same_advice(before, advice))
        {
            self.advised = Some(advice);
            log.advice(account, &advice);
        }
        moved
    }
}
