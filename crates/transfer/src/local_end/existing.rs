//! Options about what exists at the other end.

use crate::existing::ExistingPolicy;

/// Options of a copy from this machine that concern what exists.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExistingOptions {
    /// If true, entries that differ are replaced.
    pub overwrite: bool,
    /// If true, existing files are compared by content.
    pub checksum: bool,
    /// Restriction of what is created and replaced.
    pub policy: ExistingPolicy,
}
