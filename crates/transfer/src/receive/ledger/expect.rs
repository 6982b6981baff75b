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
use crate::wire::{EntryHead, FileOffer, Frame, HardLink};

/// Request of a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestedEntries {
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
pub(crate) enum SentKind {
    File,
    Directory,
    Symlink,
    Special,
    Failed,
}

impl SentKind {
    /// Returns the entry in `frame` and its kind, or `None` if it describes no entry.
    pub(crate) fn from_frame(frame: &Frame) -> Option<(&EntryHead, Self)> {
        match frame {
            Frame::File { head, .. } | Frame::Small { head, .. } => Some((head, Self::File)),
            Frame::Offer(FileOffer { head, .. }) | Frame::HardLink(HardLink { head, .. }) => {
                Some((head, Self::File))
            }
            Frame::Directory { head, .. } => Some((head, Self::Directory)),
            Frame::Symlink { head, .. } => Some((head, Self::Symlink)),
            Frame::Special { head, .. } => Some((head, Self::Special)),
            Frame::Failed { head, .. } => Some((head, Self::Failed)),
            _ => None,
        }
    }
}

/// Reason why an entry is not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UnexpectedEntry {
    /// It was not requested, which an honest sender would know. The copy ends.
    NotAsked(&'static str),
    /// It is what the source is, but not what was requested. The entry fails.
    Fails(Failure),
}

/// Checks a sender's entries against the request, in any order of arrival.
#[derive(Debug)]
pub(crate) struct Expectation {
    asked: RequestedEntries,
    part: Option<PartFilter>,
    sources: Vec<SourceState>,
}

/// Entries of one source so far.
#[derive(Debug, Clone, Copy, Default)]
struct SourceState {
    /// Entry of the source itself. Its frame may arrive again after a stream was lost.
    root: Option<(u64, SentKind)>,
    /// True if an entry beneath the source has arrived.
    beneath: bool,
}

impl Expectation {
    pub(crate) fn new(asked: RequestedEntries, sources: usize) -> Self {
        let (asked, part) = match asked {
            RequestedEntries::Part(filter, true) => (RequestedEntries::Trees, Some(filter)),
            RequestedEntries::Part(filter, false) => (RequestedEntries::Files, Some(filter)),
            asked => (asked, None),
        };
        Self {
            asked,
            part,
            sources: vec![SourceState::default(); sources],
        }
    }

    /// Checks that an entry is part of what was requested.
    pub(crate) fn admit(
        &mut self,
        head: &EntryHead,
        sent: SentKind,
    ) -> Result<(), UnexpectedEntry> {
        use UnexpectedEntry::NotAsked;
        let Some(seen) = self.sources.get_mut(head.source as usize) else {
            return Err(NotAsked("an unknown source"));
        };
        if self.asked == RequestedEntries::Anything {
            return Ok(());
        }
        // LH-COPY-50.
        if let Some(filter) = self.part {
            if !matches!(sent, SentKind::File | SentKind::Failed) {
                return Err(NotAsked("an entry other than a file, in a part"));
            }
            if !filter.may_take(head.source, &head.path) {
                return Err(NotAsked("a file of another part"));
            }
        }
        if !head.path.is_root() {
            return match (self.asked, seen.root) {
                (RequestedEntries::Files, _) => Err(NotAsked(
                    "an entry below a source that must be a single file",
                )),
                (_, Some((_, SentKind::File | SentKind::Symlink | SentKind::Special))) => {
                    Err(NotAsked("an entry below a source that is not a directory"))
                }
                _ => {
                    seen.beneath = true;
                    Ok(())
                }
            };
        }
        match (self.asked, sent) {
            (RequestedEntries::Files, SentKind::Directory) => {
                return Err(NotAsked("a directory instead of a file"));
            }
            (_, SentKind::File | SentKind::Symlink | SentKind::Special) if seen.beneath => {
                return Err(NotAsked("a source that is both a directory and not one"));
            }
            _ => {}
        }
        match seen.root {
            None => seen.root = Some((head.id, sent)),
            // An entry that failed on one stream may be known from another, or become known later.
            Some((id, SentKind::Failed)) if id == head.id => seen.root = Some((head.id, sent)),
            Some((id, SentKind::File)) if id == head.id && sent == SentKind::Failed => {}
            Some((id, before)) if id == head.id && before == sent => {}
            // If the name of an entry in a directory cannot be transmitted, it is reported as a
            // failure of the directory, with a number of its own.
            Some((_, SentKind::Directory | SentKind::Failed))
                if self.asked == RequestedEntries::Trees && sent == SentKind::Failed => {}
            Some((_, SentKind::Failed))
                if self.asked == RequestedEntries::Trees && sent == SentKind::Directory =>
            {
                seen.root = Some((head.id, sent));
            }
            Some(_) => return Err(NotAsked("the same source twice")),
        }
        match (self.asked, sent) {
            (RequestedEntries::Files, SentKind::Symlink) => {
                Err(UnexpectedEntry::Fails(Failure::new(FailureKind::IsLink)))
            }
            (RequestedEntries::Files, SentKind::Special) => Err(UnexpectedEntry::Fails(
                Failure::new(FailureKind::NotRegular),
            )),
            _ => Ok(()),
        }
    }

