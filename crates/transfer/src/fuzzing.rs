//! Properties of any frame, any HELLO, any behaviour of either side, any file of grants and any
//! journal. See [`longhaul_proto::fuzzing`].

#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // a broken property is to panic

mod files;
mod reactions;
mod seeds;

use std::cell::RefCell;

use bytes::Bytes;
use longhaul_proto::PublicKey;
use longhaul_proto::fuzzing::{FuzzTarget, assert_one_line, assert_short_line};
use longhaul_proto::text::is_printable;

use crate::bearer::MAX_TOKEN_BYTES;
use crate::frame_io::{FrameReader, IncomingFrame};
use crate::grants::{Access, Grants};
use crate::path::RelPath;
use crate::store::journal::fuzzing::{journal, journals};
use crate::wire::{
    CopyRequest, FileOffer, Frame, FrameType, HardLink, MAX_HELLO_BYTES, VERSION, decode,
};

/// Fuzz targets of this crate.
pub const TARGETS: &[FuzzTarget] = &[
    FuzzTarget {
        name: "frame",
        property: frame,
        seeds: seeds::frames,
    },
    FuzzTarget {
        name: "frames",
        property: stream,
        seeds: seeds::streams,
    },
    FuzzTarget {
        name: "hello",
        property: hello,
        seeds: seeds::hellos,
    },
    FuzzTarget {
        name: "receiver",
        property: reactions::receiver,
        seeds: seeds::senders,
    },
    FuzzTarget {
        name: "sender",
        property: reactions::sender,
        seeds: seeds::receivers,
    },
    FuzzTarget {
        name: "files-ask",
        property: files::ask,
        seeds: files::asks,
    },
    FuzzTarget {
        name: "files-answer",
        property: files::answer,
        seeds: files::answers,
    },
    FuzzTarget {
        name: "grants",
        property: grants,
        seeds: seeds::grant_files,
    },
    FuzzTarget {
        name: "journal",
        property: journal,
        seeds: journals,
    },
];

/// Decodes a type byte and a body.
fn frame(data: &[u8]) {
    let Some((&kind, body)) = data.split_first() else {
        return;
    };
    let Some(frame_type) = FrameType::from_repr(kind) else {
        return;
    };
    match decode(frame_type, Bytes::copy_from_slice(body)) {
        Ok(frame) => check_decoded(&frame, Some(body)),
        Err(error) => assert_short_line(&error),
    }
}

/// Checks that a decoded frame encodes to the same bytes. Exceptions are words that had to be
/// written out, skipped options, and the versions of a HELLO, which become those of this release.
fn check_decoded(frame: &Frame, body: Option<&[u8]>) {
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
        Frame::Hello(_) => again(FrameType::Hello, frame, &bytes),
        Frame::Accept { .. } => again(FrameType::Accept, frame, &bytes),
        _ if words.is_some() => {}
        _ => assert!(body.is_none_or(|body| body == &bytes[5..])),
    }
    if let Frame::HardLink(HardLink { first, .. }) = frame {
        check_plain(&first.1);
    }
    if let Frame::Offer(FileOffer { head, .. })
    | Frame::HardLink(HardLink { head, .. })
    | Frame::File { head, .. }
    | Frame::Directory { head, .. }
    | Frame::Symlink { head, .. } = frame
    {
        check_plain(&head.path);
    }
    if let Frame::Block(block)
    | Frame::ClearBlock(block, _)
    | Frame::PackedBlock(block)
    | Frame::PatchBlock(block, _) = frame
    {
        assert!(block.data_len() <= block.len as usize);
    }
}

/// Checks that a path from the wire stays beneath any directory that it is joined to.
fn check_plain(path: &RelPath) {
    assert!(path.to_string().chars().all(is_printable));
    assert_eq!(RelPath::from_typed(path.as_bytes()).as_ref(), Ok(path));
    let root = RelPath::from_bytes(b"in/here").unwrap();
    if let Ok(joined) = root.join(path) {
        assert!(joined.is_within(&root));
    }
}

