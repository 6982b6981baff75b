//! Checks what a sender may send: a receiver accepts what it requested and nothing else
//! (LH-COPY-18).
//!
//! A client that pulls without `-r` requests one file per source, under a name that it chooses
//! itself. It accepts no directory and nothing beneath. It also accepts no symbolic link, which
//! would stand where the user expects file content and could lead anywhere. With `-r` it requests
//! the source itself, whatever it is, or a tree beneath it. A server accepts any tree in a push;
//! its grants decide where the tree may go.

use crate::error::{Failure, FailureKind};
use crate::part::PartFilter;
use crate::path::RelPath;
use crate::wire::{Frame, HardLink, Head, Offer};

/// Request of a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Whatever the sender wants to put there.
    Anything,
    /// One file per source.
    Files,
    /// The source itself, or a tree beneath it.
    Trees,
    /// The files of one part. If true, those of a tree, otherwise only the source itself.
    Part(PartFilter, bool),
}

/// Kind of an entry, as far as its frame tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    File,
    Directory,
    Symlink,
    Failed,
}

impl Sent {
    /// Returns the entry in `frame` and its kind, or `None` if it describes no entry.
    pub(crate) fn of(frame: &Frame) -> Option<(&Head, Self)> {
        match frame {
            Frame::File { head, .. } | Frame::Small { head, .. } => Some((head, Self::File)),
            Frame::Offer(Offer { head, .. }) | Frame::HardLink(HardLink { head, .. }) => {
                Some((head, Self::File))
            }
            Frame::Directory { head, .. } => Some((head, Self::Directory)),
            Frame::Symlink { head, .. } => Some((head, Self::Symlink)),
            Frame::Failed { head, .. } => Some((head, Self::Failed)),
            _ => None,
        }
    }
}

/// Reason why an entry is not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unexpected {
    /// It was not requested, which an honest sender would know. The copy ends.
    NotAsked(&'static str),
    /// It is what the source is, but not what was requested. The entry fails.
    Fails(Failure),
}

/// Checks a sender's entries against the request, in any order of arrival.
#[derive(Debug)]
pub(crate) struct Expectation {
    asked: Asked,
    part: Option<PartFilter>,
    sources: Vec<Seen>,
}

/// Entries of one source so far.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// Entry of the source itself. Its frame may arrive again after a stream was lost.
    root: Option<(u64, Sent)>,
    /// True if an entry beneath the source has arrived.
    beneath: bool,
}

impl Expectation {
    pub(crate) fn new(asked: Asked, sources: usize) -> Self {
        let (asked, part) = match asked {
            Asked::Part(filter, true) => (Asked::Trees, Some(filter)),
            Asked::Part(filter, false) => (Asked::Files, Some(filter)),
            asked => (asked, None),
        };
        Self {
            asked,
            part,
            sources: vec![Seen::default(); sources],
        }
    }

    /// Checks that an entry is part of what was requested.
    pub(crate) fn admit(&mut self, head: &Head, sent: Sent) -> Result<(), Unexpected> {
        use Unexpected::NotAsked;
        let Some(seen) = self.sources.get_mut(head.source as usize) else {
            return Err(NotAsked("a source nobody named"));
        };
        if self.asked == Asked::Anything {
            return Ok(());
        }
        // LH-COPY-50.
        if let Some(filter) = self.part {
            if !matches!(sent, Sent::File | Sent::Failed) {
                return Err(NotAsked("something else than a file, in a part"));
            }
            if !filter.may_take(head.source, &head.path) {
                return Err(NotAsked("a file of another part"));
            }
        }
        if !head.path.is_root() {
            return match (self.asked, seen.root) {
                (Asked::Files, _) => Err(NotAsked(
                    "something beneath a source that was to be one file",
                )),
                (_, Some((_, Sent::File | Sent::Symlink))) => {
                    Err(NotAsked("something beneath a source that is no directory"))
                }
                _ => {
                    seen.beneath = true;
                    Ok(())
                }
            };
        }
        match (self.asked, sent) {
            (Asked::Files, Sent::Directory) => {
                return Err(NotAsked("a directory where a file was to come"));
            }
            (_, Sent::File | Sent::Symlink) if seen.beneath => {
                return Err(NotAsked("a source that is a directory and none"));
            }
            _ => {}
        }
        match seen.root {
            None => seen.root = Some((head.id, sent)),
            // An entry that failed on one stream may be known from another, or become known later.
            Some((id, Sent::Failed)) if id == head.id => seen.root = Some((head.id, sent)),
            Some((id, Sent::File)) if id == head.id && sent == Sent::Failed => {}
            Some((id, before)) if id == head.id && before == sent => {}
            // If the name of an entry in a directory cannot be transmitted, it is reported as a
            // failure of the directory, with a number of its own.
            Some((_, Sent::Directory | Sent::Failed))
                if self.asked == Asked::Trees && sent == Sent::Failed => {}
            Some((_, Sent::Failed)) if self.asked == Asked::Trees && sent == Sent::Directory => {
                seen.root = Some((head.id, sent));
            }
            Some(_) => return Err(NotAsked("one source twice")),
        }
        if self.asked == Asked::Files && sent == Sent::Symlink {
            return Err(Unexpected::Fails(Failure::new(FailureKind::IsLink)));
        }
        Ok(())
    }

