//! The threads that sessions run on.
//!
//! Each has a reactor and a scheduler of its own, and a session stays on the thread it began on.
//! Against one scheduler that shares its tasks between threads this saves, for a single fast
//! session, about a sixth of the CPU: nobody is woken to look for work that is not there.

use std::future::Future;
use std::io;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Threads that run until this is dropped; what still runs on them then is dropped with them.
#[derive(Debug)]
pub(crate) struct Workers {
    /// Empty: everything runs as tasks of the runtime that asks.
    workers: Vec<Worker>,
}

#[derive(Debug)]
struct Worker {
    handle: Handle,
    /// Held by every task of this worker, so that its count is the load.
    load: Arc<()>,
    /// The thread ends when this goes.
    _stop: oneshot::Sender<()>,
}

impl Workers {
    /// Starts `count` threads; with 0, [`Workers::spawn`] uses the caller's runtime.
    pub(crate) fn start(count: usize) -> io::Result<Self> {
        let workers = (0..count).map(Worker::start).collect::<io::Result<_>>()?;
        Ok(Self { workers })
    }

    /// Runs `task` on the thread that has the fewest.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        match self
            .workers
            .iter()
            .min_by_key(|worker| Arc::strong_count(&worker.load))
        {
            None => drop(tokio::spawn(task)),
            Some(worker) => {
                let load = Arc::clone(&worker.load);
                worker.handle.spawn(async move {
                    task.await;
                    drop(load);
                });
            }
        }
    }
}

impl Worker {
    fn start(index: usize) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        std::thread::Builder::new()
            .name(format!("depot-{index}"))
            .spawn(move || {
                // Nothing is ever sent: it ends when the sender is dropped.
                let _ = runtime.block_on(stopped);
            })?;
        Ok(Self {
            handle,
            load: Arc::new(()),
            _stop: stop,
        })
    }
}
