//! The last tables that a controller gave, on this machine's disk, one for what is sent and one for
//! what is fetched: what a client goes by at once, and while the controller does not answer.
#![deny(clippy::indexing_slicing)] // what is read here comes from a file

use std::path::PathBuf;

use longhaul_control_api::routes::RouteTable;
use longhaul_control_client::settings::{read_within, replace};
use serde::{Deserialize, Serialize};

use crate::belief::{self, Ignored};
use crate::held::HeldFile;
use crate::question::{Choice, Question};
use crate::source::{Answer, RouteSource};

/// Longest file that is read or written, in bytes.
pub const MAX_BYTES: usize = 4 << 20;
/// Their names: of the table for what is sent, and of the one for what is fetched.
pub const FILES: [&str; 2] = ["routes.json", "fetching.json"];
/// The form of the files.
const FORMAT: u32 = 1;

/// The files.
#[derive(Debug, Clone)]
pub struct Cache {
    /// Their folder, which is there.
    pub dir: PathBuf,
    /// The controller whose tables are gone by, as its settings name it: what another one gave
    /// counts for nothing.
    pub controller: String,
}

/// What a file holds.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    format: u32,
    controller: String,
    table: RouteTable,
}

impl Cache {
    /// The file of the table for what is sent, or fetched.
    #[must_use]
    pub fn file(&self, receives: bool) -> PathBuf {
        let [sent, fetched] = FILES;
        self.dir.join(if receives { fetched } else { sent })
    }

    /// The table for what is sent, or fetched, if there is one that can be read.
    #[must_use]
    pub fn table(&self, receives: bool) -> Option<RouteTable> {
        let content = read_within(&self.file(receives), MAX_BYTES as u64)?;
        read(&content, &self.controller)
    }

    /// Keeps a table in place of the one before for the same direction. One that is too long loses
    /// its last destinations.
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

/// Reads the content of such a file, of this controller's.
pub(crate) fn read(content: &[u8], controller: &str) -> Option<RouteTable> {
    let kept: Kept = serde_json::from_slice(content).ok()?;
    (kept.format == FORMAT && kept.controller == controller).then_some(kept.table)
}

/// The tables as a source.
#[derive(Debug, Clone)]
pub struct CacheSource {
    /// Where they are.
    pub cache: Cache,
    /// The routes that failed here.
    pub held: HeldFile,
    /// The time, in milliseconds since the Unix epoch.
    pub now_ms: fn() -> u64,
}

impl CacheSource {
    /// What the table for that direction says.
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