    /// Returns true if a file at `path` beneath a source can have been requested.
    pub(crate) fn may_name(&self, path: &RelPath) -> bool {
        self.asked != Asked::Files || path.is_root()
    }

    /// Returns the first source of which nothing has arrived, once everything has.
    pub(crate) fn missing(&self) -> Option<usize> {
        match self.asked {
            // A part may take nothing of a source.
            _ if self.part.is_some() => None,
            Asked::Anything | Asked::Part(..) => None,
            Asked::Files | Asked::Trees => self.sources.iter().position(|seen| seen.root.is_none()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::part::Part;

    fn head(id: u64, source: u32, path: &str) -> Head {
        let path = RelPath::from_bytes(path.as_bytes()).unwrap();
        Head { id, source, path }
    }

    fn admits(expectation: &mut Expectation, id: u64, path: &str, sent: Sent) -> bool {
        expectation.admit(&head(id, 0, path), sent).is_ok()
    }

    #[test]
    fn without_recursion_a_source_is_one_file() {
        let files = || Expectation::new(Asked::Files, 1);
        assert!(admits(&mut files(), 0, "", Sent::File));
        assert!(admits(&mut files(), 0, "", Sent::Failed));
        for (path, sent) in [
            ("", Sent::Directory),
            (".bashrc", Sent::File),
            (".ssh/authorized_keys", Sent::File),
            (".ssh", Sent::Directory),
            ("link", Sent::Symlink),
            ("x", Sent::Failed),
        ] {
            let refused = files().admit(&head(0, 0, path), sent);
            assert!(
                matches!(refused, Err(Unexpected::NotAsked(_))),
                "{path} {sent:?}"
            );
        }
        assert_eq!(
            files().admit(&head(0, 0, ""), Sent::Symlink),
            Err(Unexpected::Fails(Failure::new(FailureKind::IsLink)))
        );
        // A second entry is one too many, but a repetition after a lost stream is not.
        let mut twice = files();
        assert!(admits(&mut twice, 0, "", Sent::File) && admits(&mut twice, 0, "", Sent::File));
        assert!(!admits(&mut twice, 1, "", Sent::File));
        assert!(
            admits(&mut twice, 0, "", Sent::Failed),
            "it changed while it was read"
        );
        assert!(files().admit(&head(0, 1, ""), Sent::File).is_err());
    }

    #[test]
    fn with_recursion_a_source_is_itself_or_a_tree() {
        let trees = || Expectation::new(Asked::Trees, 1);
        let mut tree = trees();
        assert!(
            admits(&mut tree, 3, "a/b", Sent::File) && admits(&mut tree, 0, "", Sent::Directory)
        );
        assert!(
            admits(&mut tree, 4, "", Sent::Failed),
            "a name in it can't be carried"
        );
        assert!(!admits(&mut tree, 5, "", Sent::Symlink));
        for leaf in [Sent::File, Sent::Symlink] {
            let mut first = trees();
            assert!(admits(&mut first, 0, "", leaf) && !admits(&mut first, 1, "x", Sent::File));
            let mut last = trees();
            assert!(admits(&mut last, 1, "x", Sent::File) && !admits(&mut last, 0, "", leaf));
        }
    }

    #[test]
    fn source_without_entries_is_missing() {
        let mut both = Expectation::new(Asked::Files, 2);
        assert_eq!(both.missing(), Some(0));
        both.admit(&head(0, 0, ""), Sent::File).unwrap();
        assert_eq!(both.missing(), Some(1));
        both.admit(&head(1, 1, ""), Sent::Failed).unwrap();
        assert_eq!(both.missing(), None);
        assert_eq!(Expectation::new(Asked::Anything, 1).missing(), None);
    }

    #[test]
    fn lh_copy_50_part_accepts_only_its_files() {
        let filter = |number| PartFilter {
            part: Part::new(number, 2).unwrap(),
            links_together: false,
        };
        let part = |number| Expectation::new(Asked::Part(filter(number), true), 1);
        for name in ["", "a", "b", "a/b", "c"] {
            let taken = (1..=2).map(|number| admits(&mut part(number), 0, name, Sent::File));
            assert_eq!(taken.filter(|taken| *taken).count(), 1, "{name}");
            for sent in [Sent::Directory, Sent::Symlink] {
                assert!(
                    !(1..=2).any(|number| admits(&mut part(number), 0, name, sent)),
                    "{name}"
                );
            }
        }
        // Without recursion, a part has nothing beneath a source either.
        let files = |number| Expectation::new(Asked::Part(filter(number), false), 1);
        assert!(!(1..=2).any(|number| admits(&mut files(number), 0, "a", Sent::File)));
        assert_eq!(part(1).missing(), None, "of a source it may have nothing");
        // Only the sender knows which names belong to one file.
        let together = PartFilter {
            links_together: true,
            ..filter(1)
        };
        let mut links = Expectation::new(Asked::Part(together, true), 1);
        assert!(
            ["a", "b", "c", "d"]
                .iter()
                .zip(0..)
                .all(|(name, id)| admits(&mut links, id, name, Sent::File))
        );
    }

    fn entries() -> impl Strategy<Value = Vec<(u64, u32, &'static str, Sent)>> {
        let sent = prop_oneof![
            Just(Sent::File),
            Just(Sent::Directory),
            Just(Sent::Symlink),
            Just(Sent::Failed)
        ];
        let path = prop_oneof![
            Just(""),
            Just("a"),
            Just("a/b"),
            Just(".ssh/authorized_keys")
        ];
        prop::collection::vec((0u64..6, 0u32..4, path, sent), 0..40)
    }

    proptest! {
        /// Without recursion, at most one file or link per source is admitted, at the source
        /// itself. With it, nothing is admitted beneath an entry that is not a directory.
        #[test]
        fn only_requested_entries_are_admitted(
            entries in entries(),
            recursive in any::<bool>(),
        ) {
            let asked = if recursive { Asked::Trees } else { Asked::Files };
            let mut expectation = Expectation::new(asked, 3);
            let mut admitted: Vec<(u64, u32, &str, Sent)> = Vec::new();
            for (id, source, path, sent) in entries {
                if expectation.admit(&head(id, source, path), sent).is_ok() {
                    prop_assert!(source < 3);
                    prop_assert!(
                        recursive
                            || (path.is_empty() && matches!(sent, Sent::File | Sent::Failed))
                    );
                    admitted.push((id, source, path, sent));
                }
            }
            for source in 0..3 {
                let of: Vec<_> = admitted.iter().filter(|e| e.1 == source).collect();
                let leaves: std::collections::HashSet<u64> = of.iter()
                    .filter(|e| e.2.is_empty() && matches!(e.3, Sent::File | Sent::Symlink))
                    .map(|e| e.0)
                    .collect();
                prop_assert!(leaves.len() <= 1);
                prop_assert!(
                    leaves.is_empty()
                        || of.iter().all(|e| e.2.is_empty() && e.3 != Sent::Directory)
                );
            }
        }

        /// An honest sender's entries are admitted in any order, and repeatedly.
        #[test]
        fn honest_tree_is_admitted_in_any_order(
            mut order in Just((0u64..6).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let tree = [
                ("", Sent::Directory),
                ("a", Sent::File),
                ("l", Sent::Symlink),
                ("d", Sent::Directory),
                ("d/x", Sent::Failed),
                ("", Sent::Failed),
            ];
            let mut expectation = Expectation::new(Asked::Trees, 1);
            order.extend(order.clone());
            for id in order {
                let (path, sent) = tree[id as usize];
                prop_assert!(admits(&mut expectation, id, path, sent));
            }
            prop_assert_eq!(expectation.missing(), None);
        }
    }
}
