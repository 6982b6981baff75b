//! Copies that are divided into parts, so that several nodes carry one tree (LH-COPY-49 to
//! LH-COPY-52).
//!
//! A part takes exactly the files whose paths hash to it. All nodes that see the same tree agree on
//! the part of each file without communicating. What is left (directories, links, what a part could
//! not copy) is for a copy of the whole after the parts.

use std::fmt;
use std::str::FromStr;

use crate::path::RelPath;

/// Maximum number of parts of one copy. Each walks the tree by itself.
pub const MAX_PARTS: u32 = 1000;

/// One part of a divided copy, numbered from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    number: u32,
    of: u32,
}

/// Error of an invalid [`Part`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a part is K/N, with N from 1 to {MAX_PARTS} and K from 1 to N")]
pub struct PartError;

impl Part {
    /// Returns part `number` of the `of` parts.
    ///
    /// # Errors
    /// There is no such part.
    pub fn new(number: u32, of: u32) -> Result<Self, PartError> {
        match (1..=MAX_PARTS).contains(&of) && (1..=of).contains(&number) {
            true => Ok(Self { number, of }),
            false => Err(PartError),
        }
    }

    /// Returns the number of this part, from 1.
    pub fn number(self) -> u32 {
        self.number
    }

    /// Returns the number of parts.
    pub fn of(self) -> u32 {
        self.of
    }

    /// Returns true if the file at `path` beneath a source belongs to this part.
    pub(crate) fn takes(self, source: u32, path: &RelPath) -> bool {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&source.to_le_bytes()).update(path.as_bytes());
        self.is(&hasher)
    }

    /// Returns true if the file of this inode number, which has several names, belongs to this
    /// part.
    pub(crate) fn takes_inode(self, inode: u64) -> bool {
        self.is(blake3::Hasher::new().update(&inode.to_le_bytes()))
    }

    fn is(self, hasher: &blake3::Hasher) -> bool {
        let [a, b, c, d, e, f, g, h, ..] = *hasher.finalize().as_bytes();
        let number = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        number % u64::from(self.of) == u64::from(self.number - 1)
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Part {
    type Err = PartError;

    fn from_str(text: &str) -> Result<Self, PartError> {
        let (number, of) = text.split_once('/').ok_or(PartError)?;
        let read = |text: &str| text.parse().map_err(|_| PartError);
        Self::new(read(number)?, read(of)?)
    }
}

/// Portion of its sources that a copy takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Portion {
    /// Everything.
    #[default]
    Whole,
    /// Files of one part. Directories that lead to them are created, and marked as unfinished.
    Part(Part),
    /// Everything, after the parts. Most of it is in place by then and does not travel. Directories
    /// that the parts created are finished.
    Rest,
}

/// Text form of [`Portion::Rest`].
const REST: &str = "rest";

impl Portion {
    /// Returns the part, if this is one.
    pub fn part(self) -> Option<Part> {
        match self {
            Self::Part(part) => Some(part),
            Self::Whole | Self::Rest => None,
        }
    }

    /// Returns true if other copies bring some of the same tree.
    pub fn is_one_of_several(self) -> bool {
        self != Self::Whole
    }
}

impl FromStr for Portion {
    type Err = PartError;

    /// Parses `K/N`, or `rest`.
    fn from_str(text: &str) -> Result<Self, PartError> {
        match text {
            REST => Ok(Self::Rest),
            part => part.parse().map(Self::Part),
        }
    }
}

/// Filter that decides which files belong to a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartFilter {
    pub part: Part,
    /// If true, a file with several names is assigned by its inode number, so that all its names
    /// belong to one part.
    pub links_together: bool,
}

impl PartFilter {
    /// Returns true if the file at `path`, with one name, belongs to the part. A file with several
    /// names may belong to it at any path.
    pub(crate) fn may_take(self, source: u32, path: &RelPath) -> bool {
        self.links_together || self.part.takes(source, path)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_file_belongs_to_exactly_one_part(
            source: u32,
            name in "[a-z]{1,9}(/[a-z]{1,9}){0,3}",
            inode: u64,
            of in 1..=MAX_PARTS,
        ) {
            let path = RelPath::from_bytes(name.as_bytes()).unwrap();
            let parts = || (1..=of).map(|number| Part::new(number, of).unwrap());
            prop_assert_eq!(parts().filter(|part| part.takes(source, &path)).count(), 1);
            prop_assert_eq!(parts().filter(|part| part.takes_inode(inode)).count(), 1);
        }

        #[test]
        fn parts_round_trip_through_text(number in 0..=MAX_PARTS + 1, of in 0..=MAX_PARTS + 1) {
            let text = format!("{number}/{of}");
            match Part::new(number, of) {
                Ok(part) => prop_assert_eq!(
                    (part.to_string(), text.parse()),
                    (text.clone(), Ok(part))
                ),
                Err(_) => prop_assert_eq!(text.parse::<Part>(), Err(PartError)),
            }
        }
    }

    /// If two releases disagreed, a file would be copied twice, or left for the end.
    #[test]
    fn lh_copy_49_a_files_part_is_the_same_in_all_releases() {
        let part_of = |source: u32, name: &str| {
            let path = RelPath::from_bytes(name.as_bytes()).unwrap();
            (1..=8)
                .find(|&number| Part::new(number, 8).unwrap().takes(source, &path))
                .unwrap()
        };
        let parts = [(0, ""), (1, ""), (0, "a"), (0, "a/b"), (2, "a/b")]
            .map(|(source, name)| part_of(source, name));
        assert_eq!(parts, [5, 7, 6, 4, 6]);
        let of_inode = (1..=8).find(|&number| Part::new(number, 8).unwrap().takes_inode(1 << 33));
        assert_eq!(of_inode, Some(4));
    }

    #[test]
    fn parts_have_about_equal_sizes() {
        let mut counts = [0u32; 7];
        for n in 0..7000 {
            let path = RelPath::from_bytes(format!("run/{n:05}.dat").as_bytes()).unwrap();
            let part = (1..=7)
                .find(|&number| Part::new(number, 7).unwrap().takes(0, &path))
                .unwrap();
            counts[part as usize - 1] += 1;
        }
        assert!(
            counts.iter().all(|count| (850..1150).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn portions_parse_from_words() {
        assert_eq!("rest".parse(), Ok(Portion::Rest));
        assert_eq!("2/3".parse(), Ok(Portion::Part(Part::new(2, 3).unwrap())));
        for bad in [
            "", "2", "/", "0/3", "4/3", "1/1001", "-1/3", "1/3/3", "whole",
        ] {
            assert_eq!(bad.parse::<Portion>(), Err(PartError), "{bad}");
        }
    }
}
