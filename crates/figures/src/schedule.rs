//! Runs jobs in parallel while their shares of the machine sum to at most one.

use std::thread;

use parking_lot::{Condvar, Mutex};

/// The whole machine in thousandths, the unit of shares, so that sums are exact.
const WHOLE: u32 = 1000;

struct State {
    next: usize,
    free: u32,
}

/// Runs `work` on every job, as many at once as fit. The jobs start in order, and the results have
/// the order of the jobs.
///
/// `load` returns a job's share of the machine, 0 to 1. A job that does not fit yet waits, and so
/// do those behind it. So light jobs never starve a heavy one.
pub fn run_all<J: Sync, R: Send>(
    jobs: &[J],
    load: impl Fn(&J) -> f64 + Sync,
    work: impl Fn(&J) -> R + Sync,
) -> Vec<R> {
    let share = |job: &J| ((load(job) * f64::from(WHOLE)).ceil() as u32).clamp(1, WHOLE);
    let most_at_once = jobs.iter().map(|job| WHOLE / share(job)).max().unwrap_or(1) as usize;
    let state = Mutex::new(State {
        next: 0,
        free: WHOLE,
    });
    let freed = Condvar::new();
    let results: Vec<Mutex<Option<R>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for _ in 0..most_at_once.min(jobs.len()) {
            scope.spawn(|| {
                loop {
                    let mut held = state.lock();
                    let (index, need) = loop {
                        let Some(job) = jobs.get(held.next) else {
                            return;
                        };
                        let need = share(job);
                        if need <= held.free {
                            break (held.next, need);
                        }
                        freed.wait(&mut held);
                    };
                    held.next += 1;
                    held.free -= need;
                    drop(held);
                    let result = work(&jobs[index]);
                    *results[index].lock() = Some(result);
                    state.lock().free += need;
                    freed.notify_all();
                }
            });
        }
    });
    results.into_iter().filter_map(Mutex::into_inner).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn every_job_runs_once_and_shares_never_exceed_the_machine() {
        let jobs: Vec<f64> = (0..40).map(|i| [0.1, 0.5, 1.0, 0.3][i % 4]).collect();
        let (busy, worst) = (AtomicU32::new(0), AtomicU32::new(0));
        let done = run_all(
            &jobs,
            |load| *load,
            |load| {
                let share = (load * 1000.0) as u32;
                let now = busy.fetch_add(share, Ordering::SeqCst) + share;
                worst.fetch_max(now, Ordering::SeqCst);
                thread::yield_now();
                busy.fetch_sub(share, Ordering::SeqCst);
                *load
            },
        );
        assert_eq!(done, jobs);
        assert!(worst.load(Ordering::SeqCst) <= 1000);
    }
}
