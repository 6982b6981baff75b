//! The table of routes in force. It is reloaded when its file changes; a file with a mistake
//! changes nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_config::routes::{Author, RouteTable, RoutesError};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::file_stamp::FileStamp;
use crate::metrics::Metrics;

/// Minimum interval between checks of the file.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The rules, and the file that contains them.
#[derive(Debug)]
pub(crate) struct Table {
    file: PathBuf,
    author: Author,
    state: Mutex<State>,
    /// Signals that the rules have changed.
    changes: watch::Sender<()>,
    metrics: Arc<Metrics>,
}

/// Facts about a table, for a report.
#[derive(Debug)]
pub(crate) struct Reported {
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

impl Table {
    /// Loads the file. A missing file has no rules.
    pub(crate) fn open(
        file: &Path,
        author: Author,
        metrics: Arc<Metrics>,
    ) -> Result<Self, RoutesError> {
        let stamp = FileStamp::read(file);
        let rules = Arc::new(RouteTable::load_by(file, author)?);
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
    pub(crate) fn reported(&self) -> Reported {
        let rules = self.current().rules().len();
        let state = self.state.lock();
        Reported {
            file: self.file.clone(),
            rules,
            age: state.read.elapsed(),
            problem: state.problem.clone(),
        }
    }

    /// Returns a receiver that is notified when the rules change. A changed file is noticed only
    /// when the rules are next requested.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Returns the rules in force.
    pub(crate) fn current(&self) -> Arc<RouteTable> {
        let mut state = self.state.lock();
        if state.looked.elapsed() >= LOOK_EVERY {
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
        match RouteTable::load_by(&self.file, self.author) {
            Ok(rules) => {
                tracing::info!(
                    rules = rules.rules().len(),
                    "the table of routes has been read again"
                );
                state.rules = Arc::new(rules);
                (state.read, state.problem) = (Instant::now(), None);
                self.changes.send_replace(());
                self.metrics.reloaded("loaded");
            }
            Err(error) => {
                tracing::error!(%error, "the table of routes in force stays");
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
        let table = Table::open(&file, Author::User, Arc::new(Metrics::new())).unwrap();
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
                .reported()
                .problem
                .is_some_and(|problem| problem.contains("routes.toml:1"))
        );
        // Simulates that a second has passed.
        std::fs::write(&file, rule.repeat(2)).unwrap();
        table.state.lock().looked -= LOOK_EVERY;
        assert_eq!(table.current().rules().len(), 2);
    }
}
