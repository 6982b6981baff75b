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
use tokio::sync::Semaphore;

use super::pool_failure::PoolFailure;
use super::shared_login::SharedLogin;
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
    connections: Connections,
    has_answered: AtomicBool,
    failure: Arc<PoolFailure>,
}

/// Connections, by the way in which tasks share them.
enum Connections {
    /// Those of an SFTP server answer any number of tasks.
    Sftp(Arc<SftpFiles>, Semaphore),
    /// A login answers several tasks at once.
    Login(SharedLogin),
    /// Each answers one task at a time.
    Others {
        free: Mutex<Vec<Place>>,
        permits: Semaphore,
    },
}

impl PlacePool {
    /// Creates a pool of connections with a place, of which the first is open. Requests to a server
    /// are repeated for `patience`.
    pub fn new(
        first: Place,
        location: Location,
        options: PlaceOptions,
        patience: Duration,
    ) -> Self {
        let failure = Arc::new(PoolFailure::default());
        let connections = match first {
            Place::Sftp(files) => Connections::Sftp(files, Semaphore::new(SFTP_REQUESTS)),
            Place::Login(far) => Connections::Login(SharedLogin::new(*far, failure.clone())),
            other => Connections::Others {
                free: Mutex::new(vec![other]),
                permits: Semaphore::new(1),
            },
        };
        Self {
            location,
            options,
            patience,
            connections,
            has_answered: AtomicBool::new(false),
            failure,
        }
    }

    /// Opens further sessions, once the first has answered.
    ///
    /// # Errors
    /// The key is gone.
    pub async fn open_others(&self) -> Result<()> {
        let Connections::Others { free, permits } = &self.connections else {
            return Ok(());
        };
        for _ in 1..SERVER_SESSIONS {
            let place = Place::open(&self.location, &self.options).await?;
            free.lock().push(place);
            permits.add_permits(1);
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
                self.failure.record(error);
                return Err(Failure::with_detail(FailureKind::Io, reason));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    async fn ask_once(&self, asks: &[FilesRequest]) -> Result<Vec<FilesResponse>> {
        match &self.connections {
            Connections::Sftp(files, permits) => {
                let _permit = permits.acquire().await?;
                Ok(files.answer_all(asks).await?)
            }
            Connections::Login(login) => {
                let answered = login.ask_all(asks).await;
                answered.map_err(|reason| anyhow!(reason))
            }
            Connections::Others { free, permits } => {
                let _permit = permits.acquire().await?;
                let place = free.lock().pop();
                let mut place = place.ok_or_else(|| anyhow!("an earlier request was given up"))?;
                let answers = place.ask_all(asks).await;
                free.lock().push(place);
                answers
            }
        }
    }

    /// Waits until the place does not answer any more. Returns the reason, once.
    pub async fn ended(&self) -> anyhow::Error {
        self.failure.recorded().await
    }

    /// Closes all connections.
    pub async fn end(&self) {
        match &self.connections {
            Connections::Sftp(files, _) => files.end().await,
            Connections::Login(login) => login.end().await,
            Connections::Others { free, .. } => {
                let free = std::mem::take(&mut *free.lock());
                for place in free {
                    place.end().await;
                }
            }
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
