//! The last tables of a controller on this machine's disk, one for sending and one for fetching. A
//! client uses them at once, and while the controller does not answer.
#![deny(clippy::indexing_slicing)] // what is read here comes from a file

use std::path::PathBuf;

use longhaul_control_api::routes::RouteTable;
use longhaul_control_client::settings::{read_within, replace};
use serde::{Deserialize, Serialize};

use crate::belief::{self, Ignored};
use crate::held::HeldFile;
use crate::question::{Choice, Question};
use crate::source::{Answer, RouteSource};

/// Maximum size of a file, in bytes.
pub const MAX_BYTES: usize = 4 << 20;
/// Names of the files: of the table for sending, and of that for fetching.
pub const FILES: [&str; 2] = ["routes.json", "fetching.json"];
/// Format version of the files.
const FORMAT: u32 = 1;

/// Directory of the cached tables.
#[derive(Debug, Clone)]
pub struct Cache {
    /// The directory, which exists.
    pub dir: PathBuf,
    /// URL of the controller as its settings name it. Tables of other controllers are ignored.
    pub controller: String,
}

/// Content of a file.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    format: u32,
    controller: String,
    table: RouteTable,
}

impl Cache {
    /// Returns the file of the table for fetching if `receives`, else for sending.
    #[must_use]
    pub fn file(&self, receives: bool) -> PathBuf {
        let [sent, fetched] = FILES;
        self.dir.join(if receives { fetched } else { sent })
    }

    /// Returns the table for fetching if `receives`, else for sending, if it exists and can be
    /// read.
    #[must_use]
    pub fn table(&self, receives: bool) -> Option<RouteTable> {
        let content = read_within(&self.file(receives), MAX_BYTES as u64)?;
        read(&content, &self.controller)
    }

    /// Replaces the stored table of the same direction. A table that is too long loses its last
    /// destinations.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep(&self, mut table: RouteTable) -> std::io::Result<()> {
        table.next = None;
        let file = self.file(table.receives);
        loop {
            let kept = Kept {
                format: FORMAT,
                controller: self.controller.clone(),
                table,
            };
            let text = serde_json::to_vec(&kept)?;
            if text.len() <= MAX_BYTES || kept.table.destinations.is_empty() {
                return replace(&file, &text);
            }
            table = kept.table;
            let fewer = table.destinations.len() / 2;
            table.destinations.truncate(fewer);
        }
    }
}

/// Parses such a file, if it is from this controller.
pub(crate) fn read(content: &[u8], controller: &str) -> Option<RouteTable> {
    let kept: Kept = serde_json::from_slice(content).ok()?;
    (kept.format == FORMAT && kept.controller == controller).then_some(kept.table)
}

/// The cached tables as a source of routes.
#[derive(Debug, Clone)]
pub struct CacheSource {
    /// The cache.
    pub cache: Cache,
    /// Routes that failed on this machine.
    pub held: HeldFile,
    /// Clock in milliseconds since the Unix epoch.
    pub now_ms: fn() -> u64,
}

impl CacheSource {
    /// Derives the choice from the table for the question's direction.
    ///
    /// # Errors
    /// [`Ignored`].
    pub fn choose(&self, question: &Question) -> Result<Choice, Ignored> {
        let now_ms = (self.now_ms)();
        let table = self
            .cache
            .table(question.receives)
            .ok_or(Ignored::NoTable)?;
        belief::of_table(&table, question, now_ms, &self.held.read(now_ms))
    }
}

impl RouteSource for CacheSource {
    fn routes<'a>(&'a self, question: &'a Question) -> Answer<'a> {
        Box::pin(async { Ok(self.choose(question)?) })
    }
}

#[cfg(test)]
mod tests;
