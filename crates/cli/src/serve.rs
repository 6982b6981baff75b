//! `longhaul serve`: lets named keys read and write beneath one directory.

use std::future::pending;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use longhaul_service::{
    Handover, Hangup, Readiness, StatusListener, StatusPage, bind_everywhere, is_handed_over,
};
use longhaul_session::{ListenOptions, Listener, PublicKey, ServerVoucher, ServiceName};
use longhaul_tokens::{Authority, IssuerPolicies};
use longhaul_transfer::{ServedRoot, Server, ServerLimits};
use quantities::{ByteCount, Time};
use tokio::time::{sleep, timeout};

use crate::account_helper::DEFAULT_SOCKET;
use crate::account_workers::{PoolOptions, WorkerPool, run_worker};
use crate::accounts::AccountsOptions;
use crate::exit::Exit;
use crate::host_certificate::HostCertificate;
use crate::logging::LogOptions;
use crate::metrics::ServeMetrics;
use crate::principals::PrincipalsOptions;
use crate::quantity::{memory, positive_time};
use crate::scitags::ScitagsOptions;
use crate::service::{Announcement, StartedService, StopReceiver, run_alone};
use crate::stop::StopSignals;
use crate::target::SERVER_PORT;
use crate::{accounts, answer, home};

mod grants;
mod limits;
mod plan;
mod sessions;
mod stripe;
mod third_party;

use grants::enforce_names;
pub use limits::blocking_threads;
use sessions::{Relays, serve_sessions};
use stripe::StripeOptions;
use third_party::SourceRule;

/// Error without any grant.
const NO_GRANTS: &str = "no key has any rights yet: give one with --read, --create, --write or \
                         --grants (longhaul keys show prints a client's), or name --issuers";
/// Time for copies that end with the server to remove unfinished files, or to make them durable.
pub const CLEANUP_TIMEOUT: Duration = Duration::from_secs(10);
/// Idle time after which a worker of a local account ends.
const DEFAULT_WORKER_IDLE: Time = Time(Duration::from_secs(300));
/// Time for connections of a replaced server to become sessions, which can be resumed.
const SET_UP_GRACE: Duration = Duration::from_secs(1);

