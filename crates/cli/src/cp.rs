//! `longhaul cp`: copies files and trees between this machine and another, or between two others,
//! over one route or several.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use jiff::Zoned;
use longhaul_control_client::routes::ClientSource;
use longhaul_copy_api::CopyOptions;
use longhaul_deadline_driver::{Deadline, DeadlineRequest, DeadlineSettings};
use longhaul_session::{ConnectOptions, Endpoint, Route, ServiceName};
use longhaul_sync::PlanOptions;
use longhaul_transfer::{
    AttributeSettings, Client, Compare, Compression, CopyDestination, CopyOutcome, CopyRequest,
    CopyToken, DEFAULT_PATIENCE, Error, ExistingPolicy, Filter, FilterRules, Hello,
    MetadataChanges, Portion, Preservation, SessionConnector, StreamMemory, WriteOptions,
    copy_local,
};
use tokio::task::JoinSet;

use crate::exit::Exit;
use crate::place::PlaceOptions;
use crate::report::Report;
use crate::stop::{Interrupted, StopSignals};
use crate::target::Remote;
use crate::trust::RememberingConnector;
use crate::watch::{CopyWatch, OutputOptions};
use crate::{descriptors, home, logging, trust};

/// Time that an ended copy has to remove unfinished files, or to make them durable.
pub const CLEANUP_TIMEOUT: Duration = Duration::from_secs(10);
/// Refusal of a copy without a source.
const NO_SOURCE: &str = "name what to copy";

mod as_job;
mod beside;
mod catalogue;
mod deadline;
mod dry_run;
mod far_sides;
mod impossible;
mod job;
pub mod measured;
mod over_sftp;
mod over_ssh;
mod receipt;
mod relay;
pub mod routing;
mod run_options;
mod scp_options;
pub mod selection;
mod stdin;
mod stdout;
mod third_party;
mod to_server;
mod with_store;

pub use as_job::{ATTEMPT_PATIENCE, check_request};
use beside::CopyCompanion;
use far_sides::FarSides;
use job::CopyJob;
use over_sftp::SftpContext;
use over_ssh::SshContext;
use receipt::PendingReceipt;
use routing::Routing;
pub use run_options::RunOptions;
use scp_options::ScpOptions;
use stdin::{LocalSources, StdinUse};
use to_server::PushContext;
use with_store::StoreContext;

