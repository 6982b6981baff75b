//! Properties of the parsers of a depot's settings; see [`longhaul_proto::fuzzing`].

#![allow(clippy::unwrap_used)] // a broken property panics

use longhaul_proto::fuzzing::{FuzzTarget, Seed, assert_one_line, text_seeds};

use crate::config::NextCongestion;

/// The targets of this crate.
pub const TARGETS: &[FuzzTarget] = &[FuzzTarget {
    name: "congestion",
    property: check_congestion_text,
    seeds: congestion_seeds,
}];

/// Tests any text as the congestion control towards some hosts.
fn check_congestion_text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match text.parse::<NextCongestion>() {
        Ok(next) => assert!(!next.value.is_empty() && text.ends_with(&next.value)),
        Err(error) => assert_one_line(&error),
    }
}

fn congestion_seeds() -> Vec<Seed> {
    text_seeds(&[
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
        longhaul_proto::fuzzing::replay_corpora(super::TARGETS);
    }
}
