//! Part of each end of a copy in its receipt.

use std::sync::{Arc, OnceLock};

use super::recorder::ReceiptRecorder;
use super::signature::{ReceiptSigner, ServerReceipt};
use crate::error::Error;

/// Part of this end in the receipt of a copy.
#[derive(Debug)]
pub(crate) enum ReceiptRole {
    /// The client records all entries, and expects the server's signature.
    Records(Arc<ReceiptRecorder>),
    /// The server signs the result.
    Signs(Box<ReceiptSigner>),
}

impl ReceiptRole {
    /// Returns the recorder of a client.
    pub(crate) fn recorder(&self) -> Option<&Arc<ReceiptRecorder>> {
        match self {
            Self::Records(recorder) => Some(recorder),
            Self::Signs(_) => None,
        }
    }

    /// Checks the server's acceptance, which confirms that it `signs`.
    ///
    /// # Errors
    /// [`Error::Refused`] if a receipt is wanted that the server does not sign (LH-COPY-57).
    pub(crate) fn check(role: &OnceLock<Self>, signs: bool) -> Result<(), Error> {
        match role.get() {
            Some(Self::Records(_)) if !signs => Err(Error::Refused(
                "it is of an earlier release and cannot sign receipts: upgrade it, or leave out \
                 --receipt"
                    .into(),
            )),
            _ => Ok(()),
        }
    }

    /// Notes the server's signature.
    ///
    /// # Errors
    /// [`Error::Protocol`] if none was requested.
    pub(crate) fn receive(role: &OnceLock<Self>, receipt: ServerReceipt) -> Result<(), Error> {
        match role.get() {
            Some(Self::Records(recorder)) => {
                recorder.receive(receipt);
                Ok(())
            }
            _ => Err(Error::Protocol(
                "it signs a receipt that nobody asked for".into(),
            )),
        }
    }

    /// Returns true if the server's signature is still to arrive.
    pub(crate) fn awaits(role: &OnceLock<Self>) -> bool {
        let recorder = role.get().and_then(Self::recorder);
        recorder.is_some_and(|recorder| !recorder.has_server())
    }
}
