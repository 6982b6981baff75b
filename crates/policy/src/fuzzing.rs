//! Properties of any policy and any pattern, for [`longhaul_proto::fuzzing`].

#![allow(clippy::unwrap_used)] // a broken property is to panic

use std::path::Path;

use longhaul_proto::fuzzing::{Seed, Target, assert_one_line, texts};

use crate::{HostPattern, Policy};

/// Fuzz targets of this crate.
pub const TARGETS: &[Target] = &[
    Target {
        name: "policy",
        property: policy,
        seeds: policies,
    },
    Target {
        name: "pattern",
        property: pattern,
        seeds: patterns,
    },
];

/// Parses any text as a policy file: it yields rules, or a one-line error with its position.
fn policy(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match Policy::parse(text, Path::new("policy.toml")) {
        // A rule takes more than one line, so the text's length bounds the number of rules.
        Ok(policy) => assert!(policy.len() <= text.len()),
        Err(error) => {
            assert_one_line(&error);
            assert!(error.to_string().starts_with("policy.toml:"), "{error}");
        }
    }
}

/// Parses any text as a host pattern.
fn pattern(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Err(error) = text.parse::<HostPattern>() {
        assert_one_line(&error);
    }
}

fn policies() -> Vec<Seed> {
    let rule = r#"[[allow]]
name = "campus to archive"
principals = ["lhk1:aeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaq"]
to = ["192.0.2.0/24", "*.archive.example", "2001:db8::/32", "*"]
ports = [7511, "8000-8100", "any"]
next_hops = ["direct", "depot.example", "depot.example:*", "[2001:db8::1]:7510"]
max_rate = "2.5 Gbit/s"
max_sessions = 100
max_size = "10 TB"
max_wished_rate = "1 Gbit/s"
max_duration = "12h"
purposes = ["nightly copy", "tests"]
"#;
    let with = |field: &str, value: &str| {
        let line = rule.lines().find(|line| line.starts_with(field)).unwrap();
        rule.replace(line, &format!("{field} = {value}"))
    };
    texts(&[
        ("rule", rule),
        ("two-rules", &format!("# who\n{rule}\n{rule}")),
        ("empty", ""),
        (
            "servers",
            "[[allow]]\nprincipals = [\"*\"]\nservers = [\"127.0.0.1\", \"*.example\"]\n\
            ports = [80, \"443\"]\n",
        ),
        (
            "servers-without-ports",
            "[[allow]]\nprincipals = [\"*\"]\nservers = [\"127.0.0.1\"]\n",
        ),
        (
            "servers-beside-to",
            &format!("{rule}servers = [\"\u{202e}\"]\n"),
        ),
        ("leads-nowhere", "[[allow]]\nprincipals = [\"*\"]\n"),
        ("anybody", &with("principals", "[\"*\"]")),
        ("no-key", &with("principals", "[\"lhk1:zz\"]")),
        (
            "steering-key",
            &with("principals", "[\"\u{202e}\\u001b[2J\\u2028\"]"),
        ),
        ("nobody", &with("principals", "[]")),
        ("ports-empty", &with("ports", "[]")),
        ("ports-backwards", &with("ports", "[\"9-1\"]")),
        ("ports-0", &with("ports", "[0, \"0-70000\"]")),
        ("rate-of-nothing", &with("max_rate", "\"0 bit/s\"")),
        (
            "rate-too-large",
            &with("max_rate", "\"9999999999999999999999 Gbit/s\""),
        ),
        ("size-without-unit", &with("max_size", "\"10\"")),
        ("duration-of-nothing", &with("max_duration", "\"soon\"")),
        (
            "purpose-that-steers",
            &with("purposes", "[\"\u{202e}\\u001b\"]"),
        ),
        ("purposes-empty", &with("purposes", "[]")),
        ("sessions-negative", &with("max_sessions", "-1")),
        ("unknown-field", "[[allow]]\n\"\u{202e}\\u001b\" = 1\n"),
        ("unclosed", "[[allow]]\nname = \"\u{2028}"),
        ("control-character", "[[allow]]\nname = \u{1b}\n"),
        ("wrong-type", "allow = 5"),
    ])
}

fn patterns() -> Vec<Seed> {
    texts(&[
        ("network", "10.0.0.0/8"),
        ("network-6", "2001:db8::/32"),
        ("address", "192.0.2.7"),
        ("bracketed", "[::1]"),
        ("name", "dtn.example.org"),
        ("suffix", "*.example.org"),
        ("any", "*"),
        ("host-bits", "10.0.0.1/8"),
        ("prefix-33", "10.0.0.0/33"),
        ("mapped", "::ffff:10.0.0.0/104"),
        ("steering", "\u{202e}\u{1b}[2J\u{2028}"),
        ("blank-letters", "h\u{3164}\u{115f}\u{2800}"),
        ("long", &"a".repeat(9000)),
    ])
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpora_hold() {
        longhaul_proto::fuzzing::replay(super::TARGETS);
    }
}
