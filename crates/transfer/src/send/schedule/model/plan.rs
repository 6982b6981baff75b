//! The simulated sources of a model.

use proptest::prelude::*;

use super::BLOCK;

/// The behaviour of an entry.
#[derive(Debug, Clone)]
pub(super) enum Plan {
    Directory,
    Link,
    Bad,
    File {
        found: u64,
        /// Sizes at each reading; the last one holds for all later readings.
        sizes: Vec<u64>,
        /// Contents at each reading, likewise.
        contents: Vec<u8>,
        /// Readings that fail.
        failing: Vec<bool>,
        /// True if the receiver has no room for it.
        refused: bool,
        /// Blocks that the receiver has before anything is sent, one bit each.
        kept: u8,
        /// The file that it is a name of, if that has others.
        inode: Option<u8>,
        /// For each request, true if the receiver can link it.
        can_link: Vec<bool>,
        /// Sizes and contents of the receiver's file at each comparison, if it has one.
        there: Option<Vec<(u64, u8)>>,
    },
}

pub(super) fn plan() -> impl Strategy<Value = Plan> {
    let size = prop_oneof![
        3 => 0..BLOCK,
        1 => Just(BLOCK),
        2 => BLOCK + 1..6 * BLOCK,
    ];
    let one = |usual: u8| prop::collection::vec(prop_oneof![9 => Just(usual), 1 => 0u8..3], 1..5);
    let failing = prop::collection::vec(prop::bool::weighted(0.05), 1..8);
    let sizes = prop::collection::vec(size.clone(), 0..2);
    let kept = prop_oneof![2 => Just(0), 1 => any::<u8>(), 1 => Just(u8::MAX)];
    let there = prop::option::of(prop::collection::vec(
        (prop::bool::weighted(0.7), 0u8..2),
        1..3,
    ));
    let refused = prop::bool::weighted(0.1);
    let inode = prop::option::of(0u8..2);
    let can_link = prop::collection::vec(prop::bool::weighted(0.7), 1..3);
    let links = (inode, can_link);
    let file = (size, sizes, one(0), failing, refused, kept, there, links).prop_map(
        |(found, later, contents, failing, refused, kept, there, (inode, can_link))| Plan::File {
            inode,
            can_link,
            there: there.map(|times| {
                let of_size = |(same, content)| (if same { found } else { found + 1 }, content);
                times.into_iter().map(of_size).collect()
            }),
            found,
            sizes: [vec![found], later].concat(),
            contents,
            failing,
            refused,
            kept,
        },
    );
    prop_oneof![1 => Just(Plan::Directory), 1 => Just(Plan::Link), 1 => Just(Plan::Bad), 8 => file]
}
