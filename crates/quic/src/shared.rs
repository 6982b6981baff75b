//! A connection as its streams see it: one keep-alive for all of them, and its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use s2n_quic::connection::Handle;
use tokio::sync::Notify;

use crate::limits::PromisedWindow;
use crate::measures::ConnectionMeasures;

/// Connection that streams share. It stays open while one of them, or its owner, holds it.
#[derive(Debug)]
pub(crate) struct SharedConnection {
    handle: Mutex<Handle>,
    _window: PromisedWindow,
    /// Number of open streams. While there are any, the connection is kept alive.
    streams: Mutex<usize>,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    verified: AtomicBool,
    on_verified: Notify,
    pub(crate) measures: Arc<ConnectionMeasures>,
}

impl SharedConnection {
    /// Wraps a connection whose handshake is complete.
    pub(crate) fn new(handle: Handle, window: PromisedWindow) -> std::io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            measures: handle
                .query_event_context(|measures: &Arc<ConnectionMeasures>| Arc::clone(measures))
                .unwrap_or_default(),
            peer: handle.remote_addr()?,
            local: handle.local_addr()?,
            handle: Mutex::new(handle),
            _window: window,
            streams: Mutex::new(0),
            verified: AtomicBool::new(false),
            on_verified: Notify::new(),
        }))
    }

    /// Returns a handle of the connection, to open streams.
    pub(crate) fn handle(&self) -> Handle {
        self.handle.lock().clone()
    }

    /// Records a stream of the connection.
    pub(crate) fn retain(&self) {
        let mut streams = self.streams.lock();
        *streams += 1;
        if *streams == 1 {
            self.keep_alive(true);
        }
    }

    /// Records the end of a stream.
    pub(crate) fn release(&self) {
        let mut streams = self.streams.lock();
        *streams = streams.saturating_sub(1);
        if *streams == 0 {
            self.keep_alive(false);
        }
    }

    fn keep_alive(&self, enabled: bool) {
        // Fails only on a connection that is closed.
        let _ = self.handle.lock().keep_alive(enabled);
    }

    pub(crate) fn mark_verified(&self) {
        if !self.verified.swap(true, Ordering::AcqRel) {
            self.on_verified.notify_one();
        }
    }

    /// Completes once a session on the connection has been verified.
    pub(crate) async fn verified(&self) {
        if !self.verified.load(Ordering::Acquire) {
            self.on_verified.notified().await;
        }
    }
}
