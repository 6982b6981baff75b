//! The local half of a copy whose other end speaks no copy protocol, such as an SFTP server.
//!
//! Another crate moves the data. This module gives it the same guarantees at this end as any copy
//! has: [`LocalFile`] detects a file that changes while it is read, [`LocalTarget`] writes under
//! temporary names, resumes, and commits what is durable, and [`EntryReporter`] counts and reports.
//!
//! The other crate implements [`RemoteTarget`] to receive local entries from [`push_entries`], or
//! [`RemoteTree`] to have [`pull_trees`] walk its trees, and writes with a [`LocalWriter`]. With a
//! [`RelayTree`], its files are [`Sources`](crate::Sources) of a copy to anywhere.

mod blocking;
mod existing;
mod listed_tree;
mod memory;
mod push;
mod relay;
mod reporter;
mod selection;
mod source;
mod target;
mod tree;
mod writer;

pub use crate::wire::{EntryOutcome, Meta, SourceIdentity};
pub use blocking::blocking;
pub use existing::ExistingOptions;
pub use listed_tree::{ListedTree, RemoteEntry, RemoteListing};
pub use longhaul_filter::EntryKind;
pub use memory::ContentMemory;
pub use push::{RemoteTarget, push_entries};
pub use relay::{RELAY_RANGE_BYTES, RelayFile, RelayTree};
pub use reporter::EntryReporter;
pub use source::{LocalEntry, LocalEntryKind, LocalFile};
pub use target::{LocalDirectory, LocalTarget, NewEntry, PartialFile};
pub use tree::{RemoteTree, WalkLimits, pull_trees};
pub use writer::{LocalWriter, WriteOutcome};
