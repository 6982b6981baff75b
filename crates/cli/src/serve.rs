//! `longhaul serve`: lets named keys read and write beneath one directory.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use longhaul_hop::EventLog;
use longhaul_output::message;
use longhaul_session::{ListenOptions, Listener, ServiceName};
use longhaul_transfer::{
    Access, Grants, MIN_OPEN_FILES, ProcessLimits, ServedRoot, Server, ServerLimits, serve_files,
    serve_session,
};
use quantities::ByteCount;
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::Exit;
use crate::quantity::memory;
use crate::runtime::StartError;
use crate::stop::StopSignals;
use crate::target::SERVER_PORT;
use crate::{answer, descriptors, doctor, failure, home, logging, perf};

/// Descriptors for everything except copies: connections being set up, measurements, listeners, the
/// runtime.
const OTHER_DESCRIPTORS: usize = 1024;
/// Minimum descriptors with which a server can make progress.
const MIN_DESCRIPTORS: u64 = 64;
/// Descriptors for each stream of a copy when they are scarce: the stream, and the files and
/// directories of its work.
const DESCRIPTORS_PER_STREAM: u64 = 8;
/// Blocking threads for everything except copies: look-ups, the doctor.
const OTHER_BLOCKING_THREADS: usize = 64;
/// Time for copies that end with the server to remove unfinished files, or to make them durable.
const CLEANUP_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// Serve a directory to the keys that are granted access to it.
///
/// Nothing is permitted without a grant. Nothing outside the root is ever read or written: no path
/// and no symbolic link leads out, and links inside are not followed either.
#[derive(Args)]
pub struct ServeCommand {
    /// The directory to serve. If it is moved, replaced or mounted over, nothing is served until it
    /// is back, or SIGHUP confirms the new one.
    #[arg(long, value_name = "DIR", required_unless_present = "over_stdio")]
    root: Option<PathBuf>,
    /// Serve the user who started this over ssh, and obey standard input. For `longhaul cp` to
    /// user@host:path.
    #[arg(long, hide = true, exclusive = true)]
    over_stdio: bool,
    /// Address to listen at [default: every address, port 7511]. Port 0 takes a free one, which is
    /// printed.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Let this key read the root, or a directory beneath it. Repeatable.
    #[arg(long, value_name = "KEY[=DIR]")]
    read: Vec<String>,
    /// Let this key put files in the root, or in a directory beneath it, but replace none.
    /// Repeatable. It includes no reading.
    #[arg(long, value_name = "KEY[=DIR]")]
    create: Vec<String>,
    /// Let this key put files there and replace what exists. Repeatable. Writing includes no
    /// reading.
    #[arg(long, value_name = "KEY[=DIR]")]
    write: Vec<String>,
    /// A file of grants: `[[grant]]` with key = "lhk1:...", and read, create, write = ["dir", ...].
    /// SIGHUP reads it again.
    #[arg(long, value_name = "FILE")]
    grants: Option<PathBuf>,
    /// The server's own key [default: the default key].
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// TCP congestion control of accepted connections [default: the system's].
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Maximum simultaneous copies.
    #[arg(long, value_name = "N", default_value_t = ServerLimits::default().copies)]
    max_copies: usize,
    /// Maximum streams of one copy.
    #[arg(long, value_name = "N", default_value_t = ServerLimits::default().streams_per_copy)]
    max_streams: u16,
    /// Maximum files open at once to be written or read in blocks; fewer if the limit on
    /// descriptors (ulimit -n) requires it.
    #[arg(long, value_name = "N", default_value_t = ServerLimits::default().open_files)]
    max_open_files: usize,
    /// Memory for the state of copies, in addition to the buffers of their streams: 512MiB; a bare
    /// number is MiB.
    #[arg(
        long,
        value_name = "SIZE",
        default_value_t = ByteCount(ServerLimits::default().bookkeeping as u64),
        value_parser = memory,
    )]
    max_memory: ByteCount,
    /// Let clients that ask for it (`cp --no-encrypt`) send and receive the content of large files
    /// unencrypted.
    #[arg(long)]
    allow_no_encrypt: bool,
    /// Accept TCP only, and not QUIC, which uses the UDP port of the same number.
    #[arg(long)]
    no_quic: bool,
    /// Let the keys that are granted anything here measure the path as well (`longhaul perf`).
    #[arg(long)]
    perf: bool,
    /// Print the address and key as one JSON object.
    #[arg(long)]
    json: bool,
}

