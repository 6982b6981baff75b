//! `longhaul cp`: copies files and trees between this machine and another, or between two others,
//! over one route or several.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use jiff::Zoned;
use longhaul_copy_api::CopyOptions;
use longhaul_route_source::ClientSource;
use longhaul_session::{ConnectOptions, ServiceName};
use longhaul_transfer::{
    Client, Compare, CopyDestination, CopyOutcome, CopyRequest, CopyToken, DEFAULT_PATIENCE, Error,
    Hello, Portion, SessionConnector, Sources, StreamMemory, WriteOptions, copy_local,
};
use quantities::Time;

use crate::exit::Exit;
use crate::report::Report;
use crate::stop::{Interrupted, StopSignals};
use crate::target::Remote;
use crate::trust::RememberingConnector;
use crate::watch::{CopyWatch, OutputOptions};
use crate::{descriptors, home, logging, quantity, trust};

/// Time that an ended copy has to remove unfinished files, or to make them durable.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(10);

mod as_job;
mod beside;
pub mod deadline;
mod job;
pub mod measured;
mod over_ssh;
pub mod routing;
mod scp_options;

pub use as_job::{ATTEMPT_PATIENCE, check_request};
use beside::CopyCompanion;
use deadline::{Deadline, DeadlineSettings};
use job::CopyJob;
use routing::Routing;
use scp_options::ScpOptions;

/// Copy files and directory trees, locally or between hosts: each path is local, user@host:path, or
/// lh://host[:port]/path.
///
/// For user@host:path the host needs only a login by ssh, and longhaul or --bootstrap; the data
/// goes directly between the hosts where a firewall permits it, encrypted. A local file whose name
/// has a colon is written ./a:b. lh:// is for `longhaul serve`.
///
/// Every transferred file is verified end to end with BLAKE3 and takes its name only when it is
/// whole. Nothing is overwritten unless asked. A file that exists already, with the same size and
/// modification time, is not transferred and counts as copied; so does one with the same content.
/// When a copy ends early, the same command resumes where it broke off, also within large files.
/// Symbolic links are copied as links; permissions and modification times are kept, owners are not.
#[derive(Args)]
#[command(override_usage = "longhaul cp [OPTIONS] <SRC>... <DST>")]
pub struct Cp {
    /// Sources, then the destination. With several sources, or a slash at the end, the destination
    /// is a directory.
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    paths: Vec<OsString>,
    #[command(flatten)]
    options: CopyOptions,
    /// Time to wait once nothing arrives from the server any more, after a stream was established;
    /// time for which this machine is suspended does not count [default: 5 min].
    #[arg(long, value_name = "TIME", value_parser = quantity::positive_time)]
    patience: Option<Time>,
    /// Write events and a closing report as JSON lines to standard output.
    #[arg(long)]
    json: bool,
    /// Print in one line what limits the copy, and what would help.
    #[arg(long)]
    explain: bool,
    /// Show no progress; failures are still reported.
    #[arg(short, long)]
    quiet: bool,
    /// Have the agent copy in the background: the same as `longhaul submit`.
    #[arg(long)]
    background: bool,
    /// Parts that the agents divide it into, each done by any of them; for several nodes with one
    /// queue of jobs.
    #[arg(long, value_name = "N")]
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

/// A copy that finished, and the far sides still to be ended.
struct FinishedCopy {
    outcome: CopyOutcome,
    far: over_ssh::FarSides,
}

impl From<CopyOutcome> for FinishedCopy {
    fn from(outcome: CopyOutcome) -> Self {
        Self {
            outcome,
            far: over_ssh::FarSides::None,
        }
    }
}

impl Cp {
    /// Copies. `started` is the time at which the command began.
    pub fn run(self, started: Instant) -> Result<Exit> {
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
        let exit = runtime.block_on(self.copy(job, started));
        // Removes temporary files of an interrupted copy, or makes the kept ones durable.
        runtime.shutdown_timeout(CLEANUP_TIMEOUT);
        exit
    }

