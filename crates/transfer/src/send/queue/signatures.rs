//! Signatures of existing files, from which the receiver puts blocks together (LH-COPY-63).

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::account::{Account, Resource, ResourcePermit};
use crate::delta::{CHUNK_MEMORY, Signature, SignedChunk};

/// Maximum number of files whose signatures are kept. The receiver signs files that it then wants,
/// so few wait.
const MAX_SIGNATURES: usize = 256;

/// Signatures of files that are still to be sent, by the numbers of their entries. A signature that
/// does not fit is dropped: its file is sent whole.
#[derive(Default)]
pub(super) struct Signatures(Mutex<HashMap<u64, SignatureState>>);

enum SignatureState {
    /// More frames follow.
    Arriving(Signature, ResourcePermit),
    Complete(Arc<Signature>, ResourcePermit),
    /// It does not fit.
    Dropped,
}

impl Signatures {
    /// Takes the next chunks of a file. Its memory is on `account`.
    pub(super) fn extend(
        &self,
        account: &Arc<Account>,
        id: u64,
        chunk_log2: u32,
        chunks: &[SignedChunk],
        more: bool,
    ) {
        let mut signatures = self.0.lock();
        let memory = CHUNK_MEMORY.saturating_mul(chunks.len() as u64).max(1);
        let known = signatures.remove(&id);
        if known.is_none() && signatures.len() >= MAX_SIGNATURES {
            return;
        }
        let extended = match known {
            None => account
                .take(Resource::Bookkeeping, memory)
                .ok()
                .map(|permit| (Signature::new(chunk_log2), permit)),
            Some(SignatureState::Arriving(signature, mut permit)) => {
                let fits = permit.grow(memory).is_ok();
                fits.then_some((signature, permit))
            }
            // Nothing follows the last frame.
            Some(SignatureState::Complete(..) | SignatureState::Dropped) => None,
        };
        let state = match extended {
            Some((mut signature, permit)) => match (signature.extend(chunks), more) {
                (false, _) => SignatureState::Dropped,
                (true, true) => SignatureState::Arriving(signature, permit),
                (true, false) => SignatureState::Complete(Arc::new(signature), permit),
            },
            None => SignatureState::Dropped,
        };
        signatures.insert(id, state);
    }

    /// Returns the signature of a file, if it is complete.
    pub(super) fn get(&self, id: u64) -> Option<Arc<Signature>> {
        match self.0.lock().get(&id) {
            Some(SignatureState::Complete(signature, _)) => Some(signature.clone()),
            _ => None,
        }
    }

    /// Forgets a file, which has been answered.
    pub(super) fn remove(&self, id: u64) {
        self.0.lock().remove(&id);
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
        signatures.extend(&account, 1, 13, &[chunk(1)], true);
        assert!(signatures.get(1).is_none());
        signatures.extend(&account, 1, 13, &[chunk(2)], false);
        assert!(signatures.get(1).is_some());
        signatures.extend(&account, 1, 13, &[chunk(3)], false);
        assert!(signatures.get(1).is_none(), "it was complete already");
        signatures.remove(1);
        assert_eq!(account.held(Resource::Bookkeeping), 0);
    }

    #[test]
    fn signatures_are_bounded() {
        let (signatures, account) = (Signatures::default(), Account::unshared());
        for id in 0..1000 {
            signatures.extend(&account, id, 13, &[chunk(1)], false);
        }
        assert_eq!(signatures.0.lock().len(), MAX_SIGNATURES);
        assert!(signatures.get(0).is_some());
    }
}
