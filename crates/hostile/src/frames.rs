//! Frames of the copy protocol, written out by hand as an attacker would.

use std::sync::atomic::{AtomicU64, Ordering};

/// Block size, as a power of two, of the files that [`file()`] describes: 256 KiB.
pub const BLOCK_LOG2: u8 = 18;
/// Outcome in a RESULT: written by this copy.
pub const RESULT_NEW: u8 = 0;
/// Outcome in a RESULT: already there with the same content.
pub const RESULT_SAME: u8 = 255;

/// Builds a frame of this type.
#[must_use]
pub fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut out = ((body.len() + 1) as u32).to_le_bytes().to_vec();
    out.push(kind);
    out.extend_from_slice(body);
    out
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Flags of a push.
#[derive(Clone, Copy, Debug, Default)]
pub struct PushFlags {
    /// If true, the destination must be a directory.
    pub into: bool,
    /// If true, existing entries are replaced.
    pub overwrite: bool,
}

/// Builds the HELLO of a new copy to `destination` that may replace existing entries.
#[must_use]
pub fn push_hello(destination: &[u8], names: &[&[u8]]) -> Vec<u8> {
    token_hello(fresh_token(), destination, names)
}

/// Builds the HELLO of a push with a given token.
#[must_use]
pub fn token_hello(token: u64, destination: &[u8], names: &[&[u8]]) -> Vec<u8> {
    let flags = PushFlags {
        into: false,
        overwrite: true,
    };
    push(token, destination, names, flags)
}

/// Builds the HELLO of a push with given flags.
#[must_use]
pub fn push(token: u64, destination: &[u8], names: &[&[u8]], flags: PushFlags) -> Vec<u8> {
    let mut body = hello_head(token);
    body.push(1);
    put(&mut body, destination);
    body.extend_from_slice(&[u8::from(flags.into), u8::from(flags.overwrite), 0]);
    body.extend_from_slice(&(names.len() as u32).to_le_bytes());
    names.iter().for_each(|name| put(&mut body, name));
    frame(1, &body)
}

/// Builds the HELLO of a pull of `sources`.
#[must_use]
pub fn pull_hello(token: u64, recursive: bool, sources: &[&[u8]]) -> Vec<u8> {
    let mut body = hello_head(token);
    body.extend_from_slice(&[2, u8::from(recursive)]);
    body.extend_from_slice(&(sources.len() as u32).to_le_bytes());
    sources.iter().for_each(|source| put(&mut body, source));
    frame(1, &body)
}

/// Returns a new token: each attack is a copy of its own, even next to those of other processes.
#[must_use]
pub fn fresh_token() -> u64 {
    static COPIES: AtomicU64 = AtomicU64::new(1);
    COPIES.fetch_add(1, Ordering::Relaxed) | u64::from(std::process::id()) << 32
}

/// Builds the beginning of a HELLO, which offers every possible version.
fn hello_head(token: u64) -> Vec<u8> {
    let (oldest, newest) = (0u16.to_le_bytes(), u16::MAX.to_le_bytes());
    let mut body = [&b"LHCP"[..], &oldest, &newest].concat();
    body.extend_from_slice(&[token.to_le_bytes(), token.to_le_bytes()].concat());
    body
}

/// Builds the beginning of an entry's frame.
#[must_use]
pub fn head(id: u64, source: u32, path: &[u8]) -> Vec<u8> {
    let mut out = id.to_le_bytes().to_vec();
    out.extend_from_slice(&source.to_le_bytes());
    put(&mut out, path);
    out
}

/// Builds the metadata: permissions, and one second after 1970.
fn meta(mode: u32) -> [u8; 16] {
    let mut meta = [0; 16];
    meta[..4].copy_from_slice(&mode.to_le_bytes());
    meta[4] = 1;
    meta
}

const READABLE: u32 = 0o644;

/// Builds a SMALL with a given hash.
#[must_use]
pub fn small(id: u64, source: u32, path: &[u8], data: &[u8], hash: [u8; 32]) -> Vec<u8> {
    frame(
        5,
        &[&head(id, source, path)[..], &meta(READABLE), &hash, data].concat(),
    )
}

/// Builds a SMALL with the hash of its data.
#[must_use]
pub fn honest_small(id: u64, path: &[u8], data: &[u8]) -> Vec<u8> {
    small(id, 0, path, data, *blake3::hash(data).as_bytes())
}

/// Builds a SYMLINK.
#[must_use]
pub fn symlink(id: u64, path: &[u8], target: &[u8]) -> Vec<u8> {
    let mut body = [&head(id, 0, path)[..], &meta(READABLE)].concat();
    put(&mut body, target);
    frame(7, &body)
}

/// Builds a DIRECTORY.
#[must_use]
pub fn directory(id: u64, path: &[u8]) -> Vec<u8> {
    directory_with_mode(id, path, READABLE)
}

/// Builds a DIRECTORY with given permissions.
#[must_use]
pub fn directory_with_mode(id: u64, path: &[u8], mode: u32) -> Vec<u8> {
    frame(6, &[&head(id, 0, path)[..], &meta(mode)].concat())
}

/// Builds a FILE, in blocks of 256 KiB.
#[must_use]
pub fn file(id: u64, path: &[u8], size: u64) -> Vec<u8> {
    file_in_blocks(id, path, size, BLOCK_LOG2)
}