/// Serve a directory to the keys that are granted access to it.
///
/// Nothing is permitted without a grant. Nothing outside the root is ever read or written: no path
/// and no symbolic link leads out, and links inside are not followed either.
#[derive(Args)]
pub struct ServeCommand {
    /// The directory to serve. If it is moved, replaced or mounted over, nothing is served until it
    /// is back, or SIGHUP confirms the new one.
    #[arg(long, value_name = "DIR", required_unless_present_any = ["over_stdio", "worker"])]
    root: Option<PathBuf>,
    /// Serve the user who started this over ssh, and obey standard input. For `longhaul cp` to
    /// user@host:path.
    #[arg(long, hide = true, exclusive = true)]
    over_stdio: bool,
    /// Serve the streams that a server passes on standard input. For `longhaul serve-accounts`.
    #[arg(long, hide = true, exclusive = true)]
    worker: bool,
    /// Address to listen at [default: every address, port 7511]. Port 0 takes a free one, which is
    /// printed.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Let this key read the root, or a directory beneath it. Repeatable. Instead of KEY,
    /// name:NAME and group:NAME are those of --principals.
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
    /// A file of grants: `[[grant]]` with key = "lhk1:..." or principals = ["group:lab", ...], and
    /// read, create, write = ["dir", ...]. SIGHUP reads it again.
    #[arg(long, value_name = "FILE")]
    grants: Option<PathBuf>,
    /// A file of issuers whose tokens give rights: `[[issuer]]` with url = "https://...",
    /// audience = "https://this-server", base = "dir". Keys need no grant then. SIGHUP reads it
    /// again.
    #[arg(long, value_name = "FILE")]
    issuers: Option<PathBuf>,
    /// Socket of `longhaul serve-accounts`, which starts a worker as the local user of each grant
    /// with an `account`.
    #[arg(long, value_name = "SOCKET", default_value = DEFAULT_SOCKET)]
    account_helper: PathBuf,
    /// Idle time after which the worker of an account ends.
    #[arg(
        long,
        value_name = "TIME",
        default_value_t = DEFAULT_WORKER_IDLE,
        value_parser = positive_time,
    )]
    account_idle: Time,
    /// The server's own key [default: the default key].
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// The certificate of this host, in PEM form, with those of its issuers. Clients with --ca
    /// then know the server by its name. SIGHUP reads it again.
    #[arg(long, value_name = "FILE", requires = "certificate_key")]
    certificate: Option<PathBuf>,
    /// The private key of the certificate, in PEM form and not encrypted.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    certificate_key: Option<PathBuf>,
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
    /// Let clients that may write set owners, devices, set-ID bits and the extended attributes of
    /// administrators (`cp --archive`). The server needs root for that.
    #[arg(long)]
    allow_owners: bool,
    /// Fetch files from this server when a client that may write here asks for it (`cp
    /// lh://HOST/... lh://here/...`): a name, an address, a network, or '*' for every name, at port
    /// 7511, or with :PORT or :*. Repeatable. Addresses of this machine and its link only if they
    /// are named themselves.
    #[arg(long, value_name = "HOST[:PORT]")]
    third_party: Vec<SourceRule>,
    #[command(flatten)]
    stripe: StripeOptions,
    /// Accept TCP only, and not QUIC, which uses the UDP port of the same number.
    #[arg(long)]
    no_quic: bool,
    /// Let the keys that are granted anything here measure the path as well (`longhaul perf`).
    #[arg(long)]
    perf: bool,
    /// Address of the OpenMetrics page [default: none]. Anyone who can connect there can read it.
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
    /// Time for copies to finish once the server is told to stop: 90s, 10min; a bare number is
    /// seconds [default: none; copies resume when the server is back].
    #[arg(long, value_name = "TIME")]
    drain: Option<Time>,
    /// Print the address and key as one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    principals: PrincipalsOptions,
    #[command(flatten)]
    accounts: AccountsOptions,
    #[command(flatten)]
    scitags: ScitagsOptions,
    #[command(flatten)]
    log: LogOptions,
}

impl ServeCommand {
    /// Serves until a signal.
    pub fn run(self) -> Result<Exit> {
        // The log appears on the terminal of the user who copies.
        self.log
            .start(if self.over_stdio { "error" } else { "info" });
        let limits = self.limits()?;
        let runtime = crate::runtime::start_with(blocking_threads(&limits))?;
        let exit = runtime.block_on(async {
            if self.over_stdio {
                let release = env!("CARGO_PKG_VERSION");
                let key = home::existing_identity();
                let key = key.map(|identity| identity.signing_key().clone());
                longhaul_remote::serve_over_stdio(release, limits, key).await?;
                return Ok(Exit::Success);
            }
            if self.worker {
                run_worker().await?;
                return Ok(Exit::Success);
            }
            // From here on, SIGHUP does not end the process.
            let hangup = Hangup::take()?;
            let signals = StopSignals::take()?;
            let handover = Some(Handover::take()?);
            let json = self.json;
            run_alone(signals, handover, json, |stop| {
                self.start(limits, hangup, stop)
            })
            .await?;
            Ok(Exit::Success)
        });
        // Unfinished files of copies are removed, or made durable.
        runtime.shutdown_timeout(CLEANUP_TIMEOUT);
        exit
    }

