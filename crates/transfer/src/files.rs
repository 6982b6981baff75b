//! Lists files, changes names and finds what copies left behind, without copying. Each request
//! concerns one directory and has one response.
//!
//! - [`message`] defines the requests and responses, one line of JSON each. They travel over ssh
//!   (`longhaul_remote`) and over sessions with the service `files` (`docs/files-protocol.md`,
//!   whose rules are cited as `LH-FILES-1`).
//! - [`Files`] answers them beneath one directory that no path escapes, a page at a time and in
//!   bounded memory.
//! - [`FilesClient`] sends requests to a server. The server's side is [`crate::serve_files`].
//! - [`PagePrefetch`] prefetches the pages of a directory over any channel.

mod ahead;
mod client;
mod failure;
mod kept_time;
mod leftovers;
mod lines;
mod listing;
pub mod message;
mod path_bytes;
mod remove;
mod sum;
#[cfg(test)]
mod tests;
mod tree;

pub use ahead::{FilesChannel, PagePrefetch};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use client::read_answer;
pub use client::{FilesClient, FilesError};
pub(crate) use lines::{
    LineError, LineReader, SILENCE_TIMEOUT, WORKING_INTERVAL, write_line, write_lines,
};
pub use listing::MAX_ENTRIES_PER_PAGE;
pub(crate) use listing::MAX_KEPT_BYTES;
pub use sum::MAX_SUMMED_FILES;
pub use tree::{AllowAll, Files, Permission};

/// Version of the messages between a client and a server (LH-FILES-2).
pub const FILES_VERSION: u16 = 1;
