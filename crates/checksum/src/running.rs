//! Adler-32 and CRC-32C, whose values of adjacent pieces can be joined.

use simd_adler32::Adler32;

use crate::algorithm::{Algorithm, Checksum};

/// Largest prime below 2^16, the modulus of Adler-32 (RFC 1950, section 9).
const ADLER_MODULUS: u64 = 65521;

/// Sum of a piece of a file. Pieces are summed anywhere, and joined in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunningSum {
    is_adler: bool,
    value: u32,
    length: u64,
}

impl RunningSum {
    /// The Adler-32 of nothing.
    pub const ADLER32: Self = Self {
        is_adler: true,
        value: 1,
        length: 0,
    };
    /// The CRC-32C of nothing.
    pub const CRC32C: Self = Self {
        is_adler: false,
        value: 0,
        length: 0,
    };

    /// Returns the sum of nothing by this algorithm. `None` if its values cannot be joined.
    pub fn new(algorithm: Algorithm) -> Option<Self> {
        match algorithm {
            Algorithm::Adler32 => Some(Self::ADLER32),
            Algorithm::Crc32c => Some(Self::CRC32C),
            Algorithm::Blake3 | Algorithm::Sha256 | Algorithm::Md5 => None,
        }
    }

    /// Returns the sum of nothing by the same algorithm.
    #[must_use]
    pub fn emptied(&self) -> Self {
        match self.is_adler {
            true => Self::ADLER32,
            false => Self::CRC32C,
        }
    }

    /// Adds the next bytes of the piece.
    pub fn update(&mut self, data: &[u8]) {
        self.value = match self.is_adler {
            true => {
                let mut adler = Adler32::from_checksum(self.value);
                adler.write(data);
                adler.finish()
            }
            false => crc32c::crc32c_append(self.value, data),
        };
        self.length += data.len() as u64;
    }

    /// Appends the piece that follows this one.
    pub fn append(&mut self, next: &Self) {
        self.value = match self.is_adler {
            true => join_adler(self.value, next.value, next.length),
            false => crc32c::crc32c_combine(
                self.value,
                next.value,
                usize::try_from(next.length).unwrap_or(usize::MAX),
            ),
        };
        self.length += next.length;
    }

    /// Returns the length of the piece, in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns the value as a checksum.
    pub fn checksum(&self) -> Checksum {
        let algorithm = match self.is_adler {
            true => Algorithm::Adler32,
            false => Algorithm::Crc32c,
        };
        Checksum::of_parts(algorithm, self.value.to_be_bytes().to_vec())
    }
}

/// Joins the values of two pieces, of which the second has `length` bytes. Each byte of the second
/// piece adds the first sum of the first piece to the second sum.
fn join_adler(first: u32, second: u32, length: u64) -> u32 {
    let halves = |value: u32| (u64::from(value & 0xffff), u64::from(value >> 16));
    let ((a1, b1), (a2, b2)) = (halves(first), halves(second));
    let length = length % ADLER_MODULUS;
    // Both first sums began at 1.
    let a = (a1 + a2 + ADLER_MODULUS - 1) % ADLER_MODULUS;
    let b = (b1 + b2 + length * (a1 + ADLER_MODULUS - 1)) % ADLER_MODULUS;
    // Both are below 2^16.
    (b << 16 | a) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn joined_pieces_give_the_sum_of_the_whole(
            data in prop::collection::vec(any::<u8>(), 0..200_000),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
        ) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(data.len() + 1)).collect();
            cuts.push(data.len());
            cuts.sort_unstable();
            for empty in [RunningSum::ADLER32, RunningSum::CRC32C] {
                let (mut whole, mut joined, mut from) = (empty, empty, 0);
                whole.update(&data);
                for cut in &cuts {
                    let mut piece = empty;
                    piece.update(&data[from..*cut]);
                    joined.append(&piece);
                    from = *cut;
                }
                prop_assert_eq!(joined, whole);
            }
        }
    }
}
