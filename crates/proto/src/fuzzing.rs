//! Properties that must hold for any input of a parser.
//!
//! Each crate has such targets for its own parsers. `make fuzz` searches for inputs that break
//! them. An ordinary test replays the corpus (`fuzz/corpus`), so every earlier finding is tested
//! wherever tests run.

// A broken property panics.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod properties;
mod seeds;

use std::path::PathBuf;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use crate::text;

/// A parser's fuzz target: its property, and seed inputs.
#[derive(Debug, Clone, Copy)]
pub struct FuzzTarget {
    /// Name of the fuzz target and of its corpus directory.
    pub name: &'static str,
    /// Function that panics if the property does not hold for this input.
    pub property: fn(&[u8]),
    /// Returns the named seed inputs in today's format; `make seeds` writes them to the corpus.
    pub seeds: fn() -> Vec<Seed>,
}

/// Name and bytes of a seed input.
pub type Seed = (String, Vec<u8>);

/// The targets of this crate.
pub const TARGETS: &[FuzzTarget] = &[
    FuzzTarget {
        name: "open",
        property: properties::check_open,
        seeds: seeds::open_seeds,
    },
    FuzzTarget {
        name: "circuit-grant",
        property: properties::check_circuit_grant,
        seeds: seeds::circuit_grant_seeds,
    },
    FuzzTarget {
        name: "voucher",
        property: properties::check_voucher,
        seeds: seeds::voucher_seeds,
    },
    FuzzTarget {
        name: "status",
        property: properties::check_status,
        seeds: seeds::status_seeds,
    },
    FuzzTarget {
        name: "text",
        property: properties::check_texts,
        seeds: seeds::typed_text_seeds,
    },
];

/// Returns the corpus directory of a target.
#[must_use]
pub fn corpus_dir(target: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus")).join(target)
}

/// Runs each target on its whole corpus, which must contain the current seeds.
pub fn replay_corpora(targets: &[FuzzTarget]) {
    for target in targets {
        let folder = corpus_dir(target.name);
        for (name, seed) in (target.seeds)() {
            let path = folder.join(&name);
            let stored = std::fs::read(&path).unwrap_or_default();
            assert!(
                stored == seed,
                "{} is not in today's format: run make seeds",
                path.display()
            );
        }
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            println!("{}", path.display());
            (target.property)(&std::fs::read(path).unwrap());
        }
    }
}

/// Asserts that the text reported about an input is one line that cannot control a terminal.
pub fn assert_one_line(reported: &impl std::fmt::Display) {
    let line = reported.to_string();
    assert!(
        !line.is_empty() && line.chars().all(text::is_printable),
        "not one printable line: {line:?}"
    );
}

/// Asserts the same of text from the network, and that its length is readable.
pub fn assert_short_line(reported: &impl std::fmt::Display) {
    assert_one_line(reported);
    let length = reported.to_string().len();
    assert!(length <= 4096, "{length} bytes: {reported}");
}

/// Returns the result of a future that never waits, such as a read from a slice or a write to a
/// vector.
pub fn expect_ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a slice that is not ready"),
    }
}

/// Returns seeds made from texts.
#[must_use]
pub fn text_seeds(seeds: &[(&str, &str)]) -> Vec<Seed> {
    seeds
        .iter()
        .map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec()))
        .collect()
}

/// A change to an input: an offset (modulo the input's length), a byte, and an operation.
///
/// Operation 0 replaces the byte at the offset, and 1 removes it. Operation 2 inserts a character
/// before it that is significant to the text parsers. Any other operation repeats as many bytes
/// from there as the byte says.
pub type InputChange = (usize, u8, u8);

/// Returns the input after these changes, applied in order.
#[must_use]
pub fn apply_changes(input: &[u8], changes: &[InputChange]) -> Vec<u8> {
    /// Syntax characters of JSON, XML and TOML, and characters of numbers and times.
    const MARKS: [u8; 17] = *b" 019-.,\"{}[]<>/ke";
    let mut data = input.to_vec();
    for (at, byte, kind) in changes {
        if data.is_empty() {
            break;
        }
        let at = at % data.len();
        match kind {
            0 => data[at] = *byte,
            1 => drop(data.remove(at)),
            2 => data.insert(at, MARKS[usize::from(*byte) % MARKS.len()]),
            _ => {
                let end = data.len().min(at + usize::from(*byte));
                let again = data[at..end].to_vec();
                data.splice(at..at, again);
            }
        }
    }
    data
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpora_hold() {
        super::replay_corpora(super::TARGETS);
    }
}
