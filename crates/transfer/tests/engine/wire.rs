//! Frames of hostile peers, in the forms that these tests use.

use longhaul_hostile::frames::{self, PushFlags};
pub use longhaul_hostile::frames::{
    beneath_a_link, block, directory, end, file, file_end, file_in_blocks, frame, honest_small,
    push_hello, result_of, small, symlink, token_hello,
};

/// Returns a pull of one tree.
pub fn pull_hello(source: &[u8]) -> Vec<u8> {
    frames::pull_hello(frames::fresh_token(), true, &[source])
}

/// Returns a push that replaces nothing.
pub fn create_hello(destination: &[u8], names: &[&[u8]]) -> Vec<u8> {
    frames::push(
        frames::fresh_token(),
        destination,
        names,
        PushFlags::default(),
    )
}

/// Returns FAILED with kind 1 and without detail.
pub fn failed(id: u64, path: &[u8]) -> Vec<u8> {
    frames::failed(id, path, 1, b"")
}

pub fn totals(entries: u64, bytes: u64) -> Vec<u8> {
    frames::totals(entries, bytes, true)
}
