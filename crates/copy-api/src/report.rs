//! Result of a copy.

use serde::{Deserialize, Serialize};

use crate::Exit;

/// Result and totals of a copy: the fields of its closing report that do not depend on the kind of
/// copy. `docs/json.md` describes them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CopyReport {
    /// True if everything was copied.
    pub ok: bool,
    /// Exit code of the command.
    pub exit_code: Exit,
    /// The error that ended the copy early, in one line.
    pub error: Option<String>,
    /// True if another attempt may succeed: there was no route, the copy broke off, or a limit on
    /// simultaneous use was reached.
    pub worth_retrying: bool,
    /// True if the copy ended early, and the parts of large files are kept for the next copy.
    pub kept: bool,
    /// Bytes of the committed files, holes included.
    pub bytes: u64,
    /// Bytes among them that an earlier copy had left, and that were not transferred again.
    pub resumed_bytes: u64,
    /// Committed files that existed already and were not transferred.
    pub unchanged_files: u64,
    /// Bytes of those files.
    pub unchanged_bytes: u64,
    /// Committed files that are other names of one of them and so were not transferred.
    pub linked_files: u64,
    /// Bytes of those files.
    pub linked_bytes: u64,
    /// Bytes of file content that compression and existing files kept off the network.
    // Left out if zero, as by earlier releases.
    #[serde(skip_serializing_if = "is_zero")]
    pub saved_bytes: u64,
    /// Committed files.
    pub files: u64,
    /// Files, directories and links found.
    pub entries: u64,
    /// Seconds from the start of the command to the verified end.
    pub seconds: f64,
    /// File content that this copy committed, in bits per second.
    pub goodput_bps: f64,
    /// Number of entries that were not copied.
    pub failed: u64,
}

const fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl CopyReport {
    /// Returns the bytes that the copy transferred.
    #[must_use]
    pub const fn transferred_bytes(&self) -> u64 {
        self.bytes
            .saturating_sub(self.resumed_bytes)
            .saturating_sub(self.unchanged_bytes)
            .saturating_sub(self.linked_bytes)
    }
}
