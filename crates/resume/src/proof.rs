//! Proof that a party belongs to a stream: a message authentication code under a secret of its two
//! ends (LH-RESUME-4, LH-RESUME-5).

use std::fmt;

use zeroize::Zeroizing;

/// Size of a proof, in bytes.
pub const PROOF_BYTES: usize = 32;

/// Context of the key derivation.
const SECRET_CONTEXT: &str = "longhaul 2026 resume secret v1";
/// Domain separation between the two kinds of proof.
const REQUEST_LABEL: &[u8] = b"longhaul RESUME request v1\0";
const ANSWER_LABEL: &[u8] = b"longhaul RESUME answer v1\0";

/// A secret that only the two ends of a stream know. It is never sent.
pub struct ResumeSecret(Zeroizing<[u8; 32]>);

impl ResumeSecret {
    /// Derives the secret of a stream from the keys that its handshake agreed on.
    #[must_use]
    pub fn derive(handshake_keys: &[u8]) -> Self {
        Self(Zeroizing::new(blake3::derive_key(
            SECRET_CONTEXT,
            handshake_keys,
        )))
    }

    /// Returns the initiator's proof: it wants to continue `stream` as connection `epoch`, and has
    /// received the bytes before `received`. `binding` ties the proof to one request.
    #[must_use]
    pub fn prove_request(
        &self,
        stream: &[u8; 16],
        epoch: u32,
        received: u64,
        binding: &[u8; 16],
    ) -> [u8; PROOF_BYTES] {
        self.request_code(stream, epoch, received, binding).into()
    }

    /// Returns true if `proof` is that of [`Self::prove_request`]. The time taken does not depend
    /// on where they differ.
    #[must_use]
    pub fn verify_request(
        &self,
        proof: &[u8; PROOF_BYTES],
        stream: &[u8; 16],
        epoch: u32,
        received: u64,
        binding: &[u8; 16],
    ) -> bool {
        self.request_code(stream, epoch, received, binding) == *proof
    }

    /// Returns the acceptor's proof: it continues the stream, and has received the bytes before
    /// `received`. `binding` is the signature of the request.
    #[must_use]
    pub fn prove_answer(&self, received: u64, binding: &[u8; 64]) -> [u8; PROOF_BYTES] {
        self.answer_code(received, binding).into()
    }

    /// Returns true if `proof` is that of [`Self::prove_answer`].
    #[must_use]
    pub fn verify_answer(
        &self,
        proof: &[u8; PROOF_BYTES],
        received: u64,
        binding: &[u8; 64],
    ) -> bool {
        self.answer_code(received, binding) == *proof
    }

    fn request_code(
        &self,
        stream: &[u8; 16],
        epoch: u32,
        received: u64,
        binding: &[u8; 16],
    ) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(REQUEST_LABEL);
        hasher.update(stream);
        hasher.update(&epoch.to_be_bytes());
        hasher.update(&received.to_be_bytes());
        hasher.update(binding);
        hasher.finalize()
    }

    fn answer_code(&self, received: u64, binding: &[u8; 64]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(ANSWER_LABEL);
        hasher.update(&received.to_be_bytes());
        hasher.update(binding);
        hasher.finalize()
    }
}

impl fmt::Debug for ResumeSecret {
    /// Omits the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResumeSecret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_covers_every_field() {
        let secret = ResumeSecret::derive(b"keys");
        let proof = secret.prove_request(&[1; 16], 2, 3, &[4; 16]);
        assert!(secret.verify_request(&proof, &[1; 16], 2, 3, &[4; 16]));
        assert!(!secret.verify_request(&proof, &[0; 16], 2, 3, &[4; 16]));
        assert!(!secret.verify_request(&proof, &[1; 16], 9, 3, &[4; 16]));
        assert!(!secret.verify_request(&proof, &[1; 16], 2, 9, &[4; 16]));
        assert!(!secret.verify_request(&proof, &[1; 16], 2, 3, &[9; 16]));
        let other = ResumeSecret::derive(b"other keys");
        assert!(!other.verify_request(&proof, &[1; 16], 2, 3, &[4; 16]));
        let answer = secret.prove_answer(3, &[5; 64]);
        assert!(secret.verify_answer(&answer, 3, &[5; 64]));
        assert!(!secret.verify_answer(&answer, 4, &[5; 64]));
        assert!(!secret.verify_answer(&answer, 3, &[6; 64]));
        assert!(!other.verify_answer(&answer, 3, &[5; 64]));
        assert!(!format!("{secret:?}").contains(char::is_numeric));
    }
}
