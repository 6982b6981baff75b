//! A file that is open on several connections, as each server process has handles of its own.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OnceCell;

use crate::error::RequestError;
use crate::pool::balance::SessionId;
use crate::pool::{Lease, Pool};
use crate::session::Handle;

/// Purpose for which a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenMode {
    Read,
    Write,
}

/// A file, and its handles.
pub(crate) struct RemoteFile {
    pub path: PathBuf,
    mode: OpenMode,
    handles: Mutex<HashMap<SessionId, Arc<OnceCell<Handle>>>>,
}

impl RemoteFile {
    /// Creates a file without handles. It must exist when a handle is requested.
    pub(crate) fn new(path: PathBuf, mode: OpenMode) -> Self {
        Self {
            path,
            mode,
            handles: Mutex::default(),
        }
    }

    /// Returns the handle on a connection, and opens the file there first if necessary.
    pub(crate) async fn handle(&self, lease: &Lease) -> Result<Handle, RequestError> {
        let cell = self.handles.lock().entry(lease.id).or_default().clone();
        let open = || async {
            match self.mode {
                OpenMode::Read => lease.open_to_read(&self.path).await,
                OpenMode::Write => lease.open_to_write(&self.path).await,
            }
        };
        cell.get_or_try_init(open).await.cloned()
    }

    /// Closes all handles. Handles of lost connections are closed already.
    ///
    /// # Errors
    /// A server reports a failure, as some do for writes that they had confirmed.
    pub(crate) async fn close(&self, pool: &Pool) -> Result<(), RequestError> {
        let handles = std::mem::take(&mut *self.handles.lock());
        let handles = handles
            .into_iter()
            .filter_map(|(session, cell)| Some((session, cell.get()?.clone())));
        let closing = handles.map(|(session, handle)| async move {
            match pool.session(session) {
                Some(open) => open.close(&handle).await,
                None => Ok(()),
            }
        });
        let closed = futures_util::future::join_all(closing).await;
        closed
            .into_iter()
            .filter(|closed| *closed != Err(RequestError::Lost))
            .collect()
    }
}
