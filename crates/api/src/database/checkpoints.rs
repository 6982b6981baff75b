//! Checkpoints of SQLite's write-ahead log in the background. A commit then only waits until the
//! log is on disk, not until the log is copied into the file, which takes several times as long.
//!
//! A `PASSIVE` checkpoint neither waits nor blocks. It copies what was committed before it began,
//! so the log may grow while others keep committing. Above `wal_autocheckpoint`, which is far more,
//! the committing connection checkpoints.

use std::sync::Arc;
use std::time::Duration;

use sqlx::any::AnyConnectOptions;
use sqlx::{AnyConnection, Connection, Executor};
use tokio::sync::{Mutex, Notify};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// Minimum time between two checkpoints.
const MIN_CHECKPOINT_INTERVAL: Duration = Duration::from_millis(50);

/// Background task that checkpoints until it is ended or dropped.
#[derive(Debug, Clone)]
pub(super) struct Checkpoints {
    written: Arc<Notify>,
    task: Arc<TaskHandle>,
}

/// Task that ends when its last handle is dropped.
#[derive(Debug)]
struct TaskHandle(Mutex<Option<JoinHandle<()>>>, Arc<Notify>);

impl Drop for TaskHandle {
    fn drop(&mut self) {
        self.1.notify_one();
    }
}

impl Checkpoints {
    /// Starts the task for the file of these options. `settings` apply to its connections.
    pub(super) fn start(options: AnyConnectOptions, settings: &'static str) -> Self {
        let (written, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let task = tokio::spawn(run(options, settings, written.clone(), end.clone()));
        Self {
            written,
            task: Arc::new(TaskHandle(Mutex::new(Some(task)), end)),
        }
    }

    /// Records that something was written.
    pub(super) fn notify_written(&self) {
        self.written.notify_one();
    }

    /// Stops the task after the current checkpoint, if there is one.
    pub(super) async fn stop(&self) {
        let TaskHandle(task, end) = &*self.task;
        end.notify_one();
        if let Some(task) = task.lock().await.take() {
            // The task does not panic.
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
            // Nothing is lost: the log keeps all of it, and eventually a writer checkpoints it.
            tracing::debug!(%error, "the checkpoint of the database failed");
            connection = None;
        }
        tokio::select! {
            biased;
            () = end.notified() => break,
            () = sleep(MIN_CHECKPOINT_INTERVAL) => {}
        }
    }
    if let Some(connection) = connection {
        // The connection closes in any case.
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

    /// Size of a row, in bytes.
    const ROW_BYTES: usize = 1 << 20;

    #[tokio::test]
    async fn log_is_checkpointed_in_use_and_removed_at_close() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.sqlite");
        let database = Database::sqlite(&file, &Migrator::DEFAULT).await.unwrap();
        let write = async || {
            let mut transaction = database.begin_write().await.unwrap();
            sqlx::query("CREATE TABLE IF NOT EXISTS texts (content TEXT NOT NULL)")
                .execute(&mut *transaction)
                .await
                .unwrap();
            sqlx::query("INSERT INTO texts (content) VALUES ($1)")
                .bind("x".repeat(ROW_BYTES))
                .execute(&mut *transaction)
                .await
                .unwrap();
            transaction.commit().await.unwrap();
        };
        write().await;
        while std::fs::metadata(&file).unwrap().len() < u64::try_from(ROW_BYTES).unwrap() {
            // SQLite reports the previous checkpoint only with the next write.
            write().await;
        }
        database.close().await;
        assert!(!dir.path().join("x.sqlite-wal").exists());
    }
}
