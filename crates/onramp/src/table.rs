//! The table of routes in force. It is reloaded when its file changes; a file with a mistake
//! changes nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_config::routes::{Author, RouteTable, RoutesError};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::file_stamp::FileStamp;
use crate::metrics::OnrampMetrics;

/// Minimum interval between checks of the file.
pub(crate) const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The rules, and the file that contains them.
#[derive(Debug)]
pub(crate) struct ReloadingTable {
    file: PathBuf,
    author: Author,
    state: Mutex<State>,
    /// Signals that the rules have changed.
    changes: watch::Sender<()>,
    metrics: Arc<OnrampMetrics>,
}

/// Facts about a table, for a report.
#[derive(Debug)]
pub(crate) struct TableReport {
    pub(crate) file: PathBuf,
    pub(crate) rules: usize,
    pub(crate) age: Duration,
    pub(crate) problem: Option<String>,
}

#[derive(Debug)]
struct State {
    rules: Arc<RouteTable>,
    /// Time at which they were read.
    read: Instant,
    /// Error in the file since then.
    problem: Option<String>,
    stamp: FileStamp,
    looked: Instant,
}

impl ReloadingTable {
    /// Loads the file. A missing file has no rules.
    pub(crate) fn open(
        file: &Path,
        author: Author,
        metrics: Arc<OnrampMetrics>,
    ) -> Result<Self, RoutesError> {
        let stamp = FileStamp::read(file);
        let rules = Arc::new(RouteTable::load_as(file, author)?);
        Ok(Self {
            file: file.to_owned(),
            author,
            state: Mutex::new(State {
                rules,
                read: Instant::now(),
                problem: None,
                stamp,
                looked: Instant::now(),
            }),
            changes: watch::channel(()).0,
            metrics,
        })
    }

    /// Returns facts about the table, for a report.
    pub(crate) fn report(&self) -> TableReport {
        let rules = self.current().rules().len();
        let state = self.state.lock();
        TableReport {
            file: self.file.clone(),
            rules,
            age: state.read.elapsed(),
            problem: state.problem.clone(),
        }
    }

    /// Returns a receiver that is notified when the rules change. A changed file is noticed only
    /// when the rules are next requested.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Returns the rules in force.
    pub(crate) fn current(&self) -> Arc<RouteTable> {
        let mut state = self.state.lock();
        if state.looked.elapsed() >= FILE_CHECK_INTERVAL {
            state.looked = Instant::now();
            let found = FileStamp::read(&self.file);
            if found != state.stamp {
                state.stamp = found;
                self.load(&mut state);
            }
        }
        Arc::clone(&state.rules)
    }

    /// Reloads the file, changed or not.
    pub(crate) fn reload(&self) {
        let mut state = self.state.lock();
        state.stamp = FileStamp::read(&self.file);
        self.load(&mut state);
    }

    fn load(&self, state: &mut State) {
        match RouteTable::load_as(&self.file, self.author) {
            Ok(rules) => {
                tracing::info!(rules = rules.rules().len(), "table of routes reloaded");
                state.rules = Arc::new(rules);
                (state.read, state.problem) = (Instant::now(), None);
                self.changes.send_replace(());
                self.metrics.reloaded("loaded");
            }
            Err(error) => {
                tracing::error!(%error, "table of routes not reloaded: keeping the previous one");
                state.problem = Some(error.to_string());
                self.metrics.reloaded("refused");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_is_reloaded_unless_invalid() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("routes.toml");
        let table =
            ReloadingTable::open(&file, Author::User, Arc::new(OnrampMetrics::new())).unwrap();
        assert!(table.current().rules().is_empty(), "no file, no rules");
        let rule = "[[route]]\nto = [\"a.example\"]\n";
        std::fs::write(&file, rule).unwrap();
        table.reload();
        assert_eq!(table.current().rules().len(), 1);
        std::fs::write(&file, "[[rout]]\n").unwrap();
        table.reload();
        assert_eq!(table.current().rules().len(), 1, "the old one stays");
        assert!(
            table
                .report()
                .problem
                .is_some_and(|problem| problem.contains("routes.toml:1"))
        );
        // Simulates that a second has passed.
        std::fs::write(&file, rule.repeat(2)).unwrap();
        table.state.lock().looked -= FILE_CHECK_INTERVAL;
        assert_eq!(table.current().rules().len(), 2);
    }
}
