//! The local half of a copy whose other end speaks no copy protocol, such as an SFTP server.
//!
//! Another crate moves the data. This module gives it the same guarantees at this end as any copy
//! has: [`LocalFile`] detects a file that changes while it is read, [`LocalTarget`] writes under
//! temporary names, resumes, and commits what is durable, and [`EntryReporter`] counts and reports.

mod blocking;
mod memory;
mod reporter;
mod source;
mod target;

pub use crate::wire::{EntryOutcome, Meta, SourceIdentity};
pub use blocking::blocking;
pub use memory::ContentMemory;
pub use reporter::EntryReporter;
pub use source::{LocalEntry, LocalEntryKind, LocalFile};
pub use target::{LocalDirectory, LocalTarget, NewEntry, PartialFile};
