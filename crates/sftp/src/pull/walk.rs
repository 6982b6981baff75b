//! The walk of a tree at a host.

use longhaul_filter::{EntryKind, IGNORE_FILE_NAME, MAX_IGNORE_FILE_BYTES};
use longhaul_transfer::local_end::{EntryOutcome, blocking};
use longhaul_transfer::path::RelPath;
use longhaul_transfer::{Failure, FailureKind, TEMP_PREFIX};

use super::{FoundEntry, Pull};
use crate::content::read_beginning;
use crate::entries::{Attributes, Kind};
use crate::listing::list;

impl Pull {
    /// Creates a directory, and lists what is in it. Failures are reported.
    pub(super) async fn directory(&self, found: FoundEntry) -> Vec<FoundEntry> {
        self.reporter.found(0);
        let (target, entry) = (self.target.clone(), self.new_entry(&found));
        let made = blocking(move || target.make_dir(entry).map_err(Failure::at_destination)).await;
        let (outcome, entries) = match made {
            Err(failure) => (Err(failure), Vec::new()),
            Ok(directory) => {
                let outcome = match directory.is_new() {
                    true => EntryOutcome::New,
                    false => EntryOutcome::Same,
                };
                self.directories.lock().push(directory);
                match self.list(&found).await {
                    Ok(entries) => (Ok(outcome), entries),
                    Err(failure) => (Err(failure), Vec::new()),
                }
            }
        };
        self.reporter
            .ended(found.source, &found.path, outcome, None);
        entries
    }

    async fn list(&self, found: &FoundEntry) -> Result<Vec<FoundEntry>, Failure> {
        let source = found.source;
        let path = self.path_of(source, &found.path);
        let listed = list(&self.pool, &path).await?;
        if self.filter.rules().ignore_files
            && let Some(file) = listed.get(IGNORE_FILE_NAME.as_bytes())
            && file.kind == Kind::File
        {
            let file = path.join(IGNORE_FILE_NAME);
            let text = read_beginning(&self.pool, &file, MAX_IGNORE_FILE_BYTES as u32).await?;
            if let Some(ignored) = self.ignored.get(source as usize) {
                ignored.lock().add(found.path.as_bytes(), &text);
            }
        }
        let mut entries = Vec::new();
        for (name, attributes) in listed {
            if name.starts_with(TEMP_PREFIX.as_bytes()) {
                continue;
            }
            match found.path.child(&name) {
                Ok(path) if self.takes(source, &path, &attributes) => entries.push(FoundEntry {
                    source,
                    path,
                    attributes,
                }),
                Ok(_) => {}
                // A server must not choose where a name leads.
                Err(error) => self.reporter.failed(source, &found.path, error.into()),
            }
        }
        entries.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(entries)
    }

    fn takes(&self, source: u32, path: &RelPath, attributes: &Attributes) -> bool {
        let kind = match attributes.kind {
            Kind::Directory => EntryKind::Directory,
            Kind::File => EntryKind::File {
                bytes: attributes.size,
                modified_ms: attributes.modified.saturating_mul(1000),
            },
            Kind::Symlink | Kind::Other => EntryKind::Other,
        };
        let bytes = path.as_bytes();
        if self.filter.lists(bytes) {
            self.found.lock().insert(bytes.to_vec());
        }
        let is_ignored = || {
            let ignored = self.ignored.get(source as usize);
            let is_directory = kind == EntryKind::Directory;
            ignored.is_some_and(|ignored| ignored.lock().leaves_out(bytes, is_directory))
        };
        self.filter.takes(bytes, kind) && !is_ignored()
    }

    /// Reports the listed paths that the walk has not found.
    pub(super) fn report_missing(&self) {
        let found = std::mem::take(&mut *self.found.lock());
        for path in self.filter.listed().filter(|path| !found.contains(*path)) {
            let (path, kind) = match RelPath::from_bytes(path) {
                Ok(path) => (path, FailureKind::NotFound),
                Err(_) => (RelPath::root(), FailureKind::RefusedPath),
            };
            self.reporter.found(0);
            self.reporter.ended(0, &path, Err(Failure::new(kind)), None);
        }
    }
}
