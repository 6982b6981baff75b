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
use super::credential::{Credential, CurrentCredential, end_error};
use super::root::ROOT_DISPLACED;
use crate::account::{Account, Resource, ResourcePermit};
use crate::client::{Transport, close};
use crate::error::Error;
use crate::files::message::{
    FilesFailure, FilesFailureKind, FilesHello, FilesRequest, FilesResponse, MAX_REQUEST_BYTES,
    PathBytes,
};
use crate::files::{
    FILES_VERSION, Files, LineError, LineReader, MAX_KEPT_BYTES, Permission, WORKING_INTERVAL,
    write_line,
};
use crate::grants::{Access, Grants};
use crate::path::RelPath;
use crate::process_limits::processors;
use crate::workers::blocking;

/// Time without requests after which a session is closed (LH-FILES-4).
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// Time limit for a client to receive an answer (LH-FILES-4).
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Permissions from the grants of a key, and from its token.
struct GrantedAccess {
    grants: Arc<Grants>,
    key: PublicKey,
}

/// The client of a session.
struct FilesCaller {
    key: PublicKey,
    account: Arc<Account>,
    /// Its token, if it brought one that is valid.
    credential: Option<Arc<Credential>>,
}

impl Permission for GrantedAccess {
    fn may(&self, access: Access, path: &RelPath) -> bool {
        self.grants.allows(&self.key, access, path)
    }

    fn client_name(&self) -> String {
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
        let from = stream.origin().and_then(|origin| origin.from);
        let account = self.first_account(principal, from);
        let (reader, mut writer) = tokio::io::split(stream);
        let mut lines = LineReader::new(reader, MAX_REQUEST_BYTES);
        // LH-FILES-4: it counts as a stream of a copy, in the same shares.
        let ended = match account.take(Resource::Streams, 1) {
            Ok(held) => {
                self.answer_session(&mut lines, &mut writer, principal, &account, held)
                    .await
            }
            Err(exhausted) => Err(Error::Limit(exhausted.to_string())),
        };
        let refusal = match &ended {
            Err(Error::Protocol(reason) | Error::Limit(reason)) => Some((false, reason.clone())),
            Err(Error::Unauthorised(reason)) => Some((true, reason.clone())),
            Err(Error::Token(reason)) => {
                let reason = format!("{reason}; get a new token (longhaul login)");
                Some((true, reason))
            }
            _ => None,
        };
        if let Some((unauthorised, reason)) = refusal {
            let refused = FilesResponse::Refused {
                unauthorised,
                reason,
            };
            let _ = timeout(WRITE_TIMEOUT, write_line(&mut writer, &refused)).await;
        }
        close(lines.into_inner().unsplit(writer)).await;
        ended
    }

    /// Reads the first line, and answers the requests until the session ends or its token is not
    /// valid any more (LH-FILES-17).
    async fn answer_session(
        self: &Arc<Self>,
        lines: &mut LineReader<impl AsyncRead + Unpin>,
        writer: &mut (impl AsyncWrite + Unpin),
        principal: PublicKey,
        account: &Arc<Account>,
        mut held: ResourcePermit,
    ) -> Result<(), Error> {
        let hello = timeout(self.limits.hello_timeout, lines.next()).await;
        let hello = hello.map_err(|_| Error::Protocol("no first line in time".into()))?;
        let Some(hello) = hello.map_err(unexpected)? else {
            return Ok(());
        };
        let hello: FilesHello = serde_json::from_slice(&hello)
            .map_err(|_| Error::Protocol("the first line does not list versions".into()))?;
        // LH-FILES-2.
        if !(hello.lowest..=hello.highest).contains(&FILES_VERSION) {
            return Err(Error::Protocol(format!(
                "this server speaks version {FILES_VERSION} of the files protocol"
            )));
        }
        let credential = match &hello.token {
            Some(token) => self.verify_token(token).await,
            None => Ok(None),
        };
        let credential = match credential {
            Ok(credential) => credential,
            // The key may have rights of its own, which need no token.
            Err(_) if self.grants.current().has_key(&principal) => None,
            Err(refusal) => return Err(refusal.into()),
        };
        if credential.is_none() && !self.grants.current().has_key(&principal) {
            return Err(Error::Unauthorised(format!(
                "it does not know key {principal}, and takes no token that came with it; ask its \
                 operator"
            )));
        }
        let own = self.account_with(principal, credential.as_deref(), account);
        if !Arc::ptr_eq(&own, account) {
            held = own.take(Resource::Streams, 1)?;
        }
        let _held = held;
        let caller = FilesCaller {
            key: principal,
            account: own,
            credential: credential.clone(),
        };
        let current = CurrentCredential::new(credential);
        // The rights of the session are fixed.
        let is_permitted = |_: Option<&Credential>| false;
        let end = tokio::select! {
            // A request that arrives after the end is not answered.
            biased;
            end = self.credential_end(&current, is_permitted) => end,
            ended = self.answer_all(lines, writer, &caller) => return ended,
        };
        Err(end_error(end, caller.credential.as_deref()))
    }

