//! Errors of the checks around a copy.

use std::io;

use longhaul_transfer::files::message::FilesFailure;

/// The files are copied, and their receipt is not there.
#[derive(Debug, thiserror::Error)]
pub enum ReceiptFailed {
    /// The receipt could not be written, or the server's signature did not arrive. The copy itself
    /// is complete. Run the command again: nothing but the receipt is made then.
    #[error(
        "the copy is complete, but writing its receipt failed: {file}: {source}; run the command \
         again, or compare with longhaul sum"
    )]
    Write {
        /// The receipt.
        file: String,
        /// The reason.
        source: io::Error,
    },
}

/// The files do not agree with the catalogue.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueMismatch {
    /// A source differs from what its catalogue says. Nothing was copied. Repair the source, or ask
    /// for a correct catalogue.
    #[error("nothing was copied: the source does not agree with --checksum-with")]
    Source,
    /// A file that was copied from another machine differs from what its catalogue says, and so
    /// does the file there. Repair it there, or ask for a correct catalogue.
    #[error("the files were copied as they are there, and do not agree with --checksum-with")]
    Copy,
}

/// The output is incomplete or is not what the file has.
#[derive(Debug, thiserror::Error)]
pub enum StreamFailed {
    /// The file changed while it was read. What was printed is no state that it had. Run the
    /// command again when nothing writes to the file.
    #[error("{0}: changed while it was read: what was printed is not its content")]
    Changed(String),
    /// The file cannot be read. The reason is in the message.
    #[error("{0}")]
    Failed(FilesFailure),
}