/// Copy files and directory trees, locally or between hosts: each path is local, user@host:path, or
/// lh://host[:port]/path, or sftp://[user@]host[:port]/path, or in an object store or at a web
/// server: s3://bucket/key, gs://bucket/key, az://container/key, webdavs://host/path and
/// https://host/path.
///
/// For user@host:path the host needs only a login by ssh, and longhaul or --bootstrap; the data
/// goes directly between the hosts where a firewall permits it, encrypted. Without longhaul there,
/// the copy goes by sftp. A local file whose name has a colon is written ./a:b. lh:// is for
/// `longhaul serve`.
///
/// A copy between a store or sftp:// and another machine, or between lh:// and user@host:, passes
/// through this one.
///
/// Every transferred file is verified end to end with BLAKE3, except by sftp and with stores, and
/// takes its name only when it is whole. Nothing is overwritten unless asked. A file that exists
/// already, with the same size and modification time, is not transferred and counts as copied; so
/// does one with the same content.
/// When a copy ends early, the same command resumes where it broke off, also within large files.
/// Symbolic links are copied as links. Permissions and modification times are kept; --archive keeps
/// owners, ACLs, extended attributes and the rest as well.
#[derive(Args)]
#[command(override_usage = "longhaul cp [OPTIONS] <SRC>... <DST>")]
pub struct Cp {
    /// Sources, then the destination. With several sources, or a slash at the end, the destination
    /// is a directory. - is standard input as the source, and standard output as the destination.
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    paths: Vec<OsString>,
    #[command(flatten)]
    options: CopyOptions,
    #[command(flatten)]
    run_options: RunOptions,
    /// List what would be copied, replaced or refused, and change nothing.
    #[arg(help_heading = "Output", short = 'n', long, conflicts_with_all = ["background", "split"])]
    dry_run: bool,
    /// Write what was copied to this new file: names, sizes, times and hashes, signed by both ends.
    /// `longhaul verify` compares files with it. Implies --checksum.
    #[arg(
        help_heading = "Output",
        long,
        value_name = "FILE",
        conflicts_with_all = ["background", "split", "dry_run", "part"]
    )]
    receipt: Option<PathBuf>,
    /// Go on printing what is appended to a file, to standard output (-), until interrupted.
    #[arg(help_heading = "Output", long)]
    follow: bool,
    /// Copy the content of block devices that are named as sources here, not to be written to
    /// meanwhile.
    #[arg(
        help_heading = "Which files",
        long,
        conflicts_with_all = ["background", "split", "dry_run", "part"]
    )]
    device: bool,
    /// Checksums that the files must have: ALGORITHM=HASH of the one file, or a list as sha256sum
    /// and BagIt have it (LIST, or ALGORITHM=LIST). A source here is compared before the copy, a
    /// copy to here after it.
    #[arg(
        help_heading = "Which files",
        long,
        value_name = "SUM|LIST",
        conflicts_with_all = ["background", "split", "dry_run", "part"]
    )]
    checksum_with: Option<OsString>,
    /// Have the agent copy in the background: the same as `longhaul submit`.
    #[arg(help_heading = "Jobs", long)]
    background: bool,
    /// Parts that the agents divide it into, each done by any of them; for several nodes with one
    /// queue of jobs.
    #[arg(help_heading = "Jobs", long, value_name = "N")]
    split: Option<u32>,
    /// Only the files of part K of N; or `rest`, what the parts have left.
    #[arg(
        long,
        hide = true,
        value_name = "K/N|rest",
        conflicts_with = "background"
    )]
    part: Option<Portion>,
    /// End when the process with this number ends; it must be the parent of this one.
    #[arg(long, hide = true, value_name = "PID")]
    parent: Option<i32>,
    #[command(flatten)]
    scp: ScpOptions,
}

/// The copy of `longhaul sync`.
pub struct CpForSync {
    pub source: OsString,
    pub destination: OsString,
    pub options: CopyOptions,
    pub run_options: RunOptions,
}

/// A copy that finished, and the far sides still to be ended.
struct FinishedCopy {
    outcome: CopyOutcome,
    far: FarSides,
    /// Reason why not every end has hashed what it received or sent. `None` if each has.
    unverified: Option<&'static str>,
}

impl FinishedCopy {
    /// Creates the end of a copy whose other end computes no hashes, for this reason.
    fn unverified(reason: &'static str) -> Self {
        let outcome = CopyOutcome {
            manifest: [0; 32],
            closing: JoinSet::new(),
        };
        Self {
            unverified: Some(reason),
            ..outcome.into()
        }
    }
}

impl From<CopyOutcome> for FinishedCopy {
    fn from(outcome: CopyOutcome) -> Self {
        Self {
            outcome,
            far: FarSides::None,
            unverified: None,
        }
    }
}

impl Cp {
    /// Copies. `started` is the time at which the command began.
    pub fn run(self, started: Instant) -> Result<Exit> {
        if let Some(sources) = self.stdout_sources() {
            return self.copy_to_stdout(sources);
        }
        logging::start(if self.scp.verbose { "info" } else { "error" });
        descriptors::raise();
        if self.background {
            return self.submit();
        }
        if self.split.is_some() {
            bail!("--split is for jobs: give --background with it, or use longhaul submit");
        }
        if let Some(parent) = self.parent {
            end_with_parent(parent)?;
        }
        let job = self.parse_job()?;
        let runtime = crate::runtime::start()?;
        if self.dry_run {
            return runtime.block_on(dry_run::run(&self));
        }
        let exit = runtime.block_on(self.copy(job, started));
        // Removes temporary files of an interrupted copy, or makes the kept ones durable.
        runtime.shutdown_timeout(CLEANUP_TIMEOUT);
        exit
    }

