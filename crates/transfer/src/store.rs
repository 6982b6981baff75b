//! Where the files of a copy are: folders that nothing leads out of, and files that take their names once they are whole.

pub mod confine;
mod destination;
pub mod journal;

pub use destination::{Destination, TEMP_PREFIX, WriteOptions};
pub(crate) use destination::{MadeDir, TempFile};
