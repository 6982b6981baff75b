//! Frames, HELLOs and files of grants to begin with: in order, and wrong in one place.

use bytes::Bytes;
use longhaul_proto::PublicKey;
use longhaul_proto::fuzzing::{Seed, texts};

use crate::error::{Failure, FailureKind};
use crate::path::RelPath;
use crate::tree_hash::{BlockHash, BlockHasher, Subtree};
use crate::wire::{
    Block, FlowReport, Frame, HardLink, Head, Hello, Meta, Offer, Piece, Request, Token, VERSION, Written,
};

fn head(path: &[u8]) -> Head {
    Head {
        id: 5,
        source: 1,
        path: RelPath::from_bytes(path).unwrap(),
    }
}

fn all() -> Vec<(&'static str, Frame)> {
    let meta = Meta {
        mode: 0o644,
        mtime: (1_700_000_000, 5),
    };
    let failure = Failure {
        kind: FailureKind::Io,
        detail: "input/output error".to_owned(),
    };
    vec![
        ("hello-push", Frame::Hello(push())),
        ("hello-pull", Frame::Hello(pull())),
        (
            "accept",
            Frame::Accept {
                version: VERSION,
                max_streams: 64,
                instance: Some([6; 8]),
                clear: false,
                present: true,
                hard_links: false,
            },
        ),
        (
            "accept-clear",
            Frame::Accept {
                version: VERSION,
                max_streams: 64,
                instance: None,
                clear: true,
                present: false,
                hard_links: false,
            },
        ),
        (
            "refuse",
            Frame::Refuse {
                unauthorised: true,
                detail: "no grant".to_owned(),
            },
        ),
        (
            "file",
            Frame::File {
                head: head(b"a/b"),
                meta,
                size: 1 << 40,
                block_log2: 20,
                identity: Some([3; 32]),
            },
        ),
        ("offer", Frame::Offer(offer(b"a/b", Some([8; 32])))),
        ("want", Frame::Want { id: 5 }),
        ("hard-link", Frame::HardLink(link(0, b"a/b", b"a/a"))),
        (
            "result-linked",
            Frame::Result {
                id: 5,
                outcome: Ok(Written::Linked),
            },
        ),
        (
            "result-unchanged",
            Frame::Result {
                id: 5,
                outcome: Ok(Written::Unchanged),
            },
        ),
        (
            "small",
            Frame::Small {
                head: head(b"small \xff"),
                meta,
                hash: [9; 32],
                data: Bytes::from_static(b"content"),
            },
        ),
        (
            "directory",
            Frame::Directory {
                head: head(b""),
                meta,
            },
        ),
        (
            "symlink",
            Frame::Symlink {
                head: head(b"link"),
                meta,
                target: b"../elsewhere".to_vec(),
            },
        ),
        (
            "block",
            Frame::Block(Block {
                id: 5,
                offset: 1 << 20,
                len: 1 << 20,
                pieces: vec![Piece { offset: 0, len: 10 }, Piece { offset: 20, len: 3 }],
            }),
        ),
        (
            "clear-block",
            Frame::ClearBlock(
                Block {
                    id: 5,
                    offset: 1 << 20,
                    len: 1 << 20,
                    pieces: vec![Piece { offset: 0, len: 10 }, Piece { offset: 20, len: 3 }],
                },
                BlockHash::from_bytes([5; 32]),
            ),
        ),
        ("file-end", Frame::FileEnd { id: 5, hash: [1; 32] }),
        (
            "failed",
            Frame::Failed {
                head: head(b"x"),
                failure: failure.clone(),
            },
        ),
        (
            "end",
            Frame::End {
                entries: 9,
                bytes: u64::MAX,
            },
        ),
        (
            "totals",
            Frame::Totals {
                entries: u64::MAX,
                bytes: u64::MAX,
                complete: true,
            },
        ),
        ("ack", Frame::Ack { id: 5, offset: 0 }),
        (
            "result",
            Frame::Result {
                id: 5,
                outcome: Ok(Written::Same),
            },
        ),
        (
            "result-failed",
            Frame::Result {
                id: 5,
                outcome: Err(failure),
            },
        ),
        ("done", Frame::Done { manifest: [2; 32] }),
        ("keep-alive", Frame::KeepAlive),
        // LH-COPY-29: nothing about files follows from these.
        ("flow", Frame::Flow(FlowReport::default())),
        ("retire", Frame::Retire),
        (
            "have",
            Frame::Have {
                id: 5,
                more: true,
                subtrees: vec![subtree(0, 30), subtree(3 << 30, 20)],
            },
        ),
    ]
}

fn offer(path: &[u8], hash: Option<[u8; 32]>) -> Offer {
    Offer {
        head: head(path),
        meta: Meta::default(),
        size: 7,
        hash,
    }
}

fn subtree(offset: u64, level: u32) -> Subtree {
    Subtree {
        offset,
        level,
        chaining_value: [4; 32],
    }
}