    /// Creates the copy of `longhaul sync`.
    pub fn for_sync(sync: CpForSync) -> Self {
        Self {
            paths: vec![sync.source, sync.destination],
            options: sync.options,
            run_options: sync.run_options,
            dry_run: false,
            background: false,
            split: None,
            part: None,
            parent: None,
            receipt: None,
            checksum_with: None,
            device: false,
            follow: false,
            scp: ScpOptions::default(),
        }
    }

    /// Checks the command line.
    ///
    /// # Errors
    /// It is invalid.
    pub fn check(&self) -> Result<()> {
        self.parse_job().map(drop)
    }

    /// Copies in the current runtime. `started` is the time at which the command began.
    ///
    /// # Errors
    /// The command line is invalid.
    pub async fn copy_now(&self, started: Instant) -> Result<Exit> {
        self.copy(self.parse_job()?, started).await
    }

    /// Returns what the options permit to change.
    pub fn plan_options(&self) -> PlanOptions {
        dry_run::plan_options(self)
    }

    /// Returns the filter, and reads the files that the options name.
    ///
    /// # Errors
    /// A file cannot be read, or a pattern is invalid.
    pub fn filter(&self) -> Result<Arc<Filter>> {
        selection::filter(&self.options.filter)
    }

    /// Validates the command line, and returns the copy to make.
    fn parse_job(&self) -> Result<CopyJob> {
        self.scp.check()?;
        let job = CopyJob::read(&self.paths)?;
        selection::check(
            &self.options.filter,
            self.paths.len().saturating_sub(1),
            &Zoned::now(),
        )?;
        if matches!(job, CopyJob::BetweenServers { .. })
            && let Some((flag, instead)) = self.impossible_between_servers()
        {
            bail!("{flag} is not for copies between two servers: {instead}");
        }
        if !self.options.source_addresses.is_empty()
            && !matches!(job, CopyJob::Push { .. } | CopyJob::Pull { .. })
        {
            bail!(
                "--source is for lh:// only: over ssh the two hosts find the addresses by \
                 themselves"
            );
        }
        if (job.is_with_server() || matches!(job, CopyJob::BetweenServers { .. }))
            && let Some((flag, instead)) = self.options.ssh.meaningless_for_servers()
        {
            bail!("{flag} is for user@host:path, and no path here is one: {instead}");
        }
        if let Some(protocol) = job.foreign_protocol()
            && let Some((flag, why)) = self.impossible_by(protocol)
        {
            bail!("{flag} is not possible {}: {why}", protocol.name());
        }
        if (self.options.by.is_some() || self.options.reserve.is_some()) && !job.is_with_server() {
            bail!(
                "--by and --reserve are for lh:// only: for other copies the two ends to reserve \
                 between are not known"
            );
        }
        self.deadline()?;
        if self.options.inplace && !self.options.replaces() {
            bail!("--inplace is for files that are replaced: give --overwrite with it");
        }
        if self.options.inplace && matches!(job, CopyJob::Between { .. }) {
            bail!("--inplace is not for copies between two hosts over ssh: run it on one of them");
        }
        if self.receipt.is_some()
            && (job.is_between_others() || matches!(job, CopyJob::Local { .. }))
        {
            bail!(
                "--receipt is for copies between this machine and another one: run it on one of \
                 the two, or keep the output of longhaul sum"
            );
        }
        if self.follow {
            bail!(
                "--follow is for copies of one file to standard output: give - as the destination"
            );
        }
        if self.device
            && !matches!(
                job,
                CopyJob::Local { .. }
                    | CopyJob::Push { .. }
                    | CopyJob::PushOverSsh { .. }
                    | CopyJob::PushToStore { .. }
            )
        {
            bail!("--device is for sources at this machine: run it where the device is");
        }
        if self.checksum_with.is_some()
            && (job.is_between_others()
                || matches!(job, CopyJob::BetweenStores { .. } | CopyJob::Relayed { .. }))
        {
            bail!(
                "--checksum-with is not for copies between two other hosts: run it on one of them"
            );
        }
        let metadata = &self.options.metadata;
        let is_treated_here = metadata.copy_links
            || metadata.safe_links
            || metadata.chmod.is_some()
            || metadata.chown.is_some();
        if is_treated_here && job.is_between_others() {
            bail!(
                "--copy-links, --safe-links, --chmod and --chown are not for copies between two \
                 other hosts: run it on one of them"
            );
        }
        if self.part.is_some() && job.is_between_others() {
            bail!("--part is not for copies between two other hosts: leave it out");
        }
        Ok(job)
    }

