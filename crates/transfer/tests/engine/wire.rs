//! The wire, written out again by hand: what an attacker would have.

use std::sync::atomic::{AtomicU64, Ordering};

pub fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut out = ((body.len() + 1) as u32).to_le_bytes().to_vec();
    out.push(kind);
    out.extend_from_slice(body);
    out
}

fn bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Each attack is a copy of its own.
pub fn push_hello(destination: &[u8], names: &[&[u8]]) -> Vec<u8> {
    token_hello(next_token(), destination, names)
}

fn next_token() -> u64 {
    static COPIES: AtomicU64 = AtomicU64::new(1);
    COPIES.fetch_add(1, Ordering::Relaxed)
}

pub fn pull_hello(source: &[u8]) -> Vec<u8> {
    let version = longhaul_transfer::VERSION.to_le_bytes();
    let token = next_token().to_le_bytes();
    let mut body = [
        &b"LHCP"[..],
        &version,
        &version,
        &token,
        &token,
        &[2, 1, 1, 0, 0, 0],
    ]
    .concat();
    bytes(&mut body, source);
    frame(1, &body)
}

pub fn token_hello(token: u64, destination: &[u8], names: &[&[u8]]) -> Vec<u8> {
    hello(token, destination, names, true)
}

/// The same, which replaces nothing.
pub fn create_hello(destination: &[u8], names: &[&[u8]]) -> Vec<u8> {
    hello(next_token(), destination, names, false)
}

fn hello(token: u64, destination: &[u8], names: &[&[u8]], overwrite: bool) -> Vec<u8> {
    let version = longhaul_transfer::VERSION.to_le_bytes();
    let mut body = [&b"LHCP"[..], &version, &version].concat();
    body.extend_from_slice(&[token.to_le_bytes(), token.to_le_bytes()].concat());
    body.push(1);
    bytes(&mut body, destination);
    body.extend_from_slice(&[0, u8::from(overwrite), 0]);
    body.extend_from_slice(&(names.len() as u32).to_le_bytes());
    names.iter().for_each(|name| bytes(&mut body, name));
    frame(1, &body)
}

pub fn head(id: u64, source: u32, path: &[u8]) -> Vec<u8> {
    let mut out = id.to_le_bytes().to_vec();
    out.extend_from_slice(&source.to_le_bytes());
    bytes(&mut out, path);
    out
}

const META: [u8; 16] = [0xa4, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

pub fn small(id: u64, source: u32, path: &[u8], data: &[u8], hash: [u8; 32]) -> Vec<u8> {
    frame(5, &[&head(id, source, path)[..], &META, &hash, data].concat())
}

pub fn honest_small(id: u64, path: &[u8], data: &[u8]) -> Vec<u8> {
    small(id, 0, path, data, *blake3::hash(data).as_bytes())
}

pub fn symlink(id: u64, path: &[u8], target: &[u8]) -> Vec<u8> {
    let mut body = [&head(id, 0, path)[..], &META].concat();
    bytes(&mut body, target);
    frame(7, &body)
}

pub fn directory(id: u64, path: &[u8]) -> Vec<u8> {
    frame(6, &[&head(id, 0, path)[..], &META].concat())
}

pub fn file(id: u64, path: &[u8], size: u64) -> Vec<u8> {
    frame(
        4,
        &[&head(id, 0, path)[..], &META, &size.to_le_bytes(), &[18]].concat(),
    )
}

pub fn block(id: u64, offset: u64, len: u32, data: &[u8]) -> Vec<u8> {
    let pieces: u16 = if data.is_empty() { 0 } else { 1 };
    let mut body = [
        &id.to_le_bytes()[..],
        &offset.to_le_bytes(),
        &len.to_le_bytes(),
        &pieces.to_le_bytes(),
    ]
    .concat();
    if pieces == 1 {
        body.extend_from_slice(&0u32.to_le_bytes());
        body.extend_from_slice(&(data.len() as u32).to_le_bytes());
        body.extend_from_slice(data);
    }
    frame(8, &body)
}

pub fn file_end(id: u64, hash: [u8; 32]) -> Vec<u8> {
    frame(9, &[&id.to_le_bytes()[..], &hash].concat())
}

pub fn end(entries: u64) -> Vec<u8> {
    frame(11, &[entries.to_le_bytes(), 0u64.to_le_bytes()].concat())
}

/// FAILED: kind 1, without more words.
pub fn failed(id: u64, path: &[u8]) -> Vec<u8> {
    frame(10, &[&head(id, 0, path)[..], &[1, 0, 0]].concat())
}

pub fn totals(entries: u64, bytes: u64) -> Vec<u8> {
    frame(
        12,
        &[&entries.to_le_bytes()[..], &bytes.to_le_bytes(), &[1]].concat(),
    )
}
