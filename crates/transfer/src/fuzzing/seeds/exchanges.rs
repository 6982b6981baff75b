//! Seeds of what one side sends over a whole stream: a sender after HELLO, or a receiver's answers.

use super::*;

/// Returns all frames of a file of two blocks, the second one short.
fn in_blocks(id: u64, path: &[u8]) -> Vec<Frame> {
    let (block, size) = (1u32 << 16, (1u64 << 16) + 3);
    let data = vec![b'd'; size as usize];
    let part = |offset: u64, len: u32| {
        Frame::Block(Block {
            id,
            offset,
            len,
            extents: vec![Extent { offset: 0, len }],
        })
    };
    let file = Frame::File {
        head: entry(id, path),
        meta: Meta::default(),
        size,
        block_log2: 16,
        identity: None,
    };
    let hash = *blake3::hash(&data).as_bytes();
    vec![
        file,
        part(u64::from(block), 3),
        part(0, block),
        Frame::FileEnd { id, hash },
    ]
}

/// Returns the same frames with plaintext data. `change` is a modification of the last block's
/// hash.
fn in_clear_blocks(id: u64, path: &[u8], change: u8) -> Vec<Frame> {
    let mut frames = in_blocks(id, path);
    for frame in &mut frames {
        if let Frame::Block(block) = frame {
            let mut hasher = BlockHasher::new(block.offset, u64::from(block.len), (1 << 16) + 3);
            hasher.update(&vec![b'd'; block.data_len()]);
            let mut hash = *hasher.finish().as_bytes();
            if block.offset > 0 {
                hash[0] ^= change;
            }
            *frame = Frame::ClearBlock(block.clone(), BlockHash::from_bytes(hash));
        }
    }
    frames
}

/// Returns the same frames, of a file whose size LATE_END tells.
fn with_late_size(id: u64, path: &[u8], size: u64) -> Vec<Frame> {
    let mut frames = in_blocks(id, path);
    for frame in &mut frames {
        match frame {
            Frame::File { size, .. } => *size = LATE_SIZE,
            Frame::FileEnd { id, hash } => {
                let (id, hash) = (*id, *hash);
                *frame = Frame::LateEnd { id, size, hash };
            }
            _ => {}
        }
    }
    frames
}

/// Returns these frames in one PACK, whose part is as it is.
fn in_pack(frames: &[Frame]) -> Frame {
    let frames = encoded(frames);
    let len = frames.len() as u32;
    let parts = [&len.to_le_bytes()[..], &frames].concat().into();
    Frame::Pack { len, parts }
}

/// Returns what senders send after HELLO.
pub(in super::super) fn senders() -> Vec<Seed> {
    let meta = Meta::default();
    let small = |id: u64, path: &[u8], hash: [u8; 32]| Frame::Small {
        head: entry(id, path),
        meta: meta.clone(),
        hash,
        data: Bytes::from_static(b"content"),
    };
    let good = *blake3::hash(b"content").as_bytes();
    let offered = |id: u64, path: &[u8], hash: Option<[u8; 32]>| {
        let head = entry(id, path);
        Frame::Offer(FileOffer {
            head,
            ..offer(path, hash)
        })
    };
    let failed = |id: u64, path: &[u8]| Frame::Failed {
        head: entry(id, path),
        failure: Failure::new(FailureKind::Changed),
    };
    let end = |entries: u64| Frame::End { entries, bytes: 7 };
    let tree = [
        vec![
            Frame::Directory {
                head: entry(0, b""),
                meta: meta.clone(),
            },
            small(1, b"a", good),
            small(2, b"b", [0; 32]),
            small(3, b"!exists", good),
            small(4, b"=same", good),
            Frame::Symlink {
                head: entry(5, b"link"),
                meta: meta.clone(),
                target: b"a".to_vec(),
            },
            failed(6, b"gone"),
            Frame::HardLink(link(8, b"=again", b"a")),
            Frame::HardLink(link(9, b"other", b"a")),
        ],
        in_blocks(7, b"large"),
        vec![small(9, b"other", good), end(10)],
    ]
    .concat();
    let given_up = [
        in_blocks(0, b"log")[..2].to_vec(),
        vec![failed(0, b"log"), end(1)],
    ]
    .concat();
    let mut two_ways = in_blocks(0, b"x");
    two_ways.extend(in_blocks(0, b"y"));
    let mut out_of_place = Vec::new();
    for (_, frame) in all() {
        out_of_place.push(frame);
    }
    let hole = vec![
        Frame::File {
            head: entry(0, b"hole"),
            meta: meta.clone(),
            size: 1 << 20,
            block_log2: 20,
            identity: None,
        },
        Frame::Block(Block {
            id: 0,
            offset: 0,
            len: 1 << 20,
            extents: vec![],
        }),
    ];
    // Offers of a file that exists, one that does not and one that conflicts, and of a large
    // existing one that is followed and interrupted by its data.
    let offers = [
        vec![
            offered(0, b"=there", None),
            offered(1, b"a", None),
            offered(2, b"!exists", Some(good)),
            offered(3, b"=there", Some(good)),
            offered(1, b"a", None),
            small(1, b"a", good),
            offered(4, b"=large", None),
        ],
        in_blocks(4, b"=large"),
        in_blocks(5, b"large"),
        vec![
            offered(5, b"large", None),
            offered(0, b"=there", None),
            end(6),
        ],
    ]
    .concat();
    let mut resumed = in_blocks(0, b"kept");
    if let Some(Frame::File { identity, .. }) = resumed.first_mut() {
        *identity = Some([5; 32]);
    }
    [
        ("resumed", encoded(&resumed)),
        ("offers", encoded(&offers)),
        (
            "clear",
            encoded(&[in_clear_blocks(0, b"x", 0), vec![end(1)]].concat()),
        ),
        (
            "clear-and-changed-on-the-way",
            encoded(&[in_clear_blocks(0, b"x", 1), vec![end(1)]].concat()),
        ),
        ("tree", encoded(&tree)),
        ("packed-tree", encoded(&[in_pack(&tree[..9]), end(9)])),
        (
            "keep-alive-in-a-pack",
            encoded(&[in_pack(&[Frame::KeepAlive])]),
        ),
        ("pack-in-a-pack", encoded(&[in_pack(&[in_pack(&[end(1)])])])),
        ("tree-twice", encoded(&[tree.clone(), tree].concat())),
        (
            "disk-full",
            encoded(&[in_blocks(0, b"?full"), vec![end(1)]].concat()),
        ),
        (
            "exists",
            encoded(&[in_blocks(0, b"!exists"), vec![end(1)]].concat()),
        ),
        ("given-up", encoded(&given_up)),
        ("described-in-two-ways", encoded(&two_ways)),
        ("two-hashes", {
            let mut frames = in_blocks(0, b"x");
            frames.insert(
                1,
                Frame::FileEnd {
                    id: 0,
                    hash: [1; 32],
                },
            );
            encoded(&frames)
        }),
        (
            "late-size",
            encoded(&[with_late_size(0, b"x", (1 << 16) + 3), vec![end(1)]].concat()),
        ),
        (
            "late-size-behind-the-end",
            encoded(&[with_late_size(0, b"x", (1 << 16) + 2), vec![end(1)]].concat()),
        ),
        ("undescribed", encoded(&in_blocks(0, b"x")[1..])),
        ("end-in-two-ways", encoded(&[end(5), end(6)])),
        ("hole", encoded(&hole)),
        ("every-frame", encoded(&out_of_place)),
        ("nothing", vec![]),
    ]
    .map(|(name, bytes)| (name.to_owned(), bytes))
    .to_vec()
}

