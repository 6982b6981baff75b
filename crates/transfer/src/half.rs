//! The two halves of a copy: one end sends, the other receives.

use std::sync::Arc;

use crate::receipt::ReceiptRole;
use crate::receive::Receiver;
use crate::send::WorkQueue;

/// Half of a copy that this end performs, with the state that its streams share.
#[derive(Clone)]
pub(crate) enum Half {
    Sending(Arc<WorkQueue>),
    Receiving(Arc<Receiver>),
}

impl Half {
    /// Returns true if this end signs the receipt of the copy.
    pub(crate) fn signs_receipt(&self) -> bool {
        let role = match self {
            Self::Sending(queue) => queue.receipt.get(),
            Self::Receiving(receiver) => receiver.receipt.get(),
        };
        matches!(role, Some(ReceiptRole::Signs(_)))
    }

    /// Returns true if the size of a file that this end receives may be told at its end.
    pub(crate) fn takes_late_sizes(&self) -> bool {
        match self {
            Self::Sending(_) => false,
            Self::Receiving(receiver) => receiver.takes_late_sizes(),
        }
    }

    /// Returns true if this end has data that the other one cannot send again in another copy.
    pub(crate) fn has_late_blocks(&self) -> bool {
        match self {
            Self::Sending(_) => false,
            Self::Receiving(receiver) => receiver.has_late_blocks(),
        }
    }

    /// Returns the side of this end in each of the copy's connections.
    pub(crate) fn side(&self) -> drs::Side {
        match self {
            Self::Sending(_) => drs::Side::Sending,
            Self::Receiving(_) => drs::Side::Receiving,
        }
    }
}