/// Builds a FILE, in blocks of two to the power of `block_log2` bytes.
#[must_use]
pub fn file_in_blocks(id: u64, path: &[u8], size: u64, block_log2: u8) -> Vec<u8> {
    frame(
        4,
        &[
            &head(id, 0, path)[..],
            &meta(READABLE),
            &size.to_le_bytes(),
            &[block_log2],
            // Without an identity.
            &[0, 0],
        ]
        .concat(),
    )
}

/// Builds a BLOCK: `data` at its beginning, a hole for the rest. Without data it has 27 bytes on
/// the wire.
#[must_use]
pub fn block(id: u64, offset: u64, len: u32, data: &[u8]) -> Vec<u8> {
    let extents: u16 = if data.is_empty() { 0 } else { 1 };
    let mut body = [
        &id.to_le_bytes()[..],
        &offset.to_le_bytes(),
        &len.to_le_bytes(),
        &extents.to_le_bytes(),
    ]
    .concat();
    if extents == 1 {
        body.extend_from_slice(&0u32.to_le_bytes());
        body.extend_from_slice(&(data.len() as u32).to_le_bytes());
        body.extend_from_slice(data);
    }
    frame(8, &body)
}

/// Builds a FILE_END.
#[must_use]
pub fn file_end(id: u64, hash: [u8; 32]) -> Vec<u8> {
    frame(9, &[&id.to_le_bytes()[..], &hash].concat())
}

/// Builds a symbolic link to `target` and entries to be written through it: a small file, a
/// directory and a file in blocks. These are four entries; `id` is the first.
#[must_use]
pub fn beneath_a_link(id: u64, target: &[u8]) -> Vec<u8> {
    [
        symlink(id, b"link", target),
        honest_small(id + 1, b"link/evil", b"evil"),
        directory(id + 2, b"link/dir"),
        file(id + 3, b"link/more", 3),
        block(id + 3, 0, 3, b"abc"),
        file_end(id + 3, *blake3::hash(b"abc").as_bytes()),
    ]
    .concat()
}

/// Builds a FAILED with a detail text.
#[must_use]
pub fn failed(id: u64, path: &[u8], code: u8, detail: &[u8]) -> Vec<u8> {
    let mut body = head(id, 0, path);
    body.push(code);
    put(&mut body, detail);
    frame(10, &body)
}

/// Builds the END of a walk that found `entries` entries.
#[must_use]
pub fn end(entries: u64) -> Vec<u8> {
    frame(11, &[entries.to_le_bytes(), 0u64.to_le_bytes()].concat())
}

/// Builds a TOTALS.
#[must_use]
pub fn totals(entries: u64, bytes: u64, complete: bool) -> Vec<u8> {
    let body = [
        &entries.to_le_bytes()[..],
        &bytes.to_le_bytes(),
        &[u8::from(complete)],
    ];
    frame(12, &body.concat())
}

/// Builds an ACCEPT.
#[must_use]
pub fn accept(version: u16, max_streams: u16) -> Vec<u8> {
    frame(
        2,
        &[version.to_le_bytes(), max_streams.to_le_bytes()].concat(),
    )
}

/// Builds a REFUSE with a detail text.
#[must_use]
pub fn refuse(detail: &[u8]) -> Vec<u8> {
    let mut body = vec![0];
    put(&mut body, detail);
    frame(3, &body)
}

/// Returns the frames in `bytes`, as type and body. An incomplete frame at the end is left out.
#[must_use]
pub fn split(mut bytes: &[u8]) -> Vec<(u8, &[u8])> {
    let mut frames = Vec::new();
    while let [a, b, c, d, rest @ ..] = bytes {
        let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
        let Some((frame, behind)) = rest.split_at_checked(length) else {
            break;
        };
        let Some((kind, body)) = frame.split_first() else {
            break;
        };
        frames.push((*kind, body));
        bytes = behind;
    }
    frames
}

/// Returns the outcome that a RESULT in `bytes` reports for entry `id`: [`RESULT_NEW`],
/// [`RESULT_SAME`], or a failure's code.
#[must_use]
pub fn result_of(bytes: &[u8], id: u64) -> Option<u8> {
    let results = split(bytes).into_iter().filter(|(kind, _)| *kind == RESULT);
    let mut outcomes =
        results.filter_map(|(_, body)| Some((body.first_chunk::<8>()?, *body.get(8)?)));
    outcomes.find_map(|(number, outcome)| (u64::from_le_bytes(*number) == id).then_some(outcome))
}

/// Type of a RESULT.
pub const RESULT: u8 = 14;
/// Type of an ACK.
pub const ACK: u8 = 13;
/// Type of an END.
pub const END: u8 = 11;
/// Type of a DONE.
pub const DONE: u8 = 15;
/// Type of a REFUSE.
pub const REFUSE: u8 = 3;
/// Type of an ACCEPT.
pub const ACCEPT: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_separated_again() {
        let said = [
            accept(2, 64),
            frame(RESULT, &[&7u64.to_le_bytes()[..], &[RESULT_SAME]].concat()),
            frame(RESULT, &[&8u64.to_le_bytes()[..], &[RESULT_NEW]].concat()),
            vec![200, 0, 0, 0, ACK],
        ]
        .concat();
        let kinds: Vec<u8> = split(&said).iter().map(|(kind, _)| *kind).collect();
        assert_eq!(
            kinds,
            [ACCEPT, RESULT, RESULT],
            "what is incomplete is left out"
        );
        assert_eq!(
            [7, 8, 9].map(|id| result_of(&said, id)),
            [Some(RESULT_SAME), Some(RESULT_NEW), None]
        );
    }

    #[test]
    fn a_hole_is_27_bytes() {
        assert_eq!(block(1, 1 << 20, 1 << 20, b"").len(), 27);
    }
}