    async fn copy(&self, job: CopyJob, started: Instant) -> Result<Exit> {
        let mut stop_signals = StopSignals::take_with_hangup()?;
        let receipt = self.begin_receipt(&job)?;
        let catalogued = self.catalogued_files(&job)?;
        let show = OutputOptions {
            json: self.run_options.json,
            quiet: self.run_options.quiet,
            explain: self.run_options.explain,
            suggests_overwrite: !self.options.replaces(),
        };
        let watch = CopyWatch::start(show, started);
        if let Some(destination) = self.paths.last() {
            watch.set_destination(destination);
        }
        let beside = CopyCompanion::with_deadline(self.deadline()?);
        let result = tokio::select! {
            result = async {
                if let Some(files) = &catalogued {
                    files.check(false, PlaceOptions::for_copy(&self.options)).await?;
                }
                let carried = self.carry_out(&job, &watch, &beside, receipt.as_ref()).await?;
                if let Some(files) = &catalogued {
                    files.check(true, PlaceOptions::for_copy(&self.options)).await?;
                }
                Ok(carried)
            } => result,
            () = stop_signals.received() => Err(anyhow!(Interrupted)),
        };
        let result = result.and_then(|carried| {
            if let Some(receipt) = receipt {
                receipt.finish(&carried.outcome.manifest)?;
            }
            Ok(carried)
        });
        let outcome = result.as_ref().map(|carried| &carried.outcome);
        let routing = beside.routing.get();
        if let (Ok(_), Some(routing)) = (&result, routing) {
            routing.looked_up(&watch.progress).await;
        }
        let mut report = Report::new(job.name(), started.elapsed(), &watch, outcome);
        let reason = result.as_ref().ok().and_then(|copy| copy.unverified);
        if let Some(reason) = reason.or_else(|| beside.unverified()) {
            report.set_unverified(reason);
        }
        let exit = report.summary.exit_code;
        // Standard input cannot be read again.
        let may_resume = !self.options.no_resume && !stdin::is_source(&self.paths);
        report.summary.kept = may_resume && matches!(exit, Exit::BrokeOff | Exit::Interrupted);
        let is_done = report.summary.ok;
        if self.options.no_encrypt && report.encrypted == Some(true) && is_done {
            watch.notice(
                "nothing went unencrypted: the server does not allow it (longhaul serve \
                 --allow-no-encrypt), or no file was large enough",
            );
        }
        if let Some(routing) = routing {
            report.routing = routing.report(watch.judged(), report.summary.seconds, is_done);
        }
        if let Some(deadline) = beside.deadline.get() {
            report.deadline = Some(deadline.end(is_done).await);
        }
        watch.finish(&report);
        // The result is reported already; only an orderly close remains.
        let closing = async {
            if let Ok(FinishedCopy { outcome, far, .. }) = result {
                let mut closing = outcome.closing;
                while closing.join_next().await.is_some() {}
                far.end().await;
            }
        };
        if let Some(routing) = routing {
            routing.end(&report, &watch.bad_routes(), &watch.progress);
        }
        tokio::join!(closing, beside.end());
        Ok(exit)
    }

