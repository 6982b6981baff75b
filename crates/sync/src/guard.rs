//! Conditions under which the target loses anything.

/// State of the source after the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceState {
    /// Number of entries below the source.
    pub entries: u64,
    /// Number of entries that could not be listed or copied.
    pub failures: u64,
}

/// Limits on what is removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemovalGuard {
    /// Maximum number of entries to remove. `None` means any number.
    pub max_removals: Option<u64>,
    /// If true, an empty source may empty the target.
    pub permits_empty_source: bool,
}

/// Reason to remove nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovalRefusal {
    /// The source is empty: it may not be mounted.
    EmptySource,
    /// Something in the source could not be read, so it is unknown what the source has.
    SourceFailed {
        /// Number of entries that failed.
        failures: u64,
    },
    /// There is more to remove than permitted.
    TooMany {
        /// Number of entries to remove.
        entries: u64,
        /// Number of entries that may be removed.
        max: u64,
    },
}

impl RemovalGuard {
    /// Decides whether `entries` entries of the target may be removed.
    ///
    /// # Errors
    /// The reason why nothing is removed.
    pub fn check(self, source: SourceState, entries: u64) -> Result<(), RemovalRefusal> {
        if entries == 0 {
            return Ok(());
        }
        if source.failures > 0 {
            return Err(RemovalRefusal::SourceFailed {
                failures: source.failures,
            });
        }
        if source.entries == 0 && !self.permits_empty_source {
            return Err(RemovalRefusal::EmptySource);
        }
        match self.max_removals {
            Some(max) if entries > max => Err(RemovalRefusal::TooMany { entries, max }),
            _ => Ok(()),
        }
    }
}
