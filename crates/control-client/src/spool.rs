//! Reports that wait on disk until the controller has received them: a directory of bounded size
//! with one file for each.
//!
//! A report that cannot be sent waits until the next one is sent. The controller stores each once,
//! so it does no harm if two programs send the same one.
#![deny(clippy::indexing_slicing)] // what is read here comes from files
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use std::io;
use std::path::PathBuf;

use longhaul_control_api::measurements::Batch;
use longhaul_control_api::transfers::TransferReport;
use longhaul_hop::unix_ms;
use longhaul_proto::SessionId;
use serde::{Deserialize, Serialize};

use crate::controller::ControllerClient;
use crate::error::ClientError;
use crate::settings::{read_bounded, replace_file};

/// Maximum number of waiting reports; the oldest is dropped beyond it.
pub const MAX_ENTRIES: usize = 128;
/// Maximum size of a report, in bytes.
pub const MAX_ENTRY_BYTES: usize = 256 << 10;

/// Directory of waiting reports.
#[derive(Debug, Clone)]
pub struct Spool(pub PathBuf);

/// Report for a controller.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpoolEntry {
    /// A finished transfer.
    Transfer(TransferReport),
    /// Measurements.
    Measurements(Batch),
}

impl Spool {
    /// Stores the entry until it is reported. Creates the directory if needed.
    ///
    /// # Errors
    /// The entry cannot be written, or is too long.
    pub fn put(&self, entry: &SpoolEntry) -> io::Result<()> {
        let text = serde_json::to_vec(entry)?;
        if text.len() > MAX_ENTRY_BYTES {
            return Err(io::Error::other("it is too long to be stored"));
        }
        longhaul_config::home::make_private(&self.0).map_err(io::Error::other)?;
        let unlike = SessionId::random().map_err(io::Error::other)?;
        let name = format!("{:015}-{unlike}.json", unix_ms());
        replace_file(&self.0.join(name), &text)?;
        let waiting = self.waiting();
        let beyond = waiting.len().saturating_sub(MAX_ENTRIES);
        for oldest in waiting.iter().take(beyond) {
            let _ = std::fs::remove_file(oldest);
        }
        Ok(())
    }

    /// Returns the files of waiting reports, the oldest first.
    #[must_use]
    pub fn waiting(&self) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(&self.0) else {
            return Vec::new();
        };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let mut waiting: Vec<PathBuf> = paths
            .filter(|path| {
                path.extension()
                    .is_some_and(|extension| extension == "json")
            })
            .collect();
        waiting.sort();
        waiting
    }

    /// Sends all waiting reports, the oldest first. Reports that cannot be read, and those that the
    /// controller refuses, are dropped.
    ///
    /// # Errors
    /// The controller cannot receive reports now; the rest keeps waiting.
    pub async fn report(&self, controller: &ControllerClient) -> Result<(), ClientError> {
        for path in self.waiting() {
            let reported = match read(&path) {
                None => Ok(()),
                Some(SpoolEntry::Transfer(report)) => {
                    controller.report_transfer(&report).await.map(drop)
                }
                Some(SpoolEntry::Measurements(batch)) => {
                    controller.report_measurements(&batch).await.map(drop)
                }
            };
            match reported {
                Err(error) if error.is_transient() => return Err(error),
                // Another program may have sent it.
                _ => drop(std::fs::remove_file(&path)),
            }
        }
        Ok(())
    }
}

fn read(path: &std::path::Path) -> Option<SpoolEntry> {
    serde_json::from_slice(&read_bounded(path, MAX_ENTRY_BYTES as u64)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ServiceClient;

    fn entry() -> SpoolEntry {
        SpoolEntry::Measurements(Batch::default())
    }

    #[test]
    fn spool_is_bounded_and_drops_broken_entries() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool(dir.path().join("reports"));
        assert!(spool.waiting().is_empty());
        for _ in 0..MAX_ENTRIES + 5 {
            spool.put(&entry()).unwrap();
        }
        assert_eq!(spool.waiting().len(), MAX_ENTRIES);
        assert_eq!(read(&spool.waiting()[0]), Some(entry()));
        let oldest = spool.waiting()[0].clone();
        std::fs::write(&oldest, "{").unwrap();
        assert_eq!(read(&oldest), None);
        let socket = dir.path().join("nobody");
        let controller =
            ControllerClient::from_client(ServiceClient::at_socket("controller", socket));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let reported = runtime.block_on(spool.report(&controller));
        assert!(reported.is_err_and(|error| error.is_transient()));
        assert!(!oldest.exists(), "what is broken is gone");
        assert_eq!(spool.waiting().len(), MAX_ENTRIES - 1, "the rest waits");
    }
}
