//! The log of accounts: takes records without waiting, and writes them in a thread of its own.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use crate::error::AccountsError;
use crate::file::AccountFile;
use crate::journal::{JOURNAL_SOCKET, Journal};
use crate::metrics::AccountMetrics;
use crate::record::AccountRecord;
use crate::rotation::RotationLimits;
use crate::writer::RecordWriter;

/// Maximum records on their way to the thread. Beyond that, a record is lost and counted.
const QUEUE_RECORDS: usize = 16 * 1024;

/// Destinations of the records.
#[derive(Debug, Clone)]
pub struct AccountOptions {
    /// File of the records, if they go to one.
    pub file: Option<PathBuf>,
    /// When the file is rotated.
    pub rotation: RotationLimits,
    /// If true, records also go to systemd's journal.
    pub journal: bool,
}

/// The log of accounts of a service. Clones share it.
#[derive(Clone)]
pub struct AccountLog {
    to_thread: SyncSender<Message>,
    metrics: Arc<AccountMetrics>,
}

enum Message {
    Record(Box<AccountRecord>),
    /// Request to write and sync everything, and to answer then.
    Flush(SyncSender<()>),
}

impl fmt::Debug for AccountLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccountLog")
    }
}

impl AccountLog {
    /// Opens the log and starts its thread, which ends with the last clone.
    ///
    /// # Errors
    /// [`AccountsError`]: the file or the journal cannot be opened.
    pub fn open(options: &AccountOptions) -> Result<Self, AccountsError> {
        let file = options.file.as_ref().map(|path| {
            let opened = AccountFile::open(path, options.rotation.clone());
            opened.map_err(|source| AccountsError::Open {
                path: path.clone(),
                source,
            })
        });
        let journal = options.journal.then(|| {
            let path = Path::new(JOURNAL_SOCKET);
            Journal::open(path).map_err(|source| AccountsError::Journal {
                path: path.to_owned(),
                source,
            })
        });
        let metrics = Arc::new(AccountMetrics::new());
        let (to_thread, messages) = mpsc::sync_channel(QUEUE_RECORDS);
        let thread = LogThread {
            path: options.file.clone().unwrap_or_default(),
            writer: file.transpose()?.map(RecordWriter::new),
            journal: journal.transpose()?,
            metrics: Arc::clone(&metrics),
            is_failing: false,
        };
        std::thread::Builder::new()
            .name("accounts".into())
            .spawn(move || thread.run(&messages))
            .map_err(AccountsError::Thread)?;
        Ok(Self { to_thread, metrics })
    }

    /// Adds a record. Never waits.
    pub fn add(&self, record: AccountRecord) {
        self.metrics.records.inc();
        let message = Message::Record(Box::new(record));
        if self.to_thread.try_send(message).is_err() {
            self.metrics.lost.inc();
        }
    }

    /// Waits until everything added so far is durable, at most for `limit`. Returns true if it is.
    pub fn flush(&self, limit: Duration) -> bool {
        let (done, is_done) = mpsc::sync_channel(1);
        let sent = self.to_thread.try_send(Message::Flush(done));
        sent.is_ok() && is_done.recv_timeout(limit).is_ok()
    }

    /// Returns the metrics of the accounts, in OpenMetrics text format.
    #[must_use]
    pub fn metrics_page(&self) -> String {
        self.metrics.page()
    }
}

struct LogThread {
    path: PathBuf,
    writer: Option<RecordWriter<AccountFile>>,
    journal: Option<Journal>,
    metrics: Arc<AccountMetrics>,
    /// True if the last attempt to write failed, which has been logged.
    is_failing: bool,
}

