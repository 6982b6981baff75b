//! What must hold for whatever a parser is given. Each crate has such targets for its own parsers:
//! `make fuzz` searches for inputs that break them, and an ordinary test replays the corpus
//! (`fuzz/corpus`), so that what was found once is tested wherever tests run.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // a broken property is to panic

mod properties;
mod seeds;

use std::path::PathBuf;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use crate::text;

/// A parser, what must hold of it, and inputs to begin with.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name: of the fuzz target and of the folder of its corpus.
    pub name: &'static str,
    /// Panics when something does not hold for this input.
    pub property: fn(&[u8]),
    /// Named inputs in today's format; `make seeds` writes them to the corpus.
    pub seeds: fn() -> Vec<Seed>,
}

/// A name and bytes.
pub type Seed = (String, Vec<u8>);

/// The targets of this crate.
pub const TARGETS: &[Target] = &[
    Target {
        name: "open",
        property: properties::open,
        seeds: seeds::open,
    },
    Target {
        name: "circuit-grant",
        property: properties::circuit_grant,
        seeds: seeds::circuit_grant,
    },
    Target {
        name: "status",
        property: properties::status,
        seeds: seeds::status,
    },
    Target {
        name: "text",
        property: properties::texts,
        seeds: seeds::texts,
    },
];

/// Where the corpus of a target is.
#[must_use]
pub fn corpus(target: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus")).join(target)
}

/// Runs each target on the whole of its corpus, which must hold its seeds as they are made today.
pub fn replay(targets: &[Target]) {
    for target in targets {
        let folder = corpus(target.name);
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

/// What is reported of an input is one line that cannot steer a terminal.
pub fn assert_one_line(reported: &impl std::fmt::Display) {
    let line = reported.to_string();
    assert!(
        !line.is_empty() && line.chars().all(text::is_printable),
        "not one printable line: {line:?}"
    );
}

/// The same of what comes from the network; and it is no longer than a person reads.
pub fn assert_short_line(reported: &impl std::fmt::Display) {
    assert_one_line(reported);
    let length = reported.to_string().len();
    assert!(length <= 4096, "{length} bytes: {reported}");
}

/// What a future gives that has nothing to wait for: a slice never keeps its reader waiting, nor a
/// vector its writer.
pub fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a slice that is not ready"),
    }
}

/// Seeds from texts.
#[must_use]
pub fn texts(seeds: &[(&str, &str)]) -> Vec<Seed> {
    seeds
        .iter()
        .map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec()))
        .collect()
}

/// A change of an input: where (bytes from its beginning, modulo its length), a byte, and what is
/// done there. 0 puts the byte in the place of the one that is there, 1 removes that one, 2 puts
/// before it a character that means something in the texts of the parsers, and all else repeats as
/// many bytes from there on as the byte says.
pub type Change = (usize, u8, u8);

/// The input after these changes, one after the other.
#[must_use]
pub fn changed(input: &[u8], changes: &[Change]) -> Vec<u8> {
    /// Marks of JSON, XML and TOML, and what numbers and times are written with.
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
        super::replay(super::TARGETS);
    }
}
