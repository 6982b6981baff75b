//! Treatment of entries that exist at the destination, besides replacing them.

/// Restriction of what a copy may create and replace (LH-COPY-56).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExistingPolicy {
    /// If true, an existing file that is newer than its source is left alone.
    pub update: bool,
    /// If true, nothing is created that does not exist.
    pub existing: bool,
    /// If true, whatever exists is left alone, except that directories are filled.
    pub ignore_existing: bool,
}

impl ExistingPolicy {
    /// Returns true if there is no restriction.
    pub fn is_default(self) -> bool {
        self == Self::default()
    }

    /// Returns the policy as it is sent.
    pub(crate) fn flags(self) -> u8 {
        u8::from(self.update) | u8::from(self.existing) << 1 | u8::from(self.ignore_existing) << 2
    }

    /// Decodes a policy. `None` if a flag is unknown.
    pub(crate) fn from_flags(flags: u8) -> Option<Self> {
        let policy = Self {
            update: flags & 1 != 0,
            existing: flags & 2 != 0,
            ignore_existing: flags & 4 != 0,
        };
        (policy.flags() == flags).then_some(policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_travel_as_flags() {
        for flags in 0..8 {
            assert_eq!(ExistingPolicy::from_flags(flags).unwrap().flags(), flags);
        }
        assert_eq!(ExistingPolicy::from_flags(8), None);
        assert_eq!(ExistingPolicy::default().flags(), 0);
    }
}
