//! Copies with hosts that have nothing but an SFTP server: see [`longhaul_sftp`].

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail};
use longhaul_remote::Error as RemoteError;
use longhaul_sftp::{CopySettings, Error, PullRequest, PushRequest, SftpCopy, SftpPath};
use longhaul_transfer::local_end::LocalTarget;
use longhaul_transfer::{CopyDestination, CopyToken, Filter};

use super::beside::CopyCompanion;
use super::impossible::{ForeignProtocol, SFTP_UNVERIFIED};
use super::stdin::LocalSources;
use super::{Cp, FinishedCopy, NO_SOURCE};
use crate::ssh_options;
use crate::watch::CopyWatch;

/// Observer and companion of a copy by SFTP.
#[derive(Clone, Copy)]
pub(super) struct SftpContext<'a> {
    pub watch: &'a Arc<CopyWatch>,
    pub beside: &'a CopyCompanion,
    /// Reason why the copy goes by SFTP, if the user did not ask for that.
    pub instead: Option<&'a str>,
}

impl<'a> SftpContext<'a> {
    /// Creates the context of a copy for which the user asked for SFTP.
    pub(super) fn requested(watch: &'a Arc<CopyWatch>, beside: &'a CopyCompanion) -> Self {
        Self {
            watch,
            beside,
            instead: None,
        }
    }
}

impl Cp {
    pub(super) async fn push_over_sftp(
        &self,
        sources: LocalSources,
        destination: &SftpPath,
        filter: Arc<Filter>,
        context: SftpContext<'_>,
    ) -> Result<FinishedCopy> {
        let labels = sources.labels.clone();
        let copy = self.open_sftp(destination, labels, context).await?;
        self.push_by_sftp(&copy, sources, destination, filter, context)
            .await
    }

    /// Copies over open connections.
    pub(super) async fn push_by_sftp(
        &self,
        copy: &SftpCopy,
        sources: LocalSources,
        destination: &SftpPath,
        filter: Arc<Filter>,
        context: SftpContext<'_>,
    ) -> Result<FinishedCopy> {
        if !copy.is_durable() {
            context.watch.notice(
                "the SFTP server cannot force files to disk: after a power failure there, files of \
                 this copy may be incomplete",
            );
        }
        // What came by standard input is kept until the end.
        let names = sources.names.clone();
        copy.push(PushRequest {
            sources: sources.found.filtered(Some(filter)),
            names,
            destination,
            options: self.write_options(),
            existing: self.options.existing_policy(),
            checksum: self.options.checksum,
        })
        .await?;
        Ok(FinishedCopy::unverified(SFTP_UNVERIFIED))
    }

    pub(super) async fn pull_over_sftp(
        &self,
        sources: &[SftpPath],
        destination: &Path,
        filter: Arc<Filter>,
        context: SftpContext<'_>,
    ) -> Result<FinishedCopy> {
        let Some(first) = sources.first() else {
            bail!(NO_SOURCE)
        };
        let labels: Vec<String> = sources.iter().map(SftpPath::to_string).collect();
        let copy = self.open_sftp(first, labels.clone(), context).await?;
        context.watch.expect_sources(&labels);
        let names = sources.iter().map(SftpPath::name).collect();
        let options = self.write_options();
        let destination =
            CopyDestination::local(destination, names, options, CopyToken::random()?)?
                .with_existing(self.options.existing_policy());
        copy.pull(PullRequest {
            sources,
            recursive: self.options.recursive,
            filter,
            target: LocalTarget::new(destination),
            checksum: self.options.checksum,
            resume: options.resume,
        })
        .await?;
        Ok(FinishedCopy::unverified(SFTP_UNVERIFIED))
    }

    /// Logs in.
    pub(super) async fn open_sftp(
        &self,
        path: &SftpPath,
        names: Vec<String>,
        context: SftpContext<'_>,
    ) -> Result<Arc<SftpCopy>> {
        let SftpContext {
            watch,
            beside,
            instead,
        } = context;
        watch.set_server(path.shown_host().to_owned());
        let mut ssh = ssh_options::start(&self.options.ssh).ssh;
        if self.scp.verbose {
            ssh.options.push("-v".into());
        }
        let settings = CopySettings {
            ssh,
            sessions: self.options.streams,
            patience: self.patience(),
            progress: watch.progress.clone(),
            observer: watch.clone(),
            token: CopyToken::random()?,
        };
        let copy = Arc::new(SftpCopy::open(path, settings, names).await?);
        // It ends with the companion, however the copy ends.
        let copy = beside.sftp.get_or_init(|| copy).clone();
        if let Some(reason) = instead {
            watch.notice(&format!(
                "{}: {reason}: copying by sftp, which cannot verify what arrives",
                path.shown_host()
            ));
            if let Some((option, why)) = self.impossible_by(ForeignProtocol::Sftp)
                && option != "--bootstrap"
            {
                watch.notice(&format!("by sftp, {option} has no effect: {why}"));
            }
        }
        Ok(copy)
    }
}

/// Returns why the far side has no usable longhaul. `None` if the error has another cause.
pub(super) fn lacks_longhaul(error: &anyhow::Error) -> Option<&'static str> {
    Some(match error.downcast_ref::<RemoteError>()? {
        RemoteError::Missing { .. } => "no longhaul there (--bootstrap brings it)",
        RemoteError::NoCommand { .. } => "the login may not run programs",
        RemoteError::Stuck { .. } | RemoteError::Noisy { .. } => "the login runs no program",
        RemoteError::OtherMachine { .. } | RemoteError::Unfit { .. } => {
            "this longhaul does not run there"
        }
        RemoteError::NotBrought { .. } => "longhaul could not be stored there",
        RemoteError::Version { .. } => "longhaul there is of an incompatible release",
        _ => return None,
    })
}

/// Returns true if the host has no SFTP either.
pub(super) fn is_unavailable(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref::<Error>(),
        Some(Error::NoSftp { .. } | Error::NotSftp { .. } | Error::Login(_))
    )
}