    async fn carry_out(
        &self,
        job: &CopyJob,
        watch: &Arc<CopyWatch>,
        beside: &CopyCompanion,
        receipt: Option<&PendingReceipt>,
    ) -> Result<FinishedCopy> {
        let options = self.write_options();
        let existing = self.options.existing_policy();
        let filter = self.filter()?;
        let over_ssh = SshContext {
            watch,
            beside,
            receipt,
            routes: &self.options.routes,
        };
        let outcome = match job {
            CopyJob::PushOverSsh {
                sources,
                destination,
            } => {
                let opened = self.local_sources(sources, watch)?;
                return self
                    .push_over_ssh(opened, destination, filter, over_ssh)
                    .await;
            }
            CopyJob::PullOverSsh {
                sources,
                destination,
            } => {
                return self
                    .pull_over_ssh(sources, destination, filter, over_ssh)
                    .await;
            }
            CopyJob::PushOverSftp {
                sources,
                destination,
            } => {
                let context = SftpContext::requested(watch, beside);
                let opened = self.local_sources(sources, watch)?;
                return self
                    .push_over_sftp(opened, destination, filter, context)
                    .await;
            }
            CopyJob::PullOverSftp {
                sources,
                destination,
            } => {
                let context = SftpContext::requested(watch, beside);
                return self
                    .pull_over_sftp(sources, destination, filter, context)
                    .await;
            }
            CopyJob::PushToStore { .. }
            | CopyJob::PullFromStore { .. }
            | CopyJob::BetweenStores { .. } => {
                let context = StoreContext {
                    filter: &filter,
                    watch,
                    beside,
                };
                return self.copy_with_store(job, context).await;
            }
            CopyJob::Relayed {
                sources,
                destination,
            } => {
                return self
                    .relay(sources, destination, &filter, (watch, beside))
                    .await;
            }
            CopyJob::Between {
                sources,
                destination,
            } => {
                return self.between(sources, destination, &filter, watch).await;
            }
            CopyJob::BetweenServers {
                sources,
                destination,
            } => {
                return self
                    .between_servers(sources, destination, &filter, watch)
                    .await;
            }
            CopyJob::Local {
                sources,
                destination,
            } => {
                let opened = self.local_sources(sources, watch)?;
                let names = opened.names.clone();
                let destination =
                    CopyDestination::local(destination, names, options, CopyToken::random()?)?
                        .with_existing(existing)
                        .with_attributes(self.attribute_settings(MetadataChanges::default()));
                let progress = watch.progress.clone();
                let (compare, hard_links) = (self.compare(), self.options.hard_links);
                copy_local(
                    opened
                        .found
                        .restricted_to(self.portion(), hard_links)
                        .filtered(Some(filter)),
                    opened.labels,
                    destination,
                    compare,
                    hard_links,
                    progress,
                    watch.clone(),
                )
                .await?
            }
            CopyJob::Push {
                sources,
                destination,
            } => {
                let opened = self.local_sources(sources, watch)?;
                let context = PushContext {
                    watch,
                    beside,
                    receipt,
                    size: routing::total_size(sources),
                };
                self.push_to_server(opened, destination, filter, context)
                    .await?
            }
            CopyJob::Pull {
                sources,
                destination,
            } => {
                let Some(first) = sources.first() else {
                    bail!(NO_SOURCE)
                };
                let paths = sources.iter().map(|source| source.path.clone()).collect();
                let request = CopyRequest::Pull {
                    recursive: self.options.recursive,
                    sources: paths,
                };
                let hello = self.hello(request, &filter)?;
                let mut client = self.client(first, hello, watch, None, beside).await?;
                client.receipt = receipt.map(PendingReceipt::recorder);
                let names = sources.iter().map(Remote::name).collect();
                let destination =
                    CopyDestination::local(destination, names, options, client.hello.token)?
                        .with_existing(existing)
                        .with_attributes(self.attribute_settings(self.changes()));
                let labels: Vec<String> = sources.iter().map(Remote::to_string).collect();
                watch.expect_sources(&labels);
                let connector = client.connector.clone();
                client
                    .pull(destination, labels)
                    .await
                    .map_err(|error| self.advise(error, &connector, first))?
            }
        };
        Ok(outcome.into())
    }

