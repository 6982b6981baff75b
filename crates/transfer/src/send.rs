//! The sending half of a copy: finds the files, cuts them into work, and puts it on streams.
//!
//! [`source`] is where files come from and [`walk`] finds them in a local tree. [`schedule`]
//! decides what goes where, without I/O; [`queue`] is it behind a lock. Each [`stream`] asks the
//! queue for work, has [`read`] turn it into frames on a blocking thread, writes them, and brings
//! back the answers.

#[cfg(test)]
mod large_offsets_tests;
mod queue;
mod read;
mod schedule;
mod source;
#[cfg(test)]
mod sparse_tests;
mod stream;
mod walk;

pub(crate) use queue::{CloseIfPanicking, Queue};
pub(crate) use schedule::Presence;
pub use source::Sources;
pub(crate) use stream::{ClearData, send_stream};
pub(crate) use walk::meta_of;