impl ServeCommand {
    /// Serves until a signal.
    pub fn run(self) -> Result<Exit> {
        // The log appears on the terminal of the user who copies.
        logging::start(if self.over_stdio { "error" } else { "info" });
        let limits = self.limits()?;
        let blocking_threads = limits
            .blocking_threads()
            .saturating_add(OTHER_BLOCKING_THREADS);
        let runtime = crate::runtime::start_with(blocking_threads)?;
        let exit = runtime.block_on(async {
            match &self.root {
                Some(root) => self.serve(root, limits).await,
                None => {
                    longhaul_remote::serve_over_stdio(env!("CARGO_PKG_VERSION"), limits).await?;
                    Ok(Exit::Success)
                }
            }
        });
        // Unfinished files of copies are removed, or made durable.
        runtime.shutdown_timeout(CLEANUP_TIMEOUT);
        exit
    }

    /// Returns the limits, with as many open files as this process may have.
    fn limits(&self) -> Result<ServerLimits> {
        let limits = ServerLimits {
            copies: self.max_copies,
            streams_per_copy: self.max_streams,
            open_files: self.max_open_files,
            bookkeeping: usize::try_from(self.max_memory.0).unwrap_or(usize::MAX),
            ..ServerLimits::default()
        };
        let limits = limits.within_memory(ProcessLimits::current().address_space);
        let descriptors = descriptors::raise();
        match limits
            .clone()
            .within_descriptors(descriptors, OTHER_DESCRIPTORS)
        {
            Ok(limits) => Ok(limits),
            Err(_) if descriptors < MIN_DESCRIPTORS => {
                let few = format!(
                    "this process may have {descriptors} descriptors and needs {MIN_DESCRIPTORS}"
                );
                Err(StartError::Descriptors(std::io::Error::other(few)).into())
            }
            Err(needed) => {
                tracing::warn!(
                    "this process may have {descriptors} descriptors, and needs {needed} for its \
                     limits: raise the limit on open files (ulimit -n), or lower --max-copies"
                );
                // Too few for any guarantee: work waits for a free one.
                let streams =
                    u16::try_from(descriptors / DESCRIPTORS_PER_STREAM).unwrap_or(u16::MAX);
                Ok(ServerLimits {
                    open_files: MIN_OPEN_FILES,
                    streams_per_copy: limits.streams_per_copy.min(streams.max(1)),
                    ..limits
                })
            }
        }
    }