    fn local_sources(&self, sources: &[PathBuf], watch: &Arc<CopyWatch>) -> Result<LocalSources> {
        let stdin = match self.options.by {
            Some(_) => StdinUse::Stored("a deadline needs its size"),
            None => StdinUse::Streamed,
        };
        let recursive = self.options.recursive;
        let mut opened = LocalSources::open(sources, recursive, self.device, stdin, watch)?;
        opened.found = opened.found.keeping(self.preservation(), self.changes());
        Ok(opened)
    }

    /// Returns what is kept besides permissions and times.
    fn preservation(&self) -> Preservation {
        self.options.metadata.preservation()
    }

    /// Returns the changes of metadata that the user asks for.
    fn changes(&self) -> MetadataChanges {
        self.options.metadata.changes(current_umask())
    }

    /// Returns how metadata is written here. `changes` are those that the sending end does not
    /// make.
    fn attribute_settings(&self, changes: MetadataChanges) -> AttributeSettings {
        let keep = self.preservation();
        AttributeSettings {
            keep: keep.for_receiver(),
            changes,
            // The user's own rights decide.
            is_privileged: true,
            corrects_existing: keep.has_attributes(),
        }
    }

    /// Returns the deadline, and what may be reserved for it.
    fn deadline(&self) -> Result<Option<DeadlineSettings>> {
        let CopyOptions { by, reserve, .. } = &self.options;
        deadline::parse(by.as_deref(), *reserve, &Zoned::now())
    }

    /// Returns the portion of the sources to copy.
    fn portion(&self) -> Portion {
        self.part.unwrap_or_default()
    }

    /// Returns the time for which an outage is tolerated.
    fn patience(&self) -> Duration {
        self.run_options
            .patience
            .map_or(DEFAULT_PATIENCE, |patience| patience.0)
    }

    /// Returns how existing files are compared.
    fn compare(&self) -> Compare {
        // A receipt has the hash of every file.
        match self.options.checksum || self.receipt.is_some() {
            true => Compare::Content,
            false => Compare::SizeAndTime,
        }
    }

    /// Returns how the user wants the data to be compressed on its way, if the command line says.
    fn requested_compression(&self) -> Option<Compression> {
        let by_flag = self.scp.compress.then_some(Compression::Auto);
        self.options.compress.or(by_flag)
    }

    /// Returns how the data is compressed on its way.
    fn compression(&self) -> Compression {
        self.requested_compression().unwrap_or(Compression::Auto)
    }

    /// Returns how files are written.
    fn write_options(&self) -> WriteOptions {
        WriteOptions {
            overwrite: self.options.replaces(),
            fsync: self.options.fsync,
            resume: !self.options.no_resume,
            in_place: self.options.inplace,
        }
    }

