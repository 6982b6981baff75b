//! The service `files`: requests about files and changes of names in one session, one after the
//! other (`docs/files-protocol.md`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longhaul_proto::PublicKey;
use longhaul_proto::text::printable;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, interval_at, timeout};

use super::Server;
use super::root::ROOT_DISPLACED;
use crate::account::{Account, Held, Resource};
use crate::client::{Transport, close};
use crate::error::Error;
use crate::files::message::{
    FilesAnswer, FilesAsk, FilesFailure, FilesFailureKind, FilesHello, MAX_ASK_BYTES, PathBytes,
};
use crate::files::{
    FILES_VERSION, Files, LineError, Lines, MAX_KEPT_BYTES, Permission, WORKING_EVERY, write_line,
};
use crate::grants::{Access, Grants};
use crate::path::RelPath;
use crate::workers::blocking;

/// Time without requests after which a session is closed (LH-FILES-4).
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// Time limit for a client to receive an answer (LH-FILES-4).
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Permissions from the grants of a key.
struct Granted {
    grants: Arc<Grants>,
    key: PublicKey,
}

impl Permission for Granted {
    fn may(&self, access: Access, path: &RelPath) -> bool {
        self.grants.allow(&self.key, access, path)
    }

    fn who(&self) -> String {
        format!("key {}", self.key)
    }
}

/// Stops the current work if its session ends first.
struct StopAtEnd(Arc<AtomicBool>);

impl Drop for StopAtEnd {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Server {
    /// Answers the file requests of an authenticated principal until the end of its stream.
    ///
    /// # Errors
    /// The stream broke, or the client violated `docs/files-protocol.md`.
    pub async fn serve_files(
        self: &Arc<Self>,
        stream: impl Transport,
        principal: PublicKey,
    ) -> Result<(), Error> {
        let account = self.account(principal);
        let (reader, mut writer) = tokio::io::split(stream);
        let mut lines = Lines::new(reader, MAX_ASK_BYTES);
        // LH-FILES-4: it counts as a stream of a copy, in the same shares.
        let ended = match account.take(Resource::Streams, 1) {
            Ok(_held) => {
                self.answer_all(&mut lines, &mut writer, principal, &account)
                    .await
            }
            Err(exhausted) => Err(Error::Limit(exhausted.to_string())),
        };
        if let Err(Error::Protocol(reason) | Error::Limit(reason)) = &ended {
            let refused = FilesAnswer::Refused {
                unauthorised: false,
                reason: reason.clone(),
            };
            let _ = timeout(WRITE_TIMEOUT, write_line(&mut writer, &refused)).await;
        }
        close(lines.into_inner().unsplit(writer)).await;
        ended
    }

    async fn answer_all(
        self: &Arc<Self>,
        lines: &mut Lines<impl AsyncRead + Unpin>,
        writer: &mut (impl AsyncWrite + Unpin),
        principal: PublicKey,
        account: &Arc<Account>,
    ) -> Result<(), Error> {
        let hello = timeout(self.limits.hello, lines.next()).await;
        let hello = hello.map_err(|_| Error::Protocol("no first line in time".into()))?;
        let Some(hello) = hello.map_err(odd)? else {
            return Ok(());
        };
        let hello: FilesHello = serde_json::from_slice(&hello)
            .map_err(|_| Error::Protocol("the first line is no versions".into()))?;
        // LH-FILES-2.
        if !(hello.lowest..=hello.highest).contains(&FILES_VERSION) {
            return Err(Error::Protocol(format!(
                "this server speaks version {FILES_VERSION} of the files protocol"
            )));
        }
        let ready = FilesAnswer::Ready {
            version: FILES_VERSION,
        };
        say(writer, &ready).await?;
        let root = self.root.dir();
        let mut files = Files::new(root.clone());
        let mut kept = account.take(Resource::Bookkeeping, 0)?;
        loop {
            let line = match timeout(IDLE_TIMEOUT, lines.next()).await {
                Ok(line) => line.map_err(odd)?,
                Err(_) => return Err(Error::Protocol("nothing was asked for too long".into())),
            };
            let Some(line) = line else {
                return Ok(());
            };
            let (server, served) = (self.clone(), root.clone());
            if !blocking(move || server.still_serves(&served)).await? {
                return Err(Error::Limit(ROOT_DISPLACED.into()));
            }
            let answer = match serde_json::from_slice::<FilesAsk>(&line) {
                Ok(ask) => {
                    let ask = files.spelled_out(ask);
                    let answer;
                    (files, answer) = self
                        .answer(files, ask, principal, account, &mut kept, writer)
                        .await?;
                    answer
                }
                // LH-FILES-1: this may be a request of a later version.
                Err(_) => FilesAnswer::Failed(FilesFailure::new(
                    FilesFailureKind::NotUnderstood,
                    &PathBytes::default(),
                )),
            };
            say(writer, &answer).await?;
        }
    }

