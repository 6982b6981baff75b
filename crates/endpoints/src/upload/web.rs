//! Uploads to web servers: one stream for each file, to WebDAV servers under a temporary name.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::stream;
use longhaul_transfer::local_end::EntryReporter;
use longhaul_transfer::{Failure, FailureKind, StreamCounters, TEMP_PREFIX};
use object_store::path::Path as Key;
use reqwest::Body;

use super::{Unfinished, Uploader};
use crate::content::{Content, MAX_READ_BYTES};
use crate::destination::Place;
use crate::location::Scheme;
use crate::reason::Reason;
use crate::store::join;
use crate::web::{ReadFailure, WebClient, WebUpload};

/// Pauses between attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(15);

/// Counters of one upload.
#[derive(Clone)]
struct Counters {
    reporter: Arc<EntryReporter>,
    stream: Arc<StreamCounters>,
    sent: Arc<AtomicU64>,
}

impl Uploader {
    /// Uploads a file to a web server.
    pub(super) async fn by_web(
        &self,
        place: &Place,
        content: &Content,
        is_replaced: bool,
    ) -> Result<(), Failure> {
        let Some(web) = self.store.web() else {
            return Err(self.failed(Reason::Unsupported));
        };
        // A piece is sent while the next one is read.
        let pieces = content.size().min(2 * MAX_READ_BYTES);
        let _memory = self.memory.take(pieces).await;
        let _permit = self.requests.acquire().await;
        if !matches!(self.store.scheme(), Scheme::Dav(_)) {
            let put = self.put(web, &place.key, content, !is_replaced).await;
            return self.changed_or(put, content).await;
        }
        let number = self.next_id.fetch_add(1, Ordering::Relaxed);
        let name = format!("{TEMP_PREFIX}{}-{number:x}", self.token);
        let temp = join(&place.key.parent().unwrap_or_default(), name.as_bytes())?;
        let noted = self.note(Unfinished::File(temp.clone()));
        let put = self.put(web, &temp, content, false).await;
        let mut stored = self.changed_or(put, content).await;
        if stored.is_ok() {
            let renamed = web.rename(&temp, &place.key, is_replaced).await;
            stored = renamed.map_err(|reason| self.failed(reason));
            if stored.is_err() {
                self.reporter.taken_back(content.size());
            }
        }
        if stored.is_err() && !self.store.outage.has_occurred() {
            self.remove(Unfinished::File(temp)).await;
        }
        if stored.is_ok() || !self.store.outage.has_occurred() {
            self.forget(noted);
        }
        stored
    }

    /// Checks the source after it was sent.
    async fn changed_or(&self, put: Result<(), Reason>, content: &Content) -> Result<(), Failure> {
        match put {
            Ok(()) => {
                let checked = content.check_unchanged().await;
                if checked.is_err() {
                    self.reporter.taken_back(content.size());
                }
                checked
            }
            Err(Reason::Changed) => Err(Failure::new(FailureKind::Changed)),
            Err(other) => Err(self.failed(other)),
        }
    }

    /// Checks that the server has all of a file. A server may answer that it stored a file of which
    /// it read only a part.
    async fn check_stored(&self, key: &Key, size: u64, sent: u64) -> Result<(), Reason> {
        let stored = match sent == size {
            true => self.store.head(key).await?.size,
            false => sent,
        };
        match stored == size {
            true => Ok(()),
            false => Err(Reason::Other(format!(
                "the server says that it stored the file, and has {stored} of {size} bytes: remove \
                 what is there"
            ))),
        }
    }

    /// Sends a file, again and again while the server does not answer.
    async fn put(
        &self,
        web: &WebClient,
        key: &Key,
        content: &Content,
        is_new: bool,
    ) -> Result<(), Reason> {
        let (started, mut pause) = (Instant::now(), FIRST_PAUSE);
        loop {
            let counters = Counters {
                reporter: self.reporter.clone(),
                stream: self.counters.clone(),
                sent: Arc::default(),
            };
            let upload = WebUpload {
                body: body(content.clone(), counters.clone()),
                len: content.size(),
                mtime: content.modified().0,
                is_new,
            };
            let mut put = web.put(key, upload).await;
            let sent = counters.sent.load(Ordering::Relaxed);
            if put.is_ok() {
                put = self.check_stored(key, content.size(), sent).await;
            }
            if put.is_err() {
                self.reporter.taken_back(sent);
            }
            match put {
                Err(Reason::Unreachable(_)) if started.elapsed() < self.store.patience() => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                }
                put => return put,
            }
        }
    }
}

/// Returns the body of a request that reads the file while it is sent.
fn body(content: Content, counters: Counters) -> Body {
    let pieces = stream::unfold(
        (content, counters, 0),
        |(content, counters, at)| async move {
            let end = content.size().min(at + MAX_READ_BYTES);
            if at >= end {
                return None;
            }
            let read = content.read(at..end).await;
            let read = read.map(|pieces| pieces.concat()).map_err(ReadFailure);
            let len = end - at;
            if read.is_ok() {
                counters.sent.fetch_add(len, Ordering::Relaxed);
                counters.reporter.written(len);
                counters.stream.bytes.fetch_add(len, Ordering::Relaxed);
            }
            // An error ends the request.
            Some((read, (content, counters, end)))
        },
    );
    Body::wrap_stream(pieces)
}
