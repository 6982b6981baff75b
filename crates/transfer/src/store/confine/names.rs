//! The names in a directory: millions of them take a few bytes each beside their own.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::Kind;

/// Names in one buffer, each behind its length and what it is: no allocation, and no header of one,
/// for each.
#[derive(Debug, Default)]
pub(crate) struct Names {
    buffer: Vec<u8>,
    /// Where each begins.
    begins: Vec<usize>,
}

impl Names {
    /// Adds a name, of 255 bytes at most (NAME_MAX); of a longer one, which no directory has, the
    /// first 255. And what it is, where the directory says.
    pub(super) fn push(&mut self, name: &[u8], kind: Option<Kind>) {
        let len = u8::try_from(name.len()).unwrap_or(u8::MAX);
        self.begins.push(self.buffer.len());
        self.buffer.push(kind.map_or(0, |kind| kind as u8 + 1));
        self.buffer.push(len);
        self.buffer.extend(name.iter().take(len.into()));
    }

    /// Sorts them by their bytes.
    pub(super) fn sort(&mut self) {
        let buffer = &self.buffer;
        self.begins
            .sort_unstable_by(|a, b| name_at(buffer, *a).cmp(name_at(buffer, *b)));
    }

    /// The names in their order, and what each is, where the directory said.
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
        fn names_come_out_sorted_by_their_bytes(mut names in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..256), 0..50)) {
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
    fn a_million_names_take_little_beside_their_own_bytes() {
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
