//! Signatures of existing files, from which the receiver puts blocks together (LH-COPY-63).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::account::{Account, Resource, ResourcePermit};
use crate::delta::{CHUNK_MEMORY, MAX_SIGNATURES, Signature, SignedChunk};

/// Signatures of files that are still to be sent, by the numbers of their entries. A signature that
/// does not fit is dropped: its file is sent whole.
#[derive(Default)]
pub(super) struct Signatures {
    files: Mutex<HashMap<u64, SignatureState>>,
    /// True if the receiver overwrites its files in place.
    in_place: AtomicBool,
}

enum SignatureState {
    /// More frames follow.
    Arriving(Signature, ResourcePermit),
    Complete {
        signature: Arc<Signature>,
        _permit: ResourcePermit,
    },
}

impl Signatures {
    /// Takes nothing from elsewhere in a file from now on (LH-COPY-74).
    pub(super) fn set_in_place(&self) {
        self.in_place.store(true, Ordering::Relaxed);
    }

    /// Takes chunks of a file, the first of which is at `offset`. If `more`, others follow. Their
    /// memory is on `account`.
    ///
    /// The receiver starts again at 0 if it lost the stream that carried the first frames. Frames
    /// that do not continue what is known are ignored.
    pub(super) fn extend(
        &self,
        account: &Arc<Account>,
        id: u64,
        chunk_log2: u32,
        offset: u64,
        chunks: &[SignedChunk],
        more: bool,
    ) {
        let memory = CHUNK_MEMORY.saturating_mul(chunks.len() as u64).max(1);
        let new = || match self.in_place.load(Ordering::Relaxed) {
            true => Signature::in_place(chunk_log2),
            false => Signature::new(chunk_log2),
        };
        let mut signatures = self.files.lock();
        let known = signatures.remove(&id);
        let extended = match known {
            Some(SignatureState::Arriving(signature, mut permit))
                if signature.continues_at(offset, chunk_log2) =>
            {
                let fits = permit.grow(memory).is_ok();
                fits.then_some((signature, permit))
            }
            _ if offset == 0 && signatures.len() < MAX_SIGNATURES => account
                .take(Resource::Bookkeeping, memory)
                .ok()
                .map(|permit| (new(), permit)),
            _ => None,
        };
        let Some((mut signature, permit)) = extended else {
            return;
        };
        if !signature.extend(chunks) {
            return;
        }
        let state = match more {
            true => SignatureState::Arriving(signature, permit),
            false => SignatureState::Complete {
                signature: Arc::new(signature),
                _permit: permit,
            },
        };
        signatures.insert(id, state);
    }

    /// Returns the signature of a file, if it is complete.
    pub(super) fn get(&self, id: u64) -> Option<Arc<Signature>> {
        match self.files.lock().get(&id) {
            Some(SignatureState::Complete { signature, .. }) => Some(signature.clone()),
            _ => None,
        }
    }

    /// Forgets a file, which has been answered.
    pub(super) fn remove(&self, id: u64) {
        self.files.lock().remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(n: u8) -> SignedChunk {
        SignedChunk {
            len: 8192,
            hash: [n; 16],
        }
    }

    #[test]
    fn signature_is_used_once_it_is_complete() {
        let (signatures, account) = (Signatures::default(), Account::unshared());
        signatures.extend(&account, 1, 13, 0, &[chunk(1)], true);
        assert!(signatures.get(1).is_none());
        signatures.extend(&account, 1, 13, 8192, &[chunk(2)], false);
        assert!(signatures.get(1).is_some());
        signatures.remove(1);
        assert_eq!(account.held(Resource::Bookkeeping), 0);
    }

    #[test]
    fn signature_restarts_after_a_lost_stream() {
        let (signatures, account) = (Signatures::default(), Account::unshared());
        signatures.extend(&account, 1, 13, 0, &[chunk(1)], true);
        signatures.extend(&account, 1, 13, 0, &[chunk(1), chunk(2)], true);
        signatures.extend(&account, 1, 13, 16_384, &[chunk(3)], false);
        assert!(signatures.get(1).is_some());
    }

    #[test]
    fn frames_that_continue_nothing_are_ignored() {
        let (signatures, account) = (Signatures::default(), Account::unshared());
        signatures.extend(&account, 1, 13, 8192, &[chunk(1)], false);
        assert!(signatures.get(1).is_none());
        for (chunk_log2, offset) in [(13, 4096), (14, 8192)] {
            signatures.extend(&account, 1, 13, 0, &[chunk(1)], true);
            signatures.extend(&account, 1, chunk_log2, offset, &[chunk(2)], false);
            assert!(signatures.get(1).is_none());
        }
        assert_eq!(account.held(Resource::Bookkeeping), 0);
    }

    #[test]
    fn signatures_are_bounded() {
        let (signatures, account) = (Signatures::default(), Account::unshared());
        for id in 0..1000 {
            signatures.extend(&account, id, 13, 0, &[chunk(1)], false);
        }
        assert_eq!(signatures.files.lock().len(), MAX_SIGNATURES);
        assert!(signatures.get(0).is_some());
    }
}
