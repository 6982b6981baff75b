//! Checksums of files, and the lists in which other programs keep them.
//!
//! - [`Algorithm`] names an algorithm, and [`Checksum`] is a value of one.
//! - [`Hasher`] computes a value from content that arrives in order.
//! - [`RunningSum`] computes Adler-32 and CRC-32C of pieces separately, and joins them.
//! - [`ListFormat`] and [`parse_line`] write and read lists as `b3sum`, `sha256sum`, `md5sum`,
//!   BSD's `sha256` and XRootD's programs do.

#![forbid(unsafe_code)]

mod algorithm;
mod hasher;
mod list;
mod running;

pub use algorithm::{Algorithm, Checksum, UnknownAlgorithm};
pub use hasher::Hasher;
pub use list::{ListFormat, ListLineError, ListedSum, parse_line};
pub use running::RunningSum;
