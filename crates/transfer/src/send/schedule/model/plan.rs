//! What the sources of a model turn out to be.

use proptest::prelude::*;

use super::BLOCK;

/// What an entry turns out to be.
#[derive(Debug, Clone)]
pub(super) enum Plan {
    Directory,
    Link,
    Bad,
    File {
        found: u64,
        /// Its size when it is read for the n-th time, the last one ever after.
        sizes: Vec<u64>,
        /// Its content, in the same way.
        contents: Vec<u8>,
        /// The readings that fail.
        failing: Vec<bool>,
        /// The receiver has no room for it.
        refused: bool,
        /// The blocks that the receiver has before anything is sent, a bit for each.
        kept: u8,
        /// Which file it is a name of, if that has others.
        inode: Option<u8>,
        /// Whether the receiver can make it another name when it is asked for the n-th time.
        can_link: Vec<bool>,
        /// It is at the receiver, of these sizes and contents when it is compared for the n-th
        /// time.
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
