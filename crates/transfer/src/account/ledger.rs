//! Bookkeeping of the resources that each key holds, as plain numbers.

use longhaul_proto::{ExhaustedBound, PublicKey, Shares};

use crate::error::{Error, Failure, FailureKind};
use crate::limits::ServerLimits;

/// A shared resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resource {
    /// Running copies.
    Copies,
    /// Streams.
    Streams,
    /// Files open to be written or read in blocks.
    OpenFiles,
    /// Buffers between network and disk, each with a blocking thread.
    Buffers,
    /// Bytes of memory for the state of copies.
    Bookkeeping,
}

pub(super) const RESOURCES: usize = 5;

impl Resource {
    const ALL: [Self; RESOURCES] = [
        Self::Copies,
        Self::Streams,
        Self::OpenFiles,
        Self::Buffers,
        Self::Bookkeeping,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Copies => "copies",
            Self::Streams => "streams",
            Self::OpenFiles => "open files",
            Self::Buffers => "buffers",
            Self::Bookkeeping => "memory",
        }
    }
}

/// A limit that was reached, formatted for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ResourceExhausted {
    /// All clients together use all that the server has of a resource: copies, streams, open files,
    /// buffers or memory. Try again when other copies have ended.
    #[error("the server has no free {}; retry later", .0.name())]
    All(Resource),
    /// This key uses its full share of a resource of the server. Try again when its other copies
    /// have ended, or run fewer at a time.
    #[error(
        "this key already uses its full share of the server's {}; retry when its other copies are \
         done",
        .0.name()
    )]
    Share(Resource),
}

impl From<ResourceExhausted> for Failure {
    fn from(error: ResourceExhausted) -> Self {
        Self::with_detail(FailureKind::Limit, error.to_string())
    }
}

/// Use of a resource that the keys share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceUse {
    /// Name of the resource.
    pub name: &'static str,
    /// Units in use by all keys.
    pub in_use: u64,
    /// Units that the server has.
    pub total: u64,
}

/// Resources that each key holds.
#[derive(Debug)]
pub(super) struct ResourceLedger([Shares<PublicKey>; RESOURCES]);

impl ResourceLedger {
    pub(super) fn new(limits: &ServerLimits) -> Self {
        // In the order of `Resource`. With a fraction of 1, a single key may hold half.
        let bounds = [
            limits.copies,
            limits.streams,
            limits.open_files,
            limits.buffers,
            limits.bookkeeping,
        ];
        Self(bounds.map(|bound| Shares::new(bound as u64, 1)))
    }

    pub(super) fn shares(&mut self, what: Resource) -> &mut Shares<PublicKey> {
        let [copies, streams, open_files, buffers, bookkeeping] = &mut self.0;
        match what {
            Resource::Copies => copies,
            Resource::Streams => streams,
            Resource::OpenFiles => open_files,
            Resource::Buffers => buffers,
            Resource::Bookkeeping => bookkeeping,
        }
    }

    /// Returns the use of each resource by all keys.
    pub(super) fn usage(&mut self) -> Vec<ResourceUse> {
        let of = |what: Resource| {
            let shares = self.shares(what);
            ResourceUse {
                name: what.name(),
                in_use: shares.units_in_use(),
                total: shares.total_units(),
            }
        };
        Resource::ALL.map(of).to_vec()
    }

    pub(super) fn take(
        &mut self,
        what: Resource,
        who: &PublicKey,
        units: u64,
    ) -> Result<(), ResourceExhausted> {
        self.shares(what)
            .take(who, units)
            .map_err(|full| match full {
                ExhaustedBound::All => ResourceExhausted::All(what),
                ExhaustedBound::Share => ResourceExhausted::Share(what),
            })
    }
}

impl From<ResourceExhausted> for Error {
    fn from(error: ResourceExhausted) -> Self {
        Self::Limit(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever the keys take, no ceiling is exceeded, no key holds more than half, and a new
        /// key gets its first unit.
        #[test]
        fn ceilings_hold_and_no_key_takes_everything(
            takes in prop::collection::vec((0u8..4, 0usize..RESOURCES, 1u64..20), 0..400),
        ) {
            let limits = ServerLimits {
                copies: 16,
                streams: 64,
                open_files: 40,
                buffers: 32,
                bookkeeping: 400,
                ..ServerLimits::default()
            };
            let bounds = [16u64, 64, 40, 32, 400];
            let mut ledger = ResourceLedger::new(&limits);
            for (who, what, units) in takes {
                let key = PublicKey::from_bytes([who; 32]);
                let _ = ledger.take(Resource::ALL[what], &key, units);
                let shares = ledger.shares(Resource::ALL[what]);
                prop_assert_eq!(shares.total_units(), bounds[what]);
                prop_assert!(shares.units_in_use() <= bounds[what]);
                prop_assert!(shares.units_of(&key) <= bounds[what].div_ceil(2));
            }
            for what in Resource::ALL {
                let used = ledger.shares(what).units_in_use();
                let taken = ledger.take(what, &PublicKey::from_bytes([9; 32]), 1);
                prop_assert_eq!(taken.is_ok(), used < bounds[what as usize]);
            }
        }
    }
}
