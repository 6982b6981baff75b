//! The last tables of a controller on this machine's disk, one for sending and one for fetching. A
//! client uses them at once, and while the controller does not answer.
#![deny(clippy::indexing_slicing)] // what is read here comes from a file

use std::path::PathBuf;

use crate::settings::{read_bounded, replace_file};
use longhaul_control_api::routes::RouteTable;
use serde::{Deserialize, Serialize};

use crate::routes::belief::{self, IgnoreReason};
use crate::routes::held::HeldFile;
use crate::routes::question::{Choice, RouteQuery};
use crate::routes::source::{RouteSource, RoutesFuture};

/// Maximum size of a file, in bytes.
pub const MAX_FILE_BYTES: usize = 4 << 20;
/// Names of the files: of the table for sending, and of that for fetching.
pub const FILE_NAMES: [&str; 2] = ["routes.json", "fetching.json"];
/// Format version of the files.
const FORMAT_VERSION: u32 = 1;

/// Directory of the cached tables.
#[derive(Debug, Clone)]
pub struct RouteCache {
    /// The directory, which exists.
    pub dir: PathBuf,
    /// URL of the controller as its settings name it. Tables of other controllers are ignored.
    pub controller: String,
}

/// Content of a file.
#[derive(Debug, Serialize, Deserialize)]
struct CacheFile {
    format: u32,
    controller: String,
    table: RouteTable,
}

impl RouteCache {
    /// Returns the file of the table for fetching if `receives`, else for sending.
    #[must_use]
    pub fn file(&self, receives: bool) -> PathBuf {
        let [sent, fetched] = FILE_NAMES;
        self.dir.join(if receives { fetched } else { sent })
    }

    /// Returns the table for fetching if `receives`, else for sending, if it exists and can be
    /// read.
    #[must_use]
    pub fn table(&self, receives: bool) -> Option<RouteTable> {
        let content = read_bounded(&self.file(receives), MAX_FILE_BYTES as u64)?;
        parse_cache_file(&content, &self.controller)
    }

    /// Replaces the stored table of the same direction. A table that is too long loses its last
    /// destinations.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn store(&self, mut table: RouteTable) -> std::io::Result<()> {
        table.next = None;
        let file = self.file(table.receives);
        loop {
            let kept = CacheFile {
                format: FORMAT_VERSION,
                controller: self.controller.clone(),
                table,
            };
            let text = serde_json::to_vec(&kept)?;
            if text.len() <= MAX_FILE_BYTES || kept.table.destinations.is_empty() {
                return replace_file(&file, &text);
            }
            table = kept.table;
            let fewer = table.destinations.len() / 2;
            table.destinations.truncate(fewer);
        }
    }
}

/// Parses such a file, if it is from this controller.
pub(crate) fn parse_cache_file(content: &[u8], controller: &str) -> Option<RouteTable> {
    let kept: CacheFile = serde_json::from_slice(content).ok()?;
    (kept.format == FORMAT_VERSION && kept.controller == controller).then_some(kept.table)
}

/// The cached tables as a source of routes.
#[derive(Debug, Clone)]
pub struct CacheSource {
    /// The cache.
    pub cache: RouteCache,
    /// Routes that failed on this machine.
    pub held: HeldFile,
    /// Clock in milliseconds since the Unix epoch.
    pub now_ms: fn() -> u64,
}

impl CacheSource {
    /// Derives the choice from the table for the question's direction.
    ///
    /// # Errors
    /// [`IgnoreReason`].
    pub fn choose(&self, question: &RouteQuery) -> Result<Choice, IgnoreReason> {
        let now_ms = (self.now_ms)();
        let table = self
            .cache
            .table(question.receives)
            .ok_or(IgnoreReason::NoTable)?;
        belief::choice_from_table(&table, question, now_ms, &self.held.read(now_ms))
    }
}

impl RouteSource for CacheSource {
    fn routes<'a>(&'a self, question: &'a RouteQuery) -> RoutesFuture<'a> {
        Box::pin(async { Ok(self.choose(question)?) })
    }
}

#[cfg(test)]
mod tests;
