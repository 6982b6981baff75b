//! Text of made-up words, which compresses about as well as prose.
//!
//! The words are as frequent as those of a language (Zipf's law), so a compressor finds the usual
//! repetitions and no long ones. The same seed makes the same text on every machine.

use std::sync::LazyLock;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Number of different words.
const WORDS: usize = 20_000;
/// One in so many words ends a sentence, and one in so many others a line.
const SENTENCE_WORDS: u32 = 12;
const LINE_WORDS: u32 = 14;

const CONSONANTS: &[u8] = b"bcdfghjklmnprstvwz";
const VOWELS: &[u8] = b"aeiou";

static VOCABULARY: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(0);
    (0..WORDS).map(|_| word(&mut random)).collect()
});

/// Makes a word of one to four syllables.
fn word(random: &mut impl RngExt) -> Vec<u8> {
    let mut word = Vec::new();
    for _ in 0..random.random_range(1..=4) {
        for letters in [CONSONANTS, VOWELS] {
            word.push(letters[random.random_range(0..letters.len())]);
        }
    }
    word
}

/// An endless text.
pub struct Text {
    random: Xoshiro256PlusPlus,
    /// Text that is made and not yet taken, from `taken` on.
    made: Vec<u8>,
    taken: usize,
}

impl Text {
    /// Begins the text of a seed.
    pub fn new(seed: u64) -> Self {
        Self {
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            made: Vec::new(),
            taken: 0,
        }
    }

    /// Fills a chunk with the text that follows.
    pub fn fill(&mut self, chunk: &mut [u8]) {
        let mut filled = 0;
        while filled < chunk.len() {
            if self.taken == self.made.len() {
                self.make_word();
            }
            let rest = &self.made[self.taken..];
            let take = rest.len().min(chunk.len() - filled);
            chunk[filled..filled + take].copy_from_slice(&rest[..take]);
            filled += take;
            self.taken += take;
        }
    }

    /// Makes the next word, with what separates it from the one after it.
    fn make_word(&mut self) {
        // The logarithm of the rank is uniform, so a word is as rare as its rank is high.
        let rank = (WORDS as f64).powf(self.random.random::<f64>()) as usize;
        let word = &VOCABULARY[rank.min(WORDS) - 1];
        self.made.clear();
        self.taken = 0;
        self.made.extend_from_slice(word);
        if self.random.random_range(0..SENTENCE_WORDS) == 0 {
            self.made.push(b'.');
        }
        let is_last_of_line = self.random.random_range(0..LINE_WORDS) == 0;
        self.made.push(if is_last_of_line { b'\n' } else { b' ' });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn text(seed: u64, bytes: usize) -> Vec<u8> {
        let mut text = vec![0; bytes];
        Text::new(seed).fill(&mut text);
        text
    }

    #[test]
    fn text_repeats_by_seed_in_chunks_of_any_size() {
        let whole = text(7, 10_000);
        let mut parts = vec![0; 10_000];
        let mut source = Text::new(7);
        parts.chunks_mut(33).for_each(|part| source.fill(part));
        assert_eq!(parts, whole);
        assert_ne!(text(8, 10_000), whole);
    }

    #[test]
    fn letters_have_the_entropy_of_a_language() {
        let text = text(1, 1 << 20);
        let mut counts = BTreeMap::new();
        text.iter()
            .for_each(|byte| *counts.entry(*byte).or_insert(0.0) += 1.0);
        let shares = counts.values().map(|count: &f64| count / text.len() as f64);
        let bits: f64 = shares.map(|share| -share * share.log2()).sum();
        assert!((3.0..5.0).contains(&bits), "{bits}");
    }

    #[test]
    fn frequent_words_return() {
        let text = String::from_utf8(text(1, 1 << 20)).unwrap();
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let different: std::collections::BTreeSet<&&str> = words.iter().collect();
        assert!(different.len() > 5_000 && different.len() < words.len() / 4);
    }
}
