//! Properties of the parsers of a depot's settings; see [`longhaul_proto::fuzzing`].

#![allow(clippy::unwrap_used)] // a broken property panics

use longhaul_proto::fuzzing::{Seed, Target, assert_one_line, texts};

use crate::config::NextCongestion;

/// The targets of this crate.
pub const TARGETS: &[Target] = &[Target {
    name: "congestion",
    property: congestion,
    seeds: congestions,
}];

/// Tests any text as the congestion control towards some hosts.
fn congestion(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match text.parse::<NextCongestion>() {
        Ok(next) => assert!(!next.name.is_empty() && text.ends_with(&next.name)),
        Err(error) => assert_one_line(&error),
    }
}

fn congestions() -> Vec<Seed> {
    texts(&[
        ("any", "*=bbr"),
        ("port", "depot.example:7510=cubic"),
        ("network", "10.0.0.0/8=cubic"),
        ("nameless", "*="),
        ("steering", "\u{202e}\u{1b}[2J\u{2028}=bbr"),
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
