//! The names in a directory, compact enough for millions: a few bytes each besides the name.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::Kind;

/// Names in one buffer, each preceded by its length and kind, without an allocation for each.
#[derive(Debug, Default)]
pub(crate) struct Names {
    buffer: Vec<u8>,
    /// Offset of each name.
    begins: Vec<usize>,
}

impl Names {
    /// Adds a name of at most 255 bytes (NAME_MAX), and its kind if the directory reports it. Of a
    /// longer name, which no directory has, it keeps the first 255 bytes.
    pub(super) fn push(&mut self, name: &[u8], kind: Option<Kind>) {
        let len = u8::try_from(name.len()).unwrap_or(u8::MAX);
        self.begins.push(self.buffer.len());
        self.buffer.push(kind.map_or(0, |kind| kind as u8 + 1));
        self.buffer.push(len);
        self.buffer.extend(name.iter().take(len.into()));
    }

    /// Sorts the names by their bytes.
    pub(super) fn sort(&mut self) {
        let buffer = &self.buffer;
        self.begins
            .sort_unstable_by(|a, b| name_at(buffer, *a).cmp(name_at(buffer, *b)));
    }

    /// Returns the names in order, and the kind of each if the directory reported it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&OsStr, Option<Kind>)> {
        self.begins.iter().map(|&begin| {
            let name = OsStr::from_bytes(name_at(&self.buffer, begin));
            (name, kind_at(&self.buffer, begin))
        })
    }
}

fn kind_at(buffer: &[u8], begin: usize) -> Option<Kind> {
    let code = buffer.get(begin).copied();
    Kind::ALL
        .into_iter()
        .find(|&kind| code == Some(kind as u8 + 1))
}

fn name_at(buffer: &[u8], begin: usize) -> &[u8] {
    let name = buffer.get(begin + 1..).and_then(<[u8]>::split_first);
    name.and_then(|(len, rest)| rest.get(..usize::from(*len)))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn names_are_sorted_by_their_bytes(
            mut names in prop::collection::vec(
                prop::collection::vec(any::<u8>(), 0..256),
                0..50,
            ),
        ) {
            let mut packed = Names::default();
            for name in &names {
                packed.push(name, Some(Kind::Other));
            }
            packed.sort();
            names.sort();
            prop_assert!(packed.iter().all(|(_, kind)| kind == Some(Kind::Other)));
            let listed: Vec<&[u8]> = packed.iter().map(|(name, _)| name.as_bytes()).collect();
            prop_assert_eq!(listed, names);
        }
    }

    #[test]
    fn million_names_have_little_overhead() {
        let mut names = Names::default();
        let own: usize = (0..1_000_000u32)
            .map(|n| {
                let name = format!("{n:07}");
                names.push(name.as_bytes(), None);
                name.len()
            })
            .sum();
        let taken = names.buffer.capacity() + names.begins.capacity() * size_of::<usize>();
        // Vectors grow by doubling.
        assert!(taken < 2 * (own + 10 * 1_000_000), "{taken}");
    }
}
