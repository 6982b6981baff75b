//! Seeds of frames, HELLOs and files of grants: valid ones, and ones with a single error.

mod exchanges;

use std::sync::Arc;

use bytes::Bytes;
use longhaul_filter::{FilterRules, NameRule};
use longhaul_proto::PublicKey;
use longhaul_proto::fuzzing::{Seed, text_seeds};

use crate::attributes::{Attributes, ExtendedAttribute, Owner, SpecialFile, SpecialKind};
use crate::bearer::BearerToken;
use crate::compression::Compression;
use crate::delta::SignedChunk;
use crate::error::{Failure, FailureKind};
use crate::existing::ExistingPolicy;
use crate::late_size::LATE_SIZE;
use crate::part::{CopyPart, Portion};
use crate::path::RelPath;
use crate::preservation::Preservation;
use crate::progress::NotKeptCounts;
use crate::tree_hash::{BlockHash, BlockHasher, Subtree};
use crate::wire::{
    Acceptance, Block, CopyRequest, CopyToken, EntryHead, EntryOutcome, Extent, FileOffer,
    FlowReport, Frame, HardLink, Hello, Meta, RefusalKind, VERSION,
};

pub(super) use exchanges::{receivers, senders};

fn head(path: &[u8]) -> EntryHead {
    EntryHead {
        id: 5,
        source: 1,
        path: RelPath::from_bytes(path).unwrap(),
    }
}

