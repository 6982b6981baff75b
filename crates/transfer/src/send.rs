//! The sending half of a copy: finds the files, cuts them into work, and puts it on streams.
//!
//! [`source`] says where files come from, and [`walk`] finds them in a local tree. [`schedule`]
//! decides without I/O which stream carries which work; [`queue`] puts it behind a lock. Each
//! [`stream`] takes work from the queue, has [`read`] turn it into frames on a blocking thread,
//! writes them, and reports the answers.

#[cfg(test)]
mod large_offsets_tests;
mod packing;
mod queue;
mod read;
mod schedule;
mod source;
#[cfg(test)]
mod sparse_tests;
mod stream;
mod walk;

pub(crate) use queue::{CloseOnPanic, WorkQueue};
pub(crate) use schedule::{FoundEntry, Presence};
pub use source::Sources;
pub(crate) use source::{Source, SourceFile};
pub(crate) use stream::{DataSetting, send_stream};
pub(crate) use walk::WalkSink;