/// Returns what receivers answer.
pub(in super::super) fn receivers() -> Vec<Seed> {
    let accept = Frame::Accept(Acceptance {
        max_streams: 8,
        present: true,
        ..Acceptance::default()
    });
    let failure = Failure::new(FailureKind::Exists);
    let results = |outcome: Result<EntryOutcome, Failure>| -> Vec<Frame> {
        let result = |id| Frame::Result {
            id,
            outcome: outcome.clone(),
        };
        [vec![accept.clone()], (0..16).map(result).collect()].concat()
    };
    let acknowledged = (0..8).map(|n| Frame::Ack {
        id: 7,
        offset: n << 20,
    });
    let have = |id: u64, offset: u64, level: u32| Frame::Have {
        id,
        more: false,
        subtrees: vec![subtree(offset, level)],
    };
    let in_place: Vec<Frame> = (4..10)
        .flat_map(|id| [have(id, 0, 20), have(id, 1 << 21, 21)])
        .collect();
    let beyond: Vec<Frame> = (4..10).map(|id| have(id, 1 << 50, 40)).collect();
    let instance = |byte: u8| {
        Frame::Accept(Acceptance {
            max_streams: 8,
            instance: Some([byte; 8]),
            ..Acceptance::default()
        })
    };
    let wanted = [
        vec![accept.clone()],
        (0..16).map(|id| Frame::Want { id }).collect(),
    ]
    .concat();
    let accept_clear = Frame::Accept(Acceptance {
        max_streams: 8,
        clear: true,
        present: true,
        ..Acceptance::default()
    });
    let wanted_in_the_clear = [vec![accept_clear], wanted[1..].to_vec()].concat();
    let note = Frame::Failed {
        head: EntryHead {
            id: crate::wire::NO_ENTRY,
            ..entry(0, b"d")
        },
        failure: failure.clone(),
    };
    let mut wrong_done = results(Ok(EntryOutcome::New));
    wrong_done.extend([note, Frame::Done { manifest: [7; 32] }]);
    let mut everything = Vec::new();
    for (_, frame) in all()
        .into_iter()
        .filter(|(name, _)| !name.starts_with("hello"))
    {
        everything.push(frame);
    }
    [
        ("in-place", encoded(&in_place)),
        ("in-place-beyond-the-end", encoded(&beyond)),
        ("another-instance", encoded(&[instance(1), instance(2)])),
        ("all-written", encoded(&results(Ok(EntryOutcome::New)))),
        ("all-wanted", encoded(&wanted)),
        ("all-wanted-in-the-clear", encoded(&wanted_in_the_clear)),
        (
            "all-unchanged",
            encoded(&results(Ok(EntryOutcome::Unchanged))),
        ),
        ("all-there", encoded(&results(Ok(EntryOutcome::Same)))),
        ("all-failed", encoded(&results(Err(failure)))),
        ("acknowledged", encoded(&acknowledged.collect::<Vec<_>>())),
        ("done-with-another-hash", encoded(&wrong_done)),
        (
            "done-at-once",
            encoded(&[Frame::Done { manifest: [0; 32] }]),
        ),
        ("every-frame", encoded(&everything)),
        ("keep-alive", encoded(&[accept, Frame::KeepAlive])),
        ("nothing", vec![]),
    ]
    .map(|(name, bytes)| (name.to_owned(), bytes))
    .to_vec()
}
