//! Selection of what a copy keeps of its sources besides content, permissions and times.

use serde::{Deserialize, Serialize};

/// Selection of further properties that a copy keeps, and its treatment of symbolic links
/// (LH-COPY-65).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Preservation {
    /// If true, owners are kept.
    pub owner: bool,
    /// If true, groups are kept.
    pub group: bool,
    /// If true, owners and groups go by number, and never by name.
    pub numeric_ids: bool,
    /// If true, POSIX ACLs are kept.
    pub acls: bool,
    /// If true, extended attributes are kept.
    pub xattrs: bool,
    /// If true, devices, FIFOs and sockets are copied.
    pub special_files: bool,
    /// If true, set-user-ID, set-group-ID and sticky bits are kept.
    pub special_bits: bool,
    /// If true, what symbolic links lead to is copied instead of the links.
    pub copy_links: bool,
    /// If true, symbolic links that lead out of their source are left out.
    pub safe_links: bool,
}

impl Preservation {
    /// Returns true if nothing is selected.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Returns true if entries have attributes on the wire.
    #[must_use]
    pub fn has_attributes(self) -> bool {
        self.owner || self.group || self.acls || self.xattrs || self.special_bits
    }

    /// Returns true if the sending end would send other entries without this selection.
    pub(crate) fn changes_entries(self) -> bool {
        self.copy_links || self.safe_links
    }

    /// Returns the selection without the treatment of symbolic links, which is the business of the
    /// end that reads.
    #[must_use]
    pub fn for_receiver(self) -> Self {
        Self {
            copy_links: false,
            safe_links: false,
            ..self
        }
    }

    /// Returns the selection as it is sent.
    pub(crate) fn flags(self) -> u16 {
        let flags = [
            self.owner,
            self.group,
            self.numeric_ids,
            self.acls,
            self.xattrs,
            self.special_files,
            self.special_bits,
            self.copy_links,
            self.safe_links,
        ];
        let numbered = flags.into_iter().zip(0..);
        numbered.fold(0, |sum, (flag, number)| sum | u16::from(flag) << number)
    }

    /// Decodes a selection. `None` if a flag is unknown.
    pub(crate) fn from_flags(flags: u16) -> Option<Self> {
        let has = |number: u32| flags & (1 << number) != 0;
        let selection = Self {
            owner: has(0),
            group: has(1),
            numeric_ids: has(2),
            acls: has(3),
            xattrs: has(4),
            special_files: has(5),
            special_bits: has(6),
            copy_links: has(7),
            safe_links: has(8),
        };
        (selection.flags() == flags).then_some(selection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selections_travel_as_flags() {
        for flags in 0..1 << 9 {
            let selection = Preservation::from_flags(flags).unwrap();
            assert_eq!(selection.flags(), flags);
            assert_eq!(selection.is_empty(), flags == 0);
        }
        assert_eq!(Preservation::from_flags(1 << 9), None);
    }
}
