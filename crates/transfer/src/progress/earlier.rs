//! Totals of copies that the server lost before they were complete. The copy that replaces them in
//! the same run finds their files in place. It must not report these as left by an earlier run.

/// Files and bytes of earlier copies of a run that the current one has not found yet.
#[derive(Debug, Default)]
pub(super) struct Earlier {
    files: u64,
    bytes: u64,
}

impl Earlier {
    /// Adds the totals of a lost copy.
    pub(super) fn add(&mut self, files: u64, bytes: u64) {
        self.files = self.files.saturating_add(files);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Accounts for an unchanged file. Returns how many files, and how many of its bytes, existed
    /// before the run.
    pub(super) fn take_unchanged(&mut self, bytes: u64) -> (u64, u64) {
        if self.files == 0 {
            return (1, bytes);
        }
        self.files -= 1;
        (0, self.take_resumed(bytes))
    }

    /// Accounts for resumed bytes. Returns how many of them existed before the run.
    pub(super) fn take_resumed(&mut self, bytes: u64) -> u64 {
        let brought = bytes.min(self.bytes);
        self.bytes -= brought;
        bytes - brought
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_same_run_are_not_reported_as_unchanged() {
        let mut earlier = Earlier::default();
        assert_eq!(earlier.take_unchanged(5), (1, 5));
        // Two files of 10 bytes, and 7 bytes of a third.
        earlier.add(2, 27);
        assert_eq!(earlier.take_unchanged(10), (0, 0));
        assert_eq!(earlier.take_resumed(9), 0);
        assert_eq!(earlier.take_unchanged(10), (0, 2));
        assert_eq!(earlier.take_unchanged(10), (1, 10));
    }
}
