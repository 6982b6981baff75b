//! Accounting: one record for each copy of a server, and for each session of a depot or off-ramp.
//!
//! Records are lines of JSON in a file ([`AccountLog`]). No limit on log lines applies to them. A
//! copy never waits for its record: a thread writes it, and keeps it in memory while the disk is
//! full. A power failure loses at most the last second, and damages no earlier line.
//!
//! | module | purpose |
//! |---|---|
//! | [`record`] | the records, and how their text is bounded |
//! | `writer` | when records are written, synced and retried; pure, in virtual time |
//! | `file` | the file: appends, repairs its end, rotates |
//! | `rotation` | when a file is rotated, names of rotated files; pure |
//! | `journal` | the same records in systemd's journal |
//! | [`read`] | reads the records of a file and of its rotated ones |
//! | [`totals`] | totals by key, month and others; pure |

#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing)] // names of files and keys come from others
#![cfg_attr(test, allow(clippy::indexing_slicing))]

mod directory;
mod error;
mod file;
mod journal;
mod log;
mod metrics;
pub mod read;
pub mod record;
mod rotation;
pub mod totals;
mod writer;

pub use error::AccountsError;
pub use log::{AccountLog, AccountOptions};
pub use record::{AccountRecord, CopyDirection, CopyRecord, CopyResult};
pub use record::{SessionRecord, SessionResult};
pub use rotation::RotationLimits;