    async fn answer_all(
        self: &Arc<Self>,
        lines: &mut LineReader<impl AsyncRead + Unpin>,
        writer: &mut (impl AsyncWrite + Unpin),
        caller: &FilesCaller,
    ) -> Result<(), Error> {
        let ready = FilesResponse::Ready {
            version: FILES_VERSION,
        };
        send(writer, &ready).await?;
        let root = self.root.dir();
        let mut files = Files::new(root.clone()).with_quota(self.quota().cloned());
        let mut kept = caller.account.take(Resource::Bookkeeping, 0)?;
        loop {
            let line = match timeout(IDLE_TIMEOUT, lines.next()).await {
                Ok(line) => line.map_err(unexpected)?,
                Err(_) => return Err(Error::Protocol("no request for too long".into())),
            };
            let Some(line) = line else {
                return Ok(());
            };
            let (server, served) = (self.clone(), root.clone());
            if !blocking(move || server.still_serves(&served)).await? {
                return Err(Error::Limit(ROOT_DISPLACED.into()));
            }
            let answer = match serde_json::from_slice::<FilesRequest>(&line) {
                Ok(ask) => {
                    let ask = files.with_position(ask);
                    let answer;
                    (files, answer) = self.answer(files, ask, caller, &mut kept, writer).await?;
                    answer
                }
                // LH-FILES-1: this may be a request of a later version.
                Err(_) => FilesResponse::Failed(FilesFailure::new(
                    FilesFailureKind::NotUnderstood,
                    &PathBytes::default(),
                )),
            };
            send(writer, &answer).await?;
        }
    }

    /// Answers one request, and meanwhile reports that it is working.
    async fn answer(
        self: &Arc<Self>,
        mut files: Files,
        ask: FilesRequest,
        caller: &FilesCaller,
        kept: &mut ResourcePermit,
        writer: &mut (impl AsyncWrite + Unpin),
    ) -> Result<(Files, FilesResponse), Error> {
        let bytes = match files.needs_pass(&ask) {
            true => MAX_KEPT_BYTES,
            false => files.kept_bytes(),
        };
        if let Err(exhausted) = kept.set(bytes as u64) {
            let failure = FilesFailure::with_detail(
                FilesFailureKind::Limit,
                &path_of(&ask),
                &exhausted.to_string(),
            );
            return Ok((files, FilesResponse::Failed(failure)));
        }
        let (principal, account) = (caller.key, &caller.account);
        let permission = GrantedAccess {
            // The grants are read for each request, so a withdrawal takes effect with the next one
            // (LH-FILES-8).
            grants: self.grants_with(&principal, caller.credential.as_deref()),
            key: principal,
        };
        let stop = StopAtEnd(Arc::default());
        let stopped = stop.0.clone();
        let work = async {
            // This uses one of the threads that copies have for their disks.
            let place = account.acquire(Resource::Buffers).await;
            // Checksums use further ones if they are free (LH-FILES-14).
            let further = match &ask {
                FilesRequest::Sum { .. } => free_buffers(account),
                _ => Vec::new(),
            };
            files.set_threads(1 + further.len());
            blocking(move || {
                let answer = files.answer(&ask, &permission, &stopped);
                drop((place, further));
                (files, ask, answer)
            })
            .await
        };
        tokio::pin!(work);
        let mut working = interval_at(Instant::now() + WORKING_INTERVAL, WORKING_INTERVAL);
        let (files, ask, answer) = loop {
            tokio::select! {
                done = &mut work => break done?,
                _ = working.tick() => send(writer, &FilesResponse::Working).await?,
            }
        };
        kept.set(files.kept_bytes() as u64)?;
        if matches!(answer, FilesResponse::Changed) {
            account.log(|| {
                let (verb, path) = (verb_of(&ask), printable(&path_of(&ask).0));
                tracing::info!(key = %principal, %path, "{verb}");
            });
        }
        Ok((files, answer))
    }
}

/// Takes buffers that are free, one for each processor besides the first.
fn free_buffers(account: &Arc<Account>) -> Vec<ResourcePermit> {
    (1..processors())
        .map_while(|_| account.take(Resource::Buffers, 1).ok())
        .collect()
}

/// Returns the path of a request.
fn path_of(ask: &FilesRequest) -> PathBytes {
    match ask {
        // There is no listing to continue.
        FilesRequest::More { .. } => PathBytes::default(),
        FilesRequest::Sum { paths, .. } => paths.first().cloned().unwrap_or_default(),
        FilesRequest::Look { path, .. }
        | FilesRequest::MakeDirectory { path, .. }
        | FilesRequest::Rename { from: path, .. }
        | FilesRequest::RenameFile { from: path, .. }
        | FilesRequest::Remove { path, .. }
        | FilesRequest::Read { path }
        | FilesRequest::ReadRange { path, .. }
        | FilesRequest::Leftovers { path, .. } => path.clone(),
    }
}

/// Returns the action of a request, for the log.
fn verb_of(ask: &FilesRequest) -> &'static str {
    match ask {
        FilesRequest::Look { .. } | FilesRequest::More { .. } | FilesRequest::Leftovers { .. } => {
            "looked at"
        }
        FilesRequest::Read { .. } | FilesRequest::ReadRange { .. } | FilesRequest::Sum { .. } => {
            "read"
        }
        FilesRequest::MakeDirectory { .. } => "directory made",
        FilesRequest::Rename { .. } | FilesRequest::RenameFile { .. } => "renamed",
        FilesRequest::Remove { .. } => "removed",
    }
}

async fn send(writer: &mut (impl AsyncWrite + Unpin), answer: &FilesResponse) -> Result<(), Error> {
    match timeout(WRITE_TIMEOUT, write_line(writer, answer)).await {
        Ok(written) => Ok(written?),
        Err(_) => Err(Error::Stream(std::io::ErrorKind::TimedOut.into())),
    }
}

fn unexpected(error: LineError) -> Error {
    match error {
        LineError::Io(error) => Error::Stream(error),
        error => Error::Protocol(error.to_string()),
    }
}
