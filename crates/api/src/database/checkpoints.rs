//! Checkpoints of SQLite's write-ahead log, beside those who write: whoever commits waits for the
//! log to be on the disk, and not for what the log holds to be brought into the file, which takes
//! several times as long.
//!
//! A checkpoint of this kind (`PASSIVE`) waits for nobody and stops nobody. It takes what was
//! committed before it began, so where others keep committing the log may grow meanwhile; from
//! `wal_autocheckpoint` on, which is far more, whoever commits makes one.

use std::sync::Arc;
use std::time::Duration;

use sqlx::any::AnyConnectOptions;
use sqlx::{AnyConnection, Connection, Executor};
use tokio::sync::{Mutex, Notify};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// The least time between two checkpoints.
const MIN_CHECKPOINT_INTERVAL: Duration = Duration::from_millis(50);

/// Makes checkpoints until it is dropped or ended.
#[derive(Debug, Clone)]
pub(super) struct Checkpoints {
    written: Arc<Notify>,
    task: Arc<Ending>,
}

/// A task that ends when nobody has it any more.
#[derive(Debug)]
struct Ending(Mutex<Option<JoinHandle<()>>>, Arc<Notify>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.1.notify_one();
    }
}

impl Checkpoints {
    /// Of the file of these options; each of its connections is set up with these settings.
    pub(super) fn begin(options: AnyConnectOptions, settings: &'static str) -> Self {
        let (written, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let task = tokio::spawn(run(options, settings, written.clone(), end.clone()));
        Self {
            written,
            task: Arc::new(Ending(Mutex::new(Some(task)), end)),
        }
    }

    /// Says that something was written.
    pub(super) fn written(&self) {
        self.written.notify_one();
    }

    /// Ends when the one that is being made has ended, if any is.
    pub(super) async fn end(&self) {
        let Ending(task, end) = &*self.task;
        end.notify_one();
        if let Some(task) = task.lock().await.take() {
            // It does not panic.
            let _ = task.await;
        }
    }
}

async fn run(
    options: AnyConnectOptions,
    settings: &'static str,
    written: Arc<Notify>,
    end: Arc<Notify>,
) {
    let mut connection = None;
    loop {
        tokio::select! {
            biased;
            () = end.notified() => break,
            () = written.notified() => {}
        }
        if let Err(error) = checkpoint(&mut connection, &options, settings).await {
            // The log keeps all of it: nothing is lost, and whoever writes brings it into the file
            // in the end.
            tracing::debug!(%error, "no checkpoint was made");
            connection = None;
        }
        tokio::select! {
            biased;
            () = end.notified() => break,
            () = sleep(MIN_CHECKPOINT_INTERVAL) => {}
        }
    }
    if let Some(connection) = connection {
        // It goes in any case.
        let _ = AnyConnection::close(connection).await;
    }
}

async fn checkpoint(
    connection: &mut Option<AnyConnection>,
    options: &AnyConnectOptions,
    settings: &'static str,
) -> sqlx::Result<()> {
    let connection = match connection {
        Some(connection) => connection,
        None => {
            let mut new = AnyConnection::connect_with(options).await?;
            new.execute(settings).await?;
            connection.insert(new)
        }
    };
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use sqlx::migrate::Migrator;

    use crate::Database;

    /// Bytes of one row.
    const WRITTEN: usize = 1 << 20;

    #[tokio::test]
    async fn what_was_committed_gets_into_the_file_while_others_have_it_open_and_the_log_goes_at_the_end()
     {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.sqlite");
        let database = Database::sqlite(&file, &Migrator::DEFAULT).await.unwrap();
        let write = async || {
            let mut transaction = database.write().await.unwrap();
            sqlx::query("CREATE TABLE IF NOT EXISTS texts (content TEXT NOT NULL)")
                .execute(&mut *transaction)
                .await
                .unwrap();
            sqlx::query("INSERT INTO texts (content) VALUES ($1)")
                .bind("x".repeat(WRITTEN))
                .execute(&mut *transaction)
                .await
                .unwrap();
            transaction.commit().await.unwrap();
        };
        write().await;
        while std::fs::metadata(&file).unwrap().len() < u64::try_from(WRITTEN).unwrap() {
            // The next one that is written has it seen that there was one before.
            write().await;
        }
        database.close().await;
        assert!(!dir.path().join("x.sqlite-wal").exists());
    }
}
