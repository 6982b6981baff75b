//! Connections with one place, which several tasks ask.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use longhaul_sftp::SftpFiles;
use longhaul_transfer::files::FilesError;
use longhaul_transfer::files::message::{FilesRequest, FilesResponse, PathBytes};
use longhaul_transfer::{Error, Failure, FailureKind};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};

use crate::place::{Location, Place, PlaceOptions};

/// Sessions with a server.
const SERVER_SESSIONS: usize = 4;
/// Requests with an SFTP server, which share its connections.
const SFTP_REQUESTS: usize = 32;
/// Pauses between attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(15);

/// Connections with one place.
pub struct PlacePool {
    location: Location,
    options: PlaceOptions,
    patience: Duration,
    free: Mutex<Vec<Place>>,
    /// Connections with an SFTP server, which answer any number of tasks.
    sftp: Option<Arc<SftpFiles>>,
    permits: Semaphore,
    has_answered: AtomicBool,
    /// Reason why the place does not answer any more.
    error: Mutex<Option<anyhow::Error>>,
    failed: Notify,
}

impl PlacePool {
    /// Opens a place. Requests to a server are repeated for `patience`.
    ///
    /// # Errors
    /// The place cannot be reached.
    pub async fn open(
        location: Location,
        options: PlaceOptions,
        patience: Duration,
    ) -> Result<Self> {
        let first = Place::open(&location, &options).await?;
        let sftp = match &first {
            Place::Sftp(files) => Some(files.clone()),
            _ => None,
        };
        let permits = match sftp {
            Some(_) => SFTP_REQUESTS,
            None => 1,
        };
        Ok(Self {
            location,
            options,
            patience,
            free: Mutex::new(vec![first]),
            sftp,
            permits: Semaphore::new(permits),
            has_answered: AtomicBool::new(false),
            error: Mutex::default(),
            failed: Notify::new(),
        })
    }

    /// Opens further sessions, once the first has answered.
    ///
    /// # Errors
    /// The key is gone.
    pub async fn open_others(&self) -> Result<()> {
        if !matches!(self.location, Location::Server(_)) {
            return Ok(());
        }
        for _ in 1..SERVER_SESSIONS {
            let place = Place::open(&self.location, &self.options).await?;
            self.free.lock().push(place);
            self.permits.add_permits(1);
        }
        Ok(())
    }

    /// Returns true if the place computes checksums.
    pub fn has_checksums(&self) -> bool {
        matches!(self.location, Location::Server(_) | Location::Login(_))
    }

    /// Returns the place as a person knows it.
    pub fn shown(&self, path: &PathBytes) -> String {
        self.location.shown(path)
    }

    /// Sends several questions at once, and receives the answers in order.
    ///
    /// # Errors
    /// The place does not answer any more. Those who wait for [`Self::ended`] get the reason.
    pub async fn ask_all(&self, asks: &[FilesRequest]) -> Result<Vec<FilesResponse>, Failure> {
        let (started, mut pause) = (Instant::now(), FIRST_PAUSE);
        loop {
            let error = match self.ask_once(asks).await {
                Ok(answers) if answers.len() == asks.len() => {
                    self.has_answered.store(true, Ordering::Relaxed);
                    return Ok(answers);
                }
                Ok(_) => anyhow!("the answers do not match the requests"),
                Err(error) => error,
            };
            // A wrong name is reported soon.
            let is_outage = self.has_answered.load(Ordering::Relaxed) && may_be_repeated(&error);
            if !is_outage || started.elapsed() >= self.patience {
                let reason = error.to_string();
                self.error.lock().get_or_insert(error);
                self.failed.notify_waiters();
                return Err(Failure::with_detail(FailureKind::Io, reason));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    async fn ask_once(&self, asks: &[FilesRequest]) -> Result<Vec<FilesResponse>> {
        let _permit = self.permits.acquire().await?;
        if let Some(files) = &self.sftp {
            return Ok(files.answer_all(asks).await?);
        }
        let free = self.free.lock().pop();
        let mut place = free.ok_or_else(|| anyhow!("an earlier request was given up"))?;
        let answers = place.ask_all(asks).await;
        self.free.lock().push(place);
        answers
    }

    /// Waits until the place does not answer any more. Returns the reason, once.
    pub async fn ended(&self) -> anyhow::Error {
        loop {
            let failed = self.failed.notified();
            if let Some(error) = self.error.lock().take() {
                return error;
            }
            failed.await;
        }
    }

    /// Closes all connections.
    pub async fn end(&self) {
        let free = std::mem::take(&mut *self.free.lock());
        for place in free {
            place.end().await;
        }
    }
}

/// Returns true if the session broke, so that another one may answer.
fn may_be_repeated(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref::<FilesError>(),
        Some(FilesError::Broken(_) | FilesError::Silent | FilesError::Connect(Error::Connect(_)))
    )
}
