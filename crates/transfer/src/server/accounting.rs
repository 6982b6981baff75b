//! The record of a copy at its end, for the log and the accounts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use data_encoding::HEXLOWER;
use longhaul_accounts::record::{MAX_NAMES, RunTime, bounded, bounded_bytes};
use longhaul_accounts::{AccountLog, AccountRecord, CopyDirection, CopyRecord, CopyResult};
use longhaul_proto::PublicKey;

use super::Server;
use super::copy::ServerCopy;
use super::ending::CopyEnd;
use crate::half::Half;
use crate::tree_hash::Hash;
use crate::wire::CopyRequest;

impl ServerCopy {
    /// Returns the result of a copy that ends because of `end`, and its receipt.
    fn conclude(&self, end: &CopyEnd) -> (CopyResult, Option<String>, Option<Hash>) {
        let agreed = match self.half.get() {
            Some(Half::Sending(queue)) => queue
                .conclusion()
                .map(|agreed| agreed.then(|| queue.manifest())),
            Some(Half::Receiving(receiver)) => receiver.conclusion().map(Some),
            None => self.fetched.get().map(|manifest| Some(*manifest)),
        };
        match agreed {
            Some(Some(receipt)) => match self.progress.failures.load(Ordering::Relaxed) {
                0 => (CopyResult::Completed, None, Some(receipt)),
                failed => {
                    let reason = format!("{failed} entries were not copied");
                    (CopyResult::SomeFailed, Some(reason), Some(receipt))
                }
            },
            Some(None) => {
                let reason = "both ends have different hashes over all entries";
                (CopyResult::Disagreement, Some(reason.to_owned()), None)
            }
            None => {
                let (result, reason) = end.result();
                (result, reason, None)
            }
        }
    }

    fn record(&self, end: &CopyEnd) -> CopyRecord {
        let (result, reason, receipt) = self.conclude(end);
        let (direction, names, more_names) = named(&self.hello.request);
        let origins = self.origins.lock();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let progress = &self.progress;
        let credential = self.credential.borrow().clone();
        let lasted = match end {
            // The server waited for the client, which had vanished.
            CopyEnd::Lost => self.received.until_last(),
            _ => self.received.until_now(),
        };
        CopyRecord {
            time: RunTime::ending_now(lasted),
            id: self
                .instance
                .map_or_else(String::new, |id| HEXLOWER.encode(&id)),
            key: self.principal.to_string(),
            delegate: self.delegate.map(|key| key.to_string()),
            subject: credential.map(|credential| bounded(credential.rights.principal_name())),
            from: origins.from.iter().cloned().collect(),
            routes: origins.routes.iter().cloned().collect(),
            streams: self.numbers.load(Ordering::Relaxed),
            direction,
            names,
            more_names,
            purpose: origins.purpose.clone(),
            bytes: count(&progress.bytes_done),
            bytes_travelled: progress.bytes_travelled(),
            files: count(&progress.files_done),
            files_unchanged: count(&progress.files_unchanged),
            failed: count(&progress.failures),
            result,
            reason,
            receipt: receipt.map(|hash| HEXLOWER.encode(&hash)),
        }
    }
}

/// Returns what a client asked for: the direction, the first paths, and the number of others.
fn named(request: &CopyRequest) -> (CopyDirection, Vec<String>, u64) {
    let shown = |paths: &mut dyn Iterator<Item = Vec<u8>>| {
        let first = (&mut *paths).take(MAX_NAMES);
        let names: Vec<String> = first.map(|path| bounded_bytes(&path)).collect();
        (names, paths.count() as u64)
    };
    match request {
        CopyRequest::Pull { sources, .. } => {
            let mut paths = sources.iter().map(|source| path(source.as_bytes(), &[]));
            let (names, more) = shown(&mut paths);
            (CopyDirection::Sent, names, more)
        }
        CopyRequest::Push {
            destination,
            into,
            names,
            ..
        } => {
            let destination = destination.as_bytes();
            let mut paths = names.iter().map(|name| match into {
                true => path(destination, name),
                false => path(destination, &[]),
            });
            let (names, more) = shown(&mut paths);
            (CopyDirection::Received, names, more)
        }
    }
}

/// Returns the path of `name` in `directory`, from the root on.
fn path(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let parts = [directory, name];
    let parts: Vec<&[u8]> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    [&b"/"[..], &parts.join(&b'/')].concat()
}

impl Server {
    /// Adds the record of each copy that ends to `accounts` from now on. The first log stays.
    pub fn keep_accounts(&self, accounts: AccountLog) {
        // A second call is an error of the program, and the first log is as good.
        let _ = self.ledger.set(accounts);
    }

    /// Records the copies that run now, as stopped. For a server that ends.
    pub fn record_stop(&self) {
        let running: Vec<Arc<ServerCopy>> = self.copies.lock().running.values().cloned().collect();
        for copy in running {
            self.record_end(&copy, &CopyEnd::Stopped);
        }
    }

    /// Logs the end of a copy, and adds its record to the accounts, once.
    pub(super) fn record_end(&self, copy: &ServerCopy, end: &CopyEnd) {
        if copy.is_recorded.swap(true, Ordering::Relaxed) {
            return;
        }
        let record = copy.record(end);
        match self.setting.get() {
            Some(setting) => (setting.records)(record),
            None => self.add_record(copy.principal, record),
        }
    }

    /// Counts and logs a copy of `key` that has ended here or at a worker, and adds its record to
    /// the accounts.
    pub fn add_record(&self, key: PublicKey, record: CopyRecord) {
        self.copies.lock().ended.count(&record);
        self.log(key, || {
            tracing::info!(
                key = %record.key,
                delegate = record.delegate.as_deref(),
                subject = record.subject.as_deref(),
                from = %record.from.join(","),
                route = record.routes.join(" and "),
                direction = direction_word(record.direction),
                names = record.names.join(", "),
                files = record.files,
                bytes = record.bytes_travelled,
                failed = record.failed,
                seconds = record.time.seconds,
                result = record.result.word(),
                reason = record.reason.as_deref(),
                receipt = record.receipt.as_deref(),
                "copy ended"
            );
        });
        if let Some(accounts) = self.ledger.get() {
            accounts.add(AccountRecord::Copy(record));
        }
    }
}

const fn direction_word(direction: CopyDirection) -> &'static str {
    match direction {
        CopyDirection::Received => "received",
        CopyDirection::Sent => "sent",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::RelPath;

    #[test]
    fn named_paths_begin_at_the_root_and_are_bounded() {
        let at = |text: &str| RelPath::from_bytes(text.as_bytes()).unwrap();
        let push = |into, names: Vec<Vec<u8>>| CopyRequest::Push {
            destination: at("in/b"),
            into,
            overwrite: false,
            fsync: false,
            names,
        };
        let (direction, names, more) = named(&push(true, vec![b"x".to_vec(); MAX_NAMES + 3]));
        assert_eq!((direction, more), (CopyDirection::Received, 3));
        assert_eq!((names.len(), &*names[0]), (MAX_NAMES, "/in/b/x"));
        let (_, names, _) = named(&push(false, vec![b"x\n".to_vec()]));
        assert_eq!(names, ["/in/b"]);
        let pull = CopyRequest::Pull {
            recursive: true,
            sources: vec![RelPath::root(), at("a")],
        };
        assert_eq!(
            named(&pull),
            (CopyDirection::Sent, vec!["/".into(), "/a".into()], 0)
        );
    }
}
