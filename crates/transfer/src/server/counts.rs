//! Counts of a server's copies and resources, for its metrics.

use std::collections::BTreeMap;

use longhaul_accounts::{CopyDirection, CopyRecord};

use super::copy::ServerCopy;
use super::local_account::RunningCopies;
use super::{Copies, Server};
use crate::account::ResourceUse;
use crate::wire::CopyRequest;

/// Counts of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerCounts {
    /// Number of running copies.
    pub running: usize,
    /// Number of ended copies, by result.
    pub ended: BTreeMap<&'static str, u64>,
    /// Bytes of files that copies have brought to the server.
    pub received: u64,
    /// Bytes of files that copies have taken from the server.
    pub sent: u64,
    /// Use of each resource that the keys share.
    pub resources: Vec<ResourceUse>,
}

/// Tally of the copies that have ended.
#[derive(Debug, Default)]
pub(super) struct EndedCopies {
    by_result: BTreeMap<&'static str, u64>,
    received: u64,
    sent: u64,
}

impl EndedCopies {
    /// Counts a copy that has ended.
    pub(super) fn count(&mut self, record: &CopyRecord) {
        *self.by_result.entry(record.result.word()).or_default() += 1;
        let sum = match record.direction {
            CopyDirection::Received => &mut self.received,
            CopyDirection::Sent => &mut self.sent,
        };
        *sum = sum.saturating_add(record.bytes_travelled);
    }
}

impl Server {
    /// Returns the current counts.
    pub fn counts(&self) -> ServerCounts {
        let resources = self.accounts.usage();
        let copies = self.copies.lock();
        let running = copies.running();
        ServerCounts {
            running: running.copies,
            ended: copies.ended.by_result.clone(),
            received: copies.ended.received.saturating_add(running.received),
            sent: copies.ended.sent.saturating_add(running.sent),
            resources,
        }
    }

    /// Returns the counts of the running copies alone.
    pub fn running(&self) -> RunningCopies {
        self.copies.lock().running()
    }
}

impl Copies {
    fn running(&self) -> RunningCopies {
        let mut running = RunningCopies {
            copies: self.running.len(),
            ..RunningCopies::default()
        };
        for copy in self.running.values() {
            add_bytes(copy, &mut running.received, &mut running.sent);
        }
        running
    }
}

fn add_bytes(copy: &ServerCopy, received: &mut u64, sent: &mut u64) {
    let sum = match copy.hello.request {
        CopyRequest::Push { .. } => received,
        CopyRequest::Pull { .. } => sent,
    };
    *sum = sum.saturating_add(copy.progress.bytes_travelled());
}
