//! Properties of any policy, forwarding table and pattern, for [`longhaul_proto::fuzzing`].

#![allow(clippy::unwrap_used)] // a broken property is to panic

use std::path::Path;

use longhaul_proto::fuzzing::{FuzzTarget, Seed, assert_one_line, text_seeds};

use crate::{ForwardingTable, HostPattern, Policy};

/// Fuzz targets of this crate.
pub const TARGETS: &[FuzzTarget] = &[
    FuzzTarget {
        name: "policy",
        property: policy,
        seeds: policies,
    },
    FuzzTarget {
        name: "pattern",
        property: pattern,
        seeds: patterns,
    },
    FuzzTarget {
        name: "forwarding",
        property: forwarding,
        seeds: tables,
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

/// Parses any text as a forwarding table: it yields entries, or a one-line error with its position.
fn forwarding(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match ForwardingTable::parse(text, Path::new("forwarding.toml")) {
        Ok(table) => assert!(table.len() <= text.len()),
        Err(error) => {
            assert_one_line(&error);
            assert!(error.to_string().starts_with("forwarding.toml:"), "{error}");
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
    text_seeds(&[
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

fn tables() -> Vec<Seed> {
    let entry = |to: &str, next_hops: &str| {
        format!("[[forward]]\nto = [{to}]\nnext_hops = [{next_hops}]\n")
    };
    let keyed = "\"quic:lhk1:aeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaq@d.example\"";
    text_seeds(&[
        ("empty", ""),
        ("entry", &entry("\"192.0.2.0/24\", \"*.example\"", keyed)),
        ("direct", &entry("\"*\"", "\"direct\"")),
        (
            "several",
            &entry("\"2001:db8::/32\"", "\"a\", \"tcp:b:99\", \"[::1]\""),
        ),
        (
            "same-pattern",
            &format!("{0}{0}", entry("\"*\"", "\"direct\"")),
        ),
        ("loose", &entry("\"*\"", "\"~a\"")),
        ("two-hops", &entry("\"*\"", "\"a,b\"")),
        ("no-hops", &entry("\"*\"", "")),
        ("no-pattern", &entry("", "\"a\"")),
        (
            "steering",
            &entry("\"\u{202e}\\u001b\"", "\"\u{2028}\\u001b[2J\""),
        ),
        ("unknown-field", "[[forward]]\n\"\u{202e}\\u001b\" = 1\n"),
        ("wrong-type", "forward = 5"),
    ])
}

fn patterns() -> Vec<Seed> {
    text_seeds(&[
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
        longhaul_proto::fuzzing::replay_corpora(super::TARGETS);
    }
}