fn again(frame_type: FrameType, frame: &Frame, bytes: &[u8]) {
    let decoded = decode(frame_type, Bytes::copy_from_slice(&bytes[5..]));
    assert_eq!(decoded.as_ref(), Ok(frame));
}

/// Checks that consecutive frames are read alike however they are split.
fn stream(data: &[u8]) {
    thread_local! {
        static RUNTIME: RefCell<tokio::runtime::Runtime> = RefCell::new(
            tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap(),
        );
    }
    RUNTIME.with_borrow(|runtime| {
        runtime.block_on(async {
            let mut reader = FrameReader::new(data);
            reader.allow_plaintext(Default::default());
            loop {
                match reader.next().await {
                    Ok(None) => break,
                    Ok(Some(IncomingFrame::Frame(frame))) => check_decoded(&frame, None),
                    Ok(Some(IncomingFrame::Block(block, form))) => {
                        assert!(block.data_len() <= 1 << 20);
                        let mut data = vec![0; block.data_len()];
                        let read = reader.read_data(&block, form, &mut data, |_| ()).await;
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

/// Decodes a HELLO, whole and behind its magic, versions and token.
fn hello(data: &[u8]) {
    let version = VERSION.to_le_bytes();
    let beginning = [b"LHCP", &version[..], &version, &[7; 16]].concat();
    for body in [data.to_vec(), [&beginning[..], data].concat()] {
        match decode(FrameType::Hello, Bytes::from(body)) {
            Ok(frame) => {
                let Frame::Hello(hello) = &frame else {
                    continue;
                };
                let bytes = data.len() + beginning.len() + MAX_TOKEN_BYTES;
                assert!(hello.fits() || bytes >= MAX_HELLO_BYTES);
                match &hello.request {
                    CopyRequest::Push {
                        destination, names, ..
                    } => {
                        check_plain(destination);
                        assert!(
                            names
                                .iter()
                                .all(|name| !name.contains(&b'/') && name != b"..")
                        );
                    }
                    CopyRequest::Pull { sources, .. } => sources.iter().for_each(check_plain),
                }
                check_decoded(&frame, None);
            }
            Err(error) => assert_short_line(&error),
        }
    }
}

/// Parses any text as a file of grants, and as a grant on a command line.
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
    let names_principals = ["lhk1:", "name:", "group:"].map(|form| text.contains(form));
    assert!(names_principals.contains(&true) || grants.is_empty());
    assert!(!grants.allows(&nobody, Access::Write, &RelPath::root()) || text.contains("lhk1:"));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_corpora_hold() {
        longhaul_proto::fuzzing::replay_corpora(TARGETS);
    }

    /// Returns seeds with some bytes changed, a part of another seed inserted, and the end cut off.
    fn mutated(seeds: Vec<longhaul_proto::fuzzing::Seed>) -> impl Strategy<Value = Vec<u8>> {
        let index = any::<prop::sample::Index>;
        let changes = prop::collection::vec((index(), any::<u8>()), 0..4);
        (index(), index(), changes, index(), index(), 0usize..60).prop_map(
            move |(seed, other, changes, from, at, cut)| {
                let (mut bytes, other) = (seed.get(&seeds).1.clone(), &other.get(&seeds).1);
                let from = from.index(other.len() + 1);
                let at = at.index(bytes.len() + 1);
                if cut % 3 == 0 {
                    bytes.splice(at..at, other[from..].iter().copied());
                }
                for (place, value) in &changes {
                    if !bytes.is_empty() {
                        let place = place.index(bytes.len());
                        bytes[place] = *value;
                    }
                }
                bytes.truncate(bytes.len().saturating_sub(cut / 3));
                bytes
            },
        )
    }

    proptest! {
        #[test]
        fn receiver_survives_any_sender(data in mutated(seeds::senders())) {
            reactions::receiver(&data);
        }

        #[test]
        fn sender_survives_any_receiver(data in mutated(seeds::receivers())) {
            reactions::sender(&data);
        }
    }
}
