//! Computes checksums of content that arrives in order.

use sha2::Digest;

use crate::algorithm::{Algorithm, Checksum};
use crate::running::RunningSum;

/// Hasher of any algorithm.
#[derive(Debug, Clone)]
pub struct Hasher(State);

#[derive(Debug, Clone)]
enum State {
    Blake3(Box<blake3::Hasher>),
    Sha256(sha2::Sha256),
    Md5(md5::Md5),
    Running(RunningSum),
}

impl Hasher {
    /// Creates a hasher that has seen nothing.
    pub fn new(algorithm: Algorithm) -> Self {
        Self(match algorithm {
            Algorithm::Blake3 => State::Blake3(Box::default()),
            Algorithm::Sha256 => State::Sha256(sha2::Sha256::new()),
            Algorithm::Md5 => State::Md5(md5::Md5::new()),
            Algorithm::Adler32 => State::Running(RunningSum::ADLER32),
            Algorithm::Crc32c => State::Running(RunningSum::CRC32C),
        })
    }

    /// Adds the next bytes.
    pub fn update(&mut self, data: &[u8]) {
        match &mut self.0 {
            State::Blake3(hasher) => {
                hasher.update(data);
            }
            State::Sha256(hasher) => hasher.update(data),
            State::Md5(hasher) => hasher.update(data),
            State::Running(sum) => sum.update(data),
        }
    }

    /// Returns the checksum of everything that was added.
    pub fn finish(self) -> Checksum {
        let (algorithm, value) = match self.0 {
            State::Blake3(hasher) => (Algorithm::Blake3, hasher.finalize().as_bytes().to_vec()),
            State::Sha256(hasher) => (Algorithm::Sha256, hasher.finalize().to_vec()),
            State::Md5(hasher) => (Algorithm::Md5, hasher.finalize().to_vec()),
            State::Running(sum) => return sum.checksum(),
        };
        Checksum::of_parts(algorithm, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(algorithm: Algorithm, parts: &[&[u8]]) -> String {
        let mut hasher = Hasher::new(algorithm);
        for part in parts {
            hasher.update(part);
        }
        hasher.finish().to_string()
    }

    /// Values that `b3sum`, `sha256sum`, `md5sum`, zlib and RFC 3720 give.
    #[test]
    fn values_are_those_of_other_programs() {
        for (algorithm, text, expected) in [
            (
                Algorithm::Blake3,
                "",
                "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
            ),
            (
                Algorithm::Sha256,
                "abc",
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            ),
            (Algorithm::Md5, "abc", "900150983cd24fb0d6963f7d28e17f72"),
            (Algorithm::Adler32, "Wikipedia", "11e60398"),
            (Algorithm::Adler32, "", "00000001"),
            (Algorithm::Crc32c, "123456789", "e3069283"),
            (Algorithm::Crc32c, "", "00000000"),
        ] {
            assert_eq!(sum(algorithm, &[text.as_bytes()]), expected);
            let (first, rest) = text.as_bytes().split_at(text.len() / 2);
            assert_eq!(sum(algorithm, &[first, b"", rest]), expected);
        }
    }
}