    /// Builds the first message on every stream of a new copy.
    fn hello(&self, request: CopyRequest, filter: &Filter) -> Result<Hello> {
        let existing = self.options.existing_policy();
        let keep = self.preservation();
        // The side with the source filters, the other one decides about what exists.
        let (filter, existing, keep) = match request {
            CopyRequest::Push { .. } => (FilterRules::default(), existing, keep.for_receiver()),
            CopyRequest::Pull { .. } => (filter.rules().clone(), ExistingPolicy::default(), keep),
        };
        let hello = Hello {
            token: CopyToken::random()?,
            request,
            resume: !self.options.no_resume,
            clear: self.options.no_encrypt,
            offer: None,
            hard_links: self.options.hard_links,
            single: self.options.streams == Some(1),
            portion: self.portion(),
            placement: None,
            reports_not_kept: false,
            filter,
            existing,
            receipt: false,
            compression: self.compression(),
            packs: false,
            delta: self.options.delta || self.options.inplace,
            in_place: self.options.inplace,
            late_sizes: false,
            keep,
            bearer: None,
        };
        if !hello.filter_fits() {
            bail!(
                "the patterns or the list are too long to be sent: use fewer, or put a \
                 .longhaulignore file into the source"
            );
        }
        if !hello.fits() {
            bail!("too many sources in one command: name a directory that holds them, with -r");
        }
        Ok(hello)
    }

    async fn client(
        &self,
        remote: &Remote,
        hello: Hello,
        watch: &Arc<CopyWatch>,
        size: Option<u64>,
        beside: &CopyCompanion,
    ) -> Result<Client<RememberingConnector>> {
        watch.set_server(remote.server.host.to_string());
        let push = matches!(hello.request, CopyRequest::Push { .. });
        let identity = Arc::new(home::identity(self.options.identity.as_deref())?);
        let owner = identity.public().to_string();
        let wanted = trust::HostKeyOptions {
            key: self.options.host_key,
            accept_new: self.options.accept_new,
            ca: self.options.ca.clone(),
        };
        let routing = self
            .routing(&remote.server, size, identity.signing_key(), push, watch)
            .map(|new| {
                let new = Arc::new(new);
                beside.routing.get_or_init(|| new).clone()
            });
        let settled = routing
            .as_ref()
            .and_then(|routing| routing.route_from_file());
        let (routes, fall_back) = match settled.clone() {
            Some((route, fall_back)) => (vec![route], fall_back),
            None => (self.options.routes.clone(), self.options.fall_back),
        };
        let route = routes.first().cloned().unwrap_or_default();
        let mut options = ConnectOptions {
            quic: Some(crate::quic::dialler()),
            destination_transport: self.options.transport,
            congestion: self.options.congestion.clone(),
            fall_back,
            // Source address of the first session, which may ask the user to accept the server.
            source: self.options.source_addresses.first().copied(),
            is_fetch: !push,
            ..ConnectOptions::new(
                ServiceName::COPY,
                route,
                remote.server.clone(),
                identity,
                trust::trust_nobody(),
            )
        };
        let first = trust::settle(&wanted, &mut options).await?;
        let planned = routing.as_ref().filter(|routing| routing.is_planned());
        let sessions = match (self.chooses_paths() && settled.is_none(), &routes[..]) {
            (true, _) => SessionConnector::with_plan(options),
            (false, [route]) if self.chooses_transports(route, push) => {
                SessionConnector::over_route(options, route.clone())
            }
            _ => SessionConnector::from_sources(options, routes, &self.options.source_addresses),
        };
        let connector = Arc::new(RememberingConnector::new(sessions, first));
        if let Some(routing) = planned {
            routing.begin(&connector, &watch.progress).await;
        }
        let controller = routing.as_ref().and_then(|routing| routing.controller());
        if let Some((controller, state, url)) = &controller {
            beside.give_back(controller, state, url, &owner);
        }
        if let Some(settings) = beside.wanted.clone() {
            let request = DeadlineRequest {
                settings,
                controller,
                owner,
                server: remote.server.clone(),
                push,
                joins: connector.is_planned(),
                // The network identifies sent streams by their source ports. Fetched streams leave
                // from the server's ports.
                pins: push && connector.is_planned(),
                // The size of one of several parts is unknown before the walk.
                size: size.filter(|_| !self.portion().is_one_of_several()),
                streams: self.options.streams,
                congestion: self.options.congestion.clone(),
                routes: self.options.routes.clone(),
            };
            let copy = deadline::AccompaniedCopy {
                connector: connector.clone(),
                watch: watch.clone(),
            };
            let begin = || Deadline::begin(request, Arc::new(copy));
            beside.deadline.get_or_init(begin);
        }
        Ok(Client {
            connector,
            hello,
            compare: self.compare(),
            streams: self.options.streams,
            memory: remembered_streams(remote.server.to_string()),
            patience: self.patience(),
            progress: watch.progress.clone(),
            observer: watch.clone(),
            receipt: None,
            tokens: crate::tokens::source_for(&remote.server).await,
        })
    }

