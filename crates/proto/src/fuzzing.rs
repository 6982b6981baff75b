//! What must hold for whatever a parser is given. Each crate has such targets for its own parsers: `make fuzz` searches for inputs
//! that break them, and an ordinary test replays the corpus (`fuzz/corpus`), so that what was found once is tested wherever tests run.

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

/// What is told of an input is one line that cannot steer a terminal.
pub fn assert_one_line(told: &impl std::fmt::Display) {
    let line = told.to_string();
    assert!(
        !line.is_empty() && line.chars().all(text::is_printable),
        "not one printable line: {line:?}"
    );
}

/// The same of what comes from the network; and it is no longer than a person reads.
pub fn assert_short_line(told: &impl std::fmt::Display) {
    assert_one_line(told);
    let length = told.to_string().len();
    assert!(length <= 4096, "{length} bytes: {told}");
}

/// What a future gives that has nothing to wait for: a slice never keeps its reader waiting, nor a vector its writer.
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

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpora_hold() {
        super::replay(super::TARGETS);
    }
}