    /// Opens its listeners, and returns how it runs. `hangup` reloads the grants.
    pub async fn start(
        self,
        limits: ServerLimits,
        hangup: Hangup,
        stop: StopReceiver,
    ) -> Result<StartedService> {
        let Some(root) = self.root.as_deref() else {
            bail!("no directory to serve: give --root DIR");
        };
        let identities = self.principals.load()?;
        let (grants, issuers) = (self.grants(identities.clone())?, self.trusted_issuers()?);
        if grants.is_empty() && issuers.as_ref().is_none_or(IssuerPolicies::is_empty) {
            bail!(NO_GRANTS);
        }
        let authority = issuers.map(Authority::new).transpose()?;
        let served = home::display_path(root);
        let path = std::path::absolute(root)?;
        if grants.accounts() > 0 && !self.account_helper.exists() {
            tracing::warn!(
                "there are local accounts, and no helper at {}: start longhaul-accounts.service",
                home::display_path(&self.account_helper)
            );
        }
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
        let host = self.host_certificate(key);
        let proof = Arc::<ServerVoucher>::default();
        if let Some(host) = &host {
            host.renew(&proof)?;
        }
        tracing::info!(
            copies = limits.copies,
            streams = limits.streams,
            open_files = limits.open_files,
            memory_mib = limits.memory() >> 20,
            descriptors = limits.descriptors() + self.other_descriptors(&limits),
            "at most"
        );
        let accounts = self.accounts.open()?;
        let server = Server::new(root, grants, limits);
        server.sign_receipts(identity.signing_key().clone());
        if let Some(accounts) = &accounts {
            server.keep_accounts(accounts.clone());
        }
        if let Some(marker) = self.scitags.start()? {
            server.mark_flows(marker);
        }
        let mut open_services = Vec::new();
        if let Some(authority) = &authority {
            server.accept_tokens(authority.clone());
            // They come with a token or are refused.
            open_services = vec![ServiceName::COPY, ServiceName::FILES];
        }
        if self.allow_owners {
            server.allow_owners();
        }
        if self.allow_no_encrypt {
            server.allow_plaintext();
        }
        let workers = WorkerPool::new(PoolOptions {
            helper: self.account_helper.clone(),
            root: path,
            idle: self.account_idle.0,
            key: identity.signing_key().clone(),
            server: server.clone(),
        });
        let mut services = vec![ServiceName::COPY, ServiceName::FILES, ServiceName::DOCTOR];
        if self.perf {
            services.push(ServiceName::PERF);
        }
        let fetcher = match &self.third_party[..] {
            [] => None,
            rules => {
                services.push(ServiceName::FETCH);
                let congestion = self.congestion.as_deref();
                Some(third_party::fetcher(rules, &identity, congestion)?)
            }
        };
        let members = self.stripe.members(&identity, self.congestion.as_deref())?;
        if let Some(members) = &members {
            server.join_stripe(members.own());
            services.push(ServiceName::STRIPE);
            if authority.is_some() {
                open_services.push(ServiceName::STRIPE);
            }
        }
        // The key of the other members.
        let member_key = members.as_ref().map(|_| key);
        let known = server.grants().clone();
        let options = |addr| ListenOptions {
            congestion: self.congestion.clone(),
            identities: identities.clone(),
            server_voucher: proof.clone(),
            accepts_delegates: true,
            open_services: open_services.clone(),
            ..ListenOptions::new(
                addr,
                identity.clone(),
                Arc::new({
                    let known = known.clone();
                    move |key| member_key == Some(*key) || known.current().has_key(key)
                }),
                services.clone(),
            )
        };
        let listener = match self.listen {
            Some(addr) => Listener::bind(options(addr)).await?,
            None => bind_everywhere(SERVER_PORT, |addr| Listener::bind(options(addr))).await?,
        };
        if !self.no_quic {
            crate::quic::listen(&listener, self.listen, identity.signing_key())?;
        }
        let listener = Arc::new(listener);
        let address = listener.local_addr();
        let metrics = ServeMetrics::new(server.clone(), workers.clone(), listener.clone());
        let page = self.metrics.map(StatusListener::open).transpose()?;
        let readiness = {
            let (stopping, server) = (stop.readiness(), server.clone());
            Readiness::new(move || {
                stopping.check()?;
                match server.is_root_in_place() {
                    true => Ok(()),
                    false => Err("the served directory was moved, replaced or mounted over".into()),
                }
            })
        };
        let announcement = self.announcement(&served, address, page.as_ref(), &key.to_string());
        let text = match &accounts {
            Some(accounts) => metrics.page().joined_with(accounts::metrics(accounts)),
            None => metrics.page(),
        };
        let status = StatusPage::new(text.clone(), readiness.clone());
        let work = async move {
            let issuers = authority.as_deref();
            let reloads = hangup.run_each(|| async {
                if let Some(host) = &host {
                    host.renew_or_log(&proof);
                }
                self.reload(&server, &workers, issuers, &metrics).await;
            });
            let keys = async {
                match &authority {
                    Some(authority) => authority.clone().fetch_keys().await,
                    None => pending().await,
                }
            };
            let renewals = async {
                match &host {
                    Some(host) => host.renew_hourly(&proof).await,
                    None => pending().await,
                }
            };
            let pages = async {
                match page {
                    Some(page) => page.serve(status).await,
                    None => pending().await,
                }
            };
            let stopped = async {
                stop.wait().await;
                match is_handed_over() {
                    true => {
                        tracing::info!(
                            copies = server.copies().saturating_add(workers.running().copies),
                            "copies resume at the new process"
                        );
                        listener.stop_accepting();
                        sleep(SET_UP_GRACE).await;
                    }
                    false => self.drain(&server, &workers).await,
                }
            };
            let names = enforce_names(&server, &workers, &identities);
            let relays = Relays { fetcher, members };
            let accepting = serve_sessions(server.clone(), &workers, &listener, &metrics, relays);
            let ended = tokio::select! {
                error = accepting => Err(error.into()),
                never = reloads => match never {},
                never = identities.clone().maintain() => match never {},
                never = names => match never {},
                never = renewals => match never {},
                never = keys => match never {},
                () = server.watch_root() => Ok(()),
                () = pages => Ok(()),
                () = stopped => Ok(()),
            };
            server.record_stop();
            workers.stop().await;
            accounts::flush(accounts.as_ref());
            ended
        };
        Ok(StartedService {
            announcement,
            metrics: Some(text),
            readiness,
            work: Box::pin(work),
        })
    }