    async fn serve(&self, root: &Path, limits: ServerLimits) -> Result<Exit> {
        // From here on, SIGHUP reads the grants again and does not end the process.
        let mut hangup = signal(SignalKind::hangup())?;
        let grants = self.grants()?;
        if grants.is_empty() {
            bail!(
                "no key has any rights yet: give one with --read, --create, --write or --grants \
                 (longhaul keys show prints a client's)"
            );
        }
        let served = home::display_path(root);
        let root = ServedRoot::open(root)
            .map_err(|errno| anyhow!("{served}: {}", std::io::Error::from(errno)))?;
        if root.dir().is_resolved_in_steps() {
            tracing::warn!(
                "this system lacks openat2 or forbids it (Linux before 5.6, or a container's \
                 seccomp filter): paths are \
                 resolved one directory after the other, which confines as well and takes longer"
            );
        }
        let identity = Arc::new(home::identity(self.identity.as_deref())?);
        let key = identity.public();
        tracing::info!(
            copies = limits.copies,
            streams = limits.streams,
            open_files = limits.open_files,
            memory_mib = limits.memory() >> 20,
            descriptors = limits.descriptors() + OTHER_DESCRIPTORS,
            "at most"
        );
        let server = Server::new(root, grants, limits);
        if self.allow_no_encrypt {
            server.allow_plaintext();
        }
        let mut services = vec![ServiceName::COPY, ServiceName::FILES, ServiceName::DOCTOR];
        if self.perf {
            services.push(ServiceName::PERF);
        }
        let known = server.grants().clone();
        let options = |addr| ListenOptions {
            congestion: self.congestion.clone(),
            ..ListenOptions::new(
                addr,
                identity.clone(),
                Arc::new({
                    let known = known.clone();
                    move |key| known.current().has_key(key)
                }),
                services.clone(),
            )
        };
        let listener = match self.listen {
            Some(addr) => Listener::bind(options(addr)).await?,
            // One socket for both families, if the system has IPv6.
            None => {
                match Listener::bind(options((Ipv6Addr::UNSPECIFIED, SERVER_PORT).into())).await {
                    Ok(listener) => listener,
                    Err(_) => {
                        Listener::bind(options((Ipv4Addr::UNSPECIFIED, SERVER_PORT).into())).await?
                    }
                }
            }
        };
        if !self.no_quic {
            crate::quic::listen(&listener, self.listen, identity.signing_key())?;
        }
        let mut stop_signals = StopSignals::take()?;
        self.announce(&served, listener.local_addr(), &key.to_string());
        let reload = async {
            while hangup.recv().await.is_some() {
                self.reload(&server);
                let server = server.clone();
                // If this panics, the server continues with the old root.
                let _ = tokio::task::spawn_blocking(move || server.reopen_root()).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            error = self.accept(server.clone(), &listener) => Err(error.into()),
            () = reload => Ok(Exit::Success),
            () = server.watch_root() => Ok(Exit::Success),
            () = stop_signals.received() => Ok(Exit::Success),
        }
    }

    /// Reads the grants again. Those of the command line stay; if the file has an error, the grants
    /// in force stay too.
    fn reload(&self, server: &Server) {
        match self.grants() {
            Ok(grants) => {
                if grants.is_empty() {
                    tracing::warn!("no key has any rights any more");
                }
                server.replace_grants(grants);
                tracing::info!("the grants were reloaded");
            }
            Err(error) => {
                tracing::error!(
                    "the grants were not reloaded, the previous ones stay in force: {}",
                    failure::format_line(&error)
                )
            }
        }
    }

    /// Dispatches each session to the service that its OPEN names.
    async fn accept(&self, server: Arc<Server>, listener: &Listener) -> longhaul_session::Error {
        let meter =
            longhaul_perf::MeasurementServer::new(longhaul_perf::MeasurementLimits::default());
        let events = Arc::new(EventLog::new());
        let doctor = Arc::new(doctor::FactsService::new(
            server.grants().clone(),
            events.clone(),
        ));
        loop {
            let session = match listener.accept().await {
                Ok(session) => session,
                Err(error) => return error,
            };
            let service = &session.info().service;
            if *service == ServiceName::PERF {
                perf::answer(meter.clone(), events.clone(), session);
            } else if *service == ServiceName::DOCTOR {
                let doctor = doctor.clone();
                tokio::spawn(async move { doctor.answer(session).await });
            } else if *service == ServiceName::FILES {
                tokio::spawn(serve_files(server.clone(), session));
            } else {
                tokio::spawn(serve_session(server.clone(), session));
            }
        }
    }

    fn grants(&self) -> Result<Grants> {
        let mut grants = Grants::default();
        for grant in &self.read {
            grants.add(Access::Read, grant)?;
        }
        for grant in &self.create {
            grants.add(Access::Create, grant)?;
        }
        for grant in &self.write {
            grants.add(Access::Write, grant)?;
        }
        if let Some(file) = &self.grants {
            grants.add_file(file)?;
        }
        Ok(grants)
    }

    /// Prints the address and key as the first lines of standard output, for a person or a program.
    fn announce(&self, root: &str, addr: SocketAddr, key: &str) {
        let address = addr.to_string();
        if self.json {
            answer::write_line(serde_json::json!({
                "event": "listening", "address": address, "key": key, "root": root
            }));
        } else {
            answer::write_line(format_args!("listening on {address}"));
            answer::write_line(format_args!("key {key}"));
            let host = answer::shown_address(addr);
            message!(
                "longhaul: serving {root}; copy with: longhaul cp --host-key {key} FILE \
                 lh://{host}/"
            );
        }
    }
}
