//! The watcher: one thread that looks at the process's connections in turn, and right-sizes them through [`Flow`].
//!
//! It starts with the first connection, takes no signals, and ends soon after the last. It spends at most a twentieth of one
//! processor, however many connections there are. A process whose other threads have all ended is over, which is the watcher's to see then.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use drs::{Advice, Flow, Limit, Outcome, Side, TcpInfo, TcpState};
use rustix::thread::futex;
use rustix::time::Timespec;

use crate::account::{self, Account, now};
use crate::process::{self, Process};
use crate::table::Held;

/// Between two rounds while data moves.
const BUSY_INTERVAL: Duration = drs::SAMPLE_PERIOD;
/// Between two rounds while nothing does.
const IDLE_INTERVAL: Duration = Duration::from_millis(200);
/// Rounds without data after which the longer pause begins.
const MAX_IDLE_ROUNDS: u32 = 50;
/// How long the watcher stays when there is no connection.
const LINGER: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};
/// The pause is at least this many times as long as the round took.
const SHARE: u32 = 20;
/// Stack of the thread, in bytes; thread-local variables of the program take from it.
const STACK: usize = 512 * 1024;

/// No watcher runs.
const NONE: u32 = 0;
/// One runs, or is about to.
const RUNS: u32 = 1;

/// How the program's threads reach the watcher.
pub struct Watch {
    state: AtomicU32,
    /// Goes up with every new connection; what an idle watcher sleeps on.
    news: AtomicU32,
}

impl Watch {
    /// No watcher yet.
    pub const fn new() -> Self {
        Self {
            state: AtomicU32::new(NONE),
            news: AtomicU32::new(0),
        }
    }

    /// There is a connection to be watched.
    pub fn wanted(&self, process: &'static Process) {
        self.news.fetch_add(1, Ordering::AcqRel);
        let started = self
            .state
            .compare_exchange(NONE, RUNS, Ordering::SeqCst, Ordering::SeqCst);
        if started.is_err() {
            let _ = futex::wake(&self.news, futex::Flags::PRIVATE, 1);
        } else if !start(process) {
            // Tried again with the next connection.
            self.state.store(NONE, Ordering::Release);
        }
    }

    /// The watcher means to end. `false` when a connection came up meanwhile, and it has to stay.
    fn leave(&self, process: &Process) -> bool {
        self.state.store(NONE, Ordering::SeqCst);
        // Whoever adds a connection counts it first and then looks whether a watcher runs, so one of both sees the other.
        process.table.live() == 0
            || self
                .state
                .compare_exchange(NONE, RUNS, Ordering::SeqCst, Ordering::SeqCst)
                .is_err()
    }

    /// In the child of a fork, which has the forking thread only.
    pub fn after_fork(&self) {
        self.state.store(NONE, Ordering::Release);
    }
}

/// Starts the thread with every signal blocked, which it inherits: the program's signals stay with the program's threads.
fn start(process: &'static Process) -> bool {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both are valid for writes; `all` is filled before it is read, and `before` is read only where the call filled it.
    let blocked = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0
    };
    if !blocked {
        return false;
    }
    let started = std::thread::Builder::new()
        .name("drs".into())
        .stack_size(STACK)
        .spawn(move || {
            let run = std::panic::AssertUnwindSafe(|| Watcher::new(process).run());
            // After a defect the program goes on without a watcher; the state stays, so that no other one starts.
            let _ = std::panic::catch_unwind(run);
        });
    // SAFETY: filled by the call above, which succeeded.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    started.is_ok()
}

/// The thread's own state.
struct Watcher {
    process: &'static Process,
    /// By slot.
    flows: HashMap<usize, Watched>,
    calm: u32,
}

/// What is kept of a connection between two looks.
struct Watched {
    serial: u64,
    /// Bytes (sent and acknowledged, received) at the last look.
    moved: [u64; 2],
    /// The side that moved data last; none before any did.
    side: Option<usize>,
    flows: [Flow; 2],
    said: [Option<Limit>; 2],
    advised: Option<Advice>,
}

const SIDES: [Side; 2] = [Side::Sending, Side::Receiving];

impl Watcher {
    fn run(mut self) {
        loop {
            let news = self.process.watch.news.load(Ordering::Acquire);
            if self.process.table.live() == 0 {
                self.flows.clear();
                let _ = futex::wait(
                    &self.process.watch.news,
                    futex::Flags::PRIVATE,
                    news,
                    Some(&LINGER),
                );
                if self.process.table.live() == 0 && self.process.watch.leave(self.process) {
                    return;
                }
                self.calm = 0;
                continue;
            }
            if self.calm >= MAX_IDLE_ROUNDS && is_alone() {
                process::ending();
                // SAFETY: what the last thread of a process does when it ends (POSIX, pthread_exit); no other thread is left.
                unsafe { libc::exit(0) };
            }
            let began = now();
            let moved = self.round();
            self.calm = if moved { 0 } else { self.calm.saturating_add(1) };
            let pause = if self.calm < MAX_IDLE_ROUNDS {
                BUSY_INTERVAL
            } else {
                IDLE_INTERVAL
            };
            pause_for(
                &self.process.watch.news,
                news,
                pause.max(now().saturating_sub(began) * SHARE),
                self.calm >= MAX_IDLE_ROUNDS,
            );
        }
    }

