//! Runtimes of the commands, for systems that allow a process few threads.
//!
//! tokio panics if it cannot start its first thread. If it can only start worker threads, blocking
//! work waits until the system allows another thread, and nothing retries. So the threads are tried
//! first: with few of them there are fewer workers, and with too few, starting is an error. Later
//! shortages are retried.

use std::io;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

/// Threads that blocking work must be able to have: one for a walk, which may wait for the other
/// two, one that reads and one that writes.
const BLOCKING_THREADS: usize = 3;
/// Interval at which blocking work is given a thread that was refused before. It is shorter than
/// the time for which tokio keeps an idle thread (10 s), so one usually remains.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Reason why a command cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system allows this process too few threads, or no memory for them. Raise the limit on
    /// processes (`ulimit -u`, TasksMax= of the unit) or on address space (`ulimit -v`).
    #[error(
        "starting threads failed: {possible} of {needed} could be started: {source}; raise the \
         limit \
         on processes (ulimit -u, TasksMax=) or on memory (ulimit -v)"
    )]
    Threads {
        /// Number of threads that could be started.
        possible: usize,
        /// Minimum number of threads needed.
        needed: usize,
        /// Error of the thread that could not be started.
        source: io::Error,
    },
    /// The system has no descriptors for the runtime. Raise the limit on open files (`ulimit -n`).
    #[error("starting failed: {0}; raise the limit on open files (ulimit -n)")]
    Descriptors(#[source] io::Error),
}

/// Builds a runtime with a worker for each processor.
pub fn start() -> Result<Runtime, StartError> {
    build(Builder::new_multi_thread(), processors())
}

/// Builds a runtime whose blocking work has at most `blocking_threads`.
pub fn start_with(blocking_threads: usize) -> Result<Runtime, StartError> {
    let mut builder = Builder::new_multi_thread();
    builder.max_blocking_threads(blocking_threads.max(BLOCKING_THREADS));
    build(builder, processors())
}

/// Builds a runtime with one worker, for short requests.
pub fn start_small() -> Result<Runtime, StartError> {
    build(Builder::new_multi_thread(), 1)
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

fn build(mut builder: Builder, wanted_workers: usize) -> Result<Runtime, StartError> {
    let (possible, error) = startable_threads(wanted_workers.saturating_add(BLOCKING_THREADS));
    let workers = match (workers(wanted_workers, possible), error) {
        (Some(workers), _) => workers,
        (None, error) => {
            return Err(StartError::Threads {
                possible,
                needed: 1 + BLOCKING_THREADS,
                source: error.unwrap_or_else(|| io::ErrorKind::WouldBlock.into()),
            });
        }
    };
    builder.enable_all().worker_threads(workers);
    // Another process may have taken the threads since.
    let built = catch_unwind(AssertUnwindSafe(|| builder.build()));
    let runtime = built
        .unwrap_or_else(|_| Err(io::ErrorKind::WouldBlock.into()))
        .map_err(StartError::Descriptors)?;
    runtime.spawn(async {
        loop {
            tokio::time::sleep(RETRY_INTERVAL).await;
            drop(tokio::task::spawn_blocking(|| ()));
        }
    });
    Ok(runtime)
}

/// Returns the workers of a runtime that wants `wanted` of them, if `possible` threads can be
/// started.
fn workers(wanted: usize, possible: usize) -> Option<usize> {
    let left = possible.checked_sub(BLOCKING_THREADS)?;
    (left > 0).then(|| wanted.clamp(1, left))
}

/// Returns the number of threads, up to `wanted`, that can run at once, with the error that limits
/// it.
fn startable_threads(wanted: usize) -> (usize, Option<io::Error>) {
    let gate = Arc::new(RwLock::new(()));
    let closed = gate.write();
    let mut threads = Vec::new();
    let mut refusal = None;
    while threads.len() < wanted && refusal.is_none() {
        let gate = gate.clone();
        match std::thread::Builder::new().spawn(move || drop(gate.read())) {
            Ok(thread) => threads.push(thread),
            Err(error) => refusal = Some(error),
        }
    }
    drop(closed);
    let started = threads.len();
    for thread in threads {
        let _ = thread.join();
    }
    (started, refusal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_leave_threads_for_blocking_work() {
        for (wanted, possible, expected) in [
            (8, 11, Some(8)),
            (8, 10, Some(7)),
            (8, 4, Some(1)),
            (8, 3, None),
            (8, 0, None),
            (1, 4, Some(1)),
            (0, 4, Some(1)),
        ] {
            assert_eq!(
                workers(wanted, possible),
                expected,
                "{wanted} of {possible}"
            );
        }
    }

    #[test]
    fn a_runtime_of_one_worker_runs_tasks_and_blocking_work() {
        let runtime = build(Builder::new_multi_thread(), 1).unwrap();
        let worked = runtime.block_on(async {
            let task = tokio::spawn(async { 1 });
            let blocking = tokio::task::spawn_blocking(|| 2);
            task.await.unwrap() + blocking.await.unwrap()
        });
        assert_eq!(worked, 3);
    }
}
