//! One copy with a host: its connections, and its ends.

use std::sync::Arc;
use std::time::Duration;

use longhaul_transfer::local_end::{EntryReporter, ExistingOptions};
use tokio::time::timeout;

use crate::error::Error;
use crate::location::SftpPath;
use crate::pool::{Pool, SftpLogin};
use crate::request::{CopySettings, PullRequest, PushRequest};
use crate::unfinished::UnfinishedFiles;
use crate::{pull, push};

/// Connections if the user gives no number.
const DEFAULT_SESSIONS: usize = 8;
/// Time for removing unfinished files.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(5);

/// A copy with one host by SFTP.
pub struct SftpCopy {
    pool: Arc<Pool>,
    reporter: Arc<EntryReporter>,
    unfinished: Arc<UnfinishedFiles>,
}

impl std::fmt::Debug for SftpCopy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SftpCopy").finish_non_exhaustive()
    }
}

impl SftpCopy {
    /// Logs in to the host of `path`. `names` are the sources as the user knows them.
    ///
    /// # Errors
    /// ssh cannot log in, or there is no SFTP server.
    pub async fn open(
        path: &SftpPath,
        settings: CopySettings,
        names: Vec<String>,
    ) -> Result<Self, Error> {
        let CopySettings {
            ssh,
            sessions,
            patience,
            progress,
            observer,
            token,
        } = settings;
        let reporter = Arc::new(EntryReporter::new(progress, observer, names));
        let login = SftpLogin {
            ssh,
            host: path.host().to_owned(),
            shown: path.shown_host().to_owned(),
        };
        let sessions = sessions.map_or(DEFAULT_SESSIONS, |sessions| sessions as usize);
        let pool = Pool::open(login, sessions, patience, reporter.clone()).await?;
        Ok(Self {
            pool: Arc::new(pool),
            reporter,
            unfinished: Arc::new(UnfinishedFiles::new(token.0)),
        })
    }

    /// Returns true if the server can make files durable.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.pool.abilities().fsync
    }

    /// Copies to the host. Failures of single entries are reported to the observer.
    ///
    /// # Errors
    /// The destination cannot be used, or the copy broke off.
    pub async fn push(&self, request: PushRequest<'_>) -> Result<(), Error> {
        if request.options.fsync && !self.is_durable() {
            return Err(Error::Unsupported {
                option: "--fsync",
                reason: "the server lacks fsync@openssh.com",
            });
        }
        let existing = ExistingOptions {
            overwrite: request.options.overwrite,
            checksum: request.checksum,
            policy: request.existing,
        };
        let (reporter, unfinished) = (self.reporter.clone(), self.unfinished.clone());
        let pushing = push::push(self.pool.clone(), reporter, unfinished, request, existing);
        tokio::select! {
            result = pushing => result,
            error = self.pool.given_up() => Err(error),
        }
    }

    /// Copies from the host. Failures of single entries are reported to the observer.
    ///
    /// # Errors
    /// The copy broke off.
    pub async fn pull(&self, request: PullRequest<'_>) -> Result<(), Error> {
        let pulling = pull::pull(self.pool.clone(), self.reporter.clone(), request);
        tokio::select! {
            result = pulling => result,
            error = self.pool.given_up() => Err(error),
        }
    }

    /// Removes unfinished files that no later copy resumes, and ends the connections. It does so
    /// for a few seconds at most.
    pub async fn end(&self) {
        if !self.pool.is_given_up() {
            let removing = self.unfinished.remove(&self.pool);
            let _ = timeout(CLEANUP_TIMEOUT, removing).await;
        }
        self.pool.end().await;
    }
}