/// Another name of a file of seven bytes.
fn link(id: u64, path: &[u8], first: &[u8]) -> HardLink {
    HardLink {
        head: Head {
            id,
            source: 0,
            path: RelPath::from_bytes(path).unwrap(),
        },
        size: 7,
        first: (0, RelPath::from_bytes(first).unwrap()),
    }
}

fn push() -> Hello {
    Hello {
        token: Token([7; 16]),
        request: Request::Push {
            destination: RelPath::from_bytes(b"in/coming").unwrap(),
            into: true,
            overwrite: false,
            fsync: true,
            names: vec![b"one".to_vec(), vec![], b"two \xff".to_vec()],
        },
        resume: true,
        clear: false,
        offer: None,
        hard_links: true,
        single: false,
    }
}

fn pull() -> Hello {
    Hello {
        token: Token([7; 16]),
        request: Request::Pull {
            recursive: true,
            sources: vec![RelPath::root(), RelPath::from_bytes(b"data/x").unwrap()],
        },
        resume: false,
        clear: true,
        offer: None,
        hard_links: false,
        single: true,
    }
}

/// An option that no release knows.
fn option(kind: u16) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &[3, 0], b"abc"].concat()
}

pub(super) fn frames() -> Vec<Seed> {
    let mut seeds: Vec<Seed> = all()
        .into_iter()
        .map(|(name, frame)| {
            let mut bytes = Vec::new();
            frame.encode(&mut bytes);
            (name.to_owned(), bytes[4..].to_vec())
        })
        .collect();
    for (name, kind) in [("option", 0x63u16), ("critical-option", 0x8063)] {
        let mut accept = [&[2][..], &VERSION.to_le_bytes(), &[64, 0]].concat();
        accept.extend(option(kind));
        seeds.push((format!("accept-{name}"), accept));
    }
    seeds.push((
        "refuse-and-steering".to_owned(),
        b"\x03\x01\x0a\x00\x1b[2J\xe2\x80\xae\xff\n\x07".to_vec(),
    ));
    seeds
}