    /// Answers one request, and meanwhile reports that it is working.
    async fn answer(
        self: &Arc<Self>,
        mut files: Files,
        ask: FilesAsk,
        principal: PublicKey,
        account: &Arc<Account>,
        kept: &mut Held,
        writer: &mut (impl AsyncWrite + Unpin),
    ) -> Result<(Files, FilesAnswer), Error> {
        let bytes = match files.needs_pass(&ask) {
            true => MAX_KEPT_BYTES,
            false => files.kept_bytes(),
        };
        if let Err(exhausted) = kept.set(bytes as u64) {
            let failure = FilesFailure::with(
                FilesFailureKind::Limit,
                &path_of(&ask),
                &exhausted.to_string(),
            );
            return Ok((files, FilesAnswer::Failed(failure)));
        }
        let permission = Granted {
            // The grants are read for each request, so a withdrawal takes effect with the next one
            // (LH-FILES-8).
            grants: self.grants.now(),
            key: principal,
        };
        let stop = StopAtEnd(Arc::default());
        let stopped = stop.0.clone();
        let work = async {
            // This uses one of the threads that copies have for their disks.
            let place = account.wait(Resource::Buffers).await;
            blocking(move || {
                let answer = files.answer(&ask, &permission, &stopped);
                drop(place);
                (files, ask, answer)
            })
            .await
        };
        tokio::pin!(work);
        let mut working = interval_at(Instant::now() + WORKING_EVERY, WORKING_EVERY);
        let (files, ask, answer) = loop {
            tokio::select! {
                done = &mut work => break done?,
                _ = working.tick() => say(writer, &FilesAnswer::Working).await?,
            }
        };
        kept.set(files.kept_bytes() as u64)?;
        if matches!(answer, FilesAnswer::Changed) {
            account.log(|| {
                let (verb, path) = (verb_of(&ask), printable(&path_of(&ask).0));
                tracing::info!(key = %principal, %path, "{verb}");
            });
        }
        Ok((files, answer))
    }
}

/// Returns the path of a request.
fn path_of(ask: &FilesAsk) -> PathBytes {
    match ask {
        // There is no listing to continue.
        FilesAsk::More { .. } => PathBytes::default(),
        FilesAsk::Look { path, .. }
        | FilesAsk::MakeDirectory { path, .. }
        | FilesAsk::Rename { from: path, .. }
        | FilesAsk::Remove { path, .. }
        | FilesAsk::Leftovers { path, .. } => path.clone(),
    }
}

/// Returns the action of a request, for the log.
fn verb_of(ask: &FilesAsk) -> &'static str {
    match ask {
        FilesAsk::Look { .. } | FilesAsk::More { .. } | FilesAsk::Leftovers { .. } => "looked at",
        FilesAsk::MakeDirectory { .. } => "directory made",
        FilesAsk::Rename { .. } => "renamed",
        FilesAsk::Remove { .. } => "removed",
    }
}

async fn say(writer: &mut (impl AsyncWrite + Unpin), answer: &FilesAnswer) -> Result<(), Error> {
    match timeout(WRITE_TIMEOUT, write_line(writer, answer)).await {
        Ok(written) => Ok(written?),
        Err(_) => Err(Error::Stream(std::io::ErrorKind::TimedOut.into())),
    }
}

fn odd(error: LineError) -> Error {
    match error {
        LineError::Io(error) => Error::Stream(error),
        error => Error::Protocol(error.to_string()),
    }
}
