//! Properties that must hold for any question and answer; see [`longhaul_proto::fuzzing`].

#![allow(clippy::unwrap_used)] // a broken property is to panic

use longhaul_proto::fuzzing::{FuzzTarget, Seed, assert_short_line, expect_ready, text_seeds};
use longhaul_proto::text::is_printable;

use crate::exchange::{FactsAnswer, FactsQuestion, receive, send};
use crate::facts::Facts;
use crate::{AssessedPath, FindingSide, findings, render};

/// The targets of this crate.
pub const TARGETS: &[FuzzTarget] = &[FuzzTarget {
    name: "doctor",
    property: messages,
    seeds,
}];

/// Parses any bytes as a question and as an answer, with a length in front and without.
fn messages(data: &[u8]) {
    let framed = [&u32::try_from(data.len()).unwrap().to_le_bytes()[..], data].concat();
    for data in [data, &framed] {
        let mut rest = data;
        // A length without a body is no message either.
        let _ = expect_ready(receive::<FactsQuestion>(&mut rest));
        let mut rest = data;
        while let Ok(Some(answer)) = expect_ready(receive::<FactsAnswer>(&mut rest)) {
            answered(&answer);
        }
    }
}

fn answered(answer: &FactsAnswer) {
    match answer {
        FactsAnswer::Time(_) => {}
        FactsAnswer::Refused(why) => assert!(why.as_str().chars().all(is_printable)),
        FactsAnswer::Facts(facts) => reported(facts),
    }
    let mut again = Vec::new();
    // A message that was read may be longer when it is written again.
    if expect_ready(send(&mut again, answer)).is_ok() {
        let read = expect_ready(receive::<FactsAnswer>(&mut &again[..])).unwrap();
        assert_eq!(read.as_ref(), Some(answer));
    }
}

/// Computes and formats everything that is shown of another machine's facts.
fn reported(facts: &Facts) {
    let mut path = AssessedPath::assumed();
    path.take_rate_of(facts);
    let mut page = render::path(&path) + &render::facts(facts);
    for path in [path, AssessedPath::assumed()] {
        let found = findings(facts, &path, FindingSide::There);
        for finding in &found {
            assert_short_line(&finding.what);
            assert_short_line(&finding.cost.text);
            for mend in &finding.mends {
                assert_short_line(&mend.now);
            }
        }
        page += &render::findings(&found);
    }
    assert!(
        page.chars().all(|c| c == '\n' || is_printable(c)),
        "{page:?}"
    );
}

fn seeds() -> Vec<Seed> {
    const FACTS: &str = include_str!("fuzzing/facts.json");
    let facts = FACTS.trim_end();
    let unknown = facts.replace("\"6.8.0\"", "\"\\u001b[2J\\u202e\\u2028\\u200b\"");
    let numbers: String = facts
        .split_inclusive(|c: char| !c.is_ascii_digit())
        .map(
            |part| match part.trim_end_matches(|c: char| !c.is_ascii_digit()).len() {
                4.. => format!("18446744073709551615{}", &part[part.len() - 1..]),
                _ => part.to_owned(),
            },
        )
        .collect();
    let mut seeds = text_seeds(&[
        ("ask-time", "\"time\""),
        ("ask-facts", "\"facts\""),
        ("time", "{\"time\":1700000000000000}"),
        ("time-negative", "{\"time\":-1}"),
        ("refused", "{\"refused\":\"no grant\"}"),
        (
            "refused-and-steering",
            "{\"refused\":\"a\\u001b[2J\\u202eb\\nc\\u2028\"}",
        ),
        ("facts-empty", "{\"facts\":{}}"),
        ("facts", facts),
        ("facts-that-steer", &unknown),
        ("facts-with-large-numbers", &numbers),
        ("deep", &"[".repeat(1000)),
    ]);
    seeds.push(("length-over-the-bound".to_owned(), vec![0, 0, 5, 0, b'{']));
    seeds.push(("length-alone".to_owned(), vec![9, 0, 0, 0]));
    seeds
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpora_hold() {
        longhaul_proto::fuzzing::replay_corpora(super::TARGETS);
    }
}
