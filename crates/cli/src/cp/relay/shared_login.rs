//! A login whose files several tasks ask for. Questions that wait at the same time are sent
//! together, so that many small files share the round trips.

use std::sync::Arc;

use anyhow::Result;
use longhaul_remote::FarSide;
use longhaul_transfer::files::message::{FilesRequest, FilesResponse};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;

use super::pool_failure::PoolFailure;

/// Questions that are sent together. Answers of 512 KiB to all of them take 16 MiB.
const MAX_ASKS: usize = 32;
/// Bytes of their paths, which fit the buffers of a pipe.
const MAX_PATH_BYTES: usize = 16 << 10;

/// Questions of one task, and where their answers go. The error is that of the login.
struct Request {
    asks: Vec<FilesRequest>,
    answers: oneshot::Sender<Result<Vec<FilesResponse>, String>>,
}

/// A login that is shared. It ends when this is dropped.
pub struct SharedLogin {
    requests: mpsc::UnboundedSender<Request>,
    closed: Arc<Notify>,
    task: parking_lot::Mutex<Option<JoinHandle<()>>>,
}

impl SharedLogin {
    /// Shares a login. The error that ends it is recorded in `failure`.
    pub fn new(far: FarSide, failure: Arc<PoolFailure>) -> Self {
        let (requests, waiting) = mpsc::unbounded_channel();
        let closed = Arc::new(Notify::new());
        let task = tokio::spawn(answer(far, waiting, closed.clone(), failure));
        Self {
            requests,
            closed,
            task: parking_lot::Mutex::new(Some(task)),
        }
    }

    /// Sends questions, and receives the answers in order.
    ///
    /// # Errors
    /// Reason why the login has ended, in one line.
    pub async fn ask_all(&self, asks: &[FilesRequest]) -> Result<Vec<FilesResponse>, String> {
        const ENDED: &str = "the login has ended";
        let (answers, answered) = oneshot::channel();
        let asks = asks.to_vec();
        let sent = self.requests.send(Request { asks, answers });
        sent.map_err(|_| ENDED.to_owned())?;
        answered.await.unwrap_or(Err(ENDED.to_owned()))
    }

    /// Ends the login, whatever it was asked.
    pub async fn end(&self) {
        self.closed.notify_one();
        let task = self.task.lock().take();
        if let Some(task) = task {
            let _ = task.await;
        }
    }
}

/// Answers requests until there are no more, the login ends, or it is closed.
async fn answer(
    mut far: FarSide,
    mut waiting: mpsc::UnboundedReceiver<Request>,
    closed: Arc<Notify>,
    failure: Arc<PoolFailure>,
) {
    loop {
        let first = tokio::select! {
            biased;
            () = closed.notified() => break,
            first = waiting.recv() => match first {
                Some(first) => first,
                None => break,
            },
        };
        let requests = together(first, &mut waiting);
        let asks: Vec<FilesRequest> = requests.iter().flat_map(|one| one.asks.clone()).collect();
        let answered = tokio::select! {
            biased;
            () = closed.notified() => break,
            answered = far.ask_all_files(&asks) => answered,
        };
        match answered {
            Ok(answers) => {
                let mut answers = answers.into_iter();
                for request in requests {
                    let own = answers.by_ref().take(request.asks.len());
                    // The task may have been given up.
                    let _ = request.answers.send(Ok(own.collect()));
                }
            }
            Err(error) => {
                let reason = error.to_string();
                failure.record(error.into());
                for request in requests {
                    let _ = request.answers.send(Err(reason.clone()));
                }
                break;
            }
        }
    }
    far.end().await;
}

/// Returns the request, and others that wait already and fit beside it.
fn together(first: Request, waiting: &mut mpsc::UnboundedReceiver<Request>) -> Vec<Request> {
    let size = |request: &Request| {
        let paths = request.asks.iter().map(path_bytes);
        (request.asks.len(), paths.sum::<usize>())
    };
    let (mut asks, mut bytes) = size(&first);
    let mut requests = vec![first];
    // The last one may exceed the bounds a little.
    while asks < MAX_ASKS
        && bytes < MAX_PATH_BYTES
        && let Ok(next) = waiting.try_recv()
    {
        let (more_asks, more_bytes) = size(&next);
        (asks, bytes) = (asks + more_asks, bytes + more_bytes);
        requests.push(next);
    }
    requests
}

/// Returns the length of the path in a question that reads.
fn path_bytes(ask: &FilesRequest) -> usize {
    match ask {
        FilesRequest::Look { path, .. }
        | FilesRequest::Read { path }
        | FilesRequest::ReadRange { path, .. } => path.0.len(),
        FilesRequest::Sum { paths, .. } => paths.iter().map(|path| path.0.len()).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use longhaul_transfer::files::message::PathBytes;

    use super::*;

    /// Queues requests of `asks` questions each about a path of `bytes`, and returns the numbers
    /// of requests that are sent together.
    fn batches(requests: usize, asks: usize, bytes: usize) -> Vec<usize> {
        let (queue, mut waiting) = mpsc::unbounded_channel();
        let ask = FilesRequest::Read {
            path: PathBytes(vec![b'x'; bytes]),
        };
        for _ in 0..requests {
            let (answers, _) = oneshot::channel();
            let asks = vec![ask.clone(); asks];
            assert!(queue.send(Request { asks, answers }).is_ok());
        }
        let mut batches = Vec::new();
        while let Ok(first) = waiting.try_recv() {
            batches.push(together(first, &mut waiting).len());
        }
        batches
    }

    #[test]
    fn waiting_requests_are_sent_together_within_bounds() {
        assert_eq!(batches(40, 2, 10), [16, 16, 8]);
        assert_eq!(batches(3, 8, 10), [3]);
        assert_eq!(batches(5, 8, 10), [4, 1]);
        // Long paths would fill the buffers.
        assert_eq!(batches(10, 1, 4096), [4, 4, 2]);
        // A request is never divided.
        assert_eq!(batches(2, 100, 4096), [1, 1]);
    }
}
