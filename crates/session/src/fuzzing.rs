//! Properties of the parsers of known-hosts files and key files; see [`longhaul_proto::fuzzing`].

#![allow(clippy::unwrap_used)] // a broken property panics

use std::path::Path;

use longhaul_proto::{
    PublicKey, SigningKey,
    fuzzing::{Seed, Target, assert_one_line, texts},
};

use crate::{KnownHosts, identity::from_pem};

/// The targets of this crate.
pub const TARGETS: &[Target] = &[
    Target {
        name: "known-hosts",
        property: known_hosts,
        seeds: known_hosts_files,
    },
    Target {
        name: "identity",
        property: identity,
        seeds: identities,
    },
];

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
    texts(&[
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
    texts(&[
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
        longhaul_proto::fuzzing::replay(super::TARGETS);
    }
}
