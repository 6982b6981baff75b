//! Properties of the parsers of known-hosts files, key files and frames of resumable sessions; see
//! [`longhaul_proto::fuzzing`].

#![allow(clippy::unwrap_used)] // a broken property panics

use std::path::Path;
use std::time::Duration;

use longhaul_proto::{
    PublicKey, SigningKey,
    fuzzing::{FuzzTarget, Seed, assert_one_line, text_seeds},
};

use longhaul_resume::{
    INITIAL_WINDOW_BYTES, MemoryAllowance, ReadOutcome, ResumableEnd, Role, StreamLimits,
};

use crate::{KnownHosts, identity::from_pem};

/// The targets of this crate.
pub const TARGETS: &[FuzzTarget] = &[
    FuzzTarget {
        name: "known-hosts",
        property: known_hosts,
        seeds: known_hosts_files,
    },
    FuzzTarget {
        name: "identity",
        property: identity,
        seeds: identities,
    },
    FuzzTarget {
        name: "resume-frames",
        property: resume_frames,
        seeds: frame_sequences,
    },
];

/// No memory beyond the initial windows.
struct NoMemory;

impl MemoryAllowance for NoMemory {
    fn try_take(&mut self, _bytes: u64) -> bool {
        false
    }

    fn release(&mut self, _bytes: u64) {}
}

fn new_end(role: Role) -> ResumableEnd {
    let limits = StreamLimits {
        within: Duration::from_secs(60),
        max_window: INITIAL_WINDOW_BYTES,
    };
    ResumableEnd::new(role, limits, Box::new(NoMemory), Duration::ZERO)
}

/// The first byte says who reads the frames, and in pieces of which length.
fn resume_frames(data: &[u8]) {
    let Some((&first, input)) = data.split_first() else {
        return;
    };
    let role = match first & 1 {
        0 => Role::Initiator,
        _ => Role::Acceptor,
    };
    let mut end = new_end(role);
    let mut now = Duration::ZERO;
    end.write(now, b"some data");
    let mut unread = 0u64;
    for piece in input.chunks(usize::from(first >> 1) + 1) {
        now += Duration::from_millis(7);
        end.on_input(now, piece, &mut []);
        end.on_timeout(now);
        let output: usize = end.output(now).iter().map(|part| part.len()).sum();
        assert!(output == 0 || end.is_attached());
        end.on_written(now, output);
        unread = unread.max(end.received());
        assert!(end.counts().replay_bytes <= INITIAL_WINDOW_BYTES);
    }
    // Nothing was read, so the peer may not have sent more than the window, and its end.
    assert!(unread <= INITIAL_WINDOW_BYTES + 1);
    let mut buffer = vec![0; 1 << 18];
    if let ReadOutcome::Bytes(read) = end.read(now, &mut buffer) {
        assert!(read as u64 <= INITIAL_WINDOW_BYTES);
    }
}

fn frame_sequences() -> Vec<Seed> {
    let written = |data: &[u8], ends: bool| {
        let mut end = new_end(Role::Initiator);
        end.write(Duration::ZERO, data);
        if ends {
            end.finish();
        }
        end.on_timeout(Duration::ZERO);
        let mut wire = vec![0x7f];
        loop {
            let part = end.output(Duration::ZERO).concat();
            if part.is_empty() {
                return wire;
            }
            end.on_written(Duration::ZERO, part.len());
            wire.extend(part);
        }
    };
    let by_hand = |bytes: &[u8]| [&[0x03], bytes].concat();
    [
        ("data-and-end", written(b"question", true)),
        ("end", written(b"", true)),
        ("more-than-a-chunk", written(&[7; 70_000], false)),
        ("reset", by_hand(&[4])),
        ("ping-and-pong", by_hand(&[5, 0, 0, 0, 1, 6, 0, 0, 0, 1])),
        (
            "acknowledgement",
            by_hand(&[[2].as_slice(), &[0; 7], &[9], &[0xff; 8]].concat()),
        ),
        (
            "too-much-acknowledged",
            by_hand(&[[2].as_slice(), &[0xff; 16]].concat()),
        ),
        ("gap", by_hand(&[1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 7])),
        (
            "empty-data",
            by_hand(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        ),
        ("unknown-kind", by_hand(&[99])),
    ]
    .map(|(name, bytes)| (name.to_owned(), bytes))
    .to_vec()
}

fn known_hosts(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let path = Path::new("known_hosts");
    match KnownHosts::parse(text, path) {
        Ok(hosts) => {
            let written = hosts.text();
            assert_eq!(KnownHosts::parse(&written, path).unwrap().text(), written);
        }
        Err(error) => assert_one_line(&error),
    }
}

fn identity(data: &[u8]) {
    let Some(document) = from_pem(data) else {
        return;
    };
    match SigningKey::from_pkcs8(&document) {
        Ok(key) => {
            let again = SigningKey::from_pkcs8(&key.to_pkcs8().unwrap()).unwrap();
            assert_eq!(again.public(), key.public());
        }
        Err(error) => assert_one_line(&error),
    }
}

fn known_hosts_files() -> Vec<Seed> {
    let (one, other) = (
        PublicKey::from_bytes([1; 32]),
        PublicKey::from_bytes([2; 32]),
    );
    text_seeds(&[
        (
            "two",
            &format!("# servers\n\nh.example:7511 {one}\n[::1]:1\t{other}\n"),
        ),
        ("twice-the-same", &format!("h:1 {one}\nh:1 {one}\n")),
        ("twice", &format!("h:1 {one}\nh:1 {other}\n")),
        ("no-port", &format!("h {one}\n")),
        ("no-key", "h:1 key\n"),
        ("three-fields", &format!("h:1 {one} x\n")),
        (
            "steering",
            &format!("h\u{202e}\u{1b}[2J:1 {one}\n\u{2028}\n"),
        ),
        ("empty", ""),
    ])
}

fn identities() -> Vec<Seed> {
    // RFC 8410, section 10.3: the example without attributes and the one with a public half.
    let plain = "-----BEGIN PRIVATE KEY-----\n\
        MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
        -----END PRIVATE KEY-----\n";
    let with_public = "-----BEGIN PRIVATE KEY-----\n\
        MHICAQEwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
        oB8wHQYKKoZIhvcNAQkJFDEPDA1DdXJkbGUgQ2hhaXJzgSEAGb9ECWmEzf6FQbrB\n\
        Z9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PRIVATE KEY-----\n";
    text_seeds(&[
        ("plain", plain),
        ("with-public", with_public),
        ("begin-alone", "-----BEGIN PRIVATE KEY-----"),
        (
            "no-base64",
            "-----BEGIN PRIVATE KEY-----\n!!\n-----END PRIVATE KEY-----",
        ),
        (
            "short",
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----",
        ),
        ("empty", ""),
    ])
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpora_hold() {
        longhaul_proto::fuzzing::replay_corpora(super::TARGETS);
    }
}
