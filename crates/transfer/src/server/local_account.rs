//! A server that works as a local account for another one, and the part of the other one.
//!
//! The *front* terminates sessions and keeps the records. A *worker* is a process that runs as the
//! account's user, and serves the streams that the front passes to it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use longhaul_accounts::CopyRecord;
use longhaul_proto::PublicKey;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::Server;
use crate::account::{Resource, ResourcePermit};
use crate::client::{Transport, close};
use crate::error::Error;
use crate::files::message::FilesResponse;
use crate::files::write_line;
use crate::limits::ServerLimits;
use crate::metadata::changes::{MetadataChanges, OwnerChange};
use crate::metadata::mode_changes::ModeChanges;
use crate::store::quota::Quota;
use crate::wire::{Frame, RefusalKind};

/// Setting of a server that works as a local account.
pub struct AccountSetting {
    /// Permission bits that new files and directories do not get.
    pub umask: u32,
    /// Quota of the account, if it has one.
    pub quota: Option<Arc<Quota>>,
    /// Receiver of the record of each copy, instead of the log and the accounts.
    pub records: Box<dyn Fn(CopyRecord) + Send + Sync>,
}

impl fmt::Debug for AccountSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("AccountSetting");
        shown
            .field("umask", &self.umask)
            .field("quota", &self.quota);
        shown.finish_non_exhaustive()
    }
}

/// Running copies of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunningCopies {
    /// Number of copies.
    pub copies: usize,
    /// Bytes of files that they have brought so far.
    pub received: u64,
    /// Bytes of files that they have taken so far.
    pub sent: u64,
}

/// Permit for a stream that another process serves.
pub struct StreamPermit(#[allow(dead_code, reason = "held until it is dropped")] ResourcePermit);

/// Protocol of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamKind {
    /// A stream of a copy.
    Copy,
    /// Requests about files.
    Files,
}

impl Server {
    /// Works as a local account from now on. The first setting stays.
    pub fn work_as_account(&self, setting: AccountSetting) {
        // A second call is an error of the program, and the first setting is as good.
        let _ = self.setting.set(setting);
    }

    /// Returns the quota of the account that the server works as.
    pub(super) fn quota(&self) -> Option<&Arc<Quota>> {
        self.setting.get()?.quota.as_ref()
    }

    /// Returns the changes of metadata that the umask of the account stands for.
    pub(super) fn metadata_changes(&self) -> MetadataChanges {
        match self.setting.get() {
            None => MetadataChanges::default(),
            Some(setting) => MetadataChanges::new(
                ModeChanges::without(setting.umask),
                OwnerChange::default(),
                true,
            ),
        }
    }

    /// Takes a stream of `key` that another process is to serve.
    ///
    /// # Errors
    /// [`Error::Limit`] if the key, or all keys, have as many as they may.
    pub fn permit_stream(&self, key: PublicKey) -> Result<StreamPermit, Error> {
        let permit = self.account(key).take(Resource::Streams, 1)?;
        Ok(StreamPermit(permit))
    }

    /// Takes a stream of `key` from this address that another member of a striped server is to
    /// serve.
    ///
    /// # Errors
    /// [`Error::Limit`], as for [`Self::permit_stream`].
    pub(crate) fn permit_relay(
        &self,
        key: PublicKey,
        from: Option<SocketAddr>,
    ) -> Result<StreamPermit, Error> {
        let permit = self.first_account(key, from).take(Resource::Streams, 1)?;
        Ok(StreamPermit(permit))
    }

    /// Returns the limits of the server.
    pub fn limits(&self) -> &ServerLimits {
        &self.limits
    }

    /// Refuses a stream that no process can serve. `reason` says why and what to do.
    pub async fn turn_away(&self, mut stream: impl Transport, kind: StreamKind, reason: String) {
        let told = async {
            match kind {
                StreamKind::Files => {
                    let refused = FilesResponse::Refused {
                        unauthorised: false,
                        reason,
                    };
                    write_line(&mut stream, &refused).await
                }
                StreamKind::Copy => {
                    let mut out = Vec::new();
                    let kind = RefusalKind::Limit;
                    Frame::Refuse {
                        kind,
                        detail: reason,
                    }
                    .encode(&mut out);
                    stream.write_all(&out).await?;
                    stream.flush().await
                }
            }
        };
        if matches!(timeout(self.limits.hello_timeout, told).await, Ok(Ok(()))) {
            close(stream).await;
        }
    }
}
