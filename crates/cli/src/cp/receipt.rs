//! `cp --receipt`: the receipt file of a copy.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use longhaul_filter::PathText;
use longhaul_session::Identity;
use longhaul_transfer::receipt::{ReceiptHeader, ReceiptRecorder};
use tempfile::NamedTempFile;

use super::Cp;
use super::job::CopyJob;
use crate::copy_checks::ReceiptFailed;
use crate::home;
use crate::target::Remote;

/// The receipt of a copy under way. It appears under its name when it is complete.
pub struct PendingReceipt {
    recorder: Arc<ReceiptRecorder>,
    unfinished: NamedTempFile,
    file: PathBuf,
    fetch: bool,
    identity: Identity,
}

impl PendingReceipt {
    /// Returns the recorder, to which the copy reports its entries.
    pub fn recorder(&self) -> Arc<ReceiptRecorder> {
        self.recorder.clone()
    }

    /// Signs the receipt of a copy with this manifest, and gives it its name.
    pub(super) fn finish(self, manifest: &[u8; 32]) -> Result<(), ReceiptFailed> {
        let failed = |source| ReceiptFailed::Write {
            file: home::display_path(&self.file),
            source,
        };
        self.recorder
            .finish(manifest, Some(self.fetch), self.identity.signing_key())
            .map_err(failed)?;
        let placed = self.unfinished.persist_noclobber(&self.file);
        placed.map_err(|error| failed(error.error))?;
        let directory = std::fs::File::open(directory_of(&self.file));
        directory
            .and_then(|directory| directory.sync_all())
            .map_err(failed)
    }
}

impl Cp {
    /// Begins the receipt, if there is to be one.
    ///
    /// # Errors
    /// The file exists already or cannot be created, or there is no key to sign it with.
    pub(super) fn begin_receipt(&self, job: &CopyJob) -> Result<Option<PendingReceipt>> {
        let Some(file) = &self.receipt else {
            return Ok(None);
        };
        let shown = home::display_path(file);
        if file.symlink_metadata().is_ok() {
            bail!("{shown}: a receipt does not replace a file: choose another name");
        }
        let Some((fetch, here)) = local_side(job) else {
            return Ok(None);
        };
        let here = here.iter().map(|path| {
            let path = std::path::absolute(path)?;
            Ok(PathText(path.as_os_str().as_bytes().to_vec()))
        });
        let here = here.collect::<io::Result<_>>()?;
        let text = |path: &std::ffi::OsString| PathText(path.as_bytes().to_vec());
        let (destination, sources) = self
            .paths
            .split_last()
            .context("name what to copy and where to")?;
        let header = ReceiptHeader::new(
            sources.iter().map(text).collect(),
            text(destination),
            fetch,
            here,
        );
        let created = || {
            let unfinished = NamedTempFile::with_prefix_in(".receipt-", directory_of(file))?;
            let recorder = ReceiptRecorder::new(unfinished.reopen()?, &header)?;
            Ok::<_, io::Error>((unfinished, recorder))
        };
        let (unfinished, recorder) =
            created().with_context(|| format!("creating the receipt {shown} failed"))?;
        Ok(Some(PendingReceipt {
            recorder: Arc::new(recorder),
            unfinished,
            file: file.clone(),
            fetch,
            identity: home::identity(self.options.identity.as_deref())?,
        }))
    }
}

fn directory_of(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Returns whether the other side has the sources, and where each source's files are at this one.
/// `None` for a copy in which this machine has no part, or both.
pub(super) fn local_side(job: &CopyJob) -> Option<(bool, Vec<PathBuf>)> {
    match job {
        CopyJob::Push { sources, .. }
        | CopyJob::PushOverSsh { sources, .. }
        | CopyJob::PushOverSftp { sources, .. }
        | CopyJob::PushToStore { sources, .. } => Some((false, sources.clone())),
        CopyJob::Pull {
            sources,
            destination,
        } => {
            let names = sources.iter().map(Remote::name).collect();
            Some((true, placed(destination, names)))
        }
        CopyJob::PullOverSsh {
            sources,
            destination,
        } => {
            let names = sources.iter().map(longhaul_remote::Login::name).collect();
            Some((true, placed(destination, names)))
        }
        CopyJob::PullOverSftp {
            sources,
            destination,
        } => {
            let names = sources.iter().map(longhaul_sftp::SftpPath::name).collect();
            Some((true, placed(destination, names)))
        }
        CopyJob::PullFromStore {
            sources,
            destination,
        } => {
            let names = sources.iter().map(longhaul_endpoints::EndpointPath::name);
            Some((true, placed(destination, names.collect())))
        }
        CopyJob::Local { .. }
        | CopyJob::Between { .. }
        | CopyJob::BetweenServers { .. }
        | CopyJob::BetweenStores { .. }
        | CopyJob::Relayed { .. } => None,
    }
}

/// Returns where sources of these names go in a local destination.
fn placed(destination: &Path, names: Vec<Vec<u8>>) -> Vec<PathBuf> {
    let is_directory = names.len() > 1
        || destination.as_os_str().as_bytes().ends_with(b"/")
        || destination.is_dir();
    let place = |name: Vec<u8>| match is_directory && !name.is_empty() {
        true => destination.join(std::ffi::OsStr::from_bytes(&name)),
        false => destination.to_path_buf(),
    };
    names.into_iter().map(place).collect()
}
