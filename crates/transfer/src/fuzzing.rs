//! What must hold for any frame, any HELLO and any file of grants; see [`longhaul_proto::fuzzing`].

#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // a broken property is to panic

use std::cell::RefCell;

use bytes::Bytes;
use longhaul_proto::PublicKey;
use longhaul_proto::fuzzing::{Seed, Target, assert_one_line, assert_short_line, texts};
use longhaul_proto::text::is_printable;

use crate::error::{Failure, FailureKind};
use crate::frame_io::{FrameReader, Incoming};
use crate::grants::{Access, Grants};
use crate::path::RelPath;
use crate::wire::{
    Block, FlowReport, Frame, FrameType, Head, Hello, MAX_HELLO, Meta, Piece, Request, Token, Written, decode,
};

/// The targets of this crate.
pub const TARGETS: &[Target] = &[
    Target {
        name: "frame",
        property: frame,
        seeds: frames,
    },
    Target {
        name: "frames",
        property: stream,
        seeds: streams,
    },
    Target {
        name: "hello",
        property: hello,
        seeds: hellos,
    },
    Target {
        name: "grants",
        property: grants,
        seeds: grant_files,
    },
];

/// A type byte and a body.
fn frame(data: &[u8]) {
    let Some((&kind, body)) = data.split_first() else {
        return;
    };
    let Some(frame_type) = FrameType::from_byte(kind) else {
        return;
    };
    match decode(frame_type, Bytes::copy_from_slice(body)) {
        Ok(frame) => decoded(&frame, Some(body)),
        Err(error) => assert_short_line(&error),
    }
}

/// What decodes encodes to the same bytes, but for words that had to be written out, and for the versions of a HELLO, which
/// is written with one's own.
fn decoded(frame: &Frame, body: Option<&[u8]>) {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    let words = match frame {
        Frame::Refuse { detail, .. } => Some(detail),
        Frame::Failed { failure, .. }
        | Frame::Result {
            outcome: Err(failure),
            ..
        } => Some(&failure.detail),
        _ => None,
    };
    if let Some(words) = words {
        assert!(words.chars().all(is_printable), "{words:?}");
    }
    match frame {
        Frame::Hello(hello) => again(hello, &bytes),
        _ if words.is_some() => {}
        _ => assert!(body.is_none_or(|body| body == &bytes[5..])),
    }
    if let Frame::File { head, .. } | Frame::Directory { head, .. } | Frame::Symlink { head, .. } = frame {
        plain(&head.path);
    }
    if let Frame::Block(block) = frame {
        assert!(block.data_len() <= block.len as usize);
    }
}

/// A path from the wire stays beneath whatever it is joined to.
fn plain(path: &RelPath) {
    assert!(path.to_string().chars().all(is_printable));
    assert_eq!(RelPath::from_typed(path.as_bytes()).as_ref(), Ok(path));
    let root = RelPath::from_bytes(b"in/here").unwrap();
    if let Ok(joined) = root.join(path) {
        assert!(joined.is_within(&root));
    }
}

fn again(hello: &Hello, bytes: &[u8]) {
    let decoded = decode(FrameType::Hello, Bytes::copy_from_slice(&bytes[5..]));
    assert_eq!(decoded, Ok(Frame::Hello(hello.clone())));
}

/// Frames behind one another, however they are cut.
fn stream(data: &[u8]) {
    thread_local! {
        static RUNTIME: RefCell<tokio::runtime::Runtime> = RefCell::new(
            tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap(),
        );
    }
    RUNTIME.with_borrow(|runtime| {
        runtime.block_on(async {
            let mut reader = FrameReader::new(data);
            loop {
                match reader.next().await {
                    Ok(None) => break,
                    Ok(Some(Incoming::Frame(frame))) => decoded(&frame, None),
                    Ok(Some(Incoming::Block(block))) => {
                        assert!(block.data_len() <= 1 << 20);
                        let read = reader.read_data(&mut vec![0; block.data_len()]).await;
                        if read.is_err() {
                            break;
                        }
                    }
                    Err(error) => {
                        assert_short_line(&error);
                        break;
                    }
                }
            }
        });
    });
}

/// A HELLO, whole, and behind its magic, versions and token.
fn hello(data: &[u8]) {
    let beginning = [&b"LHCP\x02\0\x02\0"[..], &[7; 16]].concat();
    for body in [data.to_vec(), [&beginning[..], data].concat()] {
        match decode(FrameType::Hello, Bytes::from(body)) {
            Ok(frame) => {
                let Frame::Hello(hello) = &frame else { continue };
                assert!(hello.fits() || data.len() + beginning.len() >= MAX_HELLO);
                match &hello.request {
                    Request::Push {
                        destination, names, ..
                    } => {
                        plain(destination);
                        assert!(names.iter().all(|name| !name.contains(&b'/') && name != b".."));
                    }
                    Request::Pull { sources, .. } => sources.iter().for_each(plain),
                }
                decoded(&frame, None);
            }
            Err(error) => assert_short_line(&error),
        }
    }
}

/// Any text as a file of grants, and as a grant on a command line.
fn grants(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let mut grants = Grants::default();
    if let Err(error) = grants.add_text(text, "grants.toml") {
        assert_one_line(&error);
    }
    if let Err(error) = grants.add(Access::Read, text) {
        assert_one_line(&error);
    }
    let nobody = PublicKey::from_bytes([0xee; 32]);
    assert!(text.contains("lhk1:") || grants.is_empty());
    assert!(!grants.allow(&nobody, Access::Write, &RelPath::root()) || text.contains("lhk1:"));
}

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
                version: 2,
                max_streams: 64,
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
        ("flow", Frame::Flow(FlowReport::default())),
    ]
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
    }
}

fn pull() -> Hello {
    Hello {
        token: Token([7; 16]),
        request: Request::Pull {
            recursive: true,
            sources: vec![RelPath::root(), RelPath::from_bytes(b"data/x").unwrap()],
        },
    }
}

fn frames() -> Vec<Seed> {
    let mut seeds: Vec<Seed> = all()
        .into_iter()
        .map(|(name, frame)| {
            let mut bytes = Vec::new();
            frame.encode(&mut bytes);
            (name.to_owned(), bytes[4..].to_vec())
        })
        .collect();
    seeds.push((
        "refuse-and-steering".to_owned(),
        b"\x03\x01\x0a\x00\x1b[2J\xe2\x80\xae\xff\n\x07".to_vec(),
    ));
    seeds
}

fn streams() -> Vec<Seed> {
    let mut whole = Vec::new();
    for (_, frame) in all() {
        frame.encode(&mut whole);
        if let Frame::Block(block) = frame {
            whole.resize(whole.len() + block.data_len(), b'd');
        }
    }
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

fn hellos() -> Vec<Seed> {
    let mut seeds = Vec::new();
    for (name, hello) in [("push", push()), ("pull", pull())] {
        let mut bytes = Vec::new();
        Frame::Hello(hello).encode(&mut bytes);
        seeds.push((name.to_owned(), bytes[5..].to_vec()));
        seeds.push((format!("{name}-behind-the-token"), bytes[29..].to_vec()));
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

fn grant_files() -> Vec<Seed> {
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

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpora_hold() {
        longhaul_proto::fuzzing::replay(super::TARGETS);
    }
}
