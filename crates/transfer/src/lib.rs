//! File trees over sessions: walk, blocks, streams, integrity.
pub mod confine;
mod destination;
mod error;
mod frame_io;
mod lock;
mod manifest;
pub mod path;
mod progress;
mod queue;
mod read;
mod receive;
mod receive_stream;
mod send_stream;
mod source;
mod tree_hash;
mod walk;
mod wire;

pub use destination::{Destination, TEMP_PREFIX, WriteOptions};
pub use error::{Error, Failure, FailureKind};
pub use progress::{Event, Observer, Progress, StreamCounters};
pub use source::Sources;
pub use tree_hash::Hash;
pub use wire::{Hello, Request, Token, VERSION, WireError};