    /// Returns true if a file at `path` beneath a source can have been requested.
    pub(crate) fn may_name(&self, path: &RelPath) -> bool {
        self.asked != RequestedEntries::Files || path.is_root()
    }

    /// Returns the first source of which nothing has arrived, once everything has.
    pub(crate) fn missing(&self) -> Option<usize> {
        match self.asked {
            // A part may take nothing of a source.
            _ if self.part.is_some() => None,
            RequestedEntries::Anything | RequestedEntries::Part(..) => None,
            RequestedEntries::Files | RequestedEntries::Trees => {
                self.sources.iter().position(|seen| seen.root.is_none())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::part::CopyPart;

    fn head(id: u64, source: u32, path: &str) -> EntryHead {
        let path = RelPath::from_bytes(path.as_bytes()).unwrap();
        EntryHead { id, source, path }
    }

    fn admits(expectation: &mut Expectation, id: u64, path: &str, sent: SentKind) -> bool {
        expectation.admit(&head(id, 0, path), sent).is_ok()
    }

    #[test]
    fn without_recursion_a_source_is_one_file() {
        let files = || Expectation::new(RequestedEntries::Files, 1);
        assert!(admits(&mut files(), 0, "", SentKind::File));
        assert!(admits(&mut files(), 0, "", SentKind::Failed));
        for (path, sent) in [
            ("", SentKind::Directory),
            (".bashrc", SentKind::File),
            (".ssh/authorized_keys", SentKind::File),
            (".ssh", SentKind::Directory),
            ("link", SentKind::Symlink),
            ("x", SentKind::Failed),
        ] {
            let refused = files().admit(&head(0, 0, path), sent);
            assert!(
                matches!(refused, Err(UnexpectedEntry::NotAsked(_))),
                "{path} {sent:?}"
            );
        }
        assert_eq!(
            files().admit(&head(0, 0, ""), SentKind::Symlink),
            Err(UnexpectedEntry::Fails(Failure::new(FailureKind::IsLink)))
        );
        // A second entry is one too many, but a repetition after a lost stream is not.
        let mut twice = files();
        assert!(
            admits(&mut twice, 0, "", SentKind::File) && admits(&mut twice, 0, "", SentKind::File)
        );
        assert!(!admits(&mut twice, 1, "", SentKind::File));
        assert!(
            admits(&mut twice, 0, "", SentKind::Failed),
            "it changed while it was read"
        );
        assert!(files().admit(&head(0, 1, ""), SentKind::File).is_err());
    }

    #[test]
    fn with_recursion_a_source_is_itself_or_a_tree() {
        let trees = || Expectation::new(RequestedEntries::Trees, 1);
        let mut tree = trees();
        assert!(
            admits(&mut tree, 3, "a/b", SentKind::File)
                && admits(&mut tree, 0, "", SentKind::Directory)
        );
        assert!(
            admits(&mut tree, 4, "", SentKind::Failed),
            "a name in it can't be carried"
        );
        assert!(!admits(&mut tree, 5, "", SentKind::Symlink));
        for leaf in [SentKind::File, SentKind::Symlink] {
            let mut first = trees();
            assert!(admits(&mut first, 0, "", leaf) && !admits(&mut first, 1, "x", SentKind::File));
            let mut last = trees();
            assert!(admits(&mut last, 1, "x", SentKind::File) && !admits(&mut last, 0, "", leaf));
        }
    }

    #[test]
    fn source_without_entries_is_missing() {
        let mut both = Expectation::new(RequestedEntries::Files, 2);
        assert_eq!(both.missing(), Some(0));
        both.admit(&head(0, 0, ""), SentKind::File).unwrap();
        assert_eq!(both.missing(), Some(1));
        both.admit(&head(1, 1, ""), SentKind::Failed).unwrap();
        assert_eq!(both.missing(), None);
        assert_eq!(
            Expectation::new(RequestedEntries::Anything, 1).missing(),
            None
        );
    }

    #[test]
    fn lh_copy_50_part_accepts_only_its_files() {
        let filter = |number| PartFilter {
            part: CopyPart::new(number, 2).unwrap(),
            links_together: false,
        };
        let part = |number| Expectation::new(RequestedEntries::Part(filter(number), true), 1);
        for name in ["", "a", "b", "a/b", "c"] {
            let taken = (1..=2).map(|number| admits(&mut part(number), 0, name, SentKind::File));
            assert_eq!(taken.filter(|taken| *taken).count(), 1, "{name}");
            for sent in [SentKind::Directory, SentKind::Symlink] {
                assert!(
                    !(1..=2).any(|number| admits(&mut part(number), 0, name, sent)),
                    "{name}"
                );
            }
        }
        // Without recursion, a part has nothing beneath a source either.
        let files = |number| Expectation::new(RequestedEntries::Part(filter(number), false), 1);
        assert!(!(1..=2).any(|number| admits(&mut files(number), 0, "a", SentKind::File)));
        assert_eq!(part(1).missing(), None, "of a source it may have nothing");
        // Only the sender knows which names belong to one file.
        let together = PartFilter {
            links_together: true,
            ..filter(1)
        };
        let mut links = Expectation::new(RequestedEntries::Part(together, true), 1);
        assert!(
            ["a", "b", "c", "d"]
                .iter()
                .zip(0..)
                .all(|(name, id)| admits(&mut links, id, name, SentKind::File))
        );
    }

    fn entries() -> impl Strategy<Value = Vec<(u64, u32, &'static str, SentKind)>> {
        let sent = prop_oneof![
            Just(SentKind::File),
            Just(SentKind::Directory),
            Just(SentKind::Symlink),
            Just(SentKind::Failed)
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
            let asked = if recursive { RequestedEntries::Trees } else { RequestedEntries::Files };
            let mut expectation = Expectation::new(asked, 3);
            let mut admitted: Vec<(u64, u32, &str, SentKind)> = Vec::new();
            for (id, source, path, sent) in entries {
                if expectation.admit(&head(id, source, path), sent).is_ok() {
                    prop_assert!(source < 3);
                    prop_assert!(
                        recursive
                            || (path.is_empty()
                                && matches!(sent, SentKind::File | SentKind::Failed))
                    );
                    admitted.push((id, source, path, sent));
                }
            }
            for source in 0..3 {
                let of: Vec<_> = admitted.iter().filter(|e| e.1 == source).collect();
                let leaves: std::collections::HashSet<u64> = of.iter()
                    .filter(|e| e.2.is_empty() && matches!(e.3, SentKind::File | SentKind::Symlink))
                    .map(|e| e.0)
                    .collect();
                prop_assert!(leaves.len() <= 1);
                prop_assert!(
                    leaves.is_empty()
                        || of.iter().all(|e| e.2.is_empty() && e.3 != SentKind::Directory)
                );
            }
        }

        /// An honest sender's entries are admitted in any order, and repeatedly.
        #[test]
        fn honest_tree_is_admitted_in_any_order(
            mut order in Just((0u64..6).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let tree = [
                ("", SentKind::Directory),
                ("a", SentKind::File),
                ("l", SentKind::Symlink),
                ("d", SentKind::Directory),
                ("d/x", SentKind::Failed),
                ("", SentKind::Failed),
            ];
            let mut expectation = Expectation::new(RequestedEntries::Trees, 1);
            order.extend(order.clone());
            for id in order {
                let (path, sent) = tree[id as usize];
                prop_assert!(admits(&mut expectation, id, path, sent));
            }
            prop_assert_eq!(expectation.missing(), None);
        }
    }
}
