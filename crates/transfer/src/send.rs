//! The sending half of a copy: finds the files, cuts them into work, and puts it on streams.

mod queue;
mod read;
mod schedule;
mod source;
mod stream;
mod walk;

pub(crate) use queue::Queue;
pub use source::Sources;
pub(crate) use stream::send_stream;