pub(super) fn streams() -> Vec<Seed> {
    let frames: Vec<Frame> = all().into_iter().map(|(_, frame)| frame).collect();
    let whole = encoded(&frames);
    [
        ("every-frame", whole.clone()),
        ("cut-short", whole[..whole.len() - 3].to_vec()),
        ("length-0", vec![0, 0, 0, 0, 1]),
        ("length-over-the-bound", vec![0xff, 0xff, 0xff, 0x7f, 8]),
        ("unknown-type", vec![1, 0, 0, 0, 99]),
        ("another-protocol", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
    ]
    .map(|(name, bytes)| (name.to_owned(), bytes))
    .to_vec()
}

pub(super) fn hellos() -> Vec<Seed> {
    let mut seeds = Vec::new();
    for (name, hello) in [("push", push()), ("pull", pull())] {
        let mut bytes = Vec::new();
        Frame::Hello(hello).encode(&mut bytes);
        seeds.push((name.to_owned(), bytes[5..].to_vec()));
        seeds.push((format!("{name}-behind-the-token"), bytes[29..].to_vec()));
        for (option_name, kind) in [("option", 0x63u16), ("critical-option", 0x8063)] {
            let with = [&bytes[5..], &option(kind)].concat();
            seeds.push((format!("{name}-{option_name}"), with));
        }
        bytes[9..13].copy_from_slice(&[1, 0, 9, 0]);
        seeds.push((format!("{name}-versions-1-to-9"), bytes[5..].to_vec()));
    }
    seeds.push((
        "sources-without-end".to_owned(),
        b"\x02\x01\xff\xff\xff\xff".to_vec(),
    ));
    seeds.push((
        "climbing".to_owned(),
        b"\x02\x01\x01\x00\x00\x00\x04\x00../x".to_vec(),
    ));
    seeds.push((
        "absolute".to_owned(),
        b"\x02\x01\x01\x00\x00\x00\x04\x00/etc".to_vec(),
    ));
    seeds
}

fn encoded(frames: &[Frame]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for frame in frames {
        frame.encode(&mut bytes);
        if let Frame::Block(block) | Frame::ClearBlock(block, _) = frame {
            bytes.resize(bytes.len() + block.data_len(), b'd');
        }
    }
    bytes
}

fn entry(id: u64, path: &[u8]) -> Head {
    Head {
        id,
        source: 0,
        path: RelPath::from_bytes(path).unwrap(),
    }
}

/// A file of two blocks, the second one short, and all of its frames.
fn in_blocks(id: u64, path: &[u8]) -> Vec<Frame> {
    let (block, size) = (1u32 << 16, (1u64 << 16) + 3);
    let data = vec![b'd'; size as usize];
    let part = |offset: u64, len: u32| {
        Frame::Block(Block {
            id,
            offset,
            len,
            pieces: vec![Piece { offset: 0, len }],
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

/// The same, with its data in the clear. `change` is what the hash of the last block was changed by.
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

/// What a sender says behind HELLO.
pub(super) fn senders() -> Vec<Seed> {
    let meta = Meta::default();
    let small = |id: u64, path: &[u8], hash: [u8; 32]| Frame::Small {
        head: entry(id, path),
        meta,
        hash,
        data: Bytes::from_static(b"content"),
    };
    let good = *blake3::hash(b"content").as_bytes();
    let offered = |id: u64, path: &[u8], hash: Option<[u8; 32]>| {
        let head = entry(id, path);
        Frame::Offer(Offer {
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
                meta,
            },
            small(1, b"a", good),
            small(2, b"b", [0; 32]),
            small(3, b"!exists", good),
            small(4, b"=same", good),
            Frame::Symlink {
                head: entry(5, b"link"),
                meta,
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
            meta,
            size: 1 << 20,
            block_log2: 20,
            identity: None,
        },
        Frame::Block(Block {
            id: 0,
            offset: 0,
            len: 1 << 20,
            pieces: vec![],
        }),
    ];
    // What is there, what is not, what is in the way; and a large one that is there, with its data behind it and between.
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
        vec![offered(5, b"large", None), offered(0, b"=there", None), end(6)],
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
            frames.insert(1, Frame::FileEnd { id: 0, hash: [1; 32] });
            encoded(&frames)
        }),
        ("undescribed", encoded(&in_blocks(0, b"x")[1..])),
        ("end-in-two-ways", encoded(&[end(5), end(6)])),
        ("hole", encoded(&hole)),
        ("every-frame", encoded(&out_of_place)),
        ("nothing", vec![]),
    ]
    .map(|(name, bytes)| (name.to_owned(), bytes))
    .to_vec()
}

/// What a receiver answers.
pub(super) fn receivers() -> Vec<Seed> {
    let accept = Frame::Accept {
        version: VERSION,
        max_streams: 8,
        instance: None,
        clear: false,
        present: true,
        hard_links: false,
    };
    let failure = Failure::new(FailureKind::Exists);
    let results = |outcome: Result<Written, Failure>| -> Vec<Frame> {
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
    let instance = |byte: u8| Frame::Accept {
        version: VERSION,
        max_streams: 8,
        instance: Some([byte; 8]),
        clear: false,
        present: false,
        hard_links: false,
    };
    let wanted = [
        vec![accept.clone()],
        (0..16).map(|id| Frame::Want { id }).collect(),
    ]
    .concat();
    let accept_clear = Frame::Accept {
        version: VERSION,
        max_streams: 8,
        instance: None,
        clear: true,
        present: true,
        hard_links: false,
    };
    let wanted_in_the_clear = [vec![accept_clear], wanted[1..].to_vec()].concat();
    let note = Frame::Failed {
        head: Head {
            id: crate::wire::NO_ENTRY,
            ..entry(0, b"d")
        },
        failure: failure.clone(),
    };
    let mut wrong_done = results(Ok(Written::New));
    wrong_done.extend([note, Frame::Done { manifest: [7; 32] }]);
    let mut everything = Vec::new();
    for (_, frame) in all().into_iter().filter(|(name, _)| !name.starts_with("hello")) {
        everything.push(frame);
    }
    [
        ("in-place", encoded(&in_place)),
        ("in-place-beyond-the-end", encoded(&beyond)),
        ("another-instance", encoded(&[instance(1), instance(2)])),
        ("all-written", encoded(&results(Ok(Written::New)))),
        ("all-wanted", encoded(&wanted)),
        ("all-wanted-in-the-clear", encoded(&wanted_in_the_clear)),
        ("all-unchanged", encoded(&results(Ok(Written::Unchanged)))),
        ("all-there", encoded(&results(Ok(Written::Same)))),
        ("all-failed", encoded(&results(Err(failure)))),
        ("acknowledged", encoded(&acknowledged.collect::<Vec<_>>())),
        ("done-with-another-hash", encoded(&wrong_done)),
        ("done-at-once", encoded(&[Frame::Done { manifest: [0; 32] }])),
        ("every-frame", encoded(&everything)),
        ("keep-alive", encoded(&[accept, Frame::KeepAlive])),
        ("nothing", vec![]),
    ]
    .map(|(name, bytes)| (name.to_owned(), bytes))
    .to_vec()
}

pub(super) fn grant_files() -> Vec<Seed> {
    let key = PublicKey::from_bytes([3; 32]);
    texts(&[
        (
            "file",
            &format!("[[grant]]\nkey = \"{key}\"\nread = [\"/\"]\nwrite = [\"in\", \"a/b\"]\n"),
        ),
        ("line", &key.to_string()),
        ("line-with-directory", &format!("{key}=/in/coming")),
        ("climbing", &format!("{key}=../x")),
        ("no-key", "[[grant]]\nkey = \"x\"\nread = [\"/\"]\n"),
        ("wrong-type", "[[grant]]\nkey = 5\n"),
        ("unknown-field", "[[grant]]\n\"\u{202e}\\u001b\" = 1\n"),
        (
            "steering",
            "[[grant]]\nkey = \"\u{202e}\\u001b[2J\\u2028\"\nread = [\"/\"]\n",
        ),
        ("unclosed", "[[grant]]\nkey = \"\u{2028}"),
        ("empty", ""),
    ])
}
