//! Receipts: files that say what a copy has brought, signed by both ends.
//!
//! A receipt has a line of JSON for the copy, one for each entry, one with the server's signature,
//! and one with the client's. The server signs the hash over all entries that both ends compute
//! (LH-COPY-26) and the time; the client signs every byte of the receipt. BLAKE3 hashes of coarse
//! parts of large files show which part of a file has changed since.
//!
//! - [`ReceiptRecorder`] writes the receipt of a running copy.
//! - [`ReceiptSigner`] is the server's part.
//! - [`Receipt`] reads and checks one.

mod encoding;
mod format;
mod parts;
mod reader;
mod recorder;
mod role;
mod signature;

pub use format::{ReceiptEntry, ReceiptHeader, RecordedEntry};
pub use parts::{ChangedPart, FileParts};
pub use reader::{Receipt, ReceiptError};
pub use recorder::ReceiptRecorder;
pub(crate) use role::ReceiptRole;
pub(crate) use signature::ReceiptSigner;
pub use signature::{ReceiptAuthority, ReceiptStatement, ServerReceipt};