fn all() -> Vec<(&'static str, Frame)> {
    let meta = Meta::new(0o644, (1_700_000_000, 5));
    let failure = Failure::with_detail(FailureKind::Io, "input/output error");
    vec![
        ("hello-push", Frame::Hello(push())),
        ("hello-pull", Frame::Hello(pull())),
        (
            "hello-push-token",
            Frame::Hello(Hello {
                bearer: BearerToken::new("eyJhbGciOiJFUzI1NiJ9.e30.c2ln").ok(),
                ..push()
            }),
        ),
        (
            "hello-pull-part",
            Frame::Hello(Hello {
                portion: CopyPart::new(3, 8).map(Portion::Part).unwrap_or_default(),
                ..pull()
            }),
        ),
        (
            "hello-pull-keep",
            Frame::Hello(Hello {
                keep: Preservation {
                    owner: true,
                    safe_links: true,
                    ..Preservation::default()
                },
                ..pull()
            }),
        ),
        (
            "hello-push-rest",
            Frame::Hello(Hello {
                portion: Portion::Rest,
                ..push()
            }),
        ),
        (
            "accept",
            Frame::Accept(Acceptance {
                max_streams: 64,
                instance: Some([6; 8]),
                present: true,
                ..Acceptance::default()
            }),
        ),
        (
            "accept-clear",
            Frame::Accept(Acceptance {
                max_streams: 64,
                clear: true,
                ..Acceptance::default()
            }),
        ),
        (
            "refuse",
            Frame::Refuse {
                kind: RefusalKind::Key,
                detail: "no grant".to_owned(),
            },
        ),
        (
            "file",
            Frame::File {
                head: head(b"a/b"),
                meta: meta.clone(),
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
                outcome: Ok(EntryOutcome::Linked),
            },
        ),
        (
            "result-unchanged",
            Frame::Result {
                id: 5,
                outcome: Ok(EntryOutcome::Unchanged),
            },
        ),
        (
            "small",
            Frame::Small {
                head: head(b"small \xff"),
                meta: meta.clone(),
                hash: [9; 32],
                data: Bytes::from_static(b"content"),
            },
        ),
        (
            "directory",
            Frame::Directory {
                head: head(b""),
                meta: meta.clone(),
            },
        ),
        (
            "directory-attributes",
            Frame::Directory {
                head: head(b"attributes"),
                meta: Meta {
                    attributes: Some(Arc::new(attributes())),
                    ..meta.clone()
                },
            },
        ),
        (
            "special",
            Frame::Special {
                head: head(b"null"),
                meta: meta.clone(),
                special: SpecialFile {
                    kind: SpecialKind::CharacterDevice,
                    device: (1, 3),
                },
            },
        ),
        (
            "symlink",
            Frame::Symlink {
                head: head(b"link"),
                meta: meta.clone(),
                target: b"../elsewhere".to_vec(),
            },
        ),
        (
            "block",
            Frame::Block(Block {
                id: 5,
                offset: 1 << 20,
                len: 1 << 20,
                extents: vec![Extent { offset: 0, len: 10 }, Extent { offset: 20, len: 3 }],
            }),
        ),
        (
            "packed-block",
            Frame::PackedBlock(Block {
                id: 5,
                offset: 1 << 20,
                len: 1 << 20,
                extents: vec![Extent { offset: 0, len: 10 }],
            }),
        ),
        (
            "patch-block",
            Frame::PatchBlock(
                Block {
                    id: 5,
                    offset: 1 << 20,
                    len: 1 << 20,
                    extents: vec![Extent {
                        offset: 0,
                        len: 1 << 20,
                    }],
                },
                BlockHash::from_bytes([5; 32]),
            ),
        ),
        (
            "pack",
            Frame::Pack {
                len: 21,
                parts: b"\x15\0\0\0\x11\0\0\0\x0b\x09\0\0\0\0\0\0\0\x64\0\0\0\0\0\0\0"
                    .as_slice()
                    .into(),
            },
        ),
        (
            "signature",
            Frame::Signature {
                id: 5,
                chunk_log2: 13,
                more: true,
                offset: 0,
                chunks: vec![SignedChunk {
                    len: 8192,
                    hash: [1; 16],
                }],
            },
        ),
        (
            "clear-block",
            Frame::ClearBlock(
                Block {
                    id: 5,
                    offset: 1 << 20,
                    len: 1 << 20,
                    extents: vec![Extent { offset: 0, len: 10 }, Extent { offset: 20, len: 3 }],
                },
                BlockHash::from_bytes([5; 32]),
            ),
        ),
        (
            "file-end",
            Frame::FileEnd {
                id: 5,
                hash: [1; 32],
            },
        ),
        (
            "late-end",
            Frame::LateEnd {
                id: 5,
                size: (1 << 62) - 1,
                hash: [1; 32],
            },
        ),
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
        (
            "not-kept",
            Frame::NotKept(NotKeptCounts {
                owners: 1,
                set_id_bits: 0,
                acls: u64::MAX,
                extended_attributes: 2,
            }),
        ),
        ("ack", Frame::Ack { id: 5, offset: 0 }),
        (
            "result",
            Frame::Result {
                id: 5,
                outcome: Ok(EntryOutcome::Same),
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
        // LH-COPY-29: these have no effect on files.
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

fn attributes() -> Attributes {
    let owner = Owner {
        id: Some(1000),
        name: b"ana".to_vec(),
        is_required: false,
    };
    let attribute = |name: &[u8]| ExtendedAttribute {
        name: name.to_vec(),
        value: b"value".to_vec(),
    };
    Attributes {
        special_bits: Some(0o2000),
        user: Some(owner.clone()),
        group: Some(owner),
        acls: Some(vec![attribute(b"system.posix_acl_access")]),
        xattrs: Some(vec![attribute(b"user.a"), attribute(b"user.b")]),
    }
}

fn offer(path: &[u8], hash: Option<[u8; 32]>) -> FileOffer {
    FileOffer {
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

/// Returns another name of a file of seven bytes.
fn link(id: u64, path: &[u8], first: &[u8]) -> HardLink {
    HardLink {
        head: entry(id, path),
        size: 7,
        first: (0, RelPath::from_bytes(first).unwrap()),
    }
}

fn push() -> Hello {
    Hello {
        token: CopyToken([7; 16]),
        request: CopyRequest::Push {
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
        portion: Portion::Whole,
        placement: None,
        reports_not_kept: false,
        filter: FilterRules::default(),
        existing: ExistingPolicy {
            update: true,
            ..ExistingPolicy::default()
        },
        receipt: false,
        compression: Compression::None,
        packs: false,
        delta: false,
        in_place: false,
        late_sizes: false,
        keep: Preservation::default(),
        bearer: None,
    }
}

fn pull() -> Hello {
    Hello {
        token: CopyToken([7; 16]),
        request: CopyRequest::Pull {
            recursive: true,
            sources: vec![RelPath::root(), RelPath::from_bytes(b"data/x").unwrap()],
        },
        resume: false,
        clear: true,
        offer: None,
        hard_links: false,
        single: true,
        portion: Portion::Whole,
        placement: None,
        reports_not_kept: false,
        filter: FilterRules {
            names: vec![NameRule::include("*.c"), NameRule::exclude("*")],
            ignore_files: true,
            max_bytes: Some(1 << 20),
            ..FilterRules::default()
        },
        existing: ExistingPolicy::default(),
        receipt: false,
        compression: Compression::None,
        packs: false,
        delta: false,
        in_place: false,
        late_sizes: false,
        keep: Preservation::default(),
        bearer: None,
    }
}

/// Returns an option that no release knows.
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

fn entry(id: u64, path: &[u8]) -> EntryHead {
    EntryHead {
        id,
        source: 0,
        path: RelPath::from_bytes(path).unwrap(),
    }
}

pub(super) fn grant_files() -> Vec<Seed> {
    let key = PublicKey::from_bytes([3; 32]);
    text_seeds(&[
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