    /// Looks at every connection once. Whether any moved data.
    fn round(&mut self) -> bool {
        let mut moved = false;
        for index in 0..self.process.table.used() {
            match self.process.table.hold(index) {
                Some(held) => moved |= self.look(index, held),
                None => {
                    self.flows.remove(&index);
                }
            }
        }
        moved
    }
}

/// Whether two pieces of advice ask for the same, whatever the numbers of their causes.
fn same(one: Advice, other: Advice) -> bool {
    match (one, other) {
        (Advice::Streams { streams: one, .. }, Advice::Streams { streams: other, .. }) => one == other,
        _ => std::mem::discriminant(&one) == std::mem::discriminant(&other),
    }
}

/// Whether the watcher is the last thread: the first one has ended and no other is left.
fn is_alone() -> bool {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The program's name stands in brackets and may have blanks and brackets of its own (proc_pid_stat(5)).
    let Some((_, fields)) = stat.rsplit_once(')') else {
        return false;
    };
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next();
    let threads = fields.nth(16);
    state == Some("Z") && threads == Some("2")
}

/// Pauses; when idle, a new connection ends the pause.
fn pause_for(news: &AtomicU32, seen: u32, pause: Duration, idle: bool) {
    let Ok(timeout) = Timespec::try_from(pause) else {
        return;
    };
    if idle {
        let _ = futex::wait(news, futex::Flags::PRIVATE, seen, Some(&timeout));
    } else {
        let _ = rustix::thread::nanosleep(&timeout);
    }
}

impl Watcher {
    fn new(process: &'static Process) -> Self {
        Self {
            process,
            flows: HashMap::new(),
            calm: 0,
        }
    }

    /// One look at a connection. Whether it moved data since the last.
    fn look(&mut self, index: usize, mut held: Held<'_>) -> bool {
        let Some(descriptor) = held.descriptor() else {
            // Every descriptor was closed where the hooks do not see it.
            self.process.log.end(held.account(), None);
            held.free();
            return false;
        };
        // SAFETY: not negative. The hooks wait while the slot is held, so the descriptor stays; where it was closed another way
        // the kernel says so, or its identity does.
        let socket = unsafe { BorrowedFd::borrow_raw(descriptor) };
        if account::tcp_inode(socket) != Some(held.account().inode) {
            if !held.lost(descriptor) {
                self.process.log.end(held.account(), None);
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
        let serial = held.serial();
        let watched = match self.flows.get_mut(&index) {
            Some(watched) if watched.serial == serial => watched,
            _ => {
                // The program knows nothing of this, and whoever runs it chose its congestion control.
                let flow = |side| {
                    Flow::with_host(self.process.mode, side, self.process.host()).keeping_congestion_control()
                };
                let watched = Watched {
                    serial,
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
        watched.look(socket, &info, held.account(), self.process)
    }
}

impl Watched {
    fn look(
        &mut self,
        socket: BorrowedFd<'_>,
        info: &TcpInfo,
        account: &mut Account,
        process: &Process,
    ) -> bool {
        account.looks = account.looks.saturating_add(1);
        account.remember(socket, info);
        let total = [info.bytes_acked.unwrap_or(0), info.bytes_received.unwrap_or(0)];
        let [sent, received] = [0, 1].map(|side: usize| {
            let of = |from: &[u64; 2]| from.get(side).copied().unwrap_or(0);
            of(&total).saturating_sub(of(&self.moved))
        });
        self.moved = total;
        let moved = sent > 0 || received > 0;
        if moved {
            // Answers and requests are small beside the data, whichever way that goes.
            self.side = Some(usize::from(received > sent));
        }
        let Some(side) = self.side else { return false };
        let (Some(flow), Some(said), Some(name)) =
            (self.flows.get_mut(side), self.said.get_mut(side), SIDES.get(side))
        else {
            return moved;
        };
        let Ok(step) = flow.step(socket, now()) else {
            return moved;
        };
        if let Some(verdict) = &step.verdict {
            account.count(side, verdict.limit);
            if said.replace(verdict.limit) != Some(verdict.limit) {
                process.log.verdict(account, *name, verdict);
            }
        }
        for applied in step.actions {
            match applied.outcome {
                Outcome::Set(_) => account.actions = account.actions.saturating_add(1),
                Outcome::Refused(_) => account.refused = account.refused.saturating_add(1),
            }
            process.log.action(account, applied);
        }
        if let Some(advice) = step.advice
            && !self.advised.is_some_and(|before| same(before, advice))
        {
            self.advised = Some(advice);
            process.log.advice(account, &advice);
        }
        moved
    }
}