impl LogThread {
    fn run(mut self, messages: &Receiver<Message>) {
        loop {
            let next = self.writer.as_ref().and_then(RecordWriter::next_action);
            let received = match next {
                Some(at) => messages.recv_timeout(at.saturating_duration_since(Instant::now())),
                None => messages
                    .recv()
                    .map_err(|mpsc::RecvError| RecvTimeoutError::Disconnected),
            };
            let mut answers = Vec::new();
            match received {
                Ok(message) => {
                    self.take(message, &mut answers);
                    // Records that have piled up are written at once.
                    for message in messages.try_iter().take(QUEUE_RECORDS) {
                        self.take(message, &mut answers);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.write(true);
                    return;
                }
            }
            let is_written = self.write(!answers.is_empty());
            for answer in answers.into_iter().filter(|_| is_written) {
                // The caller may no longer wait.
                let _ = answer.try_send(());
            }
        }
    }

    fn take(&mut self, message: Message, answers: &mut Vec<SyncSender<()>>) {
        let record = match message {
            Message::Record(record) => record,
            Message::Flush(answer) => return answers.push(answer),
        };
        if let Some(journal) = &self.journal
            && journal.send(&record).is_err()
        {
            self.metrics.journal_errors.inc();
        }
        if let Some(writer) = &mut self.writer
            && !writer.add(record.line())
        {
            self.metrics.lost.inc();
        }
    }

    /// Writes what is due, or everything. Returns true unless that failed.
    fn write(&mut self, everything: bool) -> bool {
        let Some(writer) = &mut self.writer else {
            return true;
        };
        let now = Instant::now();
        let written = match everything {
            true => writer.flush(now),
            false => writer.act(now),
        };
        let waiting = writer.waiting();
        let file = writer.store_mut();
        let rotations = std::mem::take(&mut file.rotations);
        let rotation_error = file.rotation_error.take();
        self.metrics.rotations.inc_by(rotations);
        self.metrics
            .waiting
            .set(i64::try_from(waiting).unwrap_or(i64::MAX));
        if let Some(error) = rotation_error {
            self.warn_of_rotation(&error);
        }
        match written {
            Ok(()) if waiting == 0 => {
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!(file = %self.path.display(), "accounts are written again");
                }
                true
            }
            Ok(()) => false,
            Err(error) => {
                self.metrics.write_errors.inc();
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::error!(
                        file = %self.path.display(), %error, waiting,
                        "accounts cannot be written: records wait in memory, copies continue; make \
                         room on the disk"
                    );
                }
                false
            }
        }
    }

    fn warn_of_rotation(&self, error: &io::Error) {
        tracing::warn!(
            file = %self.path.display(), %error,
            "accounts cannot be rotated: records are appended to the old file; let this user \
             write in its directory"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::read_records;
    use crate::record::tests::copy;

    const LIMIT: Duration = Duration::from_secs(20);

    fn options(file: &Path) -> AccountOptions {
        AccountOptions {
            file: Some(file.to_owned()),
            rotation: RotationLimits::default(),
            journal: false,
        }
    }

    #[test]
    fn flushed_records_are_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        let log = AccountLog::open(&options(&path)).unwrap();
        for bytes in 0..1000 {
            log.add(copy("lhk1:A", "2026-11-30T00:00:00Z", bytes));
        }
        assert!(log.flush(LIMIT));
        let mut records = 0;
        assert_eq!(read_records(&path, |_| records += 1).unwrap(), 0);
        assert_eq!(records, 1000);
        let page = log.metrics_page();
        let line = "longhaul_accounts_records_total 1000";
        assert!(page.lines().any(|found| found == line), "{page}");
    }

    #[test]
    fn a_full_disk_is_counted_and_stops_nobody() {
        let log = AccountLog::open(&options(Path::new("/dev/full"))).unwrap();
        log.add(copy("lhk1:A", "2026-11-30T00:00:00Z", 1));
        assert!(!log.flush(LIMIT) || log.metrics.waiting.get() > 0);
        let page = log.metrics_page();
        for line in [
            "longhaul_accounts_records_waiting 1",
            "longhaul_accounts_records_lost_total 0",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
        }
        assert!(log.metrics.write_errors.get() > 0, "{page}");
    }

    #[test]
    fn a_missing_directory_is_an_error() {
        let missing = Path::new("/nonexistent/accounts.jsonl");
        let error = AccountLog::open(&options(missing)).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("cannot keep accounts: /nonexistent/accounts.jsonl: ")
        );
    }
}
