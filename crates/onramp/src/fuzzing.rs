//! Properties of the parsers of a SOCKS client's bytes; see [`longhaul_proto::fuzzing`].

#![allow(clippy::unwrap_used)] // a broken property panics

use longhaul_proto::fuzzing::{Seed, Target};

use crate::socks::wire::{MAX_BYTES, Read, greeting, login, request};

/// The targets of this crate.
pub const TARGETS: &[Target] = &[Target {
    name: "socks",
    property: socks,
    seeds: conversations,
}];

/// Tests any bytes as each message of a client.
fn socks(data: &[u8]) {
    whole_or_too_short(data, greeting);
    whole_or_too_short(data, login);
    whole_or_too_short(data, request);
}

/// Asserts that a message is read from exactly its bytes: fewer are incomplete, and more change
/// nothing. The parser never waits for more than the maximum.
fn whole_or_too_short<T: PartialEq + std::fmt::Debug>(data: &[u8], read: fn(&[u8]) -> Read<T>) {
    match read(data) {
        Ok(Some((said, length))) => {
            assert!((1..=data.len().min(MAX_BYTES)).contains(&length));
            for shorter in 0..length {
                assert_eq!(read(data.get(..shorter).unwrap()), Ok(None));
            }
            assert_eq!(read(data.get(..length).unwrap()), Ok(Some((said, length))));
        }
        Ok(None) => assert!(
            data.len() < MAX_BYTES,
            "{} bytes, and not enough",
            data.len()
        ),
        Err(wrong) => {
            let mut longer = data.to_vec();
            longer.push(0);
            assert_eq!(read(&longer), Err(wrong));
        }
    }
}

fn conversations() -> Vec<Seed> {
    let long = |head: &[u8], byte| {
        let mut bytes = head.to_vec();
        bytes.extend([byte; 600]);
        bytes
    };
    let seed = |name: &str, bytes: &[u8]| (name.to_owned(), bytes.to_vec());
    vec![
        seed("greeting", &[5, 2, 0, 2]),
        seed("greeting-without-methods", &[5, 0]),
        seed("greeting-cut-short", &[5, 255, 0]),
        seed("login", b"\x01\x02me\x06a word"),
        seed("login-empty", &[1, 0, 0]),
        seed("connect-4", &[5, 1, 0, 1, 192, 0, 2, 1, 0, 80]),
        seed(
            "connect-6",
            &[
                5, 1, 0, 4, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 80,
            ],
        ),
        seed("connect-name", b"\x05\x01\0\x03\x09h.example\0\x50"),
        seed(
            "connect-name-of-an-address",
            b"\x05\x01\0\x03\x09192.0.2.1\0\x50",
        ),
        seed(
            "connect-name-that-steers",
            b"\x05\x01\0\x03\x04\x1b[2J\0\x50",
        ),
        seed("connect-port-0", &[5, 1, 0, 1, 192, 0, 2, 1, 0, 0]),
        seed("bind", &[5, 2, 0, 1, 192, 0, 2, 1, 0, 80]),
        seed("another-kind", &[5, 1, 0, 9, 0]),
        seed("version-4", b"\x04\x01\0\x50\xc0\0\x02\x01me\0"),
        seed("version-4a", b"\x04\x01\0\x50\0\0\0\x01me\0h.example\0"),
        seed(
            "version-4-user-without-end",
            &long(b"\x04\x01\0\x50\xc0\0\x02\x01", b'u'),
        ),
        seed(
            "version-4a-name-without-end",
            &long(b"\x04\x01\0\x50\0\0\0\x01\0", b'n'),
        ),
        seed("http", b"GET / HTTP/1.1\r\n\r\n"),
        seed("empty", b""),
    ]
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpora_hold() {
        longhaul_proto::fuzzing::replay(super::TARGETS);
    }
}