    /// Validates the command line, and returns the copy to make.
    fn parse_job(&self) -> Result<CopyJob> {
        self.scp.check()?;
        let job = CopyJob::read(&self.paths)?;
        if !self.options.source_addresses.is_empty()
            && !matches!(job, CopyJob::Push { .. } | CopyJob::Pull { .. })
        {
            bail!(
                "--source is for lh:// only: over ssh the two hosts find the addresses by \
                 themselves"
            );
        }
        if job.is_with_server()
            && let Some((flag, instead)) = self.options.ssh.meaningless_for_servers()
        {
            bail!("{flag} is for user@host:path, and no path here is one: {instead}");
        }
        if (self.options.by.is_some() || self.options.reserve.is_some()) && !job.is_with_server() {
            bail!(
                "--by and --reserve are for lh:// only: for other copies the two ends to reserve \
                 between are not known"
            );
        }
        self.deadline()?;
        if self.part.is_some() && matches!(job, CopyJob::Between { .. }) {
            bail!("--part is not for copies between two other hosts: leave it out");
        }
        Ok(job)
    }

    async fn copy(&self, job: CopyJob, started: Instant) -> Result<Exit> {
        let mut stop_signals = StopSignals::take_with_hangup()?;
        let show = OutputOptions {
            json: self.json,
            quiet: self.quiet,
            explain: self.explain,
            suggests_overwrite: !self.options.overwrite,
        };
        let watch = CopyWatch::start(show, started);
        if let Some(destination) = self.paths.last() {
            watch.set_destination(destination);
        }
        let beside = CopyCompanion::with_deadline(self.deadline()?);
        let result = tokio::select! {
            result = self.carry_out(&job, &watch, &beside) => result,
            () = stop_signals.received() => Err(anyhow!(Interrupted)),
        };
        let outcome = result.as_ref().map(|carried| &carried.outcome);
        let routing = beside.routing.get();
        if let (Ok(_), Some(routing)) = (&result, routing) {
            routing.looked_up(&watch.progress).await;
        }
        let mut report = Report::new(job.name(), started.elapsed(), &watch, outcome);
        let exit = report.summary.exit_code;
        report.summary.kept =
            !self.options.no_resume && matches!(exit, Exit::BrokeOff | Exit::Interrupted);
        let is_done = report.summary.ok;
        if self.options.no_encrypt && report.encrypted == Some(true) && is_done {
            watch.notice(
                "nothing went unencrypted: the server does not allow it (longhaul serve \
                 --allow-no-encrypt), or no file was large enough",
            );
        }
        let judged = watch.judged();
        if let Some(routing) = routing {
            report.routing = routing.report(judged.clone(), report.summary.seconds, is_done);
        }
        if let Some(deadline) = beside.deadline.get() {
            report.deadline = Some(deadline.end(is_done).await);
        }
        watch.finish(&report);
        // The result is reported already; only an orderly close remains.
        let closing = async {
            if let Ok(FinishedCopy { outcome, far }) = result {
                let mut closing = outcome.closing;
                while closing.join_next().await.is_some() {}
                far.end().await;
            }
        };
        if let Some(routing) = routing {
            routing.end(&report, &judged, &watch.progress);
        }
        tokio::join!(closing, beside.end());
        Ok(exit)
    }