    /// Lets running copies finish within the time for draining. New copies are refused meanwhile.
    async fn drain(&self, server: &Server, workers: &WorkerPool) {
        let Some(Time(limit)) = self.drain else {
            return;
        };
        server.refuse_copies();
        workers.refuse_copies().await;
        let copies = || server.copies().saturating_add(workers.running().copies);
        tracing::info!(copies = copies(), "draining");
        let idle = async {
            server.idle().await;
            workers.idle().await;
        };
        match timeout(limit, idle).await {
            Ok(()) => tracing::info!("drained"),
            Err(_) => tracing::warn!(
                copies = copies(),
                "drain deadline passed: ending the remaining copies"
            ),
        }
    }

    /// Returns the files by which the server with this key proves its name.
    fn host_certificate(&self, key: PublicKey) -> Option<HostCertificate> {
        let (certificate, private_key) = (&self.certificate, &self.certificate_key);
        let (certificate, private_key) = certificate.clone().zip(private_key.clone())?;
        Some(HostCertificate::new(key, certificate, private_key))
    }

    /// Returns the address and key as the first lines of standard output, for a person or a
    /// program.
    fn announcement(
        &self,
        root: &str,
        addr: SocketAddr,
        page: Option<&StatusListener>,
        key: &str,
    ) -> Announcement {
        let (address, host) = (addr.to_string(), answer::shown_address(addr));
        let page = page.map(|page| page.local_addr().to_string());
        let mut lines = vec![format!("listening on {address}"), format!("key {key}")];
        lines.extend(
            page.iter()
                .map(|at| format!("metrics on http://{at}/metrics")),
        );
        Announcement {
            json: serde_json::json!({
                "event": "listening", "address": address, "key": key, "root": root,
                "metrics": page
            }),
            lines,
            hint: Some(format!(
                "longhaul: serving {root}; copy with: longhaul cp --host-key {key} FILE \
                 lh://{host}/"
            )),
        }
    }
}