    /// Creates the routing of a copy with `server`. An error is shown as a notice, does not fail
    /// the copy, and returns `None`.
    fn routing(
        &self,
        server: &Endpoint,
        size: Option<u64>,
        key: &longhaul_proto::SigningKey,
        push: bool,
        watch: &CopyWatch,
    ) -> Option<Routing> {
        let source = match ClientSource::from_home(key) {
            Ok(source) => source,
            Err(error) => {
                watch.notice(&format!("{error}; the copy goes direct"));
                return None;
            }
        };
        let question = routing::question(
            server,
            push,
            size,
            self.options.streams,
            self.options.congestion.as_deref(),
        );
        let key = (key.clone(), self.options.identity.clone());
        Some(Routing::new(
            source,
            question,
            key,
            push,
            self.chooses_paths(),
        ))
    }

    /// Returns true if the options leave the choice of paths to the copy.
    fn chooses_paths(&self) -> bool {
        self.options.routes.is_empty() && self.may_open_other_streams()
    }

    /// Returns true if the copy may add streams of other kinds. A single stream and explicit source
    /// addresses leave nothing to choose.
    fn may_open_other_streams(&self) -> bool {
        self.options.source_addresses.is_empty() && self.options.streams != Some(1)
    }

    /// Returns true if the options leave the transports along a named route to the copy. In a push,
    /// the depots choose by what they lose themselves. What they have acknowledged to the client
    /// says little about a rate.
    fn chooses_transports(&self, route: &Route, push: bool) -> bool {
        (!push || route.is_direct())
            && route.hops().iter().all(|hop| hop.transport.is_none())
            && self.options.transport.is_none()
            && self.may_open_other_streams()
    }

    /// Adds to the error what to do about an unknown server.
    fn advise(
        &self,
        error: Error,
        connector: &RememberingConnector,
        remote: &Remote,
    ) -> anyhow::Error {
        self.advise_about(error, connector, &remote.server)
    }

    /// Adds to the error what to do about `server`, if it is unknown.
    fn advise_about(
        &self,
        error: Error,
        connector: &RememberingConnector,
        server: &Endpoint,
    ) -> anyhow::Error {
        match connector.unknown_server() {
            Some(found) => anyhow!(Error::Unauthorised(trust::unknown_server_advice(
                server, found
            ))),
            None => anyhow!(error),
        }
    }
}

/// Returns the file mode creation mask of this process.
fn current_umask() -> u32 {
    use rustix::fs::Mode;
    // The only way to learn it is to set it.
    let umask = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    rustix::process::umask(umask);
    longhaul_platform::fs::mode_number(umask)
}

/// Has the system terminate this process in good order when its parent ends for any reason.
fn end_with_parent(parent: i32) -> Result<()> {
    let follows = longhaul_platform::process::end_with_parent(parent)
        .context("cannot follow the process that started this one")?;
    if !follows {
        bail!("the process that started this one has ended");
    }
    Ok(())
}

/// Returns the record of the number of streams that `destination` needed.
fn remembered_streams(destination: String) -> Option<StreamMemory> {
    home::state_dir().map(|state| StreamMemory {
        file: state.join("streams"),
        destination,
    })
}

fn shown(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| home::display_path(path)).collect()
}