    async fn carry_out(
        &self,
        job: &CopyJob,
        watch: &Arc<CopyWatch>,
        beside: &CopyCompanion,
    ) -> Result<FinishedCopy> {
        let options = WriteOptions {
            overwrite: self.options.overwrite,
            fsync: self.options.fsync,
            resume: !self.options.no_resume,
        };
        let outcome = match job {
            CopyJob::PushOverSsh {
                sources,
                destination,
            } => {
                return self.push_over_ssh(sources, destination, watch).await;
            }
            CopyJob::PullOverSsh {
                sources,
                destination,
            } => {
                return self.pull_over_ssh(sources, destination, watch).await;
            }
            CopyJob::Between {
                sources,
                destination,
            } => {
                return self.between(sources, destination, watch).await;
            }
            CopyJob::Local {
                sources,
                destination,
            } => {
                let (found, names) = Sources::local(sources, self.options.recursive)?;
                let destination =
                    CopyDestination::local(destination, names, options, CopyToken::random()?)?;
                let progress = watch.progress.clone();
                let (compare, hard_links) = (self.compare(), self.options.hard_links);
                copy_local(
                    found.restricted_to(self.portion(), hard_links),
                    shown(sources),
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
                let (found, names) = Sources::local(sources, self.options.recursive)?;
                let request = CopyRequest::Push {
                    destination: destination.path.clone(),
                    into: destination.is_directory || names.len() > 1,
                    overwrite: self.options.overwrite,
                    fsync: self.options.fsync,
                    names,
                };
                let size = routing::total_size(sources);
                let client = self
                    .client(destination, request, watch, size, beside)
                    .await?;
                let connector = client.connector.clone();
                client
                    .push(found, shown(sources))
                    .await
                    .map_err(|error| self.advise(error, &connector, destination))?
            }
            CopyJob::Pull {
                sources,
                destination,
            } => {
                let Some(first) = sources.first() else {
                    bail!("name what to copy")
                };
                let paths = sources.iter().map(|source| source.path.clone()).collect();
                let request = CopyRequest::Pull {
                    recursive: self.options.recursive,
                    sources: paths,
                };
                let client = self.client(first, request, watch, None, beside).await?;
                let names = sources.iter().map(Remote::name).collect();
                let destination =
                    CopyDestination::local(destination, names, options, client.hello.token)?;
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

    /// Returns the deadline, and what may be reserved for it.
    fn deadline(&self) -> Result<Option<DeadlineSettings>> {
        let CopyOptions { by, reserve, .. } = &self.options;
        DeadlineSettings::parse(by.as_deref(), *reserve, &Zoned::now())
    }

    /// Returns the portion of the sources to copy.
    fn portion(&self) -> Portion {
        self.part.unwrap_or_default()
    }

    /// Returns the time for which an outage is tolerated.
    fn patience(&self) -> Duration {
        self.patience
            .map_or(DEFAULT_PATIENCE, |patience| patience.0)
    }

    /// Returns how existing files are compared.
    fn compare(&self) -> Compare {
        match self.options.checksum {
            true => Compare::Content,
            false => Compare::SizeAndTime,
        }
    }

    /// Builds the first message on every stream of a new copy.
    fn hello(&self, request: CopyRequest) -> Result<Hello> {
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
        };
        if !hello.fits() {
            bail!("too many sources in one command: name a directory that holds them, with -r");
        }
        Ok(hello)
    }

    async fn client(
        &self,
        remote: &Remote,
        request: CopyRequest,
        watch: &Arc<CopyWatch>,
        size: Option<u64>,
        beside: &CopyCompanion,
    ) -> Result<Client<RememberingConnector>> {
        watch.set_server(remote.server.host.to_string());
        let push = matches!(request, CopyRequest::Push { .. });
        let hello = self.hello(request)?;
        let identity = Arc::new(home::identity(self.options.identity.as_deref())?);
        let owner = identity.public().to_string();
        let wanted = trust::HostKeyOptions {
            key: self.options.host_key,
            accept_new: self.options.accept_new,
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
        let sessions = match self.chooses_paths() && settled.is_none() {
            true => SessionConnector::with_plan(options),
            false => {
                SessionConnector::from_sources(options, routes, &self.options.source_addresses)
            }
        };
        let connector = Arc::new(RememberingConnector::new(sessions, first));
        if let Some(routing) = planned {
            routing.begin(&connector, &watch.progress).await;
        }
        let controller = routing.as_ref().and_then(|routing| routing.controller());
        if let Some((controller, state, url)) = &controller {
            beside.give_back(controller, state, url, &owner);
        }
        if let Some(wanted) = beside.wanted.clone() {
            let of = deadline::DeadlineRequest {
                wanted,
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
            let begin = || Deadline::begin(of, connector.clone(), watch.clone());
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
        })
    }

    /// Creates the routing of a copy with `server`. An error is shown as a notice, does not fail
    /// the copy, and returns `None`.
    fn routing(
        &self,
        server: &longhaul_session::Endpoint,
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

    /// Returns true if the options leave the choice of paths to the copy. A single stream takes one
    /// path, and explicit source addresses leave nothing to choose.
    fn chooses_paths(&self) -> bool {
        self.options.routes.is_empty()
            && self.options.source_addresses.is_empty()
            && self.options.streams != Some(1)
    }

    /// Adds to the error what to do about an unknown server.
    fn advise(
        &self,
        error: Error,
        connector: &RememberingConnector,
        remote: &Remote,
    ) -> anyhow::Error {
        match connector.unknown_server() {
            Some(found) => anyhow!(Error::Unauthorised(trust::unknown_server_advice(
                &remote.server,
                found
            ))),
            None => anyhow!(error),
        }
    }
}

/// Has the system terminate this process in good order when its parent ends for any reason.
fn end_with_parent(parent: i32) -> Result<()> {
    use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
    set_parent_process_death_signal(Some(Signal::TERM))
        .context("cannot follow the process that started this one")?;
    // The parent may have ended before that.
    if getppid().map(Pid::as_raw_pid) != Some(parent) {
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
